//! A shop in a DynamoDB table, and a look into it with the service's own client.

use std::collections::{HashMap, HashSet};

use aws_sdk_dynamodb::{
    Client,
    error::DisplayErrorContext,
    types::{AttributeValue, KeysAndAttributes},
};
use hapax::{
    DynamoDb, Sender, SqliteQueue,
    codec::{FRAME_BYTES, record::decode_outbox},
    ids::EndpointName,
    ports::{ErrorKind, Schedule, StoreError},
};

use super::Beside;
use crate::{
    Refusal,
    backend::Backend,
    broker::Broker,
    look::{EntityRow, LetterRow, from_hex},
    order::Order,
    place::Service,
    shop::ENDPOINT,
};

type Item = HashMap<String, AttributeValue>;

/// What one request may ask for.
const BATCH: usize = 100;

/// In one table, with the queues in a file.
pub(crate) struct InDynamoDb {
    store: DynamoDb,
    beside: Beside,
}

impl Backend for InDynamoDb {
    type Place = Service;
    type Store = DynamoDb;
    type Queue = SqliteQueue;

    async fn open(place: &Service, _: Option<&Broker>, new: bool) -> Result<Self, StoreError> {
        let unreached = |why: String| StoreError::new(ErrorKind::Unavailable, "reaching DynamoDB", why);
        let table = DynamoDb::options(client(place).await.map_err(unreached)?, place.name());
        let store = table.create_if_missing(new).open().await?;
        let beside = Beside::open(place, new).await?;
        Ok(Self { store, beside })
    }

    fn store(&self) -> &DynamoDb {
        &self.store
    }

    fn schedule(&self) -> Option<impl Schedule + Clone + 'static> {
        Some(self.beside.schedule.clone())
    }

    fn queue(&self) -> &SqliteQueue {
        &self.beside.queue
    }

    fn sender(&self) -> Sender {
        self.beside.queue.sender()
    }

    async fn backlog(&self, endpoint: &EndpointName) -> Result<u64, StoreError> {
        self.beside.queue.backlog(endpoint).await
    }

    async fn close(&self) {
        self.beside.schedule.close().await;
    }
}

/// With connections of its own, and in the service itself with the credentials that AWS's own tools find.
async fn client(place: &Service) -> Result<Client, String> {
    match place.itself() {
        None => Ok(DynamoDb::local_client(&place.address())),
        #[cfg(feature = "real")]
        Some(region) => Ok(hapax_servers::real::dynamodb_client(&crate::itself::aws(region).await?)),
        #[cfg(not(feature = "real"))]
        Some(_) => Err("this program was built without TLS; build it with --features real".into()),
    }
}

/// Whether the service answers, and that there is no such table yet.
pub(super) async fn check(place: &Service) -> Result<(), String> {
    let found = client(place).await?.describe_table().table_name(place.name()).send().await;
    match found {
        Err(e) if e.as_service_error().is_some_and(|e| e.is_resource_not_found_exception()) => Ok(()),
        Ok(_) => Err(format!("there is a table {} already; run it again", place.name())),
        Err(e) => Err(Refusal::caused("DescribeTable", &e).to_string()),
    }
}

pub(super) async fn remove(place: &Service) -> Result<(), String> {
    let removed = client(place).await?.delete_table().table_name(place.name()).send().await;
    match removed {
        Err(e) if !e.as_service_error().is_some_and(|e| e.is_resource_not_found_exception()) => {
            Err(Refusal::caused("DeleteTable", &e).to_string())
        }
        _ => Ok(()),
    }
}

/// The items of a run's table.
pub(crate) struct Items {
    client: Option<Client>,
    place: Service,
}

impl Items {
    pub(crate) fn of(place: &Service) -> Self {
        Self { client: None, place: place.clone() }
    }

    async fn client(&mut self) -> Result<Client, Refusal> {
        if self.client.is_none() {
            self.client = Some(client(&self.place).await.map_err(|why| self.unreadable(&why))?);
        }
        self.client.clone().ok_or_else(|| self.unreadable(&"no client"))
    }

    pub(crate) async fn entities(&mut self) -> Result<Vec<EntityRow>, Refusal> {
        Ok(self.all("e#").await?.iter().filter_map(entity).collect())
    }

    pub(crate) async fn dedup_keys(&mut self) -> Result<Vec<Vec<u8>>, Refusal> {
        let marks = self.all("d#").await?;
        Ok(marks.iter().filter_map(|item| from_hex(text(item, "pk")?.strip_prefix("d#")?)).collect())
    }

    pub(crate) async fn dead_letters(&mut self) -> Result<Vec<LetterRow>, Refusal> {
        let letters = self.all("l#").await?;
        let told = |item: &Item| (text(item, "sk").unwrap_or_default().to_owned(), ENDPOINT.to_owned(), String::new());
        Ok(letters.iter().map(told).collect())
    }

    pub(crate) async fn decided(&mut self, of: &HashSet<String>) -> Result<Vec<String>, Refusal> {
        let of: Vec<&String> = of.iter().collect();
        let mut decided = Vec::new();
        for some in of.chunks(BATCH) {
            let keys = some.iter().map(|order| {
                let pk = AttributeValue::S(format!("e#{ENDPOINT}#order#{order}"));
                HashMap::from([("pk".to_owned(), pk), ("sk".to_owned(), AttributeValue::S("e".to_owned()))])
            });
            let asked = KeysAndAttributes::builder().set_keys(Some(keys.collect())).build();
            let asked = asked.map_err(|e| Refusal::new(e.to_string()))?;
            // What is not answered now is asked for the next time.
            let answer = self.client().await?.batch_get_item().request_items(self.place.name(), asked).send().await;
            let answer = answer.map_err(|e| self.unreadable(&DisplayErrorContext(e)))?;
            let items = answer.responses.into_iter().flat_map(HashMap::into_values).flatten();
            decided.extend(items.filter_map(|item| {
                let (_, _, key, _, _, _, state) = entity(&item)?;
                let order: Order = serde_json::from_slice(state.get(FRAME_BYTES..)?).ok()?;
                order.status.is_decided().then_some(key)
            }));
        }
        Ok(decided)
    }

    /// All items whose partition key begins so.
    async fn all(&mut self, prefix: &str) -> Result<Vec<Item>, Refusal> {
        let scan = self.client().await?.scan().table_name(self.place.name()).consistent_read(true);
        let mut items = scan.into_paginator().items().send();
        let mut all = Vec::new();
        while let Some(item) = items.next().await {
            let item = item.map_err(|e| self.unreadable(&DisplayErrorContext(e)))?;
            if text(&item, "pk").is_some_and(|pk| pk.starts_with(prefix)) {
                all.push(item);
            }
        }
        Ok(all)
    }

    fn unreadable(&self, error: &dyn std::fmt::Display) -> Refusal {
        Refusal::new(format!("{}: {error}; see whether it is still there", self.place)).passing()
    }
}

/// The shop's states are small: each entity is one item.
fn entity(item: &Item) -> Option<EntityRow> {
    if text(item, "sk")? != "e" {
        return None;
    }
    let mut names = text(item, "pk")?.strip_prefix("e#")?.splitn(3, '#');
    let [endpoint, saga, key] = [names.next()?, names.next()?, names.next()?].map(str::to_owned);
    let [outbox, state] = ["o", "s"].map(|name| bytes(item, name).unwrap_or_default().to_vec());
    let completed = decode_outbox(state.clone().into(), &outbox).is_ok_and(|entity| entity.completed);
    Some((endpoint, saga, key, completed, item.contains_key("ipk"), outbox, state))
}

fn text<'i>(item: &'i Item, name: &str) -> Option<&'i str> {
    item.get(name)?.as_s().ok().map(String::as_str)
}

fn bytes<'i>(item: &'i Item, name: &str) -> Option<&'i [u8]> {
    item.get(name)?.as_b().ok().map(AsRef::as_ref)
}
