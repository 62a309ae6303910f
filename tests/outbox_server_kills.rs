//! The database, or the broker, is killed (SIGKILL) while a program that sells and relays stands still at a step of its own: of
//! storing, of claiming, of sending, of telling what was sent; each step has its turn. The server comes back, the program goes on, and
//! then what was sent is compared with what was committed: nothing is lost, nothing is seen that was rolled back, what comes
//! twice bears the same id, and where order is kept it is.
//!
//! For each push a part of the steps; `HAPAX_THOROUGH=1`: each step with each kind of server, on each database, in each mode.
#![allow(clippy::unwrap_used)]

#[path = "process/audit.rs"]
mod audit;
#[path = "process/shops.rs"]
mod shops;
#[path = "process/sites.rs"]
mod sites;
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
use hapax_tests::{RabbitMqServer, Scratch};
use shops::{AUDIT, InFile, OnMySql, OnPostgres};
use sites::Site;
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

macro_rules! outlives_kills {
    ($($name:ident: $outlives:ident, $shop:ty, $mode:literal, $first:literal;)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            $outlives::<$shop>($mode, $first).await;
        }
    )*};
}

// For each push each step of the database's has one of the modes, and each of the broker's both of them, on two databases.
outlives_kills! {
    an_outbox_outlives_a_kill_of_postgres_at_each_step: outlives_kills_of_the_database, OnPostgres, "unordered", 1;
    an_ordered_outbox_outlives_a_kill_of_postgres_at_each_step: outlives_kills_of_the_database, OnPostgres, "ordered", 0;
    an_outbox_outlives_a_kill_of_mysql_at_each_step: outlives_kills_of_the_database, OnMySql, "unordered", 1;
    an_ordered_outbox_outlives_a_kill_of_mysql_at_each_step: outlives_kills_of_the_database, OnMySql, "ordered", 0;

    an_outbox_on_postgres_outlives_a_kill_of_rabbitmq_at_each_step: outlives_kills_of_brokers, OnPostgres, "unordered", 0;
    an_ordered_outbox_on_postgres_outlives_a_kill_of_rabbitmq_at_each_step: outlives_kills_of_brokers, OnPostgres, "ordered", 1;
    an_outbox_on_mysql_outlives_a_kill_of_rabbitmq_at_each_step: outlives_kills_of_brokers, OnMySql, "unordered", 1;
    an_ordered_outbox_on_mysql_outlives_a_kill_of_rabbitmq_at_each_step: outlives_kills_of_brokers, OnMySql, "ordered", 2;
    an_outbox_in_sqlite_outlives_a_kill_of_rabbitmq_at_each_step: outlives_kills_of_brokers, InFile, "unordered", 2;
    an_ordered_outbox_in_sqlite_outlives_a_kill_of_rabbitmq_at_each_step: outlives_kills_of_brokers, InFile, "ordered", 0;
}

/// All of them when thorough; else one in so many, from that one on.
fn some_of(points: &[&'static str], every: usize, first: usize) -> Vec<&'static str> {
    match std::env::var_os("HAPAX_THOROUGH") {
        Some(_) => points.to_vec(),
        None => points.iter().copied().skip(first).step_by(every).collect(),
    }
}

/// A program's tables, and who is told of what it sells.
struct Market<S: Site> {
    scratch: Scratch,
    mode: &'static str,
    place: S::Place,
    told: Told,
    seen: Seen,
}

impl<S: Site> Market<S> {
    /// With the queue in a file, or on the broker at an address.
    async fn open(mode: &'static str, broker: Option<&str>) -> Self {
        let (scratch, place) = (Scratch::new("outbox-server-kills"), S::place().await);
        let url = S::url(&place);
        name_server(scratch.folder(), &url, S::TABLES);
        S::outbox(&url, S::TABLES, mode == "ordered").await.unwrap();
        S::connect(&url, S::TABLES).await.unwrap().make().await;
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
        Self { scratch, mode, place, told, seen: Seen::default() }
    }

    async fn shop(&self) -> S {
        S::connect(&S::url(&self.place), S::TABLES).await.unwrap()
    }

    /// A program stands still at `point` until `meanwhile` has been done, and sells all it has to. `false`: that was in vain.
    async fn goes_on(&mut self, point: &str, meanwhile: impl AsyncFnOnce(&mut S::Place) -> bool) -> bool {
        println!("{} {point}", self.mode);
        let (mut child, said) = program(self.scratch.folder(), &format!("{}:hold-{point}", self.mode)).await;
        let (step, side) = (point.split('-').next().unwrap(), point.split('-').next_back().unwrap());
        assert_eq!(said.trim().to_lowercase(), format!("{side} {step}"), "it stands at {point}");
        if !meanwhile(&mut self.place).await {
            child.kill().unwrap();
            child.wait().unwrap();
            return false;
        }
        go_on(child, point).await;
        let mut shop = self.shop().await;
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
        let mut shop = self.shop().await;
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

async fn outlives_kills_of_the_database<S: Site>(mode: &'static str, first: usize) {
    let mut market = Market::<S>::open(mode, None).await;
    for point in some_of(POINTS, 2, first) {
        let killed = async |place: &mut S::Place| {
            S::kill(place).await;
            true
        };
        market.goes_on(point, killed).await;
    }
    market.ends().await;
}

async fn outlives_kills_of_brokers<S: Site>(mode: &'static str, first: usize) {
    let points = some_of(OF_THE_BROKER, 3, first);
    let mut left = &points[..];
    for _ in 0..BROKERS {
        left = outlives_kills_of_a_broker::<S>(mode, left).await;
        let [point, ..] = left else { return };
        println!("the broker's queue is dead after its kill at {point}, for every client: another one");
    }
    panic!("the queues of {BROKERS} brokers were dead after their kills, for every client: {left:?} are not shown");
}

/// The steps that are left, from the one on at whose kill the broker's queue has died.
async fn outlives_kills_of_a_broker<'p, S: Site>(mode: &'static str, points: &'p [&'static str]) -> &'p [&'static str] {
    let mut broker = RabbitMqServer::start().await;
    let mut market = Market::<S>::open(mode, Some(&broker.url())).await;
    // A queue that is declared shortly before its server is killed comes back without a leader.
    tokio::time::sleep(Duration::from_secs(2)).await;
    for (shown, point) in points.iter().enumerate() {
        let killed = async |_: &mut S::Place| {
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
