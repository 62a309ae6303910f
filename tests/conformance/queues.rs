//! Opens the transports under test.

use std::sync::Arc;

use async_trait::async_trait;
use hapax::{
    InProcess, MySqlQueue, PostgresQueue, SqliteQueue,
    ports::{DeadLetters, Transport},
    testing,
    transports::in_process::Faults,
};
use hapax_tests::{MySqlTables, PostgresSchema};

use super::{InSqlite, LEASE};

#[derive(Debug)]
pub(super) struct Queues(InProcess);

impl Queues {
    pub(super) fn new() -> Self {
        Self(InProcess::with_faults("conformance", LEASE, Faults::default()))
    }
}

#[async_trait]
impl testing::transport::Builder for Queues {
    async fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(self.0.clone())
    }
}

#[async_trait]
impl testing::dead_letters::Builder for Queues {
    async fn dead_letters(&self) -> Arc<dyn DeadLetters> {
        Arc::new(self.0.clone())
    }
}

/// Queues in one file; each handle is opened anew, as another process would.
#[derive(Debug)]
pub(super) struct QueuesInSqlite {
    place: InSqlite,
    ordered: bool,
    /// In the store's file, through the store's connection.
    on_store: bool,
}

impl QueuesInSqlite {
    pub(super) fn new(ordered: bool, on_store: bool) -> Self {
        Self { place: InSqlite::new(), ordered, on_store }
    }

    async fn open(&self) -> Arc<SqliteQueue> {
        let options = SqliteQueue::options().lease(LEASE).ordered_keys(self.ordered);
        Arc::new(match self.on_store {
            true => options.on(&*self.place.open().await).await.unwrap(),
            false => options.open(self.place.0.join("queue.db")).await.unwrap(),
        })
    }
}

#[async_trait]
impl testing::transport::Builder for QueuesInSqlite {
    async fn transport(&self) -> Arc<dyn Transport> {
        self.open().await
    }
}

#[async_trait]
impl testing::queue_survey::Builder for QueuesInSqlite {
    async fn surveyed(&self) -> testing::queue_survey::Surveyed {
        testing::queue_survey::Surveyed::of(&self.open().await)
    }
}

#[async_trait]
impl testing::dead_letters::Builder for QueuesInSqlite {
    async fn dead_letters(&self) -> Arc<dyn DeadLetters> {
        self.open().await
    }
}

/// Queues in one schema; each handle has connections of its own, as another process would.
#[derive(Debug)]
pub(super) struct QueuesInPostgres {
    schema: PostgresSchema,
    ordered: bool,
    /// Beside the store's tables, found by its handle.
    on_store: bool,
}

impl QueuesInPostgres {
    pub(super) fn new(ordered: bool, on_store: bool) -> Self {
        Self { schema: PostgresSchema::new(), ordered, on_store }
    }

    async fn open(&self) -> Arc<PostgresQueue> {
        let options = PostgresQueue::options().lease(LEASE).ordered_keys(self.ordered);
        Arc::new(match self.on_store {
            true => options.migrate(true).on(&self.schema.open().await).await.unwrap(),
            false => self.schema.open_queue(options).await,
        })
    }
}

#[async_trait]
impl testing::transport::Builder for QueuesInPostgres {
    async fn transport(&self) -> Arc<dyn Transport> {
        self.open().await
    }
}

#[async_trait]
impl testing::queue_survey::Builder for QueuesInPostgres {
    async fn surveyed(&self) -> testing::queue_survey::Surveyed {
        testing::queue_survey::Surveyed::of(&self.open().await)
    }
}

#[async_trait]
impl testing::dead_letters::Builder for QueuesInPostgres {
    async fn dead_letters(&self) -> Arc<dyn DeadLetters> {
        self.open().await
    }
}

/// Queues in one set of tables; each handle has connections of its own, as another process would.
#[derive(Debug)]
pub(super) struct QueuesInMySql {
    tables: MySqlTables,
    ordered: bool,
    /// Beside the store's tables, found by its handle.
    on_store: bool,
}

impl QueuesInMySql {
    pub(super) fn new(ordered: bool, on_store: bool) -> Self {
        Self { tables: MySqlTables::new(), ordered, on_store }
    }

    async fn open(&self) -> Arc<MySqlQueue> {
        let options = MySqlQueue::options().lease(LEASE).ordered_keys(self.ordered);
        Arc::new(match self.on_store {
            true => options.migrate(true).on(&self.tables.open().await).await.unwrap(),
            false => self.tables.open_queue(options).await,
        })
    }
}

#[async_trait]
impl testing::transport::Builder for QueuesInMySql {
    async fn transport(&self) -> Arc<dyn Transport> {
        self.open().await
    }
}

#[async_trait]
impl testing::queue_survey::Builder for QueuesInMySql {
    async fn surveyed(&self) -> testing::queue_survey::Surveyed {
        testing::queue_survey::Surveyed::of(&self.open().await)
    }
}

#[async_trait]
impl testing::dead_letters::Builder for QueuesInMySql {
    async fn dead_letters(&self) -> Arc<dyn DeadLetters> {
        self.open().await
    }
}
