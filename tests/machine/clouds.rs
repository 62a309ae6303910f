//! Stores of services, on their emulators: each place a table or a database of its own.
//!
//! Their hasty handles talk to the service over a line on which some writes get lost, or the answers to them.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Mutex,
};

use hapax_tests::http_faults::{Asked, Fault, FaultProxy};

use crate::stores::Place;

/// The line, as long as the place is there.
#[derive(Debug, Default)]
struct BadLines(Mutex<Vec<FaultProxy>>);

impl BadLines {
    /// From now on, of the requests that are writes, by what is in them, some do not arrive, and of some there is no answer.
    /// A repetition of the same is as unlucky.
    fn spoil(&self, line: FaultProxy, is_write: fn(&Asked) -> bool) {
        const OF: u64 = 32;
        for (turn, fault) in [(0, Fault::DropAnswer), (1, Fault::DropRequest)] {
            line.every(move |asked| is_write(asked) && lot(asked) % OF == turn, fault);
        }
        self.0.lock().unwrap().push(line);
    }
}

fn lot(asked: &Asked) -> u64 {
    let mut hash = DefaultHasher::new();
    asked.body().hash(&mut hash);
    hash.finish()
}

#[cfg(feature = "dynamodb")]
mod dynamodb {
    use std::time::Duration;

    use hapax::DynamoDb;
    use hapax_tests::DynamoDbTable;

    use super::{Asked, BadLines, FaultProxy, Place};

    /// So short that a call with a fault ends before its last try, and long enough for a busy machine.
    const HASTY: Duration = Duration::from_millis(500);

    #[derive(Debug)]
    pub(crate) struct InDynamoDb(DynamoDbTable, BadLines);

    impl Place for InDynamoDb {
        type Store = DynamoDb;
        const SLOW: bool = true;
        const REPEATS: bool = true;

        fn new() -> Self {
            Self(DynamoDbTable::new(), BadLines::default())
        }

        async fn open(&self) -> DynamoDb {
            self.0.open().await
        }

        async fn open_hasty(&self) -> Option<DynamoDb> {
            let line = FaultProxy::start(self.0.url()).unwrap();
            let store = self.0.through(line.url()).options().call_limit(HASTY).open().await.unwrap();
            self.1.spoil(line, is_write);
            Some(store)
        }
    }

    fn is_write(asked: &Asked) -> bool {
        matches!(asked.operation(), Some("PutItem" | "TransactWriteItems"))
    }
}

#[cfg(feature = "dynamodb")]
pub(crate) use dynamodb::InDynamoDb;

#[cfg(feature = "cosmos")]
mod cosmos {
    use std::time::Duration;

    use hapax::{CosmosDb, stores::cosmos::Layout};
    use hapax_tests::CosmosDatabase;

    use super::{BadLines, FaultProxy, Place};

    /// The client library tries again by itself, until its call is over.
    const HASTY: Duration = Duration::from_millis(500);

    /// Dedup entries with their entity.
    #[derive(Debug)]
    pub(crate) struct InCosmosTogether(CosmosDatabase, BadLines);

    /// Dedup entries in a container of their own.
    #[derive(Debug)]
    pub(crate) struct InCosmosApart(CosmosDatabase, BadLines);

    async fn open_hasty(database: &CosmosDatabase, lines: &BadLines) -> CosmosDb {
        let line = FaultProxy::start(database.url()).unwrap();
        let store = database.through(line.url()).options().await.call_limit(HASTY).open().await.unwrap();
        lines.spoil(line, CosmosDatabase::is_write);
        store
    }

    impl Place for InCosmosTogether {
        type Store = CosmosDb;
        const SLOW: bool = true;
        const REPEATS: bool = true;

        fn new() -> Self {
            Self(CosmosDatabase::new(Layout::Together), BadLines::default())
        }

        async fn open(&self) -> CosmosDb {
            self.0.open().await
        }

        async fn open_hasty(&self) -> Option<CosmosDb> {
            Some(open_hasty(&self.0, &self.1).await)
        }
    }

    impl Place for InCosmosApart {
        type Store = CosmosDb;
        const SLOW: bool = true;
        const REPEATS: bool = true;

        fn new() -> Self {
            Self(CosmosDatabase::new(Layout::Apart), BadLines::default())
        }

        async fn open(&self) -> CosmosDb {
            self.0.open().await
        }

        async fn open_hasty(&self) -> Option<CosmosDb> {
            Some(open_hasty(&self.0, &self.1).await)
        }
    }
}

#[cfg(feature = "cosmos")]
pub(crate) use cosmos::{InCosmosApart, InCosmosTogether};
