//! An audit is asked for while the endpoint handles messages, sweeps and looks by itself.

use futures_util::{FutureExt, future::BoxFuture};

use super::{sample::FAILED_MAX, *};
use crate::{
    endpoint::{SystemClock, nothing::Nothing},
    entity::DedupEntry,
    envelope::Envelope,
    ids::{AttemptId, DedupKey, EntityKey, Fingerprint, SagaKey},
    manager::Incoming,
    metrics::{Ending, Event, Invariant, NoMetrics, Violation},
    ports::{DedupCapabilities, DedupStore, Evicted, Known, LongMemory, Receipt},
    sync::explored::{all, block_on, exhaust, explore, spawn, step},
    time::Timestamp,
    trace::Trace,
};

/// Draws that pass over the next message, where a sample has room for one.
const SEED: u64 = 7;

/// Everything is over.
#[derive(Debug)]
struct Over;

#[async_trait::async_trait]
impl DedupStore for Over {
    fn dedup_capabilities(&self) -> DedupCapabilities {
        Nothing.dedup_capabilities()
    }

    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        step();
        let entry = |key: &DedupKey| DedupEntry {
            key: *key,
            attempt: AttemptId::from_bytes([1; AttemptId::BYTES]),
            fingerprint: Fingerprint::from_bytes([0; Fingerprint::BYTES]),
            reply: None,
            time: Timestamp::now(),
        };
        Ok(Known::new(keys.iter().map(entry).collect()))
    }

    async fn insert(&self, _: &[DedupEntry]) -> Result<(), StoreError> {
        Ok(())
    }

    async fn evict(&self, _: Duration) -> Result<Evicted, StoreError> {
        Ok(Evicted::default())
    }

    fn long_memory(&self) -> Option<&dyn LongMemory> {
        None
    }
}

fn scope() -> Arc<Scope> {
    Arc::new(Scope { endpoint: "shop".parse().expect("a name"), saga: "order".parse().expect("a name") })
}

fn entity(number: usize) -> EntityKey {
    EntityKey::new(scope(), SagaKey::parse(format!("{number}")).expect("a key"))
}

/// One that looks at so many entities at a time, and who tells it what happens.
fn auditor(looks_max: usize) -> (Arc<Auditor>, Arc<dyn Metrics>) {
    let stores = Stores::two(Arc::new(Nothing), Arc::new(Over));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let audit = Some(Audit { looks_max, ..Audit::default() });
    let scopes = vec![Audited { scope: scope(), is_handled: true }];
    let settings = Settings::default();
    let new = Auditor::new(audit, &stores, &clock, Arc::new(NoMetrics), scopes, &settings);
    new.now_or_never().expect("this clock answers at once")
}

fn is_handled(number: u8, told: &dyn Metrics) {
    let name = format!("m-{number}");
    let envelope = Envelope::new(name.parse().expect("an id"), "t".parse().expect("a type"), "");
    let message = Incoming {
        key: DedupKey::from_bytes([number; DedupKey::BYTES]),
        fingerprint: Fingerprint::from_bytes([0; Fingerprint::BYTES]),
        envelope: Arc::new(envelope),
        receipt: Receipt::number(0),
        attempts: 1,
        bytes: 0,
        decoded: None,
        trace: Trace::default(),
        fetched: None,
        answered: false,
        is_first: false,
    };
    told.observe(Event::Ended(&entity(usize::from(number)), &message, Ending::Handled));
}

fn moment() -> Moment {
    Moment::new((Timestamp::now(), crate::time::Monotonic(Duration::ZERO)))
}

fn a_sample_is_taken() {
    fastrand::seed(SEED);
    let (auditor, told) = auditor(1);
    let handles = told.clone();
    let handling = spawn(async move { is_handled(1, handles.as_ref()) });
    let (first, _) = auditor.sample.take(moment());
    block_on(handling).expect("it ends");
    is_handled(2, told.as_ref());
    let (second, _) = auditor.sample.take(moment());
    assert!(!second.is_empty(), "of what has ended since {first:?} was taken, nothing is drawn");
}

#[test]
fn of_what_ends_after_a_sample_was_taken_the_first_is_drawn() {
    exhaust(a_sample_is_taken);
}

/// With more than are listed, all are taken to have failed.
#[test]
fn a_sweep_that_has_failed_is_never_forgotten_while_others_fail() {
    exhaust(|| {
        let (auditor, told) = auditor(1);
        for number in 0..FAILED_MAX {
            told.observe(Event::SweepFailed(&entity(number), "away"));
        }
        let sweeping = spawn(async move { told.observe(Event::SweepFailed(&entity(FAILED_MAX), "away")) });
        assert_eq!(auditor.rounds.failed(&entity(0)), 1);
        block_on(sweeping).expect("it ends");
        assert_eq!(auditor.rounds.failed(&entity(0)), 1);
    });
}

#[test]
fn a_report_is_of_one_moment() {
    exhaust(|| {
        let (auditor, _) = auditor(1);
        let looks = auditor.clone();
        let looking = spawn(async move {
            let violation = Violation {
                invariant: Invariant::Kept,
                entity: entity(1),
                message: None,
                message_id: None,
                what: String::new(),
                at: Timestamp::now(),
            };
            looks.tally.looked(false);
            looks.tally.checked(Invariant::Kept, Some(&violation));
        });
        let report = auditor.report();
        assert_eq!(report.violations() > 0, report.last.is_some(), "{report:?}");
        assert!(report.overtaken == report.looks, "{report:?}");
        block_on(looking).expect("it ends");
    });
}

/// Somebody asks for an audit while the endpoint makes its own.
#[test]
fn what_is_watched_is_kept_by_two_who_look_at_the_same_time() {
    explore(|| {
        let (auditor, told) = auditor(4);
        is_handled(1, told.as_ref());
        is_handled(2, told.as_ref());
        let (turns, asked) = (auditor.clone(), auditor.clone());
        let tasks: [BoxFuture<'static, bool>; 2] = [
            Box::pin(async move { turns.turn().await.is_ok() }),
            Box::pin(async move { asked.everything().await.is_ok() }),
        ];
        assert_eq!(all(tasks), [true, true]);
        let report = block_on(auditor.everything()).expect("the stores answer");
        assert_eq!((report.watched, report.violations()), (2, 0), "{report:?}");
    });
}
