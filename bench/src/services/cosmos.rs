//! Cosmos DB: the same two reads and two writes of a message by hand.

use std::{hint::black_box, time::Instant};

use azure_core::{credentials::Secret, http::Etag};
use azure_data_cosmos::{
    AccountReference, ContainerClient, CosmosClient, RoutingStrategy, TransactionalBatch,
    models::{ContainerProperties, PartitionKeyDefinition},
    options::{BatchReplaceOptions, ItemReadOptions, ItemWriteOptions, OperationOptions, Precondition, Region},
};
use futures_util::{StreamExt, stream::FuturesUnordered};
use hapax::CosmosDb;
use serde::{Deserialize, Serialize};

use super::Place;
use crate::{
    AnyError,
    measure::{Sample, Window},
    run::Shape,
    workload::{Account, Deposit, Incoming, key_of},
};

/// An emulator takes any key.
const KEY: &str = "aGFwYXg=";
const CONTAINER: &str = "by-hand";
/// Accounts that are made at the same time.
const AT_A_TIME: usize = 16;

/// A database with hapax's container and the loop's.
pub(super) struct Database {
    client: CosmosClient,
    name: String,
    by_hand: ContainerClient,
    store: CosmosDb,
}

#[derive(Debug, Serialize, Deserialize)]
struct Document {
    id: String,
    pk: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    account: Option<Account>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    outbox: Option<String>,
    #[serde(rename = "_etag", default, skip_serializing)]
    etag: String,
}

impl Document {
    fn entity(pk: &str, account: Account, outbox: Option<String>) -> Self {
        Self { id: "entity".into(), pk: pk.into(), account: Some(account), outbox, etag: String::new() }
    }
}

impl Place for Database {
    type Store = CosmosDb;

    async fn new(server: &str) -> Result<Self, AnyError> {
        let account = AccountReference::with_authentication_key(server.parse()?, Secret::new(KEY));
        let client = CosmosClient::builder().build(account, RoutingStrategy::ProximityTo(Region::EAST_US)).await?;
        let name = format!("bench-{:016x}", fastrand::u64(..));
        let store = CosmosDb::options(client.clone(), &name).create_if_missing(true).open().await?;
        let database = client.database_client(&name);
        let path = PartitionKeyDefinition::from("/pk");
        database.create_container(ContainerProperties::new(CONTAINER, path), None).await?;
        let by_hand = database.container_client(CONTAINER, None).await?;
        Ok(Self { client, name, by_hand, store })
    }

    fn store(&self) -> &CosmosDb {
        &self.store
    }

    fn requests(&self) -> u64 {
        self.store.requests()
    }

    async fn prepare(&self, entities: u32) -> Result<(), AnyError> {
        let mut made = futures_util::stream::iter(0..entities)
            .map(|number| async move {
                let key = key_of(number);
                let document = Document::entity(&key, Account::usual(), None);
                self.by_hand.create_item(key, "entity", &document, None).await
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
        self.client.database_client(&self.name).delete(None).await?;
        Ok(())
    }
}

impl Database {
    async fn handle(&self, message: Incoming) -> Result<(), AnyError> {
        let mark = format!("{:032x}", u128::from_be_bytes(message.id));
        loop {
            let deposit: Deposit = serde_json::from_slice(&message.body)?;
            let key = deposit.account().to_owned();
            let found = self.read(&key, "entity").await?.ok_or("an account is missing")?;
            if self.read(&key, &mark).await?.is_some() {
                return Ok(()); // A repeat.
            }
            let mut account = found.account.ok_or("an account has no state")?;
            let changed = account.apply(deposit);
            let outbox = format!("{mark}{}", serde_json::to_string(&changed)?);
            let document = Document::entity(&key, account, Some(outbox.clone()));
            let options = ItemWriteOptions::default().with_precondition(Precondition::if_match(Etag::from(found.etag)));
            let saved = self.by_hand.replace_item(key.clone(), "entity", &document, Some(options)).await;
            let etag = match saved {
                Ok(saved) => saved.headers().etag().ok_or("a save has no etag")?.to_string(),
                Err(e) if e.status().is_precondition_failed() => continue,
                Err(e) => return Err(e.into()),
            };
            black_box(outbox); // A null send.
            return self.finish(&key, mark, etag, Document { outbox: None, ..document }).await;
        }
    }

    /// Mark and clean-up in one; where somebody has saved the entity meanwhile, the mark alone.
    async fn finish(&self, key: &str, mark: String, etag: String, cleaned: Document) -> Result<(), AnyError> {
        let mark = Document { id: mark, pk: key.into(), account: None, outbox: None, etag: String::new() };
        let options = BatchReplaceOptions::default().with_precondition(Precondition::if_match(Etag::from(etag)));
        let batch = TransactionalBatch::new(key.to_owned()).create_item(&mark)?.replace_item(
            "entity",
            &cleaned,
            Some(options),
        )?;
        let results = self.by_hand.execute_transactional_batch(batch, None).await?.into_model()?;
        if !results.results().iter().all(|result| result.is_success()) {
            self.by_hand.create_item(key.to_owned(), &mark.id, &mark, None).await?;
        }
        Ok(())
    }

    async fn read(&self, key: &str, id: &str) -> Result<Option<Document>, AnyError> {
        let mut primary = OperationOptions::default();
        primary.hedging_enabled = Some(false);
        let options = ItemReadOptions::default().with_operation_options(primary);
        match self.by_hand.read_item(key.to_owned(), id, Some(options)).await {
            Ok(found) => Ok(Some(found.into_model()?)),
            Err(e) if e.status().is_not_found() => Ok(None),
            Err(e) => Err(e.into()),
        }
    }
}
