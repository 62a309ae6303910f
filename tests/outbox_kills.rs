//! Programs that sell and relay, a database and a broker, all of them killed (SIGKILL) again and again; then what the broker
//! has delivered is compared with what the database holds.
//!
//! Nothing that was committed is lost, nothing that was not is seen, what comes twice bears the same id, and where order is
//! kept the first copies of each key come in the order of their commits.
#![allow(clippy::unwrap_used)]

#[path = "process/audit.rs"]
mod audit;
#[path = "process/crew.rs"]
mod crew;
#[path = "process/shops.rs"]
mod shops;
#[path = "process/sites.rs"]
mod sites;
#[path = "process/stored.rs"]
mod stored;

use std::time::Duration;

use audit::{PATIENCE, Seen, Told, listen, takes_messages};
use crew::Worker;
use hapax::{RabbitMq, ports::Transport};
use hapax_tests::{RabbitMqServer, Scratch};
use shops::{AUDIT, InFile, OnMySql, OnPostgres};
use sites::Site;
use stored::name_server;

const WORKERS: usize = 3;
/// Each ends with a kill of a worker.
const ROUNDS: usize = 9;
/// One in so many ends with a kill of a server, of the database and of the broker by turns.
const SERVER_EVERY: usize = 3;
/// What the broker delivers within a round at least.
const SOLD: usize = 100;
/// How often all of it is begun again with another broker, where one has come back from its kill with a queue that is dead for every
/// client: that shows nothing of hapax. All of them are a failure.
const BROKERS: usize = 3;

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

async fn outlives_kills<S: Site>(mode: &str) {
    for _ in 0..BROKERS {
        if outlives_kills_with_a_broker::<S>(mode).await {
            return;
        }
        println!("the broker's queue is dead after its kill, for every client: all of it again with another one");
    }
    panic!("the queues of {BROKERS} brokers were dead after their kills, for every client: nothing was shown");
}

/// `false`: the broker is of no use any more, and nothing is shown.
async fn outlives_kills_with_a_broker<S: Site>(mode: &str) -> bool {
    let scratch = Scratch::new("outbox-kills");
    let (mut place, mut broker) = (S::place().await, RabbitMqServer::start().await);
    let (url, tables) = (S::url(&place), S::TABLES);
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
        if !receive(&mut seen, &mut told, SOLD, &mut broker).await {
            return false;
        }
        workers.swap_remove(random.usize(..workers.len())).kill();
        if round % (2 * SERVER_EVERY) == 0 {
            broker.kill();
            broker.restart().await;
        } else if round % SERVER_EVERY == 0 {
            S::kill(&mut place).await;
        }
        workers.push(Worker::selling(scratch.folder(), mode));
    }
    drop(workers); // Killed.
    let relays = Worker::selling(scratch.folder(), &format!("{mode}-relay")).started().await;
    let mut shop = S::connect(&url, tables).await.unwrap();
    seen.receive_all(&mut told, &mut shop).await;
    relays.stop();
    seen.check(shop.sold().await, mode);
    true
}

/// How many messages are in the queue of the audit.
async fn waiting(broker: &RabbitMqServer) -> Option<u64> {
    let asking = async { RabbitMq::open(broker.url()).await.ok()?.backlog(&AUDIT.parse().ok()?).await.ok() };
    tokio::time::timeout(PATIENCE / 3, asking).await.ok().flatten()
}

/// Until so many more orders have come. A broker that was killed may come back with a queue that takes nothing, from anybody: that
/// is its own fault, said aloud, and it is killed once more. `false`: that has not helped, and nothing is shown.
async fn receive(seen: &mut Seen, told: &mut Told, more: usize, broker: &mut RabbitMqServer) -> bool {
    let (orders, mut may_be_the_broker) = (seen.orders.len() + more, true);
    while seen.orders.len() < orders {
        if tokio::time::timeout(PATIENCE, seen.receive_some(told)).await.is_ok() {
            continue;
        }
        let waiting = waiting(broker).await;
        let (takes, came) = (takes_messages(broker).await, (seen.orders.len(), seen.copies));
        assert!(
            !takes,
            "the broker takes messages, and none comes; {waiting:?} are in the queue: if there are some, it is the receiver \
             that hangs, else the relays; (orders, copies): {came:?}"
        );
        if !may_be_the_broker {
            return false;
        }
        println!("the broker has come back with a queue that takes nothing, and is killed once more: {}", broker.log());
        may_be_the_broker = false;
        broker.kill();
        broker.restart().await;
    }
    true
}
