//! Databases whose rows somebody refuses, or damages.

use std::{sync::Arc, time::Duration};

use hapax::{
    MySqlQueue, PostgresQueue, Sqlite, SqliteQueue,
    ports::{Bodies, DeadLetters, DedupStore, EntityStore, Schedule, Transport},
};
use hapax_tests::{MySqlTables, PostgresSchema, Scratch};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection, SqliteConnection};

/// All that is kept in one database.
pub(crate) struct Ground {
    pub(crate) entities: Arc<dyn EntityStore>,
    pub(crate) dedup: Arc<dyn DedupStore>,
    pub(crate) letters: Arc<dyn DeadLetters>,
    pub(crate) schedule: Arc<dyn Schedule>,
    pub(crate) bodies: Option<Arc<dyn Bodies>>,
    pub(crate) queue: Arc<dyn Transport>,
    database: Database,
}

enum Database {
    Sqlite(Scratch),
    Postgres(PostgresSchema),
    MySql(MySqlTables),
}

/// What is done to the bytes in a row.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Damage {
    /// The last ones are gone.
    Cut,
    /// It begins with one that no version writes.
    Unknown,
}

impl Ground {
    pub(crate) async fn sqlite() -> Self {
        let place = Scratch::new("untold");
        let store = Sqlite::open(place.file("store.db")).await.unwrap();
        let queue = Arc::new(SqliteQueue::on(&store).await.unwrap());
        let store = Arc::new(store);
        Self {
            entities: store.clone(),
            dedup: store.clone(),
            letters: store.clone(),
            schedule: store.clone(),
            bodies: Some(store),
            queue,
            database: Database::Sqlite(place),
        }
    }

    pub(crate) async fn postgres() -> Self {
        let schema = PostgresSchema::new();
        let store = schema.open().await;
        let queue = Arc::new(PostgresQueue::options().migrate(true).on(&store).await.unwrap());
        let store = Arc::new(store);
        Self {
            entities: store.clone(),
            dedup: store.clone(),
            letters: store.clone(),
            schedule: store.clone(),
            bodies: Some(store),
            queue,
            database: Database::Postgres(schema),
        }
    }

    pub(crate) async fn mysql() -> Self {
        let tables = MySqlTables::new();
        let store = tables.open().await;
        let queue = Arc::new(MySqlQueue::options().migrate(true).on(&store).await.unwrap());
        let store = Arc::new(store);
        Self {
            entities: store.clone(),
            dedup: store.clone(),
            letters: store.clone(),
            schedule: store.clone(),
            bodies: None,
            queue,
            database: Database::MySql(tables),
        }
    }

    /// From now on no table takes a row, nor a change of one.
    pub(crate) async fn refuse(&self) {
        for table in self.tables().await {
            match &self.database {
                Database::Sqlite(_) => {
                    for what in ["INSERT", "UPDATE"] {
                        self.run(&format!(
                            "CREATE TRIGGER no_{what}_{table} BEFORE {what} ON {table} BEGIN SELECT RAISE(ABORT, 'no'); END"
                        ))
                        .await;
                    }
                }
                // The server then shows the row that has failed, as far as it fits into a line.
                Database::Postgres(schema) => {
                    let name = schema.name();
                    self.run(&format!("ALTER TABLE {name}.{table} ADD CONSTRAINT no CHECK (false) NOT VALID")).await;
                }
                Database::MySql(_) => {
                    for what in ["INSERT", "UPDATE"] {
                        self.run(&format!(
                            "CREATE TRIGGER no_{what}_{table} BEFORE {what} ON {table} FOR EACH ROW SIGNAL SQLSTATE '45000'"
                        ))
                        .await;
                    }
                }
            }
        }
    }

    pub(crate) async fn allow(&self) {
        for table in self.tables().await {
            match &self.database {
                Database::Postgres(schema) => {
                    self.run(&format!("ALTER TABLE {}.{table} DROP CONSTRAINT no", schema.name())).await;
                }
                Database::Sqlite(_) | Database::MySql(_) => {
                    for what in ["INSERT", "UPDATE"] {
                        self.run(&format!("DROP TRIGGER no_{what}_{table}")).await;
                    }
                }
            }
        }
    }

    /// Of all bytes in all rows, as far as the tables allow it.
    pub(crate) async fn damage(&self, damage: Damage) {
        for (table, column) in self.bytes().await {
            let (table, damaged) = match (&self.database, damage) {
                (Database::Sqlite(_), Damage::Cut) => {
                    (table, format!("substr({column}, 1, max(length({column}) - 5, 0))"))
                }
                (Database::Sqlite(_), Damage::Unknown) => (table, format!("CAST(x'ee' || {column} AS BLOB)")),
                (Database::Postgres(schema), Damage::Cut) => (
                    format!("{}.{table}", schema.name()),
                    format!("substring({column} FROM 1 FOR greatest(length({column}) - 5, 0))"),
                ),
                (Database::Postgres(schema), Damage::Unknown) => {
                    (format!("{}.{table}", schema.name()), format!("'\\xee'::bytea || {column}"))
                }
                (Database::MySql(_), Damage::Cut) => {
                    (table, format!("LEFT({column}, GREATEST(LENGTH({column}) - 5, 0))"))
                }
                (Database::MySql(_), Damage::Unknown) => (table, format!("CONCAT(x'ee', {column})")),
            };
            // Some are of a fixed length, or keys.
            let _ = self.try_to(&format!("UPDATE {table} SET {column} = {damaged}")).await;
        }
    }

    async fn tables(&self) -> Vec<String> {
        match &self.database {
            Database::Sqlite(_) => {
                self.texts("SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'hapax%'").await
            }
            Database::Postgres(schema) => {
                let from = "SELECT table_name::text FROM information_schema.tables WHERE table_type = 'BASE TABLE'";
                self.texts(&format!("{from} AND table_schema = '{}'", schema.name())).await
            }
            Database::MySql(tables) => {
                let from =
                    "SELECT CAST(table_name AS CHAR) FROM information_schema.tables WHERE table_schema = DATABASE()";
                let all = self.texts(from).await;
                all.into_iter().filter(|table| table.starts_with(tables.prefix())).collect()
            }
        }
    }

    /// Tables and their columns of bytes.
    async fn bytes(&self) -> Vec<(String, String)> {
        let mut all = Vec::new();
        for table in self.tables().await {
            let sql = match &self.database {
                Database::Sqlite(_) => {
                    format!("SELECT name FROM pragma_table_info('{table}') WHERE type = 'BLOB' AND pk = 0")
                }
                Database::Postgres(schema) => format!(
                    "SELECT column_name::text FROM information_schema.columns \
                     WHERE table_schema = '{}' AND table_name = '{table}' AND data_type = 'bytea'",
                    schema.name()
                ),
                Database::MySql(_) => format!(
                    "SELECT CAST(column_name AS CHAR) FROM information_schema.columns \
                     WHERE table_schema = DATABASE() AND table_name = '{table}' AND data_type LIKE '%b%'"
                ),
            };
            all.extend(self.texts(&sql).await.into_iter().map(|column| (table.clone(), column)));
        }
        all
    }

    async fn run(&self, sql: &str) {
        self.try_to(sql).await.unwrap();
    }

    async fn try_to(&self, sql: &str) -> Result<(), sqlx::Error> {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        match &self.database {
            Database::Sqlite(place) => file(place).await.execute(sql).await.map(drop),
            Database::Postgres(schema) => {
                PgConnection::connect(schema.url()).await.unwrap().execute(sql).await.map(drop)
            }
            Database::MySql(tables) => {
                MySqlConnection::connect(tables.url()).await.unwrap().execute(sql).await.map(drop)
            }
        }
    }

    async fn texts(&self, sql: &str) -> Vec<String> {
        let sql = AssertSqlSafe(sql.to_owned());
        match &self.database {
            Database::Sqlite(place) => sqlx::query_scalar(sql).fetch_all(&mut file(place).await).await.unwrap(),
            Database::Postgres(schema) => {
                let mut connection = PgConnection::connect(schema.url()).await.unwrap();
                sqlx::query_scalar(sql).fetch_all(&mut connection).await.unwrap()
            }
            Database::MySql(tables) => {
                let mut connection = MySqlConnection::connect(tables.url()).await.unwrap();
                sqlx::query_scalar(sql).fetch_all(&mut connection).await.unwrap()
            }
        }
    }
}

async fn file(place: &Scratch) -> SqliteConnection {
    let file = sqlx::sqlite::SqliteConnectOptions::new().filename(place.file("store.db"));
    SqliteConnection::connect_with(&file.busy_timeout(Duration::from_secs(20))).await.unwrap()
}
