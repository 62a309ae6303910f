//! Tables with the user's own table among them.

pub(crate) use hapax::stores::mysql::outbox::{
    EnqueueError, MySqlInbox as Transactions, MySqlOutbox as Outbox, MySqlTransaction as Transaction,
};
use hapax::stores::mysql::{MySqlOptions, outbox::MySqlOutboxOptions};
use hapax_tests::MySqlTables;
use sqlx::{
    AssertSqlSafe, MySqlPool, Row,
    mysql::{MySqlConnectOptions, MySqlPoolOptions, MySqlSslMode},
};

/// Ten rows of each status; and what is over has been so for ten days.
pub(crate) const SPREAD: &str = "\
    UPDATE hapax.outbox SET status = number % 4, ended_at = IF(number % 4 <> 0, stored_at - 864000000, NULL), \
    ready_at = IF(number % 4 <> 0, stored_at - 864000000, ready_at)";
/// A table that numbers its rows.
pub(crate) const LOG: &str = "CREATE TABLE hapax.log (id INT PRIMARY KEY, at BIGINT NOT NULL AUTO_INCREMENT UNIQUE)";
/// After it nothing of the transaction is left, as after a deadlock.
pub(crate) const BREAKS: &str = "ROLLBACK";
/// What is done after it is stored, each statement by itself.
pub(crate) const BREAKS_AND_GOES_ON: bool = true;
/// Fails as a statement does that has lost a race.
pub(crate) const RACE: Option<&str> = Some("SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213");
/// From now on no message is taken.
pub(crate) const REFUSES: &str =
    "CREATE TRIGGER hapax.no BEFORE INSERT ON hapax.outbox FOR EACH ROW SIGNAL SQLSTATE '45000'";
/// 1500 messages that were handled long ago.
pub(crate) const INBOX_ROWS: &str = "\
    INSERT INTO hapax.inbox SELECT CONCAT(UNHEX(MD5(CONCAT(a.`partition`))), 'aaaaaaaa'), '', '', NULL, 1000 \
    FROM hapax.outbox_lock AS a WHERE a.`partition` < 1500";

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

/// A table of orders and an outbox. `hapax.` in a text is the prefix of their names.
pub(crate) struct Place {
    pub(crate) tables: MySqlTables,
    pub(crate) pool: MySqlPool,
    pub(crate) ordered: bool,
}

impl Place {
    pub(crate) async fn empty(ordered: bool) -> Self {
        let tables = MySqlTables::new();
        let pool = MySqlPoolOptions::new().max_connections(8).connect(tables.url()).await.unwrap();
        Self { pool, tables, ordered }
    }

    pub(crate) fn database(&self) -> MySqlOptions {
        self.tables.options()
    }

    /// Host and port.
    pub(crate) fn server(&self) -> (String, u16) {
        let server: MySqlConnectOptions = self.tables.url().parse().unwrap();
        (server.get_host().to_owned(), server.get_port())
    }

    /// One connection, which goes by another port of this host, where what it says can be read.
    pub(crate) async fn pool_through(&self, port: u16) -> MySqlPool {
        let server: MySqlConnectOptions = self.tables.url().parse().unwrap();
        let server = server.host("127.0.0.1").port(port).ssl_mode(MySqlSslMode::Disabled);
        MySqlPoolOptions::new().max_connections(1).connect_with(server).await.unwrap()
    }

    /// The same with another prefix: of [`OTHER`].
    pub(crate) fn other_database(&self) -> MySqlOptions {
        self.database().table_prefix(self.sql("hapax.books_"))
    }

    /// How its outbox is opened.
    pub(crate) fn options(&self) -> MySqlOutboxOptions {
        Outbox::options()
    }

    /// The outbox's tables, as they are applied by hand.
    pub(crate) fn schema_sql(&self) -> String {
        Outbox::schema_sql(&self.database()).unwrap()
    }

    /// Finds the row of a message.
    pub(crate) fn of_id(&self, id: sqlx::types::Uuid) -> String {
        format!("SELECT count(*) FROM hapax.outbox WHERE id = x'{}'", id.simple())
    }

    /// All that waits may be claimed.
    pub(crate) async fn free(&self) {
        let now = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000";
        self.run(&format!("UPDATE hapax.outbox SET ready_at = {now} WHERE status = 0")).await;
    }

    pub(crate) fn sql(&self, sql: &str) -> String {
        self.tables.with_names(sql)
    }

    /// A number out of the database.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        let sql = format!("SELECT CAST(({}) AS SIGNED)", self.sql(sql));
        sqlx::query(AssertSqlSafe(sql)).fetch_one(&self.pool).await.unwrap().get(0)
    }
}
