//! Settings are made and deadlocks counted for a whole database: a test that is about them must be alone in one.

use std::sync::atomic::{AtomicU64, Ordering};

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, postgres::PgConnectOptions};

use crate::PostgresSchema;

/// A database of one test on the tests' server, which goes with it: for what is set or counted for a whole database.
#[derive(Debug)]
pub struct PostgresDatabase {
    server: String,
    name: String,
}

impl PostgresDatabase {
    /// A new one, with `settings` of its own (`name = value`).
    ///
    /// # Panics
    /// When it cannot be made.
    pub async fn new(settings: &[&str]) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("d_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let database = Self { server: PostgresSchema::new().url().to_owned(), name };
        // One by one: a database is not made, and not removed, within a transaction.
        let (drop, create) = (
            format!("DROP DATABASE IF EXISTS {}", database.name),
            format!("CREATE DATABASE {} ENCODING 'UTF8' TEMPLATE template0", database.name),
        );
        let set = settings.iter().map(|setting| format!("ALTER DATABASE {} SET {setting}", database.name));
        let mut connection = PgConnection::connect(&database.server).await.expect("a connection");
        for sql in [drop, create].into_iter().chain(set) {
            connection.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.expect("the database");
        }
        connection.close().await.expect("it is closed");
        database
    }

    /// Its URL.
    ///
    /// # Panics
    /// When the server's URL is none.
    #[must_use]
    pub fn url(&self) -> String {
        let server: PgConnectOptions = self.server.parse().expect("the server's URL");
        let named = server.get_database().unwrap_or_else(|| server.get_username());
        let (before, after) = self.server.rsplit_once(named).expect("a URL that names its database");
        format!("{before}{}{after}", self.name)
    }

    /// A schema in it.
    #[must_use]
    pub fn schema(&self) -> PostgresSchema {
        PostgresSchema::on(&self.url())
    }

    /// How many deadlocks the server has ended in it. Asked when nobody uses it any more: a session tells the server what it
    /// has met at its end, if not before.
    ///
    /// # Panics
    /// When the server does not tell.
    pub async fn deadlocks(&self) -> i64 {
        let mut connection = PgConnection::connect(&self.server).await.expect("a connection");
        let others = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1";
        while sqlx::query_scalar::<_, i64>(others).bind(&self.name).fetch_one(&mut connection).await.expect("how many")
            > 0
        {
            tokio::task::yield_now().await;
        }
        let met = "SELECT deadlocks FROM pg_stat_database WHERE datname = $1";
        sqlx::query_scalar(met).bind(&self.name).fetch_one(&mut connection).await.expect("how many deadlocks")
    }
}

impl Drop for PostgresDatabase {
    fn drop(&mut self) {
        let (url, drop) = (self.server.clone(), format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name));
        // In a thread and a runtime of its own: the test's may be ending. What stays is on the tests' server.
        let ended = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
            runtime.block_on(async {
                let mut connection = PgConnection::connect(&url).await.ok()?;
                connection.execute(sqlx::raw_sql(AssertSqlSafe(drop))).await.ok()
            })
        });
        let _ = ended.join();
    }
}
