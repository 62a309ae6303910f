//! A schema with the user's own table in it.

pub(crate) use hapax::stores::postgres::outbox::{
    EnqueueError, PostgresInbox as Transactions, PostgresOutbox as Outbox, PostgresTransaction as Transaction,
};
use hapax::stores::postgres::{PostgresOptions, outbox::PostgresOutboxOptions};
use hapax_tests::PostgresSchema;
use sqlx::{
    AssertSqlSafe, PgPool, Row,
    postgres::{PgConnectOptions, PgPoolOptions, PgSslMode},
};

/// Ten rows of each status; and what is over has been so for ten days.
pub(crate) const SPREAD: &str = "\
    UPDATE hapax.outbox SET status = s.status, ended_at = CASE WHEN s.status <> 0 THEN stored_at - 864000000 END \
    FROM (SELECT id, ((row_number() OVER (ORDER BY id) - 1) % 4) AS status FROM hapax.outbox) AS s \
    WHERE s.id = hapax.outbox.id";
/// A table that numbers its rows.
pub(crate) const LOG: &str = "CREATE TABLE hapax.log (id int PRIMARY KEY, at bigserial)";
/// After it the transaction cannot be committed.
pub(crate) const BREAKS: &str = "SELECT 1 / 0";
/// What is done after it is stored, each statement by itself.
pub(crate) const BREAKS_AND_GOES_ON: bool = false;
/// Fails as a statement does that has lost a race.
pub(crate) const RACE: Option<&str> = Some("DO $$ BEGIN RAISE EXCEPTION 'lost' USING ERRCODE = '40P01'; END $$");
/// From now on no message is taken.
pub(crate) const REFUSES: &str = "ALTER TABLE hapax.outbox ADD CONSTRAINT no CHECK (false) NOT VALID";
/// 1500 messages that were handled long ago.
pub(crate) const INBOX_ROWS: &str = "\
    INSERT INTO hapax.inbox SELECT decode(md5(i::text), 'hex'), '', '', NULL, 1000 FROM generate_series(1, 1500) AS i";

/// Three when the keys are shared out evenly between three relays.
pub(crate) const FAIR: &str = "\
    SELECT count(*) FROM (SELECT owner FROM hapax.outbox_partition WHERE owner IS NOT NULL GROUP BY owner \
    HAVING count(*) BETWEEN 3000 AND 3400) AS fair";
/// 10,000 when all keys are some relay's.
pub(crate) const OWNED: &str = "SELECT count(*) FROM hapax.outbox_partition WHERE owner IS NOT NULL";
/// Keys are shared out between relays.
pub(crate) const SHARES: bool = true;
/// The table of another outbox in the same database.
pub(crate) const OTHER: &str = "hapax.books_outbox";
/// Transactions write beside each other.
pub(crate) const BESIDE: bool = true;

/// A schema with a table of orders and an outbox. `hapax.` in a text is its name.
pub(crate) struct Place {
    pub(crate) schema: PostgresSchema,
    pub(crate) pool: PgPool,
    pub(crate) ordered: bool,
}

impl Place {
    pub(crate) async fn empty(ordered: bool) -> Self {
        let schema = PostgresSchema::new();
        let pool = PgPoolOptions::new().max_connections(8).connect(schema.url()).await.unwrap();
        Self { pool, schema, ordered }
    }

    pub(crate) fn database(&self) -> PostgresOptions {
        self.schema.options()
    }

    /// Host and port.
    pub(crate) fn server(&self) -> (String, u16) {
        let server: PgConnectOptions = self.schema.url().parse().unwrap();
        (server.get_host().to_owned(), server.get_port())
    }

    /// One connection, which goes by another port of this host, where what it says can be read.
    pub(crate) async fn pool_through(&self, port: u16) -> PgPool {
        let server: PgConnectOptions = self.schema.url().parse().unwrap();
        let server = server.host("127.0.0.1").port(port).ssl_mode(PgSslMode::Disable);
        PgPoolOptions::new().max_connections(1).connect_with(server).await.unwrap()
    }

    /// The same with a prefix of its tables: of [`OTHER`].
    pub(crate) fn other_database(&self) -> PostgresOptions {
        self.database().table_prefix("books_")
    }

    /// How its outbox is opened.
    pub(crate) fn options(&self) -> PostgresOutboxOptions {
        super::options()
    }

    /// The outbox's tables, as they are applied by hand.
    pub(crate) fn schema_sql(&self) -> String {
        self.options().schema_sql(&self.database()).unwrap()
    }

    /// Finds the row of a message.
    pub(crate) fn of_id(&self, id: sqlx::types::Uuid) -> String {
        format!("SELECT count(*) FROM hapax.outbox WHERE id = '{id}'")
    }

    /// All that waits may be claimed.
    pub(crate) async fn free(&self) {
        let now = "(date_part('epoch', clock_timestamp()) * 1000)::bigint";
        self.run(&format!("UPDATE hapax.outbox SET ready_at = {now} WHERE status = 0")).await;
    }

    pub(crate) fn sql(&self, sql: &str) -> String {
        sql.replace("hapax.", &format!("{}.", self.schema.name()))
    }

    /// A number out of the database.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        let sql = format!("SELECT ({})::bigint", self.sql(sql));
        sqlx::query(AssertSqlSafe(sql)).fetch_one(&self.pool).await.unwrap().get(0)
    }
}
