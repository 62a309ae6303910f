//! Programs that sell and relay, a database and a broker, all of them killed (SIGKILL) again and again; then what the broker
//! has delivered is compared with what the database holds.
//!
//! Nothing that was committed is lost, nothing that was not is seen, what comes twice bears the same id, and where order is
//! kept the first copies of each key come in the order of their commits.
#![allow(clippy::unwrap_used)]

#[path = "process/crew.rs"]
mod crew;
#[path = "process/shops.rs"]
mod shops;
#[path = "process/stored.rs"]
mod stored;

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use crew::Worker;
use hapax::{
    MessageId, RabbitMq,
    ports::{Connected, Settlement, Transport},
};
use hapax_tests::{MySqlServer, PostgresServer, RabbitMqServer, Scratch};
use shops::{AUDIT, InFile, OnMySql, OnPostgres, Shop, Sold};
use stored::name_server;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

const WORKERS: usize = 3;
/// Each ends with a kill of a worker.
const ROUNDS: usize = 9;
/// One in so many ends with a kill of a server, of the database and of the broker by turns.
const SERVER_EVERY: usize = 3;
/// What the broker delivers within a round at least.
const SOLD: usize = 100;
/// Nothing comes any more.
const QUIET: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(90);
/// No order.
const PROBE: i32 = -1;

/// What may be killed, if it is a server.
enum Database {
    Postgres(PostgresServer),
    MySql(MySqlServer),
    File,
}

impl Database {
    async fn kill(&mut self) {
        match self {
            Self::Postgres(server) => {
                server.kill();
                server.restart().await;
            }
            Self::MySql(server) => {
                server.kill();
                server.restart().await;
            }
            Self::File => {}
        }
    }
}

macro_rules! outlives_kills {
    ($($name:ident: $shop:ty, $mode:literal;)*) => {$(
        #[tokio::test]
        async fn $name() {
            outlives_kills::<$shop>($mode).await;
        }
    )*};
}

outlives_kills! {
    an_outbox_on_postgres_and_rabbitmq_outlives_kills_of_everybody: OnPostgres, "unordered";
    an_ordered_outbox_on_postgres_and_rabbitmq_outlives_kills_of_everybody: OnPostgres, "ordered";
    an_outbox_on_mysql_and_rabbitmq_outlives_kills_of_everybody: OnMySql, "unordered";
    an_ordered_outbox_on_mysql_and_rabbitmq_outlives_kills_of_everybody: OnMySql, "ordered";
    an_outbox_in_sqlite_and_rabbitmq_outlives_kills_of_everybody: InFile, "unordered";
    an_ordered_outbox_in_sqlite_and_rabbitmq_outlives_kills_of_everybody: InFile, "ordered";
}

/// A database for `S`: itself, its URL or file, and the schema or the prefix there.
async fn database<S: 'static>(scratch: &Scratch) -> (Database, String, &'static str) {
    let of = std::any::TypeId::of::<S>();
    if of == std::any::TypeId::of::<OnPostgres>() {
        let server = PostgresServer::start(&[]).await;
        let url = server.url();
        (Database::Postgres(server), url, "hapax")
    } else if of == std::any::TypeId::of::<OnMySql>() {
        let server = MySqlServer::start(&[]).await;
        let url = server.url();
        (Database::MySql(server), url, "hapax_")
    } else {
        (Database::File, scratch.file("shop.db").display().to_string(), "")
    }
}

async fn outlives_kills<S: Shop + 'static>(mode: &str) {
    let scratch = Scratch::new("outbox-kills");
    let ((mut database, url, tables), mut broker) = (database::<S>(&scratch).await, RabbitMqServer::start().await);
    name_server(scratch.folder(), &url, tables);
    std::fs::write(scratch.folder().join("broker"), broker.url()).unwrap();
    S::outbox(&url, tables, mode == "ordered").await.unwrap();
    S::connect(&url, tables).await.unwrap().make().await;
    let transport = RabbitMq::open(broker.url()).await.unwrap();
    let ends = transport.connect(&AUDIT.parse().unwrap(), &[]).await.unwrap();
    let mut told = listen(ends);
    // A queue that is declared shortly before its server is killed comes back without a leader.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let (mut random, mut seen) = (fastrand::Rng::with_seed(seed), Seen::default());
    let mut workers: Vec<Worker> = (0..WORKERS).map(|_| Worker::selling(scratch.folder(), mode)).collect();
    for round in 1..=ROUNDS {
        seen.receive(&mut told, seen.orders.len() + SOLD, &mut broker).await;
        workers.swap_remove(random.usize(..workers.len())).kill();
        if round % (2 * SERVER_EVERY) == 0 {
            broker.kill();
            broker.restart().await;
        } else if round % SERVER_EVERY == 0 {
            database.kill().await;
        }
        workers.push(Worker::selling(scratch.folder(), mode));
    }
    drop(workers); // Killed.
    let relays = Worker::selling(scratch.folder(), &format!("{mode}-relay")).started().await;
    let mut shop = S::connect(&url, tables).await.unwrap();
    seen.receive_all(&mut told, &mut shop).await;
    relays.stop();
    seen.check(shop.sold().await, mode);
}

/// Whether it takes a message for the audit from a program that has just come.
async fn takes_messages(broker: &RabbitMqServer) -> bool {
    let sending = async {
        let broker = RabbitMq::options().patience(PATIENCE / 9).open(broker.url()).await.ok()?;
        broker.sender().send(AUDIT, &Sold { order: PROBE }).await.ok()
    };
    tokio::time::timeout(PATIENCE / 3, sending).await.ok().flatten().is_some()
}

/// How many messages are in the queue of the audit.
async fn waiting(broker: &RabbitMqServer) -> Option<u64> {
    let asking = async { RabbitMq::open(broker.url()).await.ok()?.backlog(&AUDIT.parse().ok()?).await.ok() };
    tokio::time::timeout(PATIENCE / 3, asking).await.ok().flatten()
}

type Told = UnboundedReceiver<(i32, MessageId)>;

/// Takes what the broker delivers, in its order; it may be away.
fn listen(ends: Connected) -> Told {
    let (tell, told) = unbounded_channel();
    tokio::spawn(async move {
        while !tell.is_closed() {
            let Ok(deliveries) = ends.receiver.receive(100).await else {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            };
            for delivery in deliveries {
                let body: serde_json::Value = serde_json::from_slice(&delivery.envelope.body).unwrap();
                let order = i32::try_from(body["order"].as_i64().unwrap()).unwrap();
                let _ = tell.send((order, delivery.envelope.message_id.clone()));
                let _ = ends.receiver.settle(&delivery.receipt, Settlement::Ack).await;
            }
        }
    });
    told
}

/// What the broker has delivered.
#[derive(Default)]
struct Seen {
    ids: HashMap<i32, MessageId>,
    /// In the order of their first copies.
    orders: Vec<i32>,
    copies: usize,
}

impl Seen {
    /// Until so many orders have come. A broker that was killed may come back with a queue that takes nothing, from anybody: that
    /// is its own fault, said aloud, and it is killed once more.
    async fn receive(&mut self, told: &mut Told, orders: usize, broker: &mut RabbitMqServer) {
        let mut may_be_the_broker = true;
        while self.orders.len() < orders {
            if tokio::time::timeout(PATIENCE, self.receive_some(told)).await.is_ok() {
                continue;
            }
            let waiting = waiting(broker).await;
            let (takes, seen) = (takes_messages(broker).await, (self.orders.len(), self.copies));
            assert!(
                !takes,
                "the broker takes messages, and none comes; {waiting:?} are in the queue: if there are some, it is the receiver \
                 that hangs, else the relays; (orders, copies): {seen:?}"
            );
            assert!(may_be_the_broker, "the broker takes no messages again; (orders, copies): {seen:?}");
            println!(
                "the broker has come back with a queue that takes nothing, and is killed once more: {}",
                broker.log()
            );
            may_be_the_broker = false;
            broker.kill();
            broker.restart().await;
        }
    }

    async fn receive_some(&mut self, told: &mut Told) {
        let (order, id) = told.recv().await.unwrap();
        if order == PROBE {
            return;
        }
        self.copies += 1;
        match self.ids.get(&order) {
            Some(before) => assert_eq!(*before, id, "order {order} comes under two ids"),
            None => {
                self.ids.insert(order, id);
                self.orders.push(order);
            }
        }
    }

    /// Until the outbox is empty and nothing comes any more.
    async fn receive_all(&mut self, told: &mut Told, shop: &mut impl Shop) {
        let emptying = async {
            while shop.waiting().await > 0 {
                let _ = tokio::time::timeout(Duration::from_millis(200), self.receive_some(told)).await;
            }
            while tokio::time::timeout(QUIET, self.receive_some(told)).await.is_ok() {}
        };
        tokio::time::timeout(PATIENCE, emptying).await.expect("the outbox is emptied");
    }

    fn check(&self, committed: Vec<(i32, i32)>, mode: &str) {
        println!("{} orders, {} copies", committed.len(), self.copies);
        let all: HashSet<i32> = committed.iter().map(|(order, _)| *order).collect();
        let seen: HashSet<i32> = self.orders.iter().copied().collect();
        let lost: Vec<&i32> = all.difference(&seen).collect();
        let ghosts: Vec<&i32> = seen.difference(&all).collect();
        assert!(lost.is_empty() && ghosts.is_empty(), "lost {lost:?}, ghosts {ghosts:?}");
        if mode == "ordered" {
            let keys: HashMap<i32, i32> = committed.iter().copied().collect();
            for key in keys.values().copied().collect::<HashSet<i32>>() {
                let sold: Vec<i32> = committed.iter().filter(|(_, of)| *of == key).map(|(order, _)| *order).collect();
                let told: Vec<i32> = self.orders.iter().copied().filter(|order| keys[order] == key).collect();
                assert_eq!(told, sold, "key {key}");
            }
        }
    }
}
