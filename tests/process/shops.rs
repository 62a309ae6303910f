//! The tables of those who sell, in each database: their own, and an outbox beside them.
#![allow(dead_code)] // Each program uses a part of it.

use hapax::{
    Message, MySqlOutbox, PostgresOutbox, SqliteOutbox, envelope::Outgoing, ports::OutboxTable,
    stores::postgres::outbox::EnqueueError, time::Timestamp,
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

/// What is sold.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sale {
    pub(crate) order: i32,
    pub(crate) key: i32,
    /// It is rolled back.
    pub(crate) ghost: bool,
    /// Nobody is to be told before.
    pub(crate) due: Option<Timestamp>,
    /// It is not worth telling after.
    pub(crate) expires: Option<Timestamp>,
    /// Whoever sells it dies, or is somebody without a relay: its ticket is not handed over.
    pub(crate) silent: bool,
}

/// A connection to where they are: a URL and the name of a schema, or a prefix, or a file.
pub(crate) trait Shop: Sized + Send {
    type Outbox: OutboxTable + Clone + 'static;

    /// Opens the outbox; adds its tables.
    async fn outbox(url: &str, tables: &str, ordered: bool) -> Result<Self::Outbox, Failed>;

    async fn connect(url: &str, tables: &str) -> Result<Self, Failed>;

    /// Adds the table of orders, which numbers them.
    async fn make(&mut self);

    /// An order and its message in one transaction, which is rolled back if it is a ghost. Where order is kept, whoever
    /// sells for the same key waits once the message is stored: so the orders are numbered in the order of their commits.
    async fn sell(&mut self, outbox: &Self::Outbox, sale: Sale) -> Result<(), Failed> {
        self.sell_by_steps(outbox, sale, |_| {}).await
    }

    /// The same, and tells what it has done.
    async fn sell_by_steps(
        &mut self,
        outbox: &Self::Outbox,
        sale: Sale,
        done: impl Fn(&'static str),
    ) -> Result<(), Failed>;

    /// A statement: `hapax.` stands for its tables' names.
    async fn run(&mut self, sql: &str);

    /// A number out of the database: `hapax.` in a text stands for its tables' names.
    async fn number(&mut self, sql: &str) -> i64 {
        self.try_number(sql).await.unwrap()
    }

    /// The same, where the server may be gone.
    async fn try_number(&mut self, sql: &str) -> Result<i64, Failed>;

    /// Messages that are not sent yet.
    async fn waiting(&mut self) -> i64 {
        self.number(WAITING).await
    }

    /// Orders and their keys, in the order of their commits.
    async fn sold(&mut self) -> Vec<(i32, i32)>;
}

const INSERT: &str = "INSERT INTO hapax.orders (id, `key`) VALUES (ORDER, KEY)";
/// Of messages.
pub(crate) const WAITING: &str = "SELECT count(*) FROM hapax.outbox WHERE status = 0";
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
                let options = <$outbox>::options().migrate(true).ordered_keys(ordered).route(Sold::TYPE, AUDIT);
                let open: fn(&str, &str) -> _ = $open;
                Ok(options.open_database(open(url, tables)).await.map_err(|error| format!("{error:?}"))?)
            }

            async fn connect(url: &str, tables: &str) -> Result<Self, Failed> {
                let names: fn(&str) -> String = $names;
                let connect = $connect;
                Ok(Self { connection: connect(url.to_owned()).await?, tables: names(tables) })
            }

            async fn make(&mut self) {
                self.run($table).await;
            }

            async fn sell_by_steps(
                &mut self,
                outbox: &$outbox,
                sale: Sale,
                done: impl Fn(&'static str),
            ) -> Result<(), Failed> {
                let Sale { order, key, ghost, due, expires, silent } = sale;
                let insert = self.text(INSERT, order, key);
                let mut tx = self.connection.begin().await?;
                done("begun");
                let Outgoing { destination, envelope } = outbox.outgoing(&Sold { order })?;
                let mut envelope = (*envelope).clone();
                envelope.partition_key = Some(format!("key-{key}").parse()?);
                envelope.due = due;
                envelope.expires = expires;
                let sold = Outgoing { destination, envelope: envelope.into() };
                let ticket =
                    outbox.enqueue_all(&mut tx, &[sold]).await.map_err(|error: EnqueueError| format!("{error:?}"))?;
                done("stored");
                tx.execute(sqlx::raw_sql(insert)).await?;
                done("inserted");
                if ghost {
                    return Ok(tx.rollback().await?);
                }
                tx.commit().await?;
                done("committed");
                if !silent {
                    ticket.committed();
                }
                done("handed");
                Ok(())
            }

            async fn run(&mut self, sql: &str) {
                let text = self.text(sql, 0, 0);
                self.connection.execute(sqlx::raw_sql(text)).await.unwrap();
            }

            async fn try_number(&mut self, sql: &str) -> Result<i64, Failed> {
                let text = self.text(sql, 0, 0);
                Ok(self.connection.fetch_one(sqlx::raw_sql(text)).await?.try_get(0)?)
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
