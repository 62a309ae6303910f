//! DynamoDB: the same two reads and two writes of a message by hand.

use std::{
    collections::HashMap,
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use aws_sdk_dynamodb::{
    Client,
    config::{
        ConfigBag, Intercept, RuntimeComponents, interceptors::BeforeTransmitInterceptorContextRef, retry::RetryConfig,
    },
    error::BoxError,
    primitives::Blob,
    types::{
        AttributeDefinition, AttributeValue, BillingMode, Get, KeySchemaElement, KeyType, Put, ScalarAttributeType,
        TransactGetItem, TransactWriteItem, Update,
    },
};
use futures_util::{StreamExt, stream::FuturesUnordered};
use hapax::DynamoDb;

use super::Place;
use crate::{
    AnyError,
    measure::{Sample, Window},
    run::Shape,
    workload::{Account, Deposit, Incoming, key_of},
};

type Item = HashMap<String, AttributeValue>;

/// Accounts that are made at the same time.
const AT_A_TIME: usize = 16;

/// A table of hapax's, and one of the loop's.
pub(super) struct Table {
    client: Client,
    by_hand: String,
    name: String,
    store: DynamoDb,
    requests: Arc<AtomicU64>,
}

/// Counts requests as they are sent, repetitions included.
#[derive(Debug)]
struct Count(Arc<AtomicU64>);

impl Intercept for Count {
    fn name(&self) -> &'static str {
        "count"
    }

    fn read_before_transmit(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

impl Place for Table {
    type Store = DynamoDb;

    async fn new(server: &str) -> Result<Self, AnyError> {
        let name = format!("bench-{:016x}", fastrand::u64(..));
        let by_hand = format!("{name}-by-hand");
        let requests = Arc::new(AtomicU64::new(0));
        let local = DynamoDb::local_client(server);
        let counted = local.config().to_builder().interceptor(Count(requests.clone())).build();
        let store = DynamoDb::options(Client::from_conf(counted), &name).create_if_missing(true).open().await?;
        let client = Client::from_conf(local.config().to_builder().retry_config(RetryConfig::disabled()).build());
        let key = AttributeDefinition::builder().attribute_name("pk").attribute_type(ScalarAttributeType::S);
        client
            .create_table()
            .table_name(&by_hand)
            .attribute_definitions(key.build()?)
            .key_schema(KeySchemaElement::builder().attribute_name("pk").key_type(KeyType::Hash).build()?)
            .billing_mode(BillingMode::PayPerRequest)
            .send()
            .await?;
        Ok(Self { client, by_hand, name, store, requests })
    }

    fn store(&self) -> &DynamoDb {
        &self.store
    }

    fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    async fn prepare(&self, entities: u32) -> Result<(), AnyError> {
        let state = serde_json::to_vec(&Account::usual())?;
        let mut made = futures_util::stream::iter(0..entities)
            .map(|number| {
                let put = self.client.put_item().table_name(&self.by_hand);
                put.set_item(Some(entity(&key_of(number), 1, state.clone()))).send()
            })
            .buffer_unordered(AT_A_TIME);
        while let Some(made) = made.next().await {
            made?;
        }
        Ok(())
    }

    async fn by_hand(&self, shape: &Shape) -> Result<Sample, AnyError> {
        let mut workload = shape.workload();
        let window = Window::open();
        let end = Instant::now() + shape.time;
        let (mut under_way, mut done) = (FuturesUnordered::new(), 0);
        loop {
            while under_way.len() < shape.in_flight && Instant::now() < end {
                under_way.push(self.handle(workload.next()));
            }
            match under_way.next().await {
                Some(handled) => handled?,
                None => break,
            }
            done += 1;
        }
        Ok(window.close(done))
    }

    async fn remove(self) -> Result<(), AnyError> {
        for name in [&self.name, &self.by_hand] {
            self.client.delete_table().table_name(name).send().await?;
        }
        Ok(())
    }
}

impl Table {
    async fn handle(&self, message: Incoming) -> Result<(), AnyError> {
        let mark = text(format!("d#{:032x}", u128::from_be_bytes(message.id)));
        loop {
            let deposit: Deposit = serde_json::from_slice(&message.body)?;
            let key = deposit.account().to_owned();
            let Some(found) = self.get(text(format!("e#{key}"))).await? else {
                return Err("an account is missing".into());
            };
            if self.is_there(mark.clone()).await? {
                return Ok(()); // A repeat.
            }
            let version: u64 = found["v"].as_n().map_err(|_| "a version is no number")?.parse()?;
            let state = found["s"].as_b().map_err(|_| "a state is no bytes")?;
            let mut account: Account = serde_json::from_slice(state.as_ref())?;
            let changed = account.apply(deposit);
            let mut item = entity(&key, version + 1, serde_json::to_vec(&account)?);
            let mut outbox = message.id.to_vec();
            serde_json::to_writer(&mut outbox, &changed)?;
            item.insert("o".to_owned(), AttributeValue::B(Blob::new(outbox.clone())));
            let saved = self.client.put_item().table_name(&self.by_hand).set_item(Some(item));
            let saved = saved.condition_expression("v = :v").expression_attribute_values(":v", number(version));
            match saved.send().await {
                Ok(_) => {}
                Err(e) if e.as_service_error().is_some_and(|e| e.is_conditional_check_failed_exception()) => continue,
                Err(e) => return Err(e.into()),
            }
            black_box(outbox); // A null send.
            return self.finish(&key, version + 1, mark).await;
        }
    }

    /// Mark and clean-up in one; where somebody has saved the entity meanwhile, the mark alone.
    async fn finish(&self, key: &str, version: u64, mark: AttributeValue) -> Result<(), AnyError> {
        let item = Item::from([("pk".to_owned(), mark)]);
        let put = Put::builder().table_name(&self.by_hand).set_item(Some(item.clone())).build()?;
        let clean_up = Update::builder()
            .table_name(&self.by_hand)
            .key("pk", text(format!("e#{key}")))
            .update_expression("REMOVE o SET v = :n")
            .condition_expression("v = :v")
            .expression_attribute_values(":v", number(version))
            .expression_attribute_values(":n", number(version + 1))
            .build()?;
        let both = [TransactWriteItem::builder().put(put), TransactWriteItem::builder().update(clean_up)];
        let both = both.map(|write| write.build()).to_vec();
        match self.client.transact_write_items().set_transact_items(Some(both)).send().await {
            Ok(_) => Ok(()),
            Err(e) if e.as_service_error().is_some_and(|e| e.is_transaction_canceled_exception()) => {
                self.client.put_item().table_name(&self.by_hand).set_item(Some(item)).send().await?;
                Ok(())
            }
            Err(e) => Err(e.into()),
        }
    }

    /// Whether there is a dedup entry: read by a transaction, as a careful hand does, since a plain read may be before the transaction
    /// that wrote it although the entity was read after it.
    async fn is_there(&self, pk: AttributeValue) -> Result<bool, AnyError> {
        let get = Get::builder().table_name(&self.by_hand).key("pk", pk).build()?;
        let get = TransactGetItem::builder().get(get).build();
        let answer = self.client.transact_get_items().transact_items(get).send().await?;
        Ok(answer.responses().iter().any(|found| found.item().is_some_and(|item| !item.is_empty())))
    }

    async fn get(&self, pk: AttributeValue) -> Result<Option<Item>, AnyError> {
        let got = self.client.get_item().table_name(&self.by_hand).key("pk", pk).consistent_read(true);
        Ok(got.send().await?.item)
    }
}

fn entity(key: &str, version: u64, state: Vec<u8>) -> Item {
    Item::from([
        ("pk".to_owned(), text(format!("e#{key}"))),
        ("v".to_owned(), number(version)),
        ("s".to_owned(), AttributeValue::B(Blob::new(state))),
    ])
}

fn text(text: String) -> AttributeValue {
    AttributeValue::S(text)
}

fn number(number: u64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}
