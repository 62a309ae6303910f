//! What an account without rights, or with settings of its own, is told: it takes a role that no other test uses.

use std::sync::atomic::{AtomicU64, Ordering};

use hapax::{Postgres, stores::postgres::PostgresOptions};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, postgres::PgConnectOptions};

use crate::PostgresSchema;

/// A role of one test, without rights, which goes with it.
#[derive(Debug)]
pub struct PostgresRole {
    url: String,
    name: String,
}

impl PostgresRole {
    /// One that may log in to the server of `schema`, with `settings` of its own (`name = value`).
    ///
    /// # Panics
    /// When it cannot be made.
    pub async fn new(schema: &PostgresSchema, settings: &[&str]) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("r_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let role = Self { url: schema.url().to_owned(), name };
        let set = settings.iter().map(|setting| format!("ALTER ROLE {} SET {setting};", role.name));
        // One after the other: roles are rows that all tests write.
        let sql = format!("DROP ROLE IF EXISTS {0}; CREATE ROLE {0} LOGIN; {1}", role.name, set.collect::<String>());
        schema.run(&sql).await.expect("the role");
        role
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How it connects.
    ///
    /// # Panics
    /// When the server's URL is none.
    #[must_use]
    pub fn connect_options(&self) -> PgConnectOptions {
        self.url.parse::<PgConnectOptions>().expect("the server's URL").username(&self.name)
    }

    /// How it opens a store in `schema`. Nothing is migrated.
    pub fn options(&self, schema: &PostgresSchema) -> PostgresOptions {
        Postgres::with(self.connect_options()).schema(schema.name()).writers(1)
    }
}

impl Drop for PostgresRole {
    fn drop(&mut self) {
        let (url, sql) = (self.url.clone(), format!("DROP OWNED BY {0} CASCADE; DROP ROLE {0}", self.name));
        // In a thread and a runtime of its own: the test's may be ending.
        let ended = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
            runtime.block_on(async {
                let mut connection = PgConnection::connect(&url).await.ok()?;
                connection.execute("SET lock_timeout = '5s'").await.ok()?;
                connection.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.ok()
            })
        });
        let _ = ended.join();
    }
}
