//! A shop in a Cosmos DB database, and a look into it with the service's own client.

#[cfg(feature = "real")]
use std::sync::OnceLock;
use std::{collections::HashSet, error::Error};

use azure_core::credentials::Secret;
use azure_data_cosmos::{
    AccountReference, CosmosClient, FeedScope, Query, RoutingStrategy,
    options::{OperationOptions, QueryOptions, Region},
};
use base64::{Engine, prelude::BASE64_STANDARD as BASE64};
use futures_util::TryStreamExt;
use hapax::{
    CosmosDb, Sender, SqliteQueue,
    codec::{FRAME_BYTES, record::decode_outbox},
    ids::EndpointName,
    ports::{ErrorKind, Schedule, StoreError},
};
#[cfg(feature = "real")]
use hapax_servers::real::Front;
use serde_json::Value;

use super::Beside;
use crate::{
    Refusal,
    backend::Backend,
    broker::Broker,
    look::{EntityRow, LetterRow, from_hex},
    order::Order,
    place::Service,
};

type AnyError = Box<dyn Error + Send + Sync>;

/// What the store's one container is called.
const CONTAINER: &str = "hapax";
/// The id of an entity's document, alone in its partition but for dedup entries.
const ENTITY: &str = "entity";
/// An emulator takes any key.
const KEY: &str = "aGFwYXg=";

/// In one database, with the queues in a file.
pub(crate) struct InCosmosDb {
    store: CosmosDb,
    beside: Beside,
}

impl Backend for InCosmosDb {
    type Place = Service;
    type Store = CosmosDb;
    type Queue = SqliteQueue;

    async fn open(place: &Service, _: Option<&Broker>, new: bool) -> Result<Self, StoreError> {
        let client = client(place)
            .await
            .map_err(|e| StoreError::new(ErrorKind::Unavailable, "reaching Cosmos DB", e.to_string()).caused_by(e))?;
        let store = CosmosDb::options(client, place.name()).create_if_missing(new).open().await?;
        let beside = Beside::open(place, new).await?;
        Ok(Self { store, beside })
    }

    fn store(&self) -> &CosmosDb {
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

async fn client(place: &Service) -> Result<CosmosClient, AnyError> {
    let (address, key) = match place.itself() {
        None => (place.address(), KEY.to_owned()),
        #[cfg(feature = "real")]
        Some(account) => {
            let (endpoint, key) = crate::itself::cosmos(account)?;
            (front(&endpoint)?.url().to_owned(), key)
        }
        #[cfg(not(feature = "real"))]
        Some(_) => return Err("this program was built without TLS; build it with --features real".into()),
    };
    let account = AccountReference::with_authentication_key(address.parse()?, Secret::new(key));
    Ok(CosmosClient::builder().build(account, RoutingStrategy::ProximityTo(Region::EAST_US)).await?)
}

/// One for the whole process, which has one account.
#[cfg(feature = "real")]
fn front(endpoint: &str) -> Result<&'static Front, AnyError> {
    static FRONT: OnceLock<Result<Front, String>> = OnceLock::new();
    let front = FRONT.get_or_init(|| Front::start(endpoint).map_err(|e| e.to_string()));
    front.as_ref().map_err(|why| why.clone().into())
}

/// Whether the service answers, and that there is no such database yet.
pub(super) async fn check(place: &Service) -> Result<(), String> {
    let checked = async {
        #[cfg(feature = "real")]
        if let Some(account) = place.itself() {
            let (endpoint, _) = crate::itself::cosmos(account)?;
            let reached = front(&endpoint)?.reach().await;
            reached.map_err(|e| Refusal::caused(&format!("nobody answers at {endpoint}"), &*e).to_string())?;
        }
        match client(place).await?.database_client(place.name()).read(None).await {
            Err(e) if e.status().is_not_found() => Ok(()),
            Ok(_) => Err(format!("there is a database {} already; run it again", place.name()).into()),
            Err(e) => Err(AnyError::from(e)),
        }
    };
    checked.await.map_err(|e| e.to_string())
}

pub(super) async fn remove(place: &Service) -> Result<(), String> {
    let removed = async {
        let client = client(place).await?;
        match client.database_client(place.name()).delete(None).await {
            Err(e) if !e.status().is_not_found() => Err(AnyError::from(e)),
            _ => Ok(()),
        }
    };
    removed.await.map_err(|e| e.to_string())
}

/// The documents of a run's database.
pub(crate) struct Documents {
    client: Option<CosmosClient>,
    place: Service,
}

impl Documents {
    pub(crate) fn of(place: &Service) -> Self {
        Self { client: None, place: place.clone() }
    }

    pub(crate) async fn entities(&mut self) -> Result<Vec<EntityRow>, Refusal> {
        let all = self.all("SELECT * FROM c WHERE c.id = 'entity'").await?;
        Ok(all.iter().filter_map(entity).collect())
    }

    /// A dedup entry alone has an attempt.
    pub(crate) async fn dedup_keys(&mut self) -> Result<Vec<Vec<u8>>, Refusal> {
        let all = self.all("SELECT c.id FROM c WHERE IS_DEFINED(c.attempt)").await?;
        Ok(all.iter().filter_map(|mark| from_hex(text(mark, "id")?)).collect())
    }

    pub(crate) async fn dead_letters(&mut self) -> Result<Vec<LetterRow>, Refusal> {
        let all = self.all("SELECT * FROM c WHERE IS_DEFINED(c.envelope)").await?;
        let told = |letter: &Value| {
            ["message", "saga", "reason"].map(|name| text(letter, name).unwrap_or_default().to_owned()).into()
        };
        Ok(all.iter().map(told).collect())
    }

    pub(crate) async fn decided(&mut self, of: &HashSet<String>) -> Result<Vec<String>, Refusal> {
        let all = self.all("SELECT * FROM c WHERE c.id = 'entity'").await?;
        let decided = all.iter().filter_map(|document| {
            let (_, saga, key, _, _, _, state) = entity(document)?;
            let is_asked = saga == "order" && of.contains(&key);
            let order: Order = is_asked.then(|| serde_json::from_slice(state.get(FRAME_BYTES..)?).ok()).flatten()?;
            order.status.is_decided().then_some(key)
        });
        Ok(decided.collect())
    }

    async fn all(&mut self, query: &'static str) -> Result<Vec<Value>, Refusal> {
        let found = async {
            let client = match &self.client {
                Some(client) => client,
                None => self.client.insert(client(&self.place).await?),
            };
            let container = client.database_client(self.place.name()).container_client(CONTAINER, None).await?;
            let mut primary = OperationOptions::default();
            primary.hedging_enabled = Some(false);
            let options = QueryOptions::default().with_operation_options(primary);
            let found = container.query_items::<Value>(Query::from(query), FeedScope::full_container(), Some(options));
            Ok::<_, AnyError>(found.await?.try_collect().await?)
        };
        found.await.map_err(|e: AnyError| {
            Refusal::new(format!("{}: {e}; see whether it is still there", self.place)).passing()
        })
    }
}

fn entity(document: &Value) -> Option<EntityRow> {
    if text(document, "id")? != ENTITY {
        return None;
    }
    let mut names = text(document, "pk")?.splitn(3, ' ');
    let [endpoint, saga, key] = [names.next()?, names.next()?, names.next()?].map(str::to_owned);
    let [outbox, state] = ["record", "state"].map(|name| BASE64.decode(text(document, name)?).ok());
    let (outbox, state) = (outbox?, state?);
    let completed = decode_outbox(state.clone().into(), &outbox).is_ok_and(|entity| entity.completed);
    Some((endpoint, saga, key, completed, document.get("waiting").is_some(), outbox, state))
}

fn text<'d>(document: &'d Value, name: &str) -> Option<&'d str> {
    document.get(name)?.as_str()
}
