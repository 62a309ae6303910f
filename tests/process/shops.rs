//! The tables of those who sell, in each database: their own, and an outbox beside them.
#![allow(dead_code)] // Each program uses a part of it.

use hapax::{
    Message, MySqlOutbox, PostgresOutbox, SqliteOutbox, envelope::Outgoing, ports::OutboxTable,
    stores::postgres::outbox::EnqueueError,
};
use serde::{Deserialize, Serialize};
use sqlx::{
    AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection, Row, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode},
};

/// Who is told.
pub(crate) const AUDIT: &str = "audit";

pub(crate) type Failed = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Sold {
    pub(crate) order: i32,
}

impl Message for Sold {
    const TYPE: &'static str = "shop.sold";
}

/// A connection to where they are: a URL and the name of a schema, or a prefix, or a file.
pub(crate) trait Shop: Sized + Send {
    type Outbox: OutboxTable + Clone + 'static;

    /// Opens the outbox; adds its tables.
    async fn outbox(url: &str, tables: &str, ordered: bool) -> Result<Self::Outbox, Failed>;

    async fn connect(url: &str, tables: &str) -> Result<Self, Failed>;

    /// Adds the table of orders, which numbers them.
    async fn make(&mut self);

    /// An order and its message in one transaction, which is rolled back if it is a `ghost`. Where order is kept, whoever
    /// sells for the same key waits once the message is stored: so the orders are numbered in the order of their commits.
    async fn sell(&mut self, outbox: &Self::Outbox, order: i32, key: i32, ghost: bool) -> Result<(), Failed>;

    /// Messages that are not sent yet.
    async fn waiting(&mut self) -> i64;

    /// Orders and their keys, in the order of their commits.
    async fn sold(&mut self) -> Vec<(i32, i32)>;
}

const INSERT: &str = "INSERT INTO hapax.orders (id, `key`) VALUES (ORDER, KEY)";
const WAITING: &str = "SELECT count(*) FROM hapax.outbox WHERE status = 0";
const SOLD: &str = "SELECT id, `key` FROM hapax.orders ORDER BY place";

/// `sql` with values and names in it.
fn text(sql: &str, tables: &str, order: i32, key: i32) -> AssertSqlSafe<String> {
    let sql = sql.replace("ORDER,", &format!("{order},")).replace("KEY)", &format!("{key})"));
    AssertSqlSafe(sql.replace("hapax.", tables))
}

macro_rules! shop {
    ($shop:ident, $connection:ty, $outbox:ty, $quote:literal, $table:literal,
     $open:expr, $connect:expr, $names:expr) => {
        pub(crate) struct $shop {
            connection: $connection,
            tables: String,
        }

        impl $shop {
            fn text(&self, sql: &str, order: i32, key: i32) -> AssertSqlSafe<String> {
                text(&sql.replace('`', $quote), &self.tables, order, key)
            }
        }

        impl Shop for $shop {
            type Outbox = $outbox;

            async fn outbox(url: &str, tables: &str, ordered: bool) -> Result<$outbox, Failed> {
                let options = <$outbox>::options().migrate(true).ordered(ordered).route(Sold::TYPE, AUDIT);
                let open: fn(&str, &str) -> _ = $open;
                Ok(options.open_database(open(url, tables)).await.map_err(|error| format!("{error:?}"))?)
            }

            async fn connect(url: &str, tables: &str) -> Result<Self, Failed> {
                let names: fn(&str) -> String = $names;
                let connect = $connect;
                Ok(Self { connection: connect(url.to_owned()).await?, tables: names(tables) })
            }

            async fn make(&mut self) {
                let text = self.text($table, 0, 0);
                self.connection.execute(sqlx::raw_sql(text)).await.unwrap();
            }

            async fn sell(&mut self, outbox: &$outbox, order: i32, key: i32, ghost: bool) -> Result<(), Failed> {
                let insert = self.text(INSERT, order, key);
                let mut tx = self.connection.begin().await?;
                let Outgoing { destination, envelope } = outbox.outgoing(&Sold { order })?;
                let mut envelope = (*envelope).clone();
                envelope.partition_key = Some(format!("key-{key}").parse()?);
                let sold = Outgoing { destination, envelope: envelope.into() };
                let ticket =
                    outbox.enqueue_all(&mut tx, &[sold]).await.map_err(|error: EnqueueError| format!("{error:?}"))?;
                tx.execute(sqlx::raw_sql(insert)).await?;
                if ghost {
                    return Ok(tx.rollback().await?);
                }
                tx.commit().await?;
                ticket.committed();
                Ok(())
            }

            async fn waiting(&mut self) -> i64 {
                let text = self.text(WAITING, 0, 0);
                self.connection.fetch_one(sqlx::raw_sql(text)).await.unwrap().get(0)
            }

            async fn sold(&mut self) -> Vec<(i32, i32)> {
                let text = self.text(SOLD, 0, 0);
                let rows = self.connection.fetch_all(sqlx::raw_sql(text)).await.unwrap();
                rows.iter().map(|row| (row.get(0), row.get(1))).collect()
            }
        }
    };
}

shop!(
    OnPostgres,
    PgConnection,
    PostgresOutbox,
    "\"",
    "CREATE TABLE hapax.orders (id int PRIMARY KEY, \"key\" int NOT NULL, place bigserial)",
    |url, schema| hapax::Postgres::options(url).schema(schema),
    async |url: String| PgConnection::connect(&url).await,
    |schema| format!("{schema}.")
);
shop!(
    OnMySql,
    MySqlConnection,
    MySqlOutbox,
    "`",
    "CREATE TABLE hapax.orders (id INT PRIMARY KEY, `key` INT NOT NULL, place BIGINT NOT NULL AUTO_INCREMENT UNIQUE)",
    |url, prefix| hapax::MySql::options(url).table_prefix(prefix),
    async |url: String| MySqlConnection::connect(&url).await,
    str::to_owned
);
shop!(
    InFile,
    SqliteConnection,
    SqliteOutbox,
    "\"",
    "CREATE TABLE hapax.orders (place INTEGER PRIMARY KEY AUTOINCREMENT, id INT UNIQUE, \"key\" INT NOT NULL)",
    |file, _| hapax::Sqlite::options(file).create_if_missing(true),
    async |file: String| {
        let options = SqliteConnectOptions::new().filename(file).journal_mode(SqliteJournalMode::Wal);
        SqliteConnection::connect_with(&options).await
    },
    |_| "hapax_".to_owned()
);
