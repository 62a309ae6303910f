//! Every store that is compiled in.

use hapax::{Memory, Sqlite, stores::sqlite::Synchronous};
use hapax_tests::{Backend, Scratch};

/// Where data is, and how one gets at it.
pub(crate) trait Place: Sized + 'static {
    type Store: Backend;

    /// With nothing in it.
    fn new() -> Self;

    /// One more handle, as another process would open it.
    async fn open(&self) -> Self::Store;
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
        open(&self.0, None).await
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
        open(&self.0, Some(2)).await
    }
}

/// Without waiting for the disk: nobody cuts the power here.
async fn open(scratch: &Scratch, generation_entries: Option<u64>) -> Sqlite {
    let options = Sqlite::options(scratch.file("machine.db")).create_if_missing(true).migrate(true);
    let options = options.synchronous(Synchronous::Normal);
    let options = match generation_entries {
        Some(entries) => options.generation_entries(entries),
        None => options,
    };
    options.open().await.unwrap()
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
    };
}
pub(crate) use on_every_store;
