//! What a test needs to know of PostgreSQL.
#![allow(clippy::unwrap_used)]

use hapax::Postgres;
pub(crate) use hapax::{PostgresQueue as Queue, transports::postgres_queue::PostgresQueueOptions as QueueOptions};
pub(crate) use hapax_tests::PostgresSchema as Tables;
use sqlx::{AssertSqlSafe, Connection, PgConnection, postgres::PgConnectOptions};

use super::common::wait_for;

/// The column of partition keys.
pub(crate) const KEY: &str = "key";
pub(crate) const LOCK_MESSAGES: &str = "BEGIN; LOCK TABLE hapax.queue_message IN EXCLUSIVE MODE";
pub(crate) const LOCK_LETTERS: &str = "BEGIN; LOCK TABLE hapax.queue_dead_letter";
pub(crate) const UNLOCK: &str = "ROLLBACK";
/// What was never given becomes due.
pub(crate) const DUE_NOW: &str = "UPDATE hapax.queue_message SET due_at = sent_at WHERE first_at IS NULL";
/// A slow transaction sends what is in the table to the shop, ten seconds ago.
pub(crate) const BEGIN_LATE: &str = "\
    BEGIN; INSERT INTO hapax.queue_message \
    (queue, due_at, leased_until, token, deliveries, sent_at, message_id, envelope) \
    SELECT q.id, m.due_at - 10000, 0, 0, 0, m.sent_at, m.message_id, m.envelope \
    FROM hapax.queue_message AS m CROSS JOIN hapax.queue AS q WHERE q.endpoint = 'shop'";
/// A trigger that refuses long messages.
pub(crate) const PICKY: &str = "\
    CREATE FUNCTION picky() RETURNS trigger LANGUAGE plpgsql AS \
      $$ BEGIN IF length(new.envelope) > 1000 THEN RAISE 'too long for me'; END IF; RETURN new; END $$; \
    CREATE TRIGGER picky BEFORE INSERT ON hapax.queue_message FOR EACH ROW EXECUTE FUNCTION picky()";
/// What it does with a long message is an error of arithmetic, which nobody foresees.
pub(crate) const FRAIL: &str = "\
    CREATE FUNCTION frail() RETURNS trigger LANGUAGE plpgsql AS \
    $$ BEGIN IF length(old.envelope) > 1000 THEN PERFORM 1 / 0; END IF; RETURN old; END $$; \
    CREATE TRIGGER frail BEFORE DELETE ON hapax.queue_message FOR EACH ROW EXECUTE FUNCTION frail()";
/// Where its connection ends in the middle of a write, nobody knows what became of it.
pub(crate) const CUT_IS_UNKNOWN: bool = true;

pub(crate) const fn options() -> QueueOptions {
    Queue::options()
}

/// Queues that are not told of what others send, and look for it.
pub(crate) const fn looking() -> QueueOptions {
    Queue::options().listen(false)
}

/// What nobody else is called by.
pub(crate) fn name_of(tables: &Tables) -> &str {
    tables.name()
}

/// A reason as it is kept.
pub(crate) fn as_kept(reason: &str) -> String {
    reason.replace('\0', "\u{fffd}")
}

/// Queues whose connections have a name, so that the server can be told to end them.
pub(crate) async fn open_named(tables: &Tables, name: &str, options: QueueOptions) -> Queue {
    let place: PgConnectOptions = tables.url().parse().unwrap();
    let database = Postgres::with(place.application_name(name)).schema(tables.name());
    options.migrate(true).open_database(database).await.unwrap()
}

/// Nothing of a name outlives its connections.
pub(crate) async fn forget(_tables: &Tables, _name: &str) {}

/// A connection beside the queue's own, as another program would have it. `hapax.` stands for the schema.
pub(crate) struct Beside {
    pub(crate) connection: PgConnection,
    schema: String,
}

pub(crate) async fn beside(tables: &Tables) -> Beside {
    let connection = PgConnection::connect(tables.url()).await.unwrap();
    let mut beside = Beside { connection, schema: format!("{}.", tables.name()) };
    run(&mut beside, &format!("SET search_path = {}", tables.name())).await;
    beside
}

pub(crate) async fn run(beside: &mut Beside, sql: &str) {
    let sql = AssertSqlSafe(sql.replace("hapax.", &beside.schema));
    sqlx::raw_sql(sql).execute(&mut beside.connection).await.unwrap();
}

pub(crate) async fn number(beside: &mut Beside, sql: &str) -> i64 {
    let sql = AssertSqlSafe(sql.replace("hapax.", &beside.schema));
    sqlx::query_scalar(sql).fetch_one(&mut beside.connection).await.unwrap()
}

/// How many connections of this name are held up.
pub(crate) fn waits(name: &str) -> String {
    format!("SELECT count(*) FROM pg_stat_activity WHERE application_name = '{name}' AND wait_event_type = 'Lock'")
}

/// Waits until a connection of this name waits for a lock, and ends it.
pub(crate) async fn cut_while_it_waits(connection: &mut Beside, name: &str) {
    let waits = format!("application_name = '{name}' AND wait_event_type = 'Lock'");
    wait_for(connection, &format!("SELECT count(*) FROM pg_stat_activity WHERE {waits}")).await;
    let end = format!("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE {waits}");
    assert_eq!(number(connection, &end).await, 1);
    let gone = format!("SELECT (count(*) = 0)::int::bigint FROM pg_stat_activity WHERE {waits}");
    wait_for(connection, &gone).await;
}

/// Ends the connections of this name that are in the middle of something. How many.
pub(crate) async fn cut_all(beside: &mut Beside, name: &str) -> usize {
    let sql = format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
         WHERE application_name = '{name}' AND state <> 'idle'"
    );
    usize::try_from(number(beside, &sql).await).unwrap()
}
