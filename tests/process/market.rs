//! A program that sells a few orders, sends what there is, and ends; or dies at a step of it, or stands still there while
//! somebody kills a server.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    RabbitMq, Relay, SqliteQueue,
    envelope::Outgoing,
    ports::{DispatchError, Dispatcher, Refused},
    relay::RelayOptions,
};

use crate::{
    fuse::{Fuse, Fused},
    shops::{InFile, OnMySql, OnPostgres, Sale, Shop, WAITING},
    stored::server_of,
};

const ORDERS: i32 = 6;
const KEYS: i32 = 2;
/// The order of these that is rolled back.
const GHOST: i32 = 3;
/// Of the relay.
const LEASE: Duration = Duration::from_millis(600);
/// How long the first call to the broker takes where leases are to be renewed meanwhile.
const SLOW: Duration = Duration::from_secs(2);

/// `MODE:POINT`: `ordered`, `unordered`, or `careless`, whose transport takes what it never sends; and where it dies.
pub(crate) async fn run(folder: &Path, argument: &str) {
    let (mode, point) = argument.split_once(':').unwrap();
    let fuse = Fuse::parse(point).expect("a point");
    let slow = if point.contains("renew-") { SLOW } else { Duration::ZERO };
    match server_of(folder).unwrap().0 {
        url if url.starts_with("postgres") => run_in::<OnPostgres>(folder, mode, slow, fuse).await,
        url if url.starts_with("mysql") => run_in::<OnMySql>(folder, mode, slow, fuse).await,
        _ => run_in::<InFile>(folder, mode, slow, fuse).await,
    }
}

async fn run_in<S: Shop>(folder: &Path, mode: &str, slow: Duration, fuse: Fuse) {
    let (ordered, careless) = (mode == "ordered", mode == "careless");
    let (url, tables) = server_of(folder).unwrap();
    let outbox = S::outbox(&url, &tables, ordered).await.unwrap();
    let broker: Arc<dyn Dispatcher> = match std::fs::read_to_string(folder.join("broker")) {
        Ok(url) => Arc::new(RabbitMq::open(url).await.unwrap()),
        Err(_) => Arc::new(SqliteQueue::open(folder.join("queue.db")).await.unwrap()),
    };
    let broker = Fused { port: broker, fuse: fuse.clone() };
    let table = Fused { port: Arc::new(outbox.clone()), fuse: fuse.clone() };
    let options = RelayOptions::default()
        .polls(Duration::from_millis(20), Duration::from_millis(100))
        .lease(LEASE)
        .birth_lease(LEASE)
        .status_batch(10_000, Duration::from_millis(50))
        .backoff(Duration::from_millis(50), Duration::from_millis(500))
        .care(Duration::from_millis(30), 100);
    let relay = Relay::to(SlowAtFirst { inner: broker, has_sent: AtomicBool::new(false), slow, careless })
        .table_with(table, options);
    let relay = relay.start().unwrap();
    let (mut shop, first) = (connected::<S>(&url, &tables).await, fastrand::i32(0..1 << 24) * ORDERS);
    for order in first..first + ORDERS {
        // Every other one waits for a claim.
        let (ghost, silent) = (order == first + GHOST, order / KEYS % 2 == 0);
        let sale = Sale { order, key: order % KEYS, ghost, silent, ..Sale::default() };
        while let Err(error) = shop.sell_by_steps(&outbox, sale, |step| fuse.pass(step)).await {
            eprintln!("order {order} begins again: {error}");
            shop = connected(&url, &tables).await;
            let stored = shop.try_number(&format!("SELECT count(*) FROM hapax.orders WHERE id = {order}")).await;
            if matches!(stored, Ok(1)) {
                break; // It was committed, and nobody has said so.
            }
        }
    }
    loop {
        match shop.try_number(WAITING).await {
            Ok(0) => break,
            Ok(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            Err(_) => shop = connected(&url, &tables).await,
        }
    }
    // All may be sent before the relay has cared for its table.
    while fuse.waits_for("care") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    relay.stop().await.unwrap();
}

async fn connected<S: Shop>(url: &str, tables: &str) -> S {
    loop {
        match S::connect(url, tables).await {
            Ok(shop) => return shop,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

#[derive(Debug)]
struct SlowAtFirst<D> {
    inner: D,
    has_sent: AtomicBool,
    slow: Duration,
    careless: bool,
}

#[async_trait]
impl<D: Dispatcher> Dispatcher for SlowAtFirst<D> {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        self.inner.check(outgoing)
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        if !self.has_sent.swap(true, Ordering::Relaxed) {
            tokio::time::sleep(self.slow).await;
        }
        if self.careless {
            return outgoing.iter().map(|_| Ok(())).collect();
        }
        self.inner.dispatch(outgoing).await
    }
}
