use std::sync::atomic::{AtomicU64, Ordering};

use hapax::{MySql, MySqlQueue, stores::mysql::MySqlOptions, transports::mysql_queue::MySqlQueueOptions};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, MySqlConnection, mysql::MySqlConnectOptions};

/// Where the server is: set by `cargo xtask test`, which finds or starts one.
const SERVER: &str = "HAPAX_TEST_MYSQL";

/// A database of one test, which goes with it.
#[derive(Debug)]
pub struct MySqlDatabase {
    url: String,
    name: String,
}

impl MySqlDatabase {
    /// A new one, under a name that no other test uses.
    ///
    /// # Panics
    /// When no server is known, or it cannot be made.
    #[must_use]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let url = std::env::var(SERVER).unwrap_or_else(|_| {
            panic!("no MariaDB to test with: run `cargo xtask test`, or set {SERVER}=mysql://USER@HOST:PORT/DATABASE")
        });
        let name = format!("t_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let database = Self { url, name };
        database.run_outside(&format!("CREATE DATABASE {}", database.name)).expect("a database");
        database
    }

    /// How the server is reached, with this database chosen.
    ///
    /// # Panics
    /// When the server's URL is none.
    #[must_use]
    pub fn place(&self) -> MySqlConnectOptions {
        let server: MySqlConnectOptions = self.url.parse().expect("the server's URL");
        server.database(&self.name)
    }

    /// How a store in it is opened; its tables are made.
    pub fn options(&self) -> MySqlOptions {
        MySql::with(self.place()).migrate(true)
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
        options.migrate(true).open_database(MySql::with(self.place())).await.expect("the queues")
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// In a thread and a runtime of its own: the test's may be ending, or not have begun.
    fn run_outside(&self, sql: &str) -> Result<(), sqlx::Error> {
        let (url, sql) = (self.url.clone(), sql.to_owned());
        let ran = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let server: MySqlConnectOptions = url.parse()?;
                let mut connection: MySqlConnection = server.connect().await?;
                connection.execute("SET lock_wait_timeout = 5").await?;
                connection.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await?;
                connection.close().await
            })
        });
        ran.join().expect("a thread that ends")
    }
}

impl Drop for MySqlDatabase {
    fn drop(&mut self) {
        let _ = self.run_outside(&format!("DROP DATABASE {}", self.name)); // What stays is in the test server.
    }
}
