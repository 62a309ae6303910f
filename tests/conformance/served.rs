//! Opens the stores under test that are on a server.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use hapax::{
    ports::{DeadLetters, DedupStore, EntityStore, Schedule},
    testing,
};
use hapax_tests::{MySqlTables, PostgresSchema};

/// Short, so that checks meet the clean-up as well as the time before it.
const CLEAN_UP_WAIT: Duration = Duration::from_millis(10);

/// One schema; each handle has connections of its own, as another process would.
#[derive(Debug)]
pub(super) struct InPostgres(pub(super) PostgresSchema, PostgresSchema, Duration);

impl InPostgres {
    pub(super) fn new() -> Self {
        Self(PostgresSchema::new(), PostgresSchema::new(), Duration::ZERO)
    }

    /// Whose clean-ups wait.
    pub(super) fn cleaned_later() -> Self {
        Self(PostgresSchema::new(), PostgresSchema::new(), CLEAN_UP_WAIT)
    }
}

#[async_trait]
impl testing::entity_store::Builder for InPostgres {
    async fn entities(&self) -> Arc<dyn EntityStore> {
        Arc::new(self.0.options().writers(1).clean_up_wait(self.2).open().await.unwrap())
    }
    async fn dedup(&self) -> Option<Arc<dyn DedupStore>> {
        Some(Arc::new(self.0.open().await))
    }
    /// One whose connections are ended again and again, in the middle of a statement.
    async fn faulty(&self) -> Option<Arc<dyn EntityStore>> {
        Some(self.0.open_and_cut(Arc::new).await)
    }
}

#[async_trait]
impl testing::dedup_store::Builder for InPostgres {
    async fn dedup(&self) -> Arc<dyn DedupStore> {
        Arc::new(self.0.open().await)
    }
    async fn separate(&self) -> Option<Arc<dyn DedupStore>> {
        Some(Arc::new(self.1.open().await))
    }
}

#[async_trait]
impl testing::dead_letters::Builder for InPostgres {
    async fn dead_letters(&self) -> Arc<dyn DeadLetters> {
        Arc::new(self.0.open().await)
    }
}

#[async_trait]
impl testing::schedule::Builder for InPostgres {
    async fn schedule(&self) -> Arc<dyn Schedule> {
        Arc::new(self.0.open().await)
    }
}

/// One prefix; each handle has connections of its own, as another process would.
#[derive(Debug)]
pub(super) struct InMySql(pub(super) MySqlTables, MySqlTables, Duration);

impl InMySql {
    pub(super) fn new() -> Self {
        Self(MySqlTables::new(), MySqlTables::new(), Duration::ZERO)
    }

    /// Whose clean-ups wait.
    pub(super) fn cleaned_later() -> Self {
        Self(MySqlTables::new(), MySqlTables::new(), CLEAN_UP_WAIT)
    }
}

#[async_trait]
impl testing::entity_store::Builder for InMySql {
    async fn entities(&self) -> Arc<dyn EntityStore> {
        Arc::new(self.0.options().writers(1).clean_up_wait(self.2).open().await.unwrap())
    }
    async fn dedup(&self) -> Option<Arc<dyn DedupStore>> {
        Some(Arc::new(self.0.open().await))
    }
    /// One whose connections are ended again and again, in the middle of a statement.
    async fn faulty(&self) -> Option<Arc<dyn EntityStore>> {
        Some(self.0.open_and_cut(Arc::new).await)
    }
}

#[async_trait]
impl testing::dedup_store::Builder for InMySql {
    async fn dedup(&self) -> Arc<dyn DedupStore> {
        Arc::new(self.0.open().await)
    }
    async fn separate(&self) -> Option<Arc<dyn DedupStore>> {
        Some(Arc::new(self.1.open().await))
    }
}

#[async_trait]
impl testing::dead_letters::Builder for InMySql {
    async fn dead_letters(&self) -> Arc<dyn DeadLetters> {
        Arc::new(self.0.open().await)
    }
}

#[async_trait]
impl testing::schedule::Builder for InMySql {
    async fn schedule(&self) -> Arc<dyn Schedule> {
        Arc::new(self.0.open().await)
    }
}
