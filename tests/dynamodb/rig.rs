//! A store behind a proxy that fails as it is told, and what is kept in it.

use std::{collections::HashMap, sync::Arc};

use aws_sdk_dynamodb::types::{AttributeValue, Put, TransactWriteItem};
use hapax::{
    DynamoDb,
    ids::{EntityKey, Scope},
};
use hapax_tests::{
    DynamoDbTable,
    http_faults::{Fault, FaultProxy},
    real::{self, AWS},
};

/// What the service takes in one transaction: four megabytes, counted as it counts an item.
pub(crate) const TRANSACTION_BYTES_MAX: usize = 4 << 20;

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

/// What an item counts by the service's rule, where no attribute is a number: its names and what they name.
pub(crate) fn item_bytes(item: &HashMap<String, AttributeValue>) -> usize {
    let held = |value: &AttributeValue| match value {
        AttributeValue::S(text) => text.len(),
        AttributeValue::B(bytes) => bytes.as_ref().len(),
        other => panic!("{other:?}"),
    };
    item.iter().map(|(name, value)| name.len() + held(value)).sum()
}

/// Rows of the user's own with so many bytes together, in the partition `name`.
pub(crate) fn rows(table: &DynamoDbTable, name: &str, bytes: usize) -> Vec<TransactWriteItem> {
    const ROW_BYTES: usize = 400_000; // The service takes 400 KB.
    let rows = bytes.div_ceil(ROW_BYTES);
    let row = |number: usize| {
        let held = bytes / rows + usize::from(number < bytes % rows);
        let (pk, sk) = (name.to_owned(), format!("row {number}"));
        let body = vec![b'x'; held - "pkskb".len() - pk.len() - sk.len()];
        let item =
            [("pk", AttributeValue::S(pk)), ("sk", AttributeValue::S(sk)), ("b", AttributeValue::B(body.into()))];
        let item: HashMap<String, AttributeValue> = item.map(|(name, value)| (name.to_owned(), value)).into();
        assert_eq!(item_bytes(&item), held);
        let put = Put::builder().table_name(table.name()).set_item(Some(item)).build().unwrap();
        TransactWriteItem::builder().put(put).build()
    };
    (0..rows).map(row).collect()
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
