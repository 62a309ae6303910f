//! Databases with a schedule in them.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use hapax::{
    Sqlite,
    envelope::{Envelope, Outgoing},
    ports::{Due, Receipt, Schedule, Take},
    time::Timestamp,
};
use hapax_tests::{MySqlTables, PostgresSchema, Scratch, samples};
use sqlx::{AssertSqlSafe, Connection, Executor, SqliteConnection};

/// A lease that does not end in a test.
pub(crate) const LONG: Duration = Duration::from_secs(300);

#[async_trait]
pub(crate) trait Place: Sync {
    /// A handle with connections of its own, as another process would open it.
    async fn open(&self) -> Arc<dyn Schedule>;
    /// One that waits for no answer.
    async fn unanswered(&self) -> Arc<dyn Schedule>;
    /// Runs `sql`, in which `SCHEDULE` stands for the table.
    async fn run(&self, sql: &str);
}

pub(crate) struct InSqlite(Scratch);

impl InSqlite {
    pub(crate) fn new() -> Self {
        Self(Scratch::new("schedules"))
    }

    fn file(&self) -> std::path::PathBuf {
        self.0.folder().join("store.db")
    }
}

#[async_trait]
impl Place for InSqlite {
    async fn open(&self) -> Arc<dyn Schedule> {
        Arc::new(Sqlite::open(self.file()).await.unwrap())
    }

    async fn unanswered(&self) -> Arc<dyn Schedule> {
        Arc::new(Sqlite::options(self.file()).write_limit(Duration::ZERO).open().await.unwrap())
    }

    async fn run(&self, sql: &str) {
        let mut file = SqliteConnection::connect(&format!("sqlite://{}", self.file().display())).await.unwrap();
        file.execute(AssertSqlSafe(sql.replace("SCHEDULE", "hapax_schedule"))).await.unwrap();
        file.close().await.unwrap();
    }
}

#[async_trait]
impl Place for PostgresSchema {
    async fn open(&self) -> Arc<dyn Schedule> {
        Arc::new(Self::open(self).await)
    }

    async fn unanswered(&self) -> Arc<dyn Schedule> {
        Arc::new(self.options().writers(1).write_limit(Duration::ZERO).open().await.unwrap())
    }

    async fn run(&self, sql: &str) {
        Self::run(self, &sql.replace("SCHEDULE", &format!("{}.schedule", self.name()))).await.unwrap();
    }
}

#[async_trait]
impl Place for MySqlTables {
    async fn open(&self) -> Arc<dyn Schedule> {
        Arc::new(Self::open(self).await)
    }

    async fn unanswered(&self) -> Arc<dyn Schedule> {
        Arc::new(self.options().writers(1).write_limit(Duration::ZERO).open().await.unwrap())
    }

    async fn run(&self, sql: &str) {
        Self::run(self, &sql.replace("SCHEDULE", "hapax.schedule")).await.unwrap();
    }
}

/// Each test on each database.
macro_rules! on_each {
    ($($test:ident)+) => {
        on_each!(@on sqlite crate::place::InSqlite::new(), $($test)+);
        on_each!(@on postgres hapax_tests::PostgresSchema::new(), $($test)+);
        on_each!(@on mysql hapax_tests::MySqlTables::new(), $($test)+);
    };
    (@on $name:ident $place:expr, $($test:ident)+) => {
        mod $name {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test(&$place).await;
                }
            )+
        }
    };
}
pub(crate) use on_each;

/// A message that has been due for so many milliseconds.
pub(crate) fn due_since(millis: u64, body: impl Into<Vec<u8>>) -> Outgoing {
    let outgoing = samples::outgoing(body);
    let due = Timestamp::from_millis(Timestamp::now().as_millis() - millis);
    Outgoing { envelope: Arc::new(Envelope { due: Some(due), ..(*outgoing.envelope).clone() }), ..outgoing }
}

/// What is due now, under leases of this length.
pub(crate) fn now(lease: Duration) -> Take {
    Take { within: Duration::ZERO, max: 1000, bytes_max: usize::MAX, lease }
}

pub(crate) fn receipts(taken: &[Due]) -> Vec<Receipt> {
    taken.iter().map(|due| due.receipt.clone()).collect()
}

pub(crate) fn messages(taken: Vec<Due>) -> Vec<Outgoing> {
    taken.into_iter().map(|due| due.outgoing).collect()
}
