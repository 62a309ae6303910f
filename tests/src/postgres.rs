//! A schema of each test's own in the database of all: nothing has to be cleaned up before, and tests run side by side.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use hapax::{
    Postgres, PostgresQueue, stores::postgres::PostgresOptions, transports::postgres_queue::PostgresQueueOptions,
};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, postgres::PgConnectOptions};

use crate::hurt::between_cuts;

/// Where the server is: set by `cargo xtask test`, which finds or starts one.
const SERVER: &str = "HAPAX_TEST_POSTGRES";

/// A schema of one test, which goes with it.
#[derive(Debug)]
pub struct PostgresSchema {
    url: String,
    name: String,
}

impl PostgresSchema {
    /// A name that no other test uses; there is no such schema yet.
    ///
    /// # Panics
    /// When no server is known.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "nobody expects a default to panic")]
    pub fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let url = std::env::var(SERVER).unwrap_or_else(|_| {
            panic!(
                "no PostgreSQL to test with: run `cargo xtask test`, or set {SERVER}=postgres://USER@HOST:PORT/DATABASE"
            )
        });
        let name = format!("t_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Self { url, name }
    }

    /// A schema on another server than the tests' own.
    #[must_use]
    pub fn on(url: &str) -> Self {
        Self { url: url.to_owned(), name: "hapax".to_owned() }
    }

    /// The same server and database, another schema.
    #[must_use]
    pub fn named(&self, name: &str) -> Self {
        Self { url: self.url.clone(), name: name.to_owned() }
    }

    /// Runs `sql`, one or more statements, as the user who owns everything.
    ///
    /// # Errors
    /// The server's.
    ///
    /// # Panics
    /// When there is no server.
    pub async fn run(&self, sql: &str) -> Result<(), sqlx::Error> {
        let mut connection = PgConnection::connect(&self.url).await.expect("a connection");
        let ran = connection.execute(sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))).await;
        connection.close().await?;
        ran.map(|_| ())
    }

    /// How a store in it is opened; its tables are made. Clean-ups do not wait, so that what a finish does can be seen.
    pub fn options(&self) -> PostgresOptions {
        Postgres::options(&self.url).schema(&self.name).migrate(true).clean_up_wait(Duration::ZERO)
    }

    /// As [`options`](Self::options), for a store whose connections the server is told to end again and again, until nobody
    /// uses it any more.
    ///
    /// # Panics
    /// When it cannot be opened.
    pub async fn open_and_cut<T: Send + Sync + 'static>(&self, store: impl FnOnce(Postgres) -> Arc<T>) -> Arc<T> {
        let name = format!("cut_{}_{}", self.name, fastrand::u32(..));
        let options: PgConnectOptions = self.url.parse().expect("the server's URL");
        let options = Postgres::with(options.application_name(&name)).schema(&self.name).writers(1);
        let opened = options.migrate(true).open().await.expect("the store");
        let cut = store(opened.clone());
        let alive = Arc::downgrade(&cut);
        let mut connection = PgConnection::connect(&self.url).await.expect("a connection");
        tokio::spawn(async move {
            let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1 AND state = 'active'";
            while alive.strong_count() > 0 {
                sqlx::query(sql).bind(&name).fetch_all(&mut connection).await.expect("others' connections are ended");
                between_cuts(|| opened.commits()).await;
            }
        });
        cut
    }

    /// Another handle, with connections of its own, as another process would open it.
    ///
    /// # Panics
    /// When it cannot be opened.
    pub async fn open(&self) -> Postgres {
        self.options().writers(1).open().await.expect("the store")
    }

    /// Queues in it, opened with connections of their own, as another process would open them.
    ///
    /// # Panics
    /// When they cannot be opened.
    pub async fn open_queue(&self, options: PostgresQueueOptions) -> PostgresQueue {
        let database = Postgres::options(&self.url).schema(&self.name);
        options.migrate(true).open_database(database).await.expect("the queues")
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The server's URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for PostgresSchema {
    fn drop(&mut self) {
        let (url, drop) = (self.url.clone(), format!("DROP SCHEMA IF EXISTS {} CASCADE", self.name));
        // In a thread and a runtime of its own: the test's may be ending. What stays is in the test database.
        let ended = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
            runtime.block_on(async {
                let mut connection = PgConnection::connect(&url).await.ok()?;
                connection.execute("SET lock_timeout = '5s'").await.ok()?;
                connection.execute(sqlx::raw_sql(AssertSqlSafe(drop))).await.ok()
            })
        });
        let _ = ended.join();
    }
}
