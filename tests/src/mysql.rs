//! Tables of each test's own in the database of all: nothing has to be cleaned up before, and tests run side by side.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use hapax::{MySql, MySqlQueue, stores::mysql::MySqlOptions, transports::mysql_queue::MySqlQueueOptions};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection};

use crate::hurt::between_cuts;

/// Where the server is: set by `cargo xtask test`, which finds or starts one.
const SERVER: &str = "HAPAX_TEST_MYSQL";

/// The tables of one test, in the database of all, which go with it.
#[derive(Debug)]
pub struct MySqlTables {
    url: String,
    prefix: String,
}

impl MySqlTables {
    /// A prefix that no other test uses; there are no such tables yet.
    ///
    /// # Panics
    /// When no server is known.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "nobody expects a default to panic")]
    pub fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let url = std::env::var(SERVER).unwrap_or_else(|_| {
            panic!("no MariaDB to test with: run `cargo xtask test`, or set {SERVER}=mysql://USER@HOST:PORT/DATABASE")
        });
        let prefix = format!("t_{}_{}_", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Self { url, prefix }
    }

    /// Tables on another server than the tests' own.
    #[must_use]
    pub fn on(url: &str) -> Self {
        Self { url: url.to_owned(), prefix: "hapax_".to_owned() }
    }

    /// Runs `sql`, one or more statements, as the account that owns everything. `hapax.` in it stands for the prefix.
    ///
    /// # Errors
    /// The server's.
    ///
    /// # Panics
    /// When there is no server.
    pub async fn run(&self, sql: &str) -> Result<(), sqlx::Error> {
        let mut connection = self.connection().await;
        let ran = connection.execute(sqlx::raw_sql(AssertSqlSafe(self.with_names(sql)))).await;
        connection.close().await?;
        ran.map(|_| ())
    }

    /// A connection as the account that owns everything.
    ///
    /// # Panics
    /// When there is no server.
    pub async fn connection(&self) -> MySqlConnection {
        MySqlConnection::connect(&self.url).await.expect("a connection")
    }

    /// `sql` with the prefix in place of `hapax.`.
    #[must_use]
    pub fn with_names(&self, sql: &str) -> String {
        sql.replace("hapax.", &self.prefix)
    }

    /// How a store in it is opened; its tables are made. Clean-ups do not wait, so that what a finish does can be seen.
    pub fn options(&self) -> MySqlOptions {
        MySql::options(&self.url).table_prefix(&self.prefix).migrate(true).clean_up_wait(Duration::ZERO)
    }

    /// As [`options`](Self::options), for a store whose connections the server is told to end again and again, until nobody
    /// uses it any more.
    ///
    /// # Panics
    /// When it cannot be opened.
    pub async fn open_and_cut<T: Send + Sync + 'static>(&self, store: impl FnOnce(MySql) -> Arc<T>) -> Arc<T> {
        // By the account its connections are known.
        let name = format!("cut_{}", fastrand::u32(..));
        let account = format!("'{name}'@'%'");
        self.run(&format!("CREATE USER {account}; GRANT ALL ON *.* TO {account}")).await.expect("an account");
        let (_, place) = self.url.rsplit_once('@').expect("an account in the server's URL");
        let options = MySql::options(format!("mysql://{name}@{place}")).table_prefix(&self.prefix).writers(1);
        let opened = options.migrate(true).open().await.expect("the store");
        let cut = store(opened.clone());
        let alive = Arc::downgrade(&cut);
        let mut connection = self.connection().await;
        tokio::spawn(async move {
            let sql = "SELECT id FROM information_schema.processlist WHERE user = ? AND command <> 'Sleep'";
            while alive.strong_count() > 0 {
                let busy = sqlx::query_scalar::<_, i64>(sql).bind(&name).fetch_all(&mut connection).await;
                for id in busy.expect("a list of connections") {
                    // It may have ended by itself.
                    drop(connection.execute(sqlx::raw_sql(AssertSqlSafe(format!("KILL CONNECTION {id}")))).await);
                }
                between_cuts(|| opened.commits()).await;
            }
            drop(connection.execute(sqlx::raw_sql(AssertSqlSafe(format!("DROP USER {account}")))).await);
        });
        cut
    }

    /// Another handle, with connections of its own, as another process would open it.
    ///
    /// # Panics
    /// When it cannot be opened.
    pub async fn open(&self) -> MySql {
        self.options().writers(1).open().await.expect("the store")
    }

    /// Queues in it, opened with connections of their own, as another process would open them.
    ///
    /// # Panics
    /// When they cannot be opened.
    pub async fn open_queue(&self, options: MySqlQueueOptions) -> MySqlQueue {
        let database = MySql::options(&self.url).table_prefix(&self.prefix);
        options.migrate(true).open_database(database).await.expect("the queues")
    }

    /// What its tables' names begin with.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The server's URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for MySqlTables {
    fn drop(&mut self) {
        let (url, prefix) = (self.url.clone(), self.prefix.clone());
        // In a thread and a runtime of its own: the test's may be ending. What stays is in the test database.
        let ended = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
            runtime.block_on(async {
                let mut connection = MySqlConnection::connect(&url).await.ok()?;
                connection.execute("SET SESSION lock_wait_timeout = 5").await.ok()?;
                let list =
                    "SELECT CAST(table_name AS CHAR) FROM information_schema.tables WHERE table_schema = DATABASE()";
                let tables: Vec<String> = sqlx::query_scalar(list).fetch_all(&mut connection).await.ok()?;
                let tables: Vec<String> = tables.into_iter().filter(|table| table.starts_with(&prefix)).collect();
                let drop = format!("DROP TABLE {}", tables.join(", "));
                connection.execute(sqlx::raw_sql(AssertSqlSafe(drop))).await.ok()
            })
        });
        let _ = ended.join();
    }
}
