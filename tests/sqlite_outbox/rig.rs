//! A file with the user's own table in it.

use std::time::Duration;

pub(crate) use hapax::stores::sqlite::outbox::{
    EnqueueError, SqliteInbox as Transactions, SqliteOutbox as Outbox, SqliteTransaction as Transaction,
};
use hapax::stores::sqlite::{SqliteOptions, outbox::SqliteOutboxOptions};
use hapax_tests::Scratch;
use sqlx::{
    AssertSqlSafe, Row, SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions},
};

/// Ten rows of each status; and what is over has been so for ten days.
pub(crate) const SPREAD: &str = "\
    UPDATE hapax.outbox SET status = number % 4, ended_at = iif(number % 4 <> 0, stored_at - 864000000, NULL)";
/// A table that numbers its rows.
pub(crate) const LOG: &str = "CREATE TABLE hapax.log (at INTEGER PRIMARY KEY AUTOINCREMENT, id INT)";
/// After it nothing of the transaction is left.
pub(crate) const BREAKS: &str = "ROLLBACK";
/// What is done after it is stored, each statement by itself.
pub(crate) const BREAKS_AND_GOES_ON: bool = true;
/// Fails as a statement does that has lost a race.
pub(crate) const RACE: Option<&str> = None;
/// From now on no message is taken.
pub(crate) const REFUSES: &str =
    "CREATE TRIGGER hapax.no BEFORE INSERT ON hapax.outbox BEGIN SELECT RAISE(ABORT, 'no'); END";
/// 1500 messages that were handled long ago.
pub(crate) const INBOX_ROWS: &str = "\
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500) \
    INSERT INTO hapax.inbox SELECT CAST(i AS BLOB), x'', x'', NULL, 1000 FROM n";
/// Three when there are three relays.
pub(crate) const FAIR: &str = "SELECT count(*) FROM hapax.outbox_relay";
/// 10,000 when there is a relay that sends.
pub(crate) const OWNED: &str = "SELECT (value <> 0) * 10000 FROM hapax.outbox_meta WHERE name = 'owner'";
/// One relay sends, and others wait for its end.
pub(crate) const SHARES: bool = false;
/// The table of another outbox in the same database.
pub(crate) const OTHER: &str = "hapax.outbox";
/// Transactions write beside each other.
pub(crate) const BESIDE: bool = false;
/// How long a writer waits for its turn: beyond what any test takes.
const BUSY: Duration = Duration::from_secs(20);

/// A file with a table of orders and an outbox. `hapax.` in a text is the prefix of their names.
pub(crate) struct Place {
    dir: Scratch,
    pub(crate) pool: SqlitePool,
    pub(crate) ordered: bool,
}

impl Place {
    pub(crate) async fn empty(ordered: bool) -> Self {
        let dir = Scratch::new("outbox");
        let file = SqliteConnectOptions::new().filename(dir.file("shop.db")).create_if_missing(true);
        let file = file.journal_mode(SqliteJournalMode::Wal).busy_timeout(BUSY);
        let pool = SqlitePoolOptions::new().max_connections(8).connect_with(file).await.unwrap();
        Self { dir, pool, ordered }
    }

    pub(crate) fn database(&self) -> SqliteOptions {
        hapax::Sqlite::options(self.dir.file("shop.db")).busy_timeout(BUSY)
    }

    /// The same: a file has one outbox, which may be opened several times.
    pub(crate) fn other_database(&self) -> SqliteOptions {
        self.database()
    }

    /// How its outbox is opened.
    pub(crate) fn options(&self) -> SqliteOutboxOptions {
        Outbox::options()
    }

    /// The outbox's tables, as they are applied by hand.
    pub(crate) fn schema_sql(&self) -> String {
        Outbox::schema_sql()
    }

    /// Finds the row of a message.
    pub(crate) fn of_id(&self, id: sqlx::types::Uuid) -> String {
        format!("SELECT count(*) FROM hapax.outbox WHERE id = x'{}'", id.simple())
    }

    /// All that waits may be claimed.
    pub(crate) async fn free(&self) {
        self.run("UPDATE hapax.outbox SET ready_at = stored_at WHERE status = 0").await;
    }

    pub(crate) fn sql(&self, sql: &str) -> String {
        sql.replace("hapax.", "hapax_")
    }

    /// A number out of the file.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        let sql = format!("SELECT CAST(({}) AS INTEGER)", self.sql(sql));
        sqlx::query(AssertSqlSafe(sql)).fetch_one(&self.pool).await.unwrap().get(0)
    }
}
