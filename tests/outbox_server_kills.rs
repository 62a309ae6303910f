//! The database, or the broker, is killed (SIGKILL) while a program that sells and relays stands still at a step of its own: of
//! storing, of claiming, of sending, of telling what was sent; each step has its turn. The server comes back, the program goes on, and
//! then what was sent is compared with what was committed: nothing is lost, nothing is seen that was rolled back, what comes
//! twice bears the same id, and where order is kept it is.
#![allow(clippy::unwrap_used)]

#[path = "process/audit.rs"]
mod audit;
#[path = "process/shops.rs"]
mod shops;
#[path = "process/stored.rs"]
mod stored;

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use audit::{PATIENCE, Seen, Told, listen, takes_messages};
use hapax::{RabbitMq, SqliteQueue, ports::Transport};
use hapax_tests::{MySqlServer, PostgresServer, RabbitMqServer, Scratch};
use shops::{AUDIT, InFile, OnMySql, OnPostgres, Shop};
use stored::name_server;

/// At which the table, or the user's own transaction, has something to do, or has done it.
const POINTS: &[&str] = &[
    "begun-1-before",
    "stored-1-before",
    "inserted-1-before",
    "committed-0-before",
    "committed-2-before",
    "handed-0-before",
    "join-0-before",
    "join-0-after",
    "claim-0-before",
    "claim-0-after",
    "claimed-0-before",
    "dispatch-0-before",
    "dispatch-0-after",
    "renew-0-before",
    "renew-0-after",
    "tell-0-before",
    "tell-0-after",
    "care-0-before",
    "care-0-after",
    "leave-0-before",
    "leave-0-after",
];
/// At which the broker has: the first call, one that comes later, and what is told of both.
const OF_THE_BROKER: &[&str] = &[
    "dispatch-0-before",
    "dispatch-0-after",
    "dispatch-1-before",
    "dispatch-1-after",
    "tell-0-before",
    "leave-0-before",
];

/// How often another broker is taken, where one has come back from its kill with a queue that is dead for every client: that shows
/// nothing of hapax. All of them are a failure.
const BROKERS: usize = 4;

/// A program's tables, and who is told of what it sells.
struct Market<S> {
    scratch: Scratch,
    mode: &'static str,
    url: String,
    tables: &'static str,
    told: Told,
    seen: Seen,
    shop: std::marker::PhantomData<S>,
}

impl<S: Shop> Market<S> {
    /// With the queue in a file, or on the broker at an address.
    async fn open(url: &str, tables: &'static str, mode: &'static str, broker: Option<&str>) -> Self {
        let scratch = Scratch::new("outbox-server-kills");
        let url = if url.is_empty() { scratch.file("shop.db").display().to_string() } else { url.to_owned() };
        name_server(scratch.folder(), &url, tables);
        S::outbox(&url, tables, mode == "ordered").await.unwrap();
        S::connect(&url, tables).await.unwrap().make().await;
        let audit = AUDIT.parse().unwrap();
        let told = match broker {
            Some(broker) => {
                std::fs::write(scratch.folder().join("broker"), broker).unwrap();
                listen(RabbitMq::open(broker).await.unwrap().connect(&audit, &[]).await.unwrap())
            }
            None => {
                let queue = SqliteQueue::open(scratch.folder().join("queue.db")).await.unwrap();
                listen(queue.connect(&audit, &[]).await.unwrap())
            }
        };
        Self { scratch, mode, url, tables, told, seen: Seen::default(), shop: std::marker::PhantomData }
    }

    /// A program stands still at `point` until `meanwhile` has been done, and sells all it has to. `false`: that was in vain.
    async fn goes_on(&mut self, point: &str, meanwhile: impl AsyncFnOnce() -> bool) -> bool {
        println!("{} {point}", self.mode);
        let (mut child, said) = program(self.scratch.folder(), &format!("{}:hold-{point}", self.mode)).await;
        let (step, side) = (point.split('-').next().unwrap(), point.split('-').next_back().unwrap());
        assert_eq!(said.trim().to_lowercase(), format!("{side} {step}"), "it stands at {point}");
        if !meanwhile().await {
            child.kill().unwrap();
            child.wait().unwrap();
            return false;
        }
        go_on(child, point).await;
        let mut shop = S::connect(&self.url, self.tables).await.unwrap();
        assert_eq!(shop.waiting().await, 0, "{point}: it ended before all was sent");
        let sold = shop.sold().await;
        while self.seen.orders.len() < sold.len() {
            let came = tokio::time::timeout(PATIENCE, self.seen.receive_some(&mut self.told)).await;
            assert!(came.is_ok(), "{point}: {} of {} orders have come", self.seen.orders.len(), sold.len());
        }
        self.seen.check(sold, self.mode);
        true
    }

    /// Copies may come after all have been seen.
    async fn ends(mut self) {
        let mut shop = S::connect(&self.url, self.tables).await.unwrap();
        self.seen.receive_all(&mut self.told, &mut shop).await;
        self.seen.check(shop.sold().await, self.mode);
    }
}

/// Where it stands, once it does.
async fn program(folder: &Path, argument: &str) -> (Child, String) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_hapax-test-worker"));
    program.arg(folder).args(["market", argument]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = program.spawn().unwrap();
    let mut says = BufReader::new(child.stdout.take().unwrap());
    tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        says.read_line(&mut line).unwrap();
        (child, line)
    })
    .await
    .unwrap()
}

async fn go_on(mut child: Child, point: &str) {
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let waiting = async {
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let ended = tokio::time::timeout(PATIENCE, waiting).await;
    if ended.is_err() {
        child.kill().unwrap();
    }
    assert!(ended.is_ok_and(|status| status.success()), "{point}: it has not sold and sent everything");
}

/// Every other step with order kept, and the rest without.
async fn outlives_kills_of_the_database<S: Shop>(
    [mut ordered, mut unordered]: [Market<S>; 2],
    mut kill: impl AsyncFnMut(),
) {
    for (number, point) in POINTS.iter().enumerate() {
        let market = if number % 2 == 0 { &mut ordered } else { &mut unordered };
        let killed = async || {
            kill().await;
            true
        };
        market.goes_on(point, killed).await;
    }
    ordered.ends().await;
    unordered.ends().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outbox_outlives_a_kill_of_postgres_at_each_step() {
    let mut server = PostgresServer::start(&[]).await;
    let url = server.url();
    let markets = [
        Market::<OnPostgres>::open(&url, "hapax_o", "ordered", None).await,
        Market::open(&url, "hapax_u", "unordered", None).await,
    ];
    outlives_kills_of_the_database(markets, async || {
        server.kill();
        server.restart().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outbox_outlives_a_kill_of_mysql_at_each_step() {
    let mut server = MySqlServer::start(&[]).await;
    let url = server.url();
    let markets = [
        Market::<OnMySql>::open(&url, "hapax_o_", "ordered", None).await,
        Market::open(&url, "hapax_u_", "unordered", None).await,
    ];
    outlives_kills_of_the_database(markets, async || {
        server.kill();
        server.restart().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outbox_outlives_a_kill_of_the_broker_at_each_of_its_steps() {
    let mut points = OF_THE_BROKER;
    for _ in 0..BROKERS {
        points = outlives_kills_of_a_broker(points).await;
        let [point, ..] = points else { return };
        println!("the broker's queue is dead after its kill at {point}, for every client: another one");
    }
    panic!("the queues of {BROKERS} brokers were dead after their kills, for every client: {points:?} are not shown");
}

/// The steps that are left, from the one on at whose kill the broker's queue has died.
async fn outlives_kills_of_a_broker(points: &'static [&'static str]) -> &'static [&'static str] {
    let mut broker = RabbitMqServer::start().await;
    let mut market = Market::<InFile>::open("", "", "ordered", Some(&broker.url())).await;
    // A queue that is declared shortly before its server is killed comes back without a leader.
    tokio::time::sleep(Duration::from_secs(2)).await;
    for (shown, point) in points.iter().enumerate() {
        let killed = async || {
            broker.kill();
            broker.restart().await;
            takes_messages(&broker).await
        };
        if !market.goes_on(point, killed).await {
            return &points[shown..];
        }
    }
    market.ends().await;
    &[]
}
