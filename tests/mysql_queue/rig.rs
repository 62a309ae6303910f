//! What a test needs to know of MariaDB.
#![allow(clippy::unwrap_used)]

use hapax::{MySql, stores::mysql::MySqlOptions};
pub(crate) use hapax::{MySqlQueue as Queue, transports::mysql_queue::MySqlQueueOptions as QueueOptions};
pub(crate) use hapax_tests::MySqlTables as Tables;
use sqlx::{AssertSqlSafe, MySqlConnection, mysql::MySqlConnectOptions};

use super::common::wait_for;

/// The column of partition keys.
pub(crate) const KEY: &str = "partition_key";
pub(crate) const LOCK_MESSAGES: &str = "LOCK TABLES hapax.queue_message WRITE";
pub(crate) const LOCK_LETTERS: &str = "LOCK TABLES hapax.queue_dead_letter WRITE";
pub(crate) const UNLOCK: &str = "UNLOCK TABLES";
/// What was never given becomes due.
pub(crate) const DUE_NOW: &str = "UPDATE hapax.queue_message SET due_at = sent_at WHERE first_at = 0";
/// A slow transaction sends what is in the table to the shop, ten seconds ago.
pub(crate) const BEGIN_LATE: &str = "\
    SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; BEGIN; \
    INSERT INTO hapax.queue_message (queue, due_at, sent_at, bytes, message_id, envelope) \
    SELECT q.id, m.due_at - 10000, m.sent_at, m.bytes, m.message_id, m.envelope \
    FROM hapax.queue_message AS m CROSS JOIN hapax.queue AS q WHERE q.endpoint = 'shop'";
/// A trigger that refuses long messages.
pub(crate) const PICKY: &str = "\
    CREATE TRIGGER picky BEFORE INSERT ON hapax.queue_message FOR EACH ROW \
    IF LENGTH(new.envelope) > 1000 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'too long for me'; END IF";
/// What it does with a long message is an error of arithmetic, which nobody foresees.
pub(crate) const FRAIL: &str = "\
    CREATE TRIGGER frail BEFORE DELETE ON hapax.queue_message FOR EACH ROW \
    IF LENGTH(old.envelope) > 1000 THEN SET @n = 9223372036854775807 + old.bytes; END IF";
/// A statement whose connection ends while it waits for a table was refused before it began.
pub(crate) const CUT_IS_UNKNOWN: bool = false;

pub(crate) const fn options() -> QueueOptions {
    Queue::options()
}

/// Queues that find what others send by looking for it: there is no other way.
pub(crate) const fn looking() -> QueueOptions {
    Queue::options()
}

/// What nobody else is called by.
pub(crate) fn name_of(tables: &Tables) -> &str {
    tables.prefix()
}

/// A reason as it is kept.
pub(crate) fn as_kept(reason: &str) -> String {
    reason.to_owned()
}

/// Queues that are opened by an account of their own, so that the server can be told to end their connections.
pub(crate) async fn open_named(tables: &Tables, name: &str, options: QueueOptions) -> Queue {
    let create = format!("CREATE OR REPLACE USER {name}; GRANT ALL ON *.* TO {name}");
    run(&mut beside(tables).await, &create).await;
    options.migrate(true).open_database(by(tables, name)).await.unwrap()
}

/// How an account reaches the tables.
pub(crate) fn by(tables: &Tables, account: &str) -> MySqlOptions {
    let place: MySqlConnectOptions = tables.url().parse().unwrap();
    MySql::with(place.username(account)).table_prefix(tables.prefix())
}

/// What is only there for one test goes with it.
pub(crate) async fn forget(tables: &Tables, name: &str) {
    run(&mut beside(tables).await, &format!("DROP USER {name}")).await;
}

/// A connection beside the queue's own, as another program would have it. `hapax.` stands for the tables' prefix.
pub(crate) struct Beside {
    pub(crate) connection: MySqlConnection,
    prefix: String,
}

pub(crate) async fn beside(tables: &Tables) -> Beside {
    Beside { connection: tables.connection().await, prefix: tables.prefix().to_owned() }
}

pub(crate) async fn run(beside: &mut Beside, sql: &str) {
    let sql = AssertSqlSafe(sql.replace("hapax.", &beside.prefix));
    sqlx::raw_sql(sql).execute(&mut beside.connection).await.unwrap();
}

pub(crate) async fn number(beside: &mut Beside, sql: &str) -> i64 {
    let sql = AssertSqlSafe(sql.replace("hapax.", &beside.prefix));
    sqlx::query_scalar(sql).fetch_one(&mut beside.connection).await.unwrap()
}

/// How many connections of this name are held up. What InnoDB tells of its locks it remembers for as long as somebody asks.
pub(crate) fn waits(name: &str) -> String {
    format!("SELECT COUNT(*) {}", held_up(name))
}

fn held_up(name: &str) -> String {
    format!(
        "FROM information_schema.processlist AS p WHERE p.user = '{name}' AND p.command <> 'Sleep' AND p.time_ms > 200"
    )
}

/// Waits until a connection of this name waits for a lock, and ends it.
pub(crate) async fn cut_while_it_waits(connection: &mut Beside, name: &str) {
    wait_for(connection, &waits(name)).await;
    let id = number(connection, &format!("SELECT p.id {} LIMIT 1", held_up(name))).await;
    run(connection, &format!("KILL {id}")).await;
    let gone = format!("SELECT COUNT(*) = 0 FROM information_schema.processlist WHERE id = {id}");
    wait_for(connection, &gone).await;
}

/// Ends the connections of this name that are in the middle of something. How many.
pub(crate) async fn cut_all(beside: &mut Beside, name: &str) -> usize {
    let sql = format!("SELECT id FROM information_schema.processlist WHERE user = '{name}' AND command <> 'Sleep'");
    let ids: Vec<i64> = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(&mut beside.connection).await.unwrap();
    let mut cuts = 0;
    for id in ids {
        // It may be gone by itself.
        let kill = AssertSqlSafe(format!("KILL {id}"));
        cuts += usize::from(sqlx::raw_sql(kill).execute(&mut beside.connection).await.is_ok());
    }
    cuts
}
