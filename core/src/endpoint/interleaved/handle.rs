//! Bounds are changed and health is asked for while the endpoint's loop runs in a task of its own.

use futures_util::FutureExt;

use super::*;
use crate::{
    endpoint::{SystemClock, circuit::Circuit, nothing::Nothing, office::Cabinet},
    envelope::Outgoing,
    ids::EndpointName,
    manager::Stores,
    ports::{
        Backoff, Cause, Clock, DeadLetter, DeadLetters, DispatchError, Dispatcher, Granted, Page, Refused, StoreError,
    },
    sync::explored::{all, block_on, exhaust, explore, spawn},
};

#[derive(Debug)]
struct Unused;

#[async_trait::async_trait]
impl Backoff for Unused {
    async fn pause(&self, _: Cause, _: u32) -> Granted {
        Granted::Stop
    }
}

impl crate::metrics::Metrics for Unused {
    fn observe(&self, _: crate::metrics::Event<'_>) {}
}

#[async_trait::async_trait]
impl Dispatcher for Unused {
    fn check(&self, _: &Outgoing) -> Result<(), Refused> {
        Ok(())
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        outgoing.iter().map(|_| Ok(())).collect()
    }
}

#[async_trait::async_trait]
impl DeadLetters for Unused {
    async fn add(&self, _: &DeadLetter) -> Result<(), StoreError> {
        Ok(())
    }

    async fn list(&self, _: &EndpointName, _: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        Ok(Vec::new())
    }

    async fn discard(&self, _: &[DeadLetter]) -> Result<usize, StoreError> {
        Ok(0)
    }
}

fn handle(in_flight_max: usize, rate_max: Option<Rate>) -> EndpointHandle {
    let circuit = Circuit::new(Arc::new(Unused), Arc::new(Unused));
    let settings = Settings { in_flight_max, rate_max, ..Settings::default() };
    let stores = Stores::two(Arc::new(Nothing), Arc::new(Nothing));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let auditor = Auditor::new(None, &stores, &clock, Arc::new(Unused), Vec::new(), &settings);
    let (auditor, _) = auditor.now_or_never().expect("this clock answers at once");
    let office = DeadLetterOffice::new(Cabinet {
        endpoint: "shop".parse().expect("a name"),
        letters: Arc::new(Unused),
        entities: Arc::new(Nothing),
        dispatcher: Arc::new(Unused),
        clock,
        managers: None,
        spill: None,
        retention: settings.retention,
    });
    EndpointHandle::new(office, Arc::new(circuit), auditor, None, &settings)
}

/// As the endpoint's loop looks, with nothing held and no other reason to wake up.
async fn room(handle: EndpointHandle) -> usize {
    loop {
        handle.shared().turned();
        match handle.shared().room(Held::default()) {
            Room::For(room) => return room,
            Room::Later(_) | Room::None => handle.shared().changed.notified().await,
        }
    }
}

fn a_bound_is_raised() {
    let handle = handle(0, None);
    let looking = spawn(room(handle.clone()));
    handle.set_in_flight_max(5);
    assert_eq!(block_on(looking).expect("it ends"), 5);
}

#[test]
fn a_bound_that_is_raised_while_the_endpoint_goes_to_sleep_wakes_it() {
    exhaust(a_bound_is_raised);
}

#[test]
fn bounds_that_are_changed_by_several_are_all_seen() {
    const PAUSED: Option<Rate> = Some(Rate::per_second(0));
    explore(|| {
        let handle = handle(0, PAUSED);
        let looking = spawn(room(handle.clone()));
        let (messages, bytes, rate) = (handle.clone(), handle.clone(), handle);
        let changes: [futures_util::future::BoxFuture<'static, ()>; 3] = [
            Box::pin(async move { messages.set_in_flight_max(5) }),
            Box::pin(async move { bytes.set_bytes_in_flight_max(1 << 20) }),
            Box::pin(async move { rate.set_rate_max(None) }),
        ];
        all(changes);
        assert_eq!(block_on(looking).expect("it ends"), 5);
    });
}

#[test]
fn what_is_received_beside_a_change_of_rate_is_counted_once() {
    explore(|| {
        let hour = Duration::from_secs(3600);
        let handle = handle(100, Some(Rate::new(1, hour)));
        let (receives, changes) = (handle.clone(), handle.clone());
        let received = async move { receives.shared().flow.received(1, 100) };
        let changed = async move { changes.set_rate_max(Some(Rate::new(2, hour))) };
        let tasks: [futures_util::future::BoxFuture<'static, ()>; 2] = [Box::pin(received), Box::pin(changed)];
        all(tasks);
        // Each rate grants one at once, which has come.
        assert!(matches!(handle.shared().room(Held::default()), Room::Later(_)));
    });
}

/// It may come as the rate is set, before the endpoint's loop has heard of that.
#[test]
fn what_was_asked_for_without_a_rate_is_not_held_against_one() {
    explore(|| {
        let handle = handle(1000, None);
        let (receives, changes) = (handle.clone(), handle.clone());
        let received = async move { receives.shared().flow.received(1000, 1000) };
        let changed = async move { changes.set_rate_max(Some(Rate::per_second(50))) };
        let tasks: [futures_util::future::BoxFuture<'static, ()>; 2] = [Box::pin(received), Box::pin(changed)];
        all(tasks);
        if let Room::Later(at) = handle.shared().room(Held::default()) {
            assert!(at < Instant::now() + Duration::from_secs(1), "a thousand are waited for");
        }
    });
}

/// The endpoint's life, and who looks.
fn health_is_asked_for() {
    let handle = handle(5, None);
    let runs = handle.clone();
    let running = spawn(async move {
        runs.shared().turned();
        runs.shared().stopping();
        runs.shared().stopped();
    });
    let (mut before, mut ran) = (handle.health(), false);
    for _ in 0..2 {
        let health = handle.health();
        let has_stopped = health.reasons().iter().any(|why| why.contains("has stopped"));
        assert_ne!(health.live(), has_stopped, "{health:?}");
        ran |= before.ready();
        assert!(!(ran && !before.ready() && health.ready()), "ready again: {before:?}, {health:?}");
        before = health;
    }
    block_on(running).expect("it ends");
    let health = handle.health();
    assert!(!health.ready() && !health.live(), "{health:?}");
    assert_eq!(handle.in_flight(), 0);
}

#[test]
fn health_is_of_one_moment_and_never_ready_again_once_it_stops() {
    exhaust(health_is_asked_for);
    explore(health_is_asked_for);
}
