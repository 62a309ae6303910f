//! Passes send to a destination that fails, beside each other.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::{
    envelope::Envelope,
    ids::{MessageId, TypeName},
    sync::explored::{all, exhaust, explore, step},
};

/// With so many a destination rests longest, so that no second try comes while the test runs.
const FAILURES: u32 = FAILURES_MIN + 10;

/// Takes nothing, or everything.
#[derive(Debug, Default)]
struct Broker {
    takes: bool,
    offered: AtomicUsize,
}

#[async_trait]
impl Dispatcher for Broker {
    fn check(&self, _: &Outgoing) -> Result<(), Refused> {
        Ok(())
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        step();
        self.offered.fetch_add(outgoing.len(), Ordering::Relaxed);
        let result = |_| if self.takes { Ok(()) } else { Err(held_back(&destination())) };
        outgoing.iter().map(result).collect()
    }
}

fn destination() -> Destination {
    Destination::parse("endpoint:billing").expect("it is one")
}

fn message() -> Outgoing {
    let envelope = Envelope::new(MessageId::random(), TypeName::parse("t").expect("it is one"), "");
    Outgoing { destination: destination(), envelope: Arc::new(envelope) }
}

fn outlets(takes: bool, failures: u32) -> (Arc<Broker>, Arc<Outlets>) {
    let broker = Arc::new(Broker { takes, ..Broker::default() });
    let outlets = Outlets::new(broker.clone(), Duration::from_secs(60));
    outlets.failing().insert(destination(), Outlet { failures, next: Instant::now() });
    (broker, Arc::new(outlets))
}

fn send_beside_each_other(outlets: &Arc<Outlets>, passes: usize) -> Vec<bool> {
    all((0..passes).map(|_| {
        let outlets = outlets.clone();
        async move { outlets.dispatch(&[message()]).await.iter().all(Result::is_ok) }
    }))
}

fn its_time_has_come(passes: usize) {
    let (broker, outlets) = outlets(false, FAILURES);
    assert_eq!(send_beside_each_other(&outlets, passes), vec![false; passes]);
    assert_eq!(broker.offered.load(Ordering::Relaxed), 1);
    assert_eq!(outlets.failing()[&destination()].failures, FAILURES + 1);
}

#[test]
fn of_many_for_a_destination_that_fails_one_is_offered_when_its_time_has_come() {
    exhaust(|| its_time_has_come(2));
    explore(|| its_time_has_come(3));
}

#[test]
fn a_destination_that_takes_one_again_is_offered_all_that_follow() {
    explore(|| {
        let (broker, outlets) = outlets(true, FAILURES);
        let sent = send_beside_each_other(&outlets, 3);
        // Who came before the first was taken was held back.
        let taken = sent.iter().filter(|sent| **sent).count();
        assert!(taken >= 1);
        assert_eq!(broker.offered.load(Ordering::Relaxed), taken);
        assert!(outlets.failing().is_empty());
    });
}

#[test]
fn failures_beside_each_other_are_all_counted() {
    explore(|| {
        let (_, outlets) = outlets(false, FAILURES_MIN - 3);
        send_beside_each_other(&outlets, 3);
        assert_eq!(outlets.failing()[&destination()].failures, FAILURES_MIN);
    });
}
