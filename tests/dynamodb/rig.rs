//! A store behind a proxy that fails as it is told, and what is kept in it.

use std::sync::Arc;

use aws_sdk_dynamodb::types::AttributeValue;
use hapax::{
    DynamoDb,
    ids::{EntityKey, Scope},
};
use hapax_tests::{
    DynamoDbTable,
    http_faults::{Fault, FaultProxy},
    real::{self, AWS},
};

/// One table: a store that is reached through the proxy, and one that is not. Before the service itself, which no proxy can stand
/// before, they are two handles.
pub(crate) struct Rig {
    pub(crate) table: DynamoDbTable,
    /// None before the service itself.
    proxy: Option<FaultProxy>,
    pub(crate) store: DynamoDb,
    pub(crate) plain: DynamoDb,
}

impl Rig {
    pub(crate) async fn new() -> Self {
        let table = DynamoDbTable::new();
        let plain = table.open().await;
        if real::is_asked(AWS) {
            let store = table.open().await;
            return Self { table, proxy: None, store, plain };
        }
        let proxy = FaultProxy::start(table.url()).unwrap();
        let store = table.through(proxy.url()).open().await;
        proxy.forget();
        Self { table, proxy: Some(proxy), store, plain }
    }

    /// For tests in a module `dynamodb_proxied`: those are left out where the service itself is asked for.
    pub(crate) fn proxy(&self) -> &FaultProxy {
        self.proxy.as_ref().unwrap_or_else(|| panic!("no proxy before {}", self.table.url()))
    }

    /// What was asked for through the proxy since the last call of this.
    pub(crate) fn asked(&self) -> Vec<String> {
        let asked = self.proxy().asked();
        self.proxy().forget();
        asked.iter().filter_map(|asked| asked.operation().map(str::to_owned)).collect()
    }

    /// How many items the entity is in.
    pub(crate) async fn items(&self, key: &EntityKey) -> usize {
        self.places(key).await.len()
    }

    /// Both keys of each item that the entity is in.
    pub(crate) async fn places(&self, key: &EntityKey) -> Vec<(String, String)> {
        let partition = format!("e#{}#{}#{}", key.scope().endpoint, key.scope().saga, key.key());
        let client = self.table.client();
        let query = client.query().table_name(self.table.name()).consistent_read(true);
        let query = query.key_condition_expression("pk = :pk").projection_expression("pk, sk");
        let mut pages =
            query.expression_attribute_values(":pk", AttributeValue::S(partition)).into_paginator().items().send();
        let mut items = Vec::new();
        while let Some(item) = pages.next().await {
            let item = item.unwrap();
            let text = |name: &str| item[name].as_s().unwrap().clone();
            items.push((text("pk"), text("sk")));
        }
        items
    }
}

/// The next `times` requests of `operation` meet `fault`.
pub(crate) fn next(proxy: &FaultProxy, times: u32, operation: &'static str, fault: Fault) {
    proxy.first(times, move |asked| asked.operation() == Some(operation), fault);
}

/// The service refuses with an error of this name, and does nothing.
pub(crate) fn error(status: u16, name: &str) -> Fault {
    let space = "com.amazonaws.dynamodb.v20120810";
    answer(status, &format!(r#"{{"__type":"{space}#{name}","message":"injected"}}"#))
}

pub(crate) fn throttled() -> Fault {
    error(400, "ProvisionedThroughputExceededException")
}

/// The service cancels a transaction for these reasons, one for each action.
pub(crate) fn cancelled(reasons: &[&str]) -> Fault {
    let reasons: Vec<_> = reasons.iter().map(|code| format!(r#"{{"Code":"{code}"}}"#)).collect();
    let (name, reasons) = ("com.amazonaws.dynamodb.v20120810#TransactionCanceledException", reasons.join(","));
    answer(400, &format!(r#"{{"__type":"{name}","Message":"injected","CancellationReasons":[{reasons}]}}"#))
}

/// The headers of an answer.
pub(crate) const JSON: [(&str, &str); 1] = [("content-type", "application/x-amz-json-1.0")];

pub(crate) fn answer(status: u16, body: &str) -> Fault {
    Fault::answer(status, &JSON, body)
}

pub(crate) fn key(name: &str) -> EntityKey {
    let scope = Scope { endpoint: "shop".parse().unwrap(), saga: "order".parse().unwrap() };
    EntityKey::new(Arc::new(scope), name.parse().unwrap())
}
