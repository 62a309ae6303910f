//! Middleware on bad days, when its runs are repeated, overtaken and dropped; and around handlers that work in a transaction.

use std::{
    collections::BTreeMap,
    error::Error,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    Around, Context, Correlation, Endpoint, Handle, HandlerError, InProcess, Memory, Message, Next, Ran, Saga,
    endpoint::EndpointBuilder,
    entity::DedupEntry,
    envelope::Outgoing,
    ids::DedupKey,
    inbox::{CommitError, Entered, Inbox, TransactionHandler},
    ports::{DeadLetters, Evicted, Page, StoreError},
    testing::{Drops, Harness},
    transports::in_process::Faults,
};
use hapax_model::{Fault, Plan, World, faults::Faulty};
use serde::{Deserialize, Serialize};

use crate::{
    orders::{Notes, Place, Placed, Stamp, place},
    work::settings,
};

/// Counts orders.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Shelf {
    placed: Vec<String>,
}

impl Saga for Shelf {
    const NAME: &'static str = "shelf";
}

impl Handle<Place> for Shelf {
    fn correlate(place: &Place) -> Correlation<'_> {
        Correlation::of("order", (place.count % 4).to_string())
    }

    async fn handle(&mut self, place: Place, _: &mut Context) -> Result<(), HandlerError> {
        self.placed.push(place.order);
        Ok(())
    }
}

/// Keeps what the stamps say.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Audit {
    stamps: Vec<String>,
}

impl Saga for Audit {
    const NAME: &'static str = "audit";
}

impl Handle<Stamp> for Audit {
    fn correlate(_: &Stamp) -> Correlation<'_> {
        "all".into()
    }

    async fn handle(&mut self, stamp: Stamp, _: &mut Context) -> Result<(), HandlerError> {
        self.stamps.push(stamp.by);
        Ok(())
    }
}

/// Stamps each run with a number of its own, and refuses some of the first runs when the handler is done.
#[derive(Clone, Default)]
struct Stamps(Arc<Mutex<BTreeMap<String, u32>>>);

impl Around<Place> for Stamps {
    async fn around<'r>(&self, cx: &mut Context, next: Next<'r, Place>) -> Result<Ran<'r>, HandlerError> {
        let Place { order, count } = next.message().clone();
        let run = {
            let mut runs = self.0.lock().unwrap();
            let run = runs.entry(order.clone()).or_default();
            *run += 1;
            *run
        };
        cx.send("audit", Stamp { by: format!("{order}#{run}") })?;
        let ran = next.run(cx).await?;
        tokio::task::yield_now().await; // One of the awaits at which it may be dropped.
        if run == 1 && count.is_multiple_of(3) { Err(HandlerError::transient("once more")) } else { Ok(ran) }
    }
}

fn saga<T: Saga>(store: &Memory) -> Vec<T> {
    let mut states = Vec::new();
    for (key, entity) in store.entities() {
        if key.scope().saga.as_str() == T::NAME {
            states.push(serde_json::from_slice(&entity.state[hapax::codec::FRAME_BYTES..]).unwrap());
        }
    }
    states
}

#[tokio::test(start_paused = true)]
async fn of_all_runs_of_a_message_one_is_kept_with_what_was_around_it() {
    const ORDERS: u32 = 30;
    let mut runs = 0;
    for seed in 0..10 {
        let faults = Faults { seed, duplicates: 0.3, reorder: 0.3, delay_max: Duration::from_secs(20), lost_acks: 0.2 };
        let hub = InProcess::with_faults("around", Duration::from_secs(5), faults);
        let budgets = [Fault::Refused, Fault::UnknownApplied, Fault::UnknownNotApplied, Fault::OwnConflict];
        let budgets = budgets.into_iter().map(|fault| (fault, 40)).collect();
        let world = World::new(Plan { seed, per_mille: 30, budgets, yields: true, ..Plan::default() });
        let (store, stamps) = (Faulty::new(Memory::new(), world), Stamps::default());
        let mut settings = settings();
        // Dropped passes count as deliveries; no message is poison here.
        settings.recoverability.poison_above = u32::MAX;
        settings.recoverability.attempts_max = u32::MAX;
        settings.recoverability.retry_delay_max = Duration::from_secs(1);
        settings.retention = Duration::from_secs(u64::from(u32::MAX) * 4);
        let endpoint =
            |name: &str| Endpoint::builder(name).store(store.clone()).transport(hub.clone()).settings(settings.clone());
        let shop = |drops| {
            let shop = endpoint("shop").saga::<Shelf>(|shelf| shelf.starts::<Place>());
            shop.around(stamps.clone()).drops(Drops::new(seed, drops))
        };
        let audit = endpoint("audit").saga::<Audit>(|audit| audit.starts::<Stamp>());
        for number in 0..ORDERS {
            let order = format!("order-{number:02}");
            hub.sender().send_as(order.parse().unwrap(), "shop", &place(&order, number)).await.unwrap();
        }
        let stop = tokio::sync::Notify::new();
        let (one, two) = (shop(0.3), shop(0.1));
        tokio::join!(
            async { one.run_until(stop.notified()).await.unwrap() },
            async { two.run_until(stop.notified()).await.unwrap() },
            async { audit.run_until(stop.notified()).await.unwrap() },
            async {
                let audited = || saga::<Audit>(store.inner()).pop().map_or(0, |audit| audit.stamps.len());
                while audited() < ORDERS as usize {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                hub.idle().await;
                stop.notify_waiters();
            }
        );
        let mut placed: Vec<_> = saga::<Shelf>(store.inner()).into_iter().flat_map(|shelf| shelf.placed).collect();
        placed.sort();
        let mut stamped: Vec<_> = saga::<Audit>(store.inner()).pop().unwrap().stamps;
        stamped.sort();
        let orders = stamped.iter().map(|stamp| stamp.split_once('#').unwrap().0);
        assert!(placed.iter().map(String::as_str).eq(orders), "seed {seed}: {placed:?} {stamped:?}");
        assert_eq!(placed.len(), ORDERS as usize, "seed {seed}");
        // A stamp of another run under the same id would have been set aside.
        for endpoint in ["shop", "audit"] {
            let letters = store.inner().list(&endpoint.parse().unwrap(), &Page::first(10)).await.unwrap();
            assert_eq!(letters, [], "seed {seed}");
        }
        runs += stamps.0.lock().unwrap().values().sum::<u32>();
    }
    assert!(runs > 11 * ORDERS, "runs were repeated: {runs}");
}

/// A database of rows, with an inbox.
#[derive(Debug, Default)]
pub(crate) struct Rows(Mutex<Table>);

impl Rows {
    pub(crate) fn sent(&self) -> Vec<Outgoing> {
        self.0.lock().unwrap().outgoing.clone()
    }
}

#[derive(Debug, Default)]
struct Table {
    seen: BTreeMap<DedupKey, DedupEntry>,
    rows: Vec<String>,
    outgoing: Vec<Outgoing>,
}

#[async_trait]
impl Inbox for Rows {
    type Transaction = Vec<String>;

    async fn enter(&self, entry: &DedupEntry) -> Result<Entered<Vec<String>>, StoreError> {
        Ok(match self.0.lock().unwrap().seen.get(&entry.key) {
            Some(seen) => Entered::Seen(seen.clone()),
            None => Entered::First(Vec::new()),
        })
    }

    async fn commit(&self, rows: Vec<String>, entry: &DedupEntry, outgoing: &[Outgoing]) -> Result<(), CommitError> {
        let mut table = self.0.lock().unwrap();
        table.seen.insert(entry.key, entry.clone());
        table.rows.extend(rows);
        table.outgoing.extend_from_slice(outgoing);
        Ok(())
    }

    fn is_of_a_race(&self, _: &(dyn Error + 'static)) -> bool {
        false
    }

    async fn evict(&self, _: Duration) -> Result<Evicted, StoreError> {
        Ok(Evicted::default())
    }
}

struct Insert;

impl TransactionHandler<Place, Rows> for Insert {
    const NAME: &'static str = "insert";

    async fn handle(&self, place: Place, cx: &mut Context, tx: &mut Vec<String>) -> Result<(), HandlerError> {
        tx.push(place.order.clone());
        cx.publish(Placed { order: place.order })
    }
}

/// Lets through, skips or refuses, as the order's count says.
struct ByCount;

impl Around<Place> for ByCount {
    async fn around<'r>(&self, cx: &mut Context, next: Next<'r, Place>) -> Result<Ran<'r>, HandlerError> {
        cx.get::<Notes>()?.add(format!("sees {}", next.message().order));
        cx.publish(Stamp { by: next.message().order.clone() })?;
        match next.message().count {
            0 => Ok(next.skip("nothing")),
            13 => {
                let _ = next.run(cx).await?;
                Err(HandlerError::permanent("not thirteen"))
            }
            _ => next.run(cx).await,
        }
    }
}

pub(crate) fn billing(rows: &Arc<Rows>, notes: &Notes) -> EndpointBuilder {
    let billing = Endpoint::builder("billing").dead_letters(Memory::new()).with(notes.clone());
    billing.metrics(Arc::new(notes.clone())).in_transaction(rows, Insert).around(ByCount)
}

#[tokio::test]
async fn it_stands_around_handlers_in_transactions_and_what_is_not_handled_is_rolled_back() {
    let (rows, notes) = (Arc::new(Rows::default()), Notes::default());
    let mut harness = Harness::start(billing(&rows, &notes)).await.unwrap();
    harness.send(&place("kept", 1)).await.unwrap();
    harness.redeliver().await.unwrap();
    assert_eq!(notes.take(), ["sees kept"]);
    harness.send(&place("skipped", 0)).await.unwrap();
    assert_eq!(notes.take(), ["sees skipped", "ended", "dropped: nothing"]);
    harness.send(&place("refused", 13)).await.unwrap();
    assert_eq!(notes.take(), ["sees refused"]);
    {
        let table = rows.0.lock().unwrap();
        let sent: Vec<_> = table.outgoing.iter().map(|sent| sent.envelope.message_type.as_str()).collect();
        assert_eq!(
            (table.rows.as_slice(), sent.as_slice()),
            (["kept".to_owned()].as_slice(), [Stamp::TYPE, Placed::TYPE].as_slice())
        );
    }
    let letters = harness.dead_letters().await.unwrap();
    assert_eq!((letters.len(), letters[0].reason.as_str()), (1, "not thirteen"));
}
