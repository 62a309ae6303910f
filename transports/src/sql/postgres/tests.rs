//! What only the server can tell, in a schema of each test's own: whether it takes every text, by which index it goes, who waits for whom.
#![allow(clippy::unwrap_used)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use hapax_core::{
    envelope::{Destination, Envelope, Outgoing},
    ids::{EndpointName, MessageId, PartitionKey, TypeName},
    ports::{Connected, Dispatcher, Settled, Settlement, Transport},
};
use hapax_stores::{Postgres, sql::postgres::PostgresOptions};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row, SqlSafeStr};

use super::{super::served::signals::Position, PostgresQueue, PostgresQueueOptions, statements};

/// What has to come comes long before this, on any machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A schema of one test, which is dropped at its end.
struct Place {
    name: String,
    database: PostgresOptions,
}

impl Place {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("hapax_queue_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Self { database: Postgres::options(url()).schema(&name), name }
    }

    async fn open(&self, options: PostgresQueueOptions) -> PostgresQueue {
        options.migrate(true).open_database(self.database.clone()).await.unwrap()
    }

    fn text(&self, sql: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(statements::SCHEMA.with_names(&self.database, sql).unwrap())
    }

    async fn end(self, queue: PostgresQueue) {
        queue.close().await;
        let drop = AssertSqlSafe(format!("DROP SCHEMA {} CASCADE", self.name));
        beside().await.execute(sqlx::raw_sql(drop)).await.unwrap();
    }
}

fn url() -> String {
    let url = std::env::var("HAPAX_TEST_POSTGRES");
    url.expect("no PostgreSQL to test with: run `cargo xtask test`, or set HAPAX_TEST_POSTGRES=postgres://..")
}

async fn beside() -> PgConnection {
    PgConnection::connect(&url()).await.unwrap()
}

async fn shop(queue: &PostgresQueue) -> Connected {
    queue.connect(&EndpointName::parse("shop").unwrap(), &[]).await.unwrap()
}

async fn send(queue: &PostgresQueue, bodies: &[String]) {
    let outgoing: Vec<Outgoing> = bodies
        .iter()
        .map(|body| {
            let message_type = TypeName::parse("shop.added").unwrap();
            let envelope = Envelope::new(MessageId::random(), message_type, body.as_bytes().to_vec());
            let envelope = Envelope { partition_key: Some(PartitionKey::parse("k").unwrap()), ..envelope };
            let destination = Destination::Endpoint(EndpointName::parse("shop").unwrap());
            Outgoing { destination, envelope: Arc::new(envelope) }
        })
        .collect();
    queue.dispatch(&outgoing).await.into_iter().for_each(Result::unwrap);
}

fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|number| number.to_string()).collect()
}

#[tokio::test]
async fn the_server_takes_every_statement() {
    let place = Place::new();
    let queue = place.open(PostgresQueue::options()).await;
    let mut connection = beside().await;
    for sql in statements::all() {
        let prepared = connection.prepare(place.text(&sql).into_sql_str()).await;
        assert!(prepared.is_ok(), "{}: {sql}", prepared.unwrap_err());
    }
    place.end(queue).await;
}

async fn plan(connection: &mut PgConnection, explain: AssertSqlSafe<String>) -> Value {
    let row = sqlx::query(explain).persistent(false).fetch_one(connection).await.unwrap();
    serde_json::from_str(row.get_unchecked(0)).unwrap()
}

/// Each node of a plan with what is above it.
fn nodes<'p>(plan: &'p Value, above: &mut Vec<&'p Value>, see: &mut impl FnMut(&'p Value, &[&'p Value])) {
    see(plan, above);
    above.push(plan);
    for below in plan["Plans"].as_array().into_iter().flatten() {
        nodes(below, above, see);
    }
    above.pop();
}

#[tokio::test]
async fn no_statement_goes_through_all_messages_whatever_the_table_was_when_it_was_planned() {
    let place = Place::new();
    let queue = place.open(PostgresQueue::options()).await;
    let mut connection = PgConnection::connect_with(&queue.0.server.session().unwrap()).await.unwrap();
    let fill = "INSERT INTO hapax.queue_message \
                  (queue, due_at, leased_until, token, deliveries, sent_at, key, message_id, envelope) \
                SELECT i % 3, i, 0, 0, 0, 0, 'k' || i % 1000, 'id', 'x' FROM generate_series(1, 20000) AS i";
    for step in
        ["SELECT", fill, "ANALYZE hapax.queue_message", "TRUNCATE hapax.queue_message", "ANALYZE hapax.queue_message"]
    {
        connection.execute(sqlx::raw_sql(place.text(step))).await.unwrap();
        for sql in statements::all().iter().filter(|sql| *sql != statements::MESSAGES) {
            let most = (1..40).rev().find(|at| sql.contains(&format!("${at}"))).unwrap_or(0);
            let nulls = if most == 0 { String::new() } else { format!("({})", vec!["NULL"; most].join(", ")) };
            connection.execute(sqlx::raw_sql(place.text(&format!("PREPARE p AS {sql}")))).await.unwrap();
            let explain = AssertSqlSafe(format!("EXPLAIN (FORMAT JSON) EXECUTE p{nulls}"));
            let plan = plan(&mut connection, explain).await;
            connection.execute(sqlx::raw_sql("DEALLOCATE p")).await.unwrap();
            nodes(&plan[0]["Plan"], &mut Vec::new(), &mut |node, above| {
                let kind = node["Node Type"].as_str().unwrap_or_default();
                if node["Relation Name"] == "queue_message" && kind.contains("Scan") {
                    assert!(kind.starts_with("Index"), "{step}: {kind}: {sql}");
                    assert!(node["Index Cond"].is_string(), "{step}: the whole of an index: {node}: {sql}");
                    // What is asked for as a range of an index is found by that index.
                    let filter = node["Filter"].as_str().unwrap_or_default();
                    assert!(!filter.contains("ROW("), "{step}: {node}: {sql}");
                    let by = node["Index Name"].as_str().unwrap_or_default();
                    assert!(
                        *sql != statements::IS_LEFT || by.ends_with("_due"),
                        "{step}: other queues' messages: {node}"
                    );
                    // And comes in its order: nothing of a backlog is sorted.
                    let takes = |node: &&Value| node["Subplan Name"] == "CTE t" || node["Subplan Name"] == "CTE w";
                    let sorts = above.iter().any(|node| node["Node Type"] == "Sort");
                    let of_take = above.iter().chain([&node]).any(takes);
                    assert!(!(of_take && sorts), "{step}: {node}: {sql}");
                }
            });
        }
    }
    place.end(queue).await;
}

/// An old snapshot keeps the server from clearing away what is gone; a take begins behind it all the same.
#[tokio::test]
async fn what_is_gone_but_not_cleared_away_is_not_looked_at_by_a_take() {
    let place = Place::new();
    let queue = place.open(PostgresQueue::options().polls(Duration::from_secs(3600), Duration::from_secs(3600))).await;
    let ends = shop(&queue).await;
    let mut old = beside().await;
    let begin = place.text("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM hapax.queue_message");
    old.execute(sqlx::raw_sql(begin)).await.unwrap();
    send(&queue, &numbered(4000)).await;
    let mut left = 4000;
    while left > 0 {
        let deliveries = ends.receiver.receive(500).await.unwrap();
        left -= deliveries.len();
        let acks = deliveries.iter().map(|delivery| ends.receiver.settle(&delivery.receipt, Settlement::Ack));
        for settled in futures_util::future::join_all(acks).await {
            assert_eq!(settled.unwrap(), Settled::Done);
        }
    }
    // Past the time for which late commits are looked for.
    let nothing = tokio::time::timeout(Duration::from_secs(1), ends.receiver.receive(1)).await;
    assert!(nothing.is_err());
    send(&queue, &numbered(1)).await;
    assert_eq!(ends.receiver.receive(1).await.unwrap().len(), 1);
    let signal = queue.0.hub.signals.of_queue(1);
    let (from, _) = signal.begin();
    assert!(from > Position::START);

    let mut connection = PgConnection::connect_with(&queue.0.server.session().unwrap()).await.unwrap();
    let take = statements::group(statements::Kinds { take: true, ..Default::default() });
    connection.execute(sqlx::raw_sql(place.text(&format!("PREPARE p AS {take}")))).await.unwrap();
    let mut pages = Vec::new();
    for from in [from, Position::START] {
        let execute = format!("EXECUTE p(1, {}, {}, 10, 1000000, 1, 1)", from.due, from.id);
        let explain = AssertSqlSafe(format!("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {execute}"));
        let plan = plan(&mut connection, explain).await;
        pages.push(
            plan[0]["Plan"]["Shared Hit Blocks"].as_i64().unwrap()
                + plan[0]["Plan"]["Shared Read Blocks"].as_i64().unwrap(),
        );
    }
    assert!(pages[0] < 60 && pages[1] > 5 * pages[0], "pages with and without a position: {pages:?}");
    drop(old);
    place.end(queue).await;
}

/// The new version of its row is on the same page and in no index.
#[tokio::test]
async fn giving_a_message_is_a_heap_only_update() {
    let place = Place::new();
    let queue = place.open(PostgresQueue::options()).await;
    let ends = shop(&queue).await;
    let mut connection = beside().await;
    let indexed = "SELECT count(*) FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid \
                     AND (a.attnum = ANY (i.indkey) OR pg_get_expr(i.indpred, i.indrelid) ~ a.attname) \
                   WHERE i.indrelid = 'hapax.queue_message'::regclass \
                     AND a.attname IN ('leased_until', 'token', 'deliveries', 'first_at')";
    let indexed: i64 = sqlx::query(place.text(indexed)).fetch_one(&mut connection).await.unwrap().get(0);
    assert_eq!(indexed, 0, "what changes with a lease is in an index");
    send(&queue, &numbered(200)).await;
    let pages = "SELECT id, (ctid::text::point)[0]::bigint FROM hapax.queue_message ORDER BY id";
    let before = sqlx::query(place.text(pages)).fetch_all(&mut connection).await.unwrap();
    assert_eq!(ends.receiver.receive(200).await.unwrap().len(), 200);
    let after = sqlx::query(place.text(pages)).fetch_all(&mut connection).await.unwrap();
    let moved = before.iter().zip(&after).filter(|(b, a)| b.get::<i64, _>(1) != a.get::<i64, _>(1)).count();
    assert!(moved < 20, "{moved} of 200 rows had no room on their page");
    place.end(queue).await;
}

/// One that has become due meanwhile must see what another process is about to give of its key.
#[tokio::test]
async fn a_take_in_the_order_of_keys_waits_for_the_one_before_it() {
    let place = Place::new();
    let queue = place.open(PostgresQueue::options().ordered_keys(true)).await;
    let ends = shop(&queue).await;
    let mut other = beside().await;
    send(&queue, &["timeout".to_owned(), "k1".to_owned()]).await;
    let later = place.text("UPDATE hapax.queue_message SET due_at = due_at + 3600000 WHERE id = 1");
    other.execute(sqlx::raw_sql(later)).await.unwrap();

    // Another process gives k1, and its commit takes long.
    let mut slow = beside().await;
    let lock = place.text(&format!("BEGIN; {}", statements::order_lock(1)));
    slow.execute(sqlx::raw_sql(lock)).await.unwrap();
    let take = sqlx::query(place.text(&statements::take_ordered())).bind(1_i64).bind(i64::MIN).bind(0_i64).bind(10_i64);
    let take = take.bind(1_000_000_i64).bind(7_i64).bind(3_600_000_i64).bind(Vec::<String>::new());
    let given = take.fetch_all(&mut slow).await.unwrap();
    assert_eq!(given.iter().filter(|row| row.get::<i32, _>(0) == statements::row::GIVEN).count(), 1);

    let due = place.text("UPDATE hapax.queue_message SET due_at = sent_at WHERE id = 1");
    other.execute(sqlx::raw_sql(due)).await.unwrap();
    let receiver = ends.receiver.clone();
    let taking = tokio::spawn(async move { receiver.receive(10).await });
    let waits = "SELECT count(*) FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid) \
                 WHERE l.locktype = 'advisory' AND NOT l.granted AND a.query LIKE '%' || $1 || '%'";
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let waiting = sqlx::query(waits).bind(&place.name).fetch_one(&mut other).await.unwrap();
        if waiting.get::<i64, _>(0) > 0 {
            break;
        }
        assert!(!taking.is_finished(), "it was given beside a later one of its key");
        assert!(tokio::time::Instant::now() < deadline, "it does not wait");
        tokio::task::yield_now().await;
    }
    slow.execute("COMMIT").await.unwrap();
    let ack = place.text("SELECT 1 FROM hapax.queue_message WHERE leased_until > 0");
    assert_eq!(sqlx::query(ack).fetch_all(&mut other).await.unwrap().len(), 1);
    assert!(!taking.is_finished());
    let acked = place.text("DELETE FROM hapax.queue_message WHERE id = 2");
    other.execute(sqlx::raw_sql(acked)).await.unwrap();
    let given = tokio::time::timeout(PATIENCE, taking).await.expect("nothing comes").unwrap().unwrap();
    assert_eq!(given.len(), 1);
    place.end(queue).await;
}
