//! A table in which a million messages wait.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use hapax::{
    Relay,
    envelope::Outgoing,
    ports::{DispatchError, Dispatcher, Refused},
};

use super::{
    is_thorough,
    shops::{InFile, OnMySql, OnPostgres},
    sites::Site,
};

/// MariaDB has taken 500 s on a busy machine of two cores.
const LIMIT: Duration = Duration::from_secs(1800);
/// What a relay may take, whatever the number of messages, and for each of them: an eighth of what a message and its envelope
/// would take, 1 kB.
const MEMORY_MAX: (u64, u64) = (16 << 20, 128);

/// Counts each order, and keeps nothing.
#[derive(Debug)]
struct Counts(Vec<AtomicU64>);

#[derive(Debug, Clone)]
struct Counting(Arc<Counts>);

#[async_trait]
impl Dispatcher for Counting {
    fn check(&self, _: &Outgoing) -> Result<(), Refused> {
        Ok(())
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        for Outgoing { envelope, .. } in outgoing {
            let body: serde_json::Value = serde_json::from_slice(&envelope.body).unwrap();
            // Its id is made of its number.
            let order = body["order"].as_u64().unwrap();
            assert_eq!(envelope.message_id.as_uuid().unwrap().as_u128(), u128::from(order));
            self.0.0[order as usize].fetch_add(1, Ordering::Relaxed);
        }
        outgoing.iter().map(|_| Ok(())).collect()
    }
}

/// What of this process is in memory.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    resident.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Messages that wait from the beginning on, each with its number as its id and in its body.
trait Backlog: Site {
    /// Adds `ROWS` of them.
    const ADD: &'static str;
    /// So that the server knows how many there are.
    const COUNT: &'static str;
}

impl Backlog for OnPostgres {
    const ADD: &'static str = "\
        INSERT INTO hapax.outbox (id, status, attempts, ready_at, token, stored_at, destination, type, content_type, body) \
        SELECT lpad(to_hex(i), 32, '0')::uuid, 0, 0, 1000, 0, 1000, 'endpoint:audit', 'shop.sold', 'application/json', \
          convert_to('{\"order\":' || i || '}', 'UTF8') FROM generate_series(0, ROWS - 1) AS i";
    const COUNT: &'static str = "VACUUM ANALYZE hapax.outbox";
}

impl Backlog for OnMySql {
    const ADD: &'static str = "\
        SET max_recursive_iterations = 4294967295; \
        INSERT INTO hapax.outbox (id, status, attempts, ready_at, token, stored_at, bytes, destination, type, content_type, body) \
        WITH RECURSIVE s (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM s WHERE i < ROWS - 1) \
        SELECT UNHEX(LPAD(HEX(i), 32, '0')), 0, 0, 1000, 0, 1000, LENGTH(CONCAT('{\"order\":', i, '}')), 'endpoint:audit', \
          'shop.sold', 'application/json', CONCAT('{\"order\":', i, '}') FROM s";
    const COUNT: &'static str = "ANALYZE TABLE hapax.outbox";
}

impl Backlog for InFile {
    const ADD: &'static str = "\
        WITH RECURSIVE s (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM s WHERE i < ROWS - 1) \
        INSERT INTO hapax.outbox (id, status, attempts, ready_at, token, stored_at, destination, type, content_type, body) \
        SELECT unhex(printf('%032x', i)), 0, 0, 1000, 0, 1000, 'endpoint:audit', 'shop.sold', 'application/json', \
          CAST('{\"order\":' || i || '}' AS BLOB) FROM s";
    const COUNT: &'static str = "ANALYZE";
}

macro_rules! backlogs {
    ($($name:ident: $shop:ty;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            is_sent_each_once_and_takes_little_memory::<$shop>().await;
        }
    )*};
}

backlogs! {
    a_large_backlog_on_postgres_is_sent_each_message_once_and_takes_little_memory: OnPostgres;
    a_large_backlog_on_mysql_is_sent_each_message_once_and_takes_little_memory: OnMySql;
    a_large_backlog_in_sqlite_is_sent_each_message_once_and_takes_little_memory: InFile;
}

async fn is_sent_each_once_and_takes_little_memory<S: Backlog>() {
    let rows: i64 = if is_thorough() { 1_000_000 } else { 50_000 };
    let place = S::place().await;
    let outbox = S::outbox(&S::url(&place), S::TABLES, false).await.unwrap();
    let mut shop = S::connect(&S::url(&place), S::TABLES).await.unwrap();
    shop.run(&S::ADD.replace("ROWS", &rows.to_string())).await;
    shop.run(S::COUNT).await;
    let counting = Counting(Arc::new(Counts((0..rows).map(|_| AtomicU64::new(0)).collect())));
    let (before, begun, mut most) = (memory(), Instant::now(), 0);
    let relay = Relay::to(counting.clone()).table(outbox).start().unwrap();
    while relay.counts().sent < rows as u64 {
        assert!(begun.elapsed() < LIMIT, "{:?}", relay.counts());
        most = most.max(memory());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (took, counts) = (begun.elapsed(), relay.counts());
    relay.stop().await.unwrap();
    let more = most.saturating_sub(before);
    println!("{rows} in {took:?}: {:.0}/s, {} MiB more, {counts:?}", rows as f64 / took.as_secs_f64(), more >> 20);
    assert!(counting.0.0.iter().all(|count| count.load(Ordering::Relaxed) == 1), "each once");
    assert_eq!(shop.number("SELECT count(*) FROM hapax.outbox WHERE status = 1").await, rows);
    let (relay_max, message_max) = MEMORY_MAX;
    assert!(more < relay_max + message_max * rows as u64, "{} MiB", more >> 20);
}
