//! Middleware around handlers that work in a transaction of their own database, on bad days.

use std::{
    collections::BTreeMap,
    error::Error,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    Around, Context, Endpoint, HandlerError, InProcess, Memory, Next, Ran,
    deliver::{Recoverability, Rule},
    endpoint::Settings,
    entity::DedupEntry,
    envelope::Outgoing,
    inbox::{CommitError, Entered, Inbox, TransactionHandler},
    ports::{DeadLetters, ErrorKind, Evicted, Page, StoreError},
    testing::Drops,
    transports::in_process::Faults,
};

use super::{
    rig::{Place, RACE, Transaction, Transactions},
    sink::{PATIENCE, Placed, Sink, quick, relay},
};

/// What a middleware and a handler send bears the number of their run, so many times.
const RUN: u32 = 1000;
/// And what the handler sends, this.
const BY_HANDLER: u32 = 1_000_000;
/// Orders that are sent; what becomes of each is said by its number.
const ORDERS: u32 = 32;

/// The user's transactions, where some commits are not answered: some of these are made, and some are not.
#[derive(Debug)]
struct Shaky {
    transactions: Arc<Transactions>,
    random: Mutex<fastrand::Rng>,
    lost: AtomicU32,
}

#[async_trait]
impl Inbox for Shaky {
    type Transaction = Transaction;

    async fn enter(&self, entry: &DedupEntry) -> Result<Entered<Transaction>, StoreError> {
        self.transactions.enter(entry).await
    }

    async fn commit(&self, tx: Transaction, entry: &DedupEntry, outgoing: &[Outgoing]) -> Result<(), CommitError> {
        let draw = self.random.lock().unwrap().u8(..10);
        if draw >= 4 {
            return self.transactions.commit(tx, entry, outgoing).await;
        }
        self.lost.fetch_add(1, Ordering::Relaxed);
        if draw < 2 {
            self.transactions.commit(tx, entry, outgoing).await?;
        } else {
            tx.rollback().await.unwrap();
        }
        Err(StoreError::new(ErrorKind::UnknownOutcome, "committing", "the answer is lost").into())
    }

    fn is_of_a_race(&self, error: &(dyn Error + 'static)) -> bool {
        self.transactions.is_of_a_race(error)
    }

    async fn evict(&self, retention: Duration) -> Result<Evicted, StoreError> {
        self.transactions.evict(retention).await
    }
}

/// The last run of each order.
#[derive(Clone, Default)]
struct Runs(Arc<Mutex<BTreeMap<u32, u32>>>);

impl Runs {
    /// One at a time: an order's inbox row is held by its run.
    fn begin(&self, order: u32) -> u32 {
        let mut runs = self.0.lock().unwrap();
        let run = runs.entry(order).or_default();
        *run += 1;
        *run
    }

    fn of(&self, order: u32) -> u32 {
        self.0.lock().unwrap().get(&order).copied().unwrap_or_default()
    }
}

struct Charge {
    place: Arc<Place>,
    runs: Runs,
}

impl TransactionHandler<Placed, Shaky> for Charge {
    const NAME: &'static str = "charge";

    async fn handle(&self, placed: Placed, cx: &mut Context, tx: &mut Transaction) -> Result<(), HandlerError> {
        let run = self.runs.of(placed.order);
        self.place.try_within(tx, &format!("INSERT INTO hapax.charge VALUES ({}, {run})", placed.order)).await?;
        cx.publish(Placed { order: BY_HANDLER + placed.order + RUN * run })?;
        match placed.order % 8 {
            5 if run == 1 => std::future::pending().await,
            7 if run == 1 => Err(HandlerError::transient("it fails")),
            _ => Ok(()),
        }
    }
}

/// Around each run, and what it does about it.
struct Gate(Runs);

impl Around<Placed> for Gate {
    async fn around<'r>(&self, cx: &mut Context, next: Next<'r, Placed>) -> Result<Ran<'r>, HandlerError> {
        let order = next.message().order;
        let run = self.0.begin(order);
        cx.publish(Placed { order: order + RUN * run })?;
        let is_first = run == 1;
        match order % 8 {
            1 if is_first => return Err(HandlerError::transient("before")),
            3 => return Ok(next.skip("nobody wants it")),
            // The handler is dropped in the middle of its work.
            5 if is_first => {
                let running = next.run(cx);
                let _ = tokio::time::timeout(Duration::from_millis(50), running).await;
                return Err(HandlerError::transient("it takes too long"));
            }
            _ => {}
        }
        let ran =
            next.run(cx).await.map_err(|error| HandlerError::transient(Box::<dyn Error + Send + Sync>::from(error)))?;
        tokio::task::yield_now().await; // One of the awaits at which it may be dropped.
        match order % 8 {
            2 if is_first => Err(HandlerError::transient("after")),
            4 => Err(HandlerError::permanent("refused")),
            6 if is_first => panic!("after"),
            _ => Ok(ran),
        }
    }
}

/// Goal: of all runs of a message one is kept, with all that was around it, or none; whatever becomes of runs, commits, copies and processes.
/// Method: two endpoints with connections of their own on queues and commits with faults, and passes that are dropped. Each run has a number,
/// which is in the row, in the handler's message and in that of its middleware.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_all_runs_in_transactions_one_is_kept_with_what_was_around_it_or_none() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let place = Arc::new(Place::new().await);
    place.run("CREATE TABLE hapax.charge (id int, run int)").await;
    let (outbox, other) = (place.outbox().await, place.outbox().await);
    let faults = Faults { seed, duplicates: 0.3, reorder: 0.3, delay_max: Duration::from_millis(50), lost_acks: 0.2 };
    let hub = InProcess::with_faults("around", Duration::from_millis(500), faults);
    let (runs, letters) = (Runs::default(), Memory::new());
    let rest = Duration::from_millis(5);
    let recoverability = Recoverability {
        attempts_max: u32::MAX, // What is dropped counts as given.
        poison_above: u32::MAX,
        retry_delay: rest,
        retry_delay_max: rest,
        ..Recoverability::default()
    };
    let settings =
        Settings { recoverability, retention: Duration::from_secs(u64::from(u32::MAX) * 4), ..Settings::default() };
    let shaky = [outbox.inbox(place.pool.clone()), other.inbox(place.pool.clone())].map(|transactions| {
        let random = Mutex::new(fastrand::Rng::with_seed(seed));
        Arc::new(Shaky { transactions, random, lost: AtomicU32::new(0) })
    });
    let drops = [0.3, 0.1].map(|share| Drops::new(seed, share));
    let billing = |which: usize| {
        Endpoint::builder("billing")
            .transport(hub.clone())
            .dead_letters(letters.clone())
            .settings(settings.clone())
            .drops(drops[which].clone())
            .in_transaction(&shaky[which], Charge { place: place.clone(), runs: runs.clone() })
            .around(Gate(runs.clone()))
    };
    for order in 0..ORDERS {
        let id = format!("order-{order}").parse().unwrap();
        hub.sender().send_as(id, "billing", &Placed { order }).await.unwrap();
    }
    let stop = tokio::sync::Notify::new();
    let idle = async {
        tokio::time::timeout(PATIENCE, hub.idle()).await.expect("all of them end");
        stop.notify_waiters();
    };
    let (one, two) = (billing(0).run_until(stop.notified()), billing(1).run_until(stop.notified()));
    let (one, two, ()) = tokio::join!(one, two, idle);
    one.unwrap();
    two.unwrap();

    let sink = Sink::new();
    let relay = relay(&outbox, &sink, quick().birth_lease(PATIENCE).lease(PATIENCE));
    let kept: Vec<u32> = (0..ORDERS).filter(|order| ![3, 4].contains(&(order % 8))).collect();
    sink.until(|sink| sink.distinct().len() >= 2 * kept.len()).await;
    place.until("SELECT count(*) FROM hapax.outbox WHERE status = 0", 0).await;
    let count = i64::try_from(kept.len()).unwrap();
    assert_eq!(place.number("SELECT count(*) FROM hapax.charge").await, count);
    assert_eq!(
        place.number("SELECT count(*) FROM hapax.inbox").await,
        count,
        "what is skipped or refused is not remembered"
    );
    let mut expected = Vec::new();
    for order in &kept {
        let run = place.number(&format!("SELECT run FROM hapax.charge WHERE id = {order}")).await;
        let run = u32::try_from(run).unwrap();
        assert!(run > 1 || ![1, 2, 5, 6, 7].contains(&(order % 8)), "the first run of {order} has failed");
        expected.extend([order + RUN * run, BY_HANDLER + order + RUN * run]);
    }
    expected.sort_unstable();
    assert_eq!(sink.distinct(), expected);
    relay.stop().await.unwrap();

    let letters = letters.list(&"billing".parse().unwrap(), &Page::first(100)).await.unwrap();
    let reasons: Vec<&str> = letters.iter().map(|letter| letter.reason.as_str()).collect();
    assert_eq!(reasons, ["refused"; ORDERS as usize / 8]);
    let lost: u32 = shaky.iter().map(|shaky| shaky.lost.load(Ordering::Relaxed)).sum();
    let dropped: u64 = drops.iter().map(Drops::dropped).sum();
    assert!(lost > 0 && dropped > 0, "{lost} commits were not answered, and {dropped} passes dropped");
}

/// Fails twice as the loser of a race does, and then does not.
struct Loses(Arc<Place>, AtomicU32);

impl TransactionHandler<Placed, Transactions> for Loses {
    const NAME: &'static str = "loses";

    async fn handle(&self, _: Placed, _: &mut Context, tx: &mut Transaction) -> Result<(), HandlerError> {
        if self.1.fetch_add(1, Ordering::Relaxed) < 2 {
            self.0.try_within(tx, RACE.unwrap()).await?;
        }
        Ok(())
    }
}

#[derive(Debug, thiserror::Error)]
#[error("charging has failed")]
struct Failed(#[source] Box<dyn Error + Send + Sync>);

/// Says more of every error.
struct Says;

impl Around for Says {
    async fn around<'r>(&self, cx: &mut Context, next: Next<'r>) -> Result<Ran<'r>, HandlerError> {
        next.run(cx).await.map_err(|error| HandlerError::from(Failed(error.into())))
    }
}

/// It counts as no failure of the handler, of which none is allowed here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_race_is_one_also_where_middleware_has_made_another_error_of_it() {
    if RACE.is_none() {
        return; // In a file transactions that write come one after the other.
    }
    let place = Arc::new(Place::new().await);
    let (outbox, queue, letters) = (place.outbox().await, InProcess::new("billing"), Memory::new());
    queue.sender().send("billing", &Placed { order: 1 }).await.unwrap();
    let recoverability = Recoverability::default().on::<Failed>(Rule::AT_ONCE);
    let endpoint = Endpoint::builder("billing")
        .transport(queue.clone())
        .dead_letters(letters.clone())
        .settings(Settings { recoverability, ..Settings::default() })
        .in_transaction(&outbox.inbox(place.pool.clone()), Loses(place.clone(), AtomicU32::new(0)))
        .around(Says);
    endpoint.run_until(queue.idle()).await.unwrap();
    assert_eq!(letters.list(&"billing".parse().unwrap(), &Page::first(10)).await.unwrap(), []);
    assert_eq!(place.number("SELECT count(*) FROM hapax.inbox").await, 1);
}
