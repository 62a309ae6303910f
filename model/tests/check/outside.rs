//! Handlers without state that do something beside what is shown to them: call a service, look at a clock, keep a memory.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use hapax_core::{Context, Handler, HandlerError, Message, Needs};
use hapax_model::check::{Check, Checked, External, Failure};
use serde::{Deserialize, Serialize};

use super::{Reserved, failure, holds, stock};

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Charge {
    order: String,
    cents: u32,
}

impl Message for Charge {
    const TYPE: &'static str = "shop.charge";
}

/// What stands in for the card company.
struct Cards(External);

/// Charges cards, with a key or without.
struct Charger {
    key: fn(&Context) -> Option<String>,
}

impl Handler<Charge> for Charger {
    const NAME: &'static str = "charger";

    fn needs() -> Needs {
        Needs::default().and::<Cards>()
    }

    async fn handle(&self, _: Charge, cx: &mut Context) -> Result<(), HandlerError> {
        match (self.key)(cx) {
            Some(key) => cx.get::<Cards>()?.0.call_with_key(&key),
            None => cx.get::<Cards>()?.0.call(),
        }
        Ok(())
    }
}

fn charge(key: fn(&Context) -> Option<String>) -> Checked {
    let check = Check::handler(Charger { key }).with(Cards(External::new("charge the card")));
    check.message(Charge { order: "A-1".into(), cents: 890 }).report()
}

#[test]
fn a_direct_call_of_a_service_outside_is_found() {
    let failure = failure(charge(|_| None), "called_outside_once");
    assert!(failure.advice.contains("cx.idempotency_key"), "{failure}");
    let calls = failure.steps.iter().filter(|step| step.contains("calls `charge the card` outside, without a key"));
    assert_eq!(calls.count(), 2, "{failure}");
    assert!(failure.diagram.contains("->>outside: calls `charge the card`"), "{failure}");
    assert!(failure.steps.len() <= 10, "{failure}");
}

#[test]
fn a_call_under_an_idempotency_key_may_come_again() {
    let checked = holds(charge(|cx| Some(cx.idempotency_key("charge"))));
    assert_eq!(checked.warnings, Vec::<String>::new());
}

#[test]
fn a_key_that_is_new_at_each_run_is_no_key() {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let failure = failure(charge(|_| Some(NEXT.fetch_add(1, Ordering::Relaxed).to_string())), "runs_do_not_differ");
    assert!(failure.advice.contains("cx.idempotency_key"), "{failure}");
}

/// A source of differences, handed to a handler.
type Odd = Arc<dyn Fn() -> String + Send + Sync>;

/// Sends what is odd, or keeps it.
struct Sends;

impl Handler<Charge> for Sends {
    const NAME: &'static str = "sends";

    async fn handle(&self, charge: Charge, cx: &mut Context) -> Result<(), HandlerError> {
        let article = cx.get::<Odd>()?();
        cx.publish(Reserved { article, count: charge.cents })
    }
}

fn odd(odd: impl Fn() -> String + Send + Sync + 'static) -> Failure {
    let check = Check::handler(Sends).with::<Odd>(Arc::new(odd));
    failure(check.message(Charge { order: "A-1".into(), cents: 890 }).report(), "runs_do_not_differ")
}

#[test]
fn a_random_id_in_a_handler_is_found_with_both_versions() {
    let failure = odd(|| uuid::Uuid::new_v4().to_string());
    assert!(failure.advice.contains("cx.idempotency_key"), "{failure}");
    let versions = failure.steps.iter().filter(|step| step.contains(r#"sends shop.reserved {"article":"#));
    assert_eq!(versions.count(), 2, "{failure}");
}

#[test]
fn a_clock_in_a_handler_is_found() {
    let since = Instant::now();
    let failure = odd(move || since.elapsed().as_nanos().to_string());
    assert!(failure.advice.contains("cx.now()"), "{failure}");
}

#[test]
fn a_hash_map_whose_order_is_sent_is_found() {
    let failure = odd(|| {
        let numbers: HashMap<u8, ()> = (0..20).map(|number| (number, ())).collect();
        format!("{:?}", numbers.keys().collect::<Vec<_>>())
    });
    assert!(failure.advice.contains("BTreeMap"), "{failure}");
}

#[test]
fn memory_that_runs_share_is_found() {
    let runs = AtomicU64::new(0);
    odd(move || runs.fetch_add(1, Ordering::Relaxed).to_string());
}

/// Waits for a timer.
struct Sleeps;

impl Handler<Charge> for Sleeps {
    const NAME: &'static str = "sleeps";

    async fn handle(&self, _: Charge, _: &mut Context) -> Result<(), HandlerError> {
        std::future::pending().await
    }
}

#[test]
fn a_handler_that_waits_for_something_else_is_told_so() {
    let check = Check::handler(Sleeps).message(Charge { order: "A-1".into(), cents: 1 });
    let failure = failure(check.report(), "it_can_be_checked");
    assert!(failure.advice.contains("a timer, a socket"), "{failure}");
}

#[test]
fn what_cannot_be_checked_is_refused_with_the_remedy() {
    let refused = |check: Checked, remedy: &str| {
        let failure = failure(check, "it_can_be_checked");
        assert!(failure.seen.contains(remedy), "{failure}");
    };
    refused(stock().message(Charge { order: "A-1".into(), cents: 1 }).report(), "does not handle shop.charge");
    let charger = Check::handler(Charger { key: |_| None });
    refused(charger.message(Charge { order: "A-1".into(), cents: 1 }).report(), "add .with(..)");
}
