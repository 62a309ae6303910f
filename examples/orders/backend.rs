//! The databases that a shop in several processes can be kept in. Each has a store and queues, in one place; a further one
//! is a variant of [`Kept`](crate::place::Kept), an implementation of [`Backend`] here and its texts in `look/`.

use std::{path::Path, time::Duration};

use hapax::{
    MySql, MySqlQueue, Postgres, PostgresQueue, Sender, Sqlite, SqliteQueue,
    endpoint::EndpointBuilder,
    ids::EndpointName,
    ports::{DeadLetters, DedupStore, EntityStore, Schedule, StoreError, Transport},
};

use crate::{
    broker::Broker,
    place::{Schema, Tables},
    workers::LEASE,
};

/// What workers need of a database: a store, and queues in it.
pub(crate) trait Backend: Sized {
    /// Where it is.
    type Place: ?Sized;
    type Store: EntityStore + DedupStore + DeadLetters + Clone + 'static;
    type Queue: Transport + Clone + 'static;

    /// Opens both, the queues on `broker` if that is asked for; if it is `new`, makes their tables.
    async fn open(place: &Self::Place, broker: Option<&Broker>, new: bool) -> Result<Self, StoreError>;

    fn store(&self) -> &Self::Store;

    fn queue(&self) -> &Self::Queue;

    fn sender(&self) -> Sender;

    /// How long nothing is to be left before all is done: zero where messages that workers hold are counted too. Where they
    /// are not, all is done only once the workers have gone home.
    fn hides_for(&self) -> Duration {
        Duration::ZERO
    }

    /// How many messages wait, are not due yet, or are being handled; the last only if [`hides_for`](Self::hides_for) is zero.
    async fn backlog(&self, endpoint: &EndpointName) -> Result<u64, StoreError>;

    /// The store as a schedule, if it is one: what is due later waits there where the queues hold nothing back.
    fn schedule(&self) -> Option<impl Schedule + Clone + 'static> {
        None::<Sqlite>
    }

    /// Gives an endpoint the schedule that it needs, if it needs one.
    fn scheduled(&self, shop: EndpointBuilder) -> EndpointBuilder {
        shop
    }

    async fn close(&self);
}

/// In one SQLite file.
pub(crate) struct InFile {
    store: Sqlite,
    queue: SqliteQueue,
}

impl Backend for InFile {
    type Place = Path;
    type Store = Sqlite;
    type Queue = SqliteQueue;

    async fn open(place: &Path, _: Option<&Broker>, new: bool) -> Result<Self, StoreError> {
        let store = Sqlite::options(place).create_if_missing(new).migrate(new).open().await?;
        let queue = SqliteQueue::options().lease(LEASE).migrate(new).on(&store).await?;
        Ok(Self { store, queue })
    }

    fn store(&self) -> &Sqlite {
        &self.store
    }

    fn schedule(&self) -> Option<impl Schedule + Clone + 'static> {
        Some(self.store.clone())
    }

    fn queue(&self) -> &SqliteQueue {
        &self.queue
    }

    fn sender(&self) -> Sender {
        self.queue.sender()
    }

    async fn backlog(&self, endpoint: &EndpointName) -> Result<u64, StoreError> {
        self.queue.backlog(endpoint).await
    }

    async fn close(&self) {
        self.store.close().await;
    }
}

/// In one schema of a PostgreSQL database. One writing connection each: the workers are many.
pub(crate) struct InPostgres {
    store: Postgres,
    queue: PostgresQueue,
}

impl Backend for InPostgres {
    type Place = Schema;
    type Store = Postgres;
    type Queue = PostgresQueue;

    async fn open(place: &Schema, _: Option<&Broker>, new: bool) -> Result<Self, StoreError> {
        let server = match place.pooler() {
            Some(pooler) => Postgres::options(pooler).pooler(true),
            None => Postgres::options(place.url()),
        };
        let server = server.danger_unverified_tls(place.is_trusted()).schema(place.name());
        let store = server.migrate(new).writers(1).open().await?;
        let queue = PostgresQueue::options().lease(LEASE).migrate(new).writers(1).on(&store).await?;
        Ok(Self { store, queue })
    }

    fn store(&self) -> &Postgres {
        &self.store
    }

    fn schedule(&self) -> Option<impl Schedule + Clone + 'static> {
        Some(self.store.clone())
    }

    fn queue(&self) -> &PostgresQueue {
        &self.queue
    }

    fn sender(&self) -> Sender {
        self.queue.sender()
    }

    async fn backlog(&self, endpoint: &EndpointName) -> Result<u64, StoreError> {
        self.queue.backlog(endpoint).await
    }

    async fn close(&self) {
        self.queue.close().await;
        self.store.close().await;
    }
}

/// In tables of a MariaDB or MySQL database. One writing connection each: the workers are many.
pub(crate) struct InMySql {
    store: MySql,
    queue: MySqlQueue,
}

impl Backend for InMySql {
    type Place = Tables;
    type Store = MySql;
    type Queue = MySqlQueue;

    async fn open(place: &Tables, _: Option<&Broker>, new: bool) -> Result<Self, StoreError> {
        let server = MySql::options(place.url()).danger_unverified_tls(place.is_trusted());
        let store = server.table_prefix(place.prefix()).migrate(new).writers(1).open().await?;
        let queue = MySqlQueue::options().lease(LEASE).migrate(new).writers(1).on(&store).await?;
        Ok(Self { store, queue })
    }

    fn store(&self) -> &MySql {
        &self.store
    }

    fn schedule(&self) -> Option<impl Schedule + Clone + 'static> {
        Some(self.store.clone())
    }

    fn queue(&self) -> &MySqlQueue {
        &self.queue
    }

    fn sender(&self) -> Sender {
        self.queue.sender()
    }

    async fn backlog(&self, endpoint: &EndpointName) -> Result<u64, StoreError> {
        self.queue.backlog(endpoint).await
    }

    async fn close(&self) {
        self.queue.close().await;
        self.store.close().await;
    }
}
