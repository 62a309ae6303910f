//! Every store that is compiled in.

use std::time::Duration;

use hapax::{
    Memory, MySql, Postgres, Sqlite,
    stores::sqlite::{SqliteOptions, Synchronous},
};
use hapax_tests::{Backend, MySqlTables, PostgresSchema, Scratch};

#[cfg(feature = "dynamodb")]
pub(crate) use crate::clouds::InDynamoDb;
#[cfg(feature = "cosmos")]
pub(crate) use crate::clouds::{InCosmosApart, InCosmosTogether};

/// Where data is, and how one gets at it.
pub(crate) trait Place: Sized + 'static {
    type Store: Backend;

    /// Its calls take milliseconds, so that there are fewer of them in a test.
    #[allow(dead_code, reason = "of the programs with this file, two ask")]
    const SLOW: bool = false;
    /// The client library of a hasty handle repeats writes.
    #[allow(dead_code, reason = "of the programs with this file, one asks")]
    const REPEATS: bool = false;

    /// With nothing in it.
    fn new() -> Self;

    /// One more handle, as another process would open it.
    async fn open(&self) -> Self::Store;

    /// One that does not wait for the answers to its writes, or to which some of them do not come, if there is such a thing.
    #[allow(dead_code, reason = "of the programs with this file, one asks for it")]
    async fn open_hasty(&self) -> Option<Self::Store> {
        None
    }
}

#[derive(Debug)]
pub(crate) struct InMemory(Memory);

impl Place for InMemory {
    type Store = Memory;

    fn new() -> Self {
        Self(Memory::new())
    }

    async fn open(&self) -> Memory {
        self.0.clone()
    }
}

/// One file, and every handle with connections of its own.
#[derive(Debug)]
pub(crate) struct InSqlite(Scratch);

impl Place for InSqlite {
    type Store = Sqlite;

    fn new() -> Self {
        Self(Scratch::new("machine"))
    }

    async fn open(&self) -> Sqlite {
        options(&self.0).open().await.unwrap()
    }

    async fn open_hasty(&self) -> Option<Sqlite> {
        Some(options(&self.0).write_limit(Duration::ZERO).open().await.unwrap())
    }
}

/// Dedup entries in generations of a few, so that closed ones, their filters and their eviction take part.
#[derive(Debug)]
pub(crate) struct InSmallGenerations(Scratch);

impl Place for InSmallGenerations {
    type Store = Sqlite;

    fn new() -> Self {
        Self(Scratch::new("machine"))
    }

    async fn open(&self) -> Sqlite {
        options(&self.0).generation_entries(2).open().await.unwrap()
    }
}

/// One schema, and every handle with connections of its own.
#[derive(Debug)]
pub(crate) struct InPostgres(PostgresSchema);

impl Place for InPostgres {
    type Store = Postgres;

    fn new() -> Self {
        Self(PostgresSchema::new())
    }

    async fn open(&self) -> Postgres {
        self.0.open().await
    }

    async fn open_hasty(&self) -> Option<Postgres> {
        Some(self.0.options().writers(1).write_limit(Duration::ZERO).open().await.unwrap())
    }
}

/// One prefix, and every handle with connections of its own.
#[derive(Debug)]
pub(crate) struct InMySql(MySqlTables);

impl Place for InMySql {
    type Store = MySql;

    fn new() -> Self {
        Self(MySqlTables::new())
    }

    async fn open(&self) -> MySql {
        self.0.open().await
    }

    async fn open_hasty(&self) -> Option<MySql> {
        Some(self.0.options().writers(1).write_limit(Duration::ZERO).open().await.unwrap())
    }
}

/// Entities in memory, dedup entries in objects.
#[cfg(feature = "object")]
#[derive(Debug)]
pub(crate) struct InObjects(Memory, std::sync::Arc<object_store::memory::InMemory>);

#[cfg(feature = "object")]
impl Place for InObjects {
    type Store = hapax_tests::Pair<Memory, hapax::ObjectDedup>;

    fn new() -> Self {
        Self(Memory::new(), Default::default())
    }

    async fn open(&self) -> Self::Store {
        let dedup = hapax::ObjectDedup::options(self.1.clone(), "machine").second(self.1.clone());
        let dedup = dedup.clock_margin(Duration::ZERO).open().await.unwrap();
        hapax_tests::Pair { entities: self.0.clone(), dedup }
    }
}

/// Without waiting for the disk: nobody cuts the power here.
fn options(scratch: &Scratch) -> SqliteOptions {
    let options = Sqlite::options(scratch.file("machine.db")).create_if_missing(true).migrate(true);
    options.synchronous(Synchronous::Normal)
}

/// One test for each store: a further store is one more line in here, and its [`Place`].
macro_rules! on_every_store {
    ($($check:ident)::+) => {
        #[test]
        fn on_memory() {
            $($check)::+::<$crate::stores::InMemory>("memory");
        }
        #[test]
        fn on_sqlite() {
            $($check)::+::<$crate::stores::InSqlite>("sqlite");
        }
        #[test]
        fn on_sqlite_in_small_generations() {
            $($check)::+::<$crate::stores::InSmallGenerations>("sqlite-small");
        }
        #[test]
        fn on_postgres() {
            $($check)::+::<$crate::stores::InPostgres>("postgres");
        }
        #[test]
        fn on_mysql() {
            $($check)::+::<$crate::stores::InMySql>("mysql");
        }
        #[cfg(feature = "object")]
        #[test]
        fn on_objects() {
            $($check)::+::<$crate::stores::InObjects>("object");
        }
        #[cfg(feature = "dynamodb")]
        #[test]
        fn on_dynamodb() {
            $($check)::+::<$crate::stores::InDynamoDb>("dynamodb");
        }
        #[cfg(feature = "cosmos")]
        #[test]
        fn on_cosmos_together() {
            $($check)::+::<$crate::stores::InCosmosTogether>("cosmos-together");
        }
        #[cfg(feature = "cosmos")]
        #[test]
        fn on_cosmos_apart() {
            $($check)::+::<$crate::stores::InCosmosApart>("cosmos-apart");
        }
    };
}
pub(crate) use on_every_store;
