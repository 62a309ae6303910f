//! What only the server can tell, in a database of each test's own: whether it takes every text, by which index it goes, who waits for whom.
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
use hapax_stores::{MySql, sql::mysql::MySqlOptions};
use serde_json::Value;
use sqlx::{
    AssertSqlSafe, ConnectOptions, Executor, MySqlConnection, Row, SqlSafeStr,
    mysql::{MySqlConnectOptions, MySqlRow},
};

use super::{
    super::served::asks::{Lease, Message, Wanted, What},
    super::served::signals::Position,
    MySqlQueue, MySqlQueueOptions,
    statements::{self, Group},
};

/// What has to come comes long before this, on any machine.
const PATIENCE: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3600);

/// A database of one test, which is dropped at its end.
struct Place {
    name: String,
    database: MySqlOptions,
}

impl Place {
    async fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("hapax_queue_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        run(&mut server().connect().await.unwrap(), &format!("CREATE DATABASE {name}")).await;
        Self { database: MySql::with(server().database(&name)), name }
    }

    async fn open(&self, options: MySqlQueueOptions) -> MySqlQueue {
        options.migrate(true).open_database(self.database.clone()).await.unwrap()
    }

    async fn beside(&self) -> MySqlConnection {
        let mut connection = server().database(&self.name).connect().await.unwrap();
        run(&mut connection, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").await;
        connection
    }

    async fn end(self, queue: MySqlQueue) {
        queue.close().await;
        run(&mut server().connect().await.unwrap(), &format!("DROP DATABASE {}", self.name)).await;
    }
}

fn server() -> MySqlConnectOptions {
    let url = std::env::var("HAPAX_TEST_MYSQL");
    let url = url.expect("no MariaDB to test with: run `cargo xtask test`, or set HAPAX_TEST_MYSQL=mysql://..");
    url.parse().unwrap()
}

async fn run(connection: &mut MySqlConnection, sql: &str) {
    if let Err(e) = connection.execute(sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))).await {
        panic!("{e}: {sql}");
    }
}

async fn numbers(connection: &mut MySqlConnection, sql: &str) -> Vec<i64> {
    let rows = connection.fetch_all(sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))).await;
    rows.unwrap_or_else(|e| panic!("{e}: {sql}")).iter().map(|row| row.get(0)).collect()
}

async fn shop(queue: &MySqlQueue) -> Connected {
    queue.connect(&EndpointName::parse("shop").unwrap(), &[]).await.unwrap()
}

async fn send(queue: &MySqlQueue, bodies: &[String]) {
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

const WANTED: Wanted =
    Wanted { queue: 1, from: Position { due: 1_000, id: 7 }, max: 10, bytes_max: 1_000_000, token: 5, lease: 30_000 };

fn group(queue: &MySqlQueue) -> Vec<String> {
    let whats = [
        What::Ack,
        What::Retry { delay: 0, uncounted: 0 },
        What::Retry { delay: 7, uncounted: 1 },
        What::SetAside { endpoint: "shop".into(), reason: "no; \0 '\\ \u{1f980}".to_owned() },
        What::Extend { lease: 30_000 },
    ];
    let leases: Vec<Lease> =
        (1..).zip(whats).map(|(id, what)| Lease { id, token: -3, ordered: id % 2 == 0, what }).collect();
    let message = |queue, topic: Option<&str>, due, key: Option<&str>| Message {
        queue,
        topic: topic.map(str::to_owned),
        due,
        key: key.map(str::to_owned),
        id: "'; DROP TABLE x".to_owned(),
        envelope: b"; ".to_vec(),
    };
    let messages = [
        message(Some(1), None, 0, None),
        message(Some(2), None, i64::MAX, Some("a")),
        message(None, Some("shop.added"), 9, Some("b")),
        message(Some(1), None, 0, None),
    ];
    let mut group = Group::new(&queue.0.server, 0);
    group.ends(&leases.iter().collect::<Vec<&Lease>>());
    group.send(&messages.iter().collect::<Vec<&Message>>());
    group.take(WANTED);
    group.text().as_str().split("; ").map(str::to_owned).collect()
}

/// All texts, each with those that belong to its transaction.
fn texts(queue: &MySqlQueue) -> Vec<Vec<String>> {
    let freed: Vec<Arc<str>> = vec!["a".into(), "b".into()];
    let ids: Vec<i64> = (1..2_000).collect();
    let ordered = [
        statements::ordered_candidates(WANTED, &freed),
        statements::ordered_keys(1, &[1, 4, 7], &ids),
        statements::ordered_lock(&ids, 5),
        statements::ordered_give(WANTED, &ids, &[(1, b"a"), (2, b"b")]),
    ]
    .concat();
    let look = statements::look(&[(1, Position::START), (2, Position { due: 1_000, id: 7 })]);
    let types = ["shop.added", "shop.gone"];
    let others = [
        group(queue),
        ordered,
        vec![look],
        vec![statements::subscribe(1, &types), statements::unsubscribe("shop", &types)],
        statements::abandon("shop", 10),
        statements::change(1).to_vec(),
    ];
    let named = |sql: &String| queue.0.server.text(sql).to_string();
    others.iter().map(|texts| texts.iter().map(named).collect()).collect()
}

fn prepared(queue: &MySqlQueue) -> Vec<String> {
    use statements::{
        BACKLOG, IS_LEFT, LETTER_ADD, LETTER_DISCARD, LETTER_LIST, LETTER_PURGE, MESSAGES, NEWEST, QUEUE_ADD, QUEUE_ID,
        SCHEMA,
    };
    let letters = [LETTER_ADD, LETTER_DISCARD, LETTER_LIST, LETTER_PURGE];
    let queues = [BACKLOG, IS_LEFT, MESSAGES, NEWEST, QUEUE_ADD, QUEUE_ID, SCHEMA.version];
    let all = letters.into_iter().chain(queues);
    let made = [statements::ack_alone(false), statements::ack_alone(true), statements::send_alone()];
    let all = all.map(str::to_owned).chain(made);
    all.map(|sql| queue.0.server.text(&sql).to_string()).collect()
}

#[tokio::test]
async fn the_server_takes_every_statement() {
    let place = Place::new().await;
    let queue = place.open(MySqlQueue::options()).await;
    let mut connection = place.beside().await;
    for sql in prepared(&queue) {
        let taken = connection.prepare(AssertSqlSafe(sql.clone()).into_sql_str()).await;
        assert!(taken.is_ok(), "{}: {sql}", taken.unwrap_err());
    }
    for filled in [false, true] {
        if filled {
            send(&queue, &numbered(20)).await;
        }
        for texts in texts(&queue) {
            run(&mut connection, "BEGIN").await;
            for sql in texts {
                run(&mut connection, &sql).await;
            }
            run(&mut connection, "ROLLBACK").await;
        }
    }
    place.end(queue).await;
}

const FILL: &str = "INSERT INTO hapax_queue_message (queue, due_at, sent_at, bytes, partition_key, message_id, envelope) \
                    SELECT n % 3, n, 0, 1, concat('k', n % 1000), 'id', 'x' FROM (SELECT a.n + 10 * b.n + 100 * c.n \
                      + 1000 * d.n AS n FROM d AS a, d AS b, d AS c, d) AS n";
const DIGITS: &str = "CREATE TABLE d AS SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 \
                      UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9";

/// A row of a plan: its table, how that is read, by which index, and what else is done.
async fn plan(connection: &mut MySqlConnection, sql: &str) -> Vec<[String; 4]> {
    let rows = connection.fetch_all(sqlx::raw_sql(AssertSqlSafe(format!("EXPLAIN {sql}")))).await;
    let rows = rows.unwrap_or_else(|e| panic!("{e}: {sql}"));
    let column = |row: &MySqlRow, column: &str| {
        let text = row.try_get_unchecked::<Option<Vec<u8>>, _>(column).unwrap();
        String::from_utf8(text.unwrap_or_default()).unwrap()
    };
    rows.iter().map(|row| ["table", "type", "key", "Extra"].map(|name| column(row, name))).collect()
}

#[tokio::test]
async fn no_statement_goes_through_all_messages_whatever_the_table_was_when_it_was_planned() {
    let place = Place::new().await;
    let queue = place.open(MySqlQueue::options()).await;
    let mut connection = place.beside().await;
    run(&mut connection, DIGITS).await;
    run(&mut connection, statements::SET_NOW).await;
    run(&mut connection, "SET @ids = '[1, 2, 3]', @ended = '[1, 2]', @queue = 1").await;
    let analyze = "ANALYZE TABLE hapax_queue_message";
    let truncate = "TRUNCATE TABLE hapax_queue_message";
    let in_one = "UPDATE hapax_queue_message SET queue = 1";
    let few = "DELETE FROM hapax_queue_message WHERE id > 20";
    for step in ["DO 0", FILL, analyze, in_one, analyze, few, analyze, truncate, analyze] {
        run(&mut connection, step).await;
        let texts: Vec<String> = texts(&queue).concat();
        let prepared = prepared(&queue).into_iter().filter(|sql| !sql.ends_with("queue_message"));
        for sql in texts.into_iter().chain(prepared.map(|sql| sql.replace('?', "5"))) {
            if sql.starts_with("SET ") || sql.starts_with("INSERT") && !sql.contains("SELECT") {
                continue;
            }
            let (given, is_take) = (sql.contains("JSON_TABLE"), sql.contains("ORDER BY m.due_at"));
            for [table, how, key, extra] in plan(&mut connection, &sql).await {
                if !["m", "k", "f", "g", "x", "hapax_queue_message"].contains(&table.as_str()) {
                    continue;
                }
                assert!(["const", "eq_ref", "ref", "range"].contains(&how.as_str()), "{step}: {how} {key}: {sql}");
                assert!(!(given && table == "m" && key != "PRIMARY" && how != "range"), "{step}: {key}: {sql}");
                // It comes in the order of its index: nothing of a backlog is sorted.
                let sorts = extra.contains("filesort") || extra.contains("temporary");
                assert!(!(sorts && (is_take || table == "m")), "{step}: {extra}: {sql}");
            }
        }
    }
    place.end(queue).await;
}

/// An old snapshot keeps the server from purging what is gone; a take begins behind it all the same.
#[tokio::test]
async fn what_is_gone_but_not_purged_is_not_looked_at_by_a_take() {
    let place = Place::new().await;
    let queue = place.open(MySqlQueue::options().polls(HOUR, HOUR)).await;
    let ends = shop(&queue).await;
    let mut old = place.beside().await;
    run(&mut old, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ").await;
    run(&mut old, "START TRANSACTION WITH CONSISTENT SNAPSHOT").await;
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

    let mut connection = place.beside().await;
    run(&mut connection, statements::SET_NOW).await;
    let mut pages = Vec::new();
    for from in [from, Position::START] {
        let mut group = Group::new(&queue.0.server, 0);
        group.take(Wanted { from, ..WANTED });
        let take = group.text().as_str().split("; ").nth(1).unwrap().replace(" INTO @all, @ids", "");
        let analyze = format!("ANALYZE FORMAT=JSON {take}");
        run(&mut connection, "BEGIN").await;
        let row = connection.fetch_one(sqlx::raw_sql(AssertSqlSafe(analyze))).await.unwrap();
        run(&mut connection, "ROLLBACK").await;
        let plan: Value = serde_json::from_str(row.get(0)).unwrap();
        pages.push(accessed(&plan));
    }
    assert!(pages[0] < 60 && pages[1] > 5 * pages[0], "pages with and without a position: {pages:?}");
    drop(old);
    place.end(queue).await;
}

fn accessed(plan: &Value) -> i64 {
    match plan {
        Value::Object(fields) => {
            let own = fields.get("pages_accessed").and_then(Value::as_i64).unwrap_or(0);
            own + fields.values().map(accessed).sum::<i64>()
        }
        Value::Array(values) => values.iter().map(accessed).sum(),
        _ => 0,
    }
}

/// Its row stays where it is, and no index is written.
#[tokio::test]
async fn giving_a_message_changes_it_in_its_place() {
    let place = Place::new().await;
    let queue = place.open(MySqlQueue::options()).await;
    let mut connection = place.beside().await;
    let changed = "('leased_until', 'token', 'deliveries', 'first_at')";
    let of =
        format!("table_schema = '{}' AND table_name = 'hapax_queue_message' AND column_name IN {changed}", place.name);
    let indexed = format!("SELECT COUNT(*) FROM information_schema.statistics WHERE {of}");
    assert_eq!(numbers(&mut connection, &indexed).await, [0], "what changes with a lease is in an index");
    let fixed = format!(
        "SELECT COUNT(*) FROM information_schema.columns WHERE {of} AND data_type = 'bigint' AND is_nullable = 'NO'"
    );
    assert_eq!(numbers(&mut connection, &fixed).await, [4], "what changes with a lease may change its length");
    place.end(queue).await;
}

/// One that has become due meanwhile must see what another process is about to give of its key.
#[tokio::test]
async fn a_take_in_the_order_of_keys_waits_for_the_one_before_it() {
    let place = Place::new().await;
    let queue = place.open(MySqlQueue::options().ordered_keys(true)).await;
    let ends = shop(&queue).await;
    let mut other = place.beside().await;
    send(&queue, &["timeout".to_owned(), "k1".to_owned()]).await;
    run(&mut other, "UPDATE hapax_queue_message SET due_at = due_at + 3600000 WHERE id = 1").await;

    // Another process gives k1, and its commit takes long.
    let mut slow = place.beside().await;
    run(&mut slow, "BEGIN").await;
    run(&mut slow, &queue.0.server.text(&statements::order_lock(1))).await;
    run(&mut slow, statements::SET_NOW).await;
    for sql in statements::ordered_give(Wanted { lease: 3_600_000, ..WANTED }, &[2], &[(2, b"k")]) {
        run(&mut slow, &queue.0.server.text(&sql)).await;
    }

    run(&mut other, "UPDATE hapax_queue_message SET due_at = sent_at WHERE id = 1").await;
    let (receiver, late) = (ends.receiver.clone(), queue.0.hub.signals.late());
    let late_before = late.ms();
    let taking = tokio::spawn(async move { receiver.receive(10).await });
    let waits = format!(
        "SELECT COUNT(*) FROM information_schema.processlist \
         WHERE db = '{}' AND info LIKE '%FOR UPDATE%' AND info NOT LIKE '%processlist%' AND time_ms > 200",
        place.name
    );
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while numbers(&mut other, &waits).await == [0] {
        assert!(!taking.is_finished(), "it was given beside a later one of its key");
        assert!(tokio::time::Instant::now() < deadline, "it does not wait");
        tokio::task::yield_now().await;
    }
    run(&mut slow, "COMMIT").await;
    let leased = "SELECT COUNT(*) FROM hapax_queue_message WHERE leased_until > 0";
    assert_eq!(numbers(&mut other, leased).await, [1]);
    assert!(!taking.is_finished());
    run(&mut other, "DELETE FROM hapax_queue_message WHERE id = 2").await;
    let given = tokio::time::timeout(PATIENCE, taking).await.expect("nothing comes").unwrap().unwrap();
    assert_eq!(given.len(), 1);
    assert!(late.ms() <= late_before, "how long a take has waited for another says nothing of late commits");
    place.end(queue).await;
}
