//! The PostgreSQL store and queue in databases whose transactions begin at other isolation levels than the usual one: the
//! promises that several processes at once could break, and two stores that race for the same entities. Directly and behind a
//! connection pooler, where a session has no settings of its own.
#![allow(clippy::unwrap_used)]

#[path = "isolation/bodies.rs"]
mod bodies;
use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bodies::{Opens, keeps_its_promises, races};
use hapax::{
    Postgres, PostgresQueue,
    ports::{DedupStore, EntityStore, Transport},
    stores::postgres::PostgresOptions,
    testing,
};
use hapax_tests::{Pgbouncer, PostgresDatabase, PostgresSchema};
use sqlx::{Connection, PgConnection};

/// As in `conformance.rs`.
const LEASE: Duration = Duration::from_secs(1);

/// A database of one level.
#[derive(Debug)]
struct Place {
    pooler: Option<Pgbouncer>,
    // Before the database.
    schema: PostgresSchema,
    other: PostgresSchema,
    _database: PostgresDatabase,
}

impl Place {
    async fn new(level: &str) -> Self {
        let _database = PostgresDatabase::new(&[&format!("default_transaction_isolation = '{level}'")]).await;
        let mut connection = PgConnection::connect(&_database.url()).await.unwrap();
        let of_others: String =
            sqlx::query_scalar("SHOW transaction_isolation").fetch_one(&mut connection).await.unwrap();
        assert_eq!(of_others, level, "the database has the level that is being tried");
        let [schema, other] = [_database.schema(), _database.schema().named("other")];
        Self { pooler: None, schema, other, _database }
    }

    /// Behind a connection pooler; `None` where there is none.
    async fn pooled(level: &str) -> Option<Self> {
        let place = Self::new(level).await;
        let pooler = Pgbouncer::start(place.schema.url(), &[]).await?;
        Some(Self { pooler: Some(pooler), ..place })
    }

    fn options(&self, schema: &PostgresSchema) -> PostgresOptions {
        let (url, pooled) = match &self.pooler {
            Some(pooler) => (pooler.url(), true),
            None => (schema.url(), false),
        };
        Postgres::options(url).pooler(pooled).schema(schema.name()).migrate(true).writers(1)
    }
}

impl Opens for Place {
    type Store = Postgres;

    async fn open(&self) -> Arc<Postgres> {
        Arc::new(self.options(&self.schema).open().await.unwrap())
    }
}

#[async_trait]
impl testing::entity_store::Builder for Place {
    async fn entities(&self) -> Arc<dyn EntityStore> {
        self.open().await
    }
    async fn dedup(&self) -> Option<Arc<dyn DedupStore>> {
        Some(self.open().await)
    }
    async fn faulty(&self) -> Option<Arc<dyn EntityStore>> {
        None
    }
}

#[async_trait]
impl testing::dedup_store::Builder for Place {
    async fn dedup(&self) -> Arc<dyn DedupStore> {
        self.open().await
    }
    async fn separate(&self) -> Option<Arc<dyn DedupStore>> {
        Some(Arc::new(self.options(&self.other).open().await.unwrap()))
    }
}

#[async_trait]
impl testing::transport::Builder for Place {
    async fn transport(&self) -> Arc<dyn Transport> {
        let options = PostgresQueue::options().lease(LEASE).migrate(true);
        Arc::new(options.open_database(self.options(&self.schema)).await.unwrap())
    }
}

macro_rules! at_each_level {
    ($($module:ident: $level:literal,)*) => {$(
        mod $module {
            use super::{Place, keeps_its_promises, races};

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres_keeps_its_promises() {
                keeps_its_promises(&Place::new($level).await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn two_postgres_stores_race() {
                races(&Place::new($level).await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn two_postgres_stores_race_behind_a_pooler() {
                if let Some(place) = Place::pooled($level).await {
                    races(&place).await;
                }
            }
        }
    )*};
}

at_each_level! {
    read_committed: "read committed",
    repeatable_read: "repeatable read",
    serializable: "serializable",
}
