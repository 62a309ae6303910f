//! What a handler may do, and what becomes of it.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU32, Ordering},
};

use hapax::{
    Context, Correlation, Handle, HandlerError, Message, Registry, Saga,
    entity::{Entity, Expected},
    ports::EntityStore,
};
use hapax_model::ledger::{Act, Ledger, Post, Trouble, runs_of};
use hapax_tests::{Bench, Save, Shape, message, words};
use serde::{Deserialize, Serialize};

use crate::{post, quiet};

#[tokio::test]
async fn nothing_of_a_failed_run_is_kept() {
    for trouble in [Trouble::Fails(1), Trouble::Panics(1)] {
        for shape in Shape::ALL {
            let bench = Bench::new(shape).ledgers();
            let m = message("m", &Post { trouble, ..post("m") });
            assert_eq!(words(&bench.pass(std::slice::from_ref(&m)).await), ["Failed"]);
            assert!(bench.store.stored(&bench.key("a")).await.is_none());
            assert_eq!(bench.out.sent().len(), 0);
            assert_eq!(words(&bench.pass(&[m]).await), ["Handled"]);
            assert_eq!((bench.lines("a").await.len(), bench.out.sent().len(), runs_of("m")), (1, 1, 2), "{shape:?}");
        }
    }
}

#[tokio::test]
async fn a_panic_is_that_messages_error_and_says_so() {
    let bench = Bench::new(Shape::One).ledgers();
    let m = message("m", &Post { trouble: Trouble::Panics(9), ..post("m") });
    let outcomes = bench.pass(&[m]).await;
    assert!(format!("{outcomes:?}").contains("the handler panicked: told to panic"), "{outcomes:?}");
    assert_eq!(words(&bench.pass(&[message("n", &post("n"))]).await), ["Handled"], "the manager goes on");
}

#[tokio::test]
async fn a_message_whose_handler_always_fails_is_dead_lettered_after_its_deliveries() {
    let bench = Bench::new(Shape::One).ledgers();
    let max = hapax::deliver::Recoverability::default().attempts_max;
    let m = message("m", &Post { trouble: Trouble::Fails(99), ..post("m") });
    bench.deliver(std::slice::from_ref(&m), max - 1).await;
    assert_eq!(bench.letters().await, Vec::new(), "given back");
    assert!(bench.queue.has_waiting());
    bench.deliver(&[message("n", &Post { trouble: Trouble::Fails(99), ..post("n") })], max).await;
    let letters = bench.letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].reason, "told to fail");
}

#[tokio::test]
async fn a_permanent_error_is_dead_lettered_at_once_with_its_body_and_reason() {
    let bench = Bench::new(Shape::One).ledgers();
    let m = message("m", &Post { trouble: Trouble::Refuses, ..post("m") });
    bench.deliver(std::slice::from_ref(&m), 1).await;
    let letters = bench.letters().await;
    assert_eq!(*letters[0].envelope, m);
    assert_eq!(letters[0].reason, "told to refuse");
    assert_eq!((letters[0].attempts, runs_of("m")), (1, 1));
    assert!(bench.queue.is_empty());
    assert!(!bench.is_marked(&bench.key("a"), &m).await, "a replay would be handled");
}

#[tokio::test]
async fn state_that_cannot_be_read_loses_neither_itself_nor_the_message() {
    let bench = Bench::new(Shape::One).ledgers();
    let key = bench.key("a");
    // Codec 1, schema 1, and no JSON; then a schema of the future.
    for state in [&b"\x01\x01not json"[..], b"\x01\x63{}"] {
        let entity = Entity { state: state.to_vec().into(), ..Entity::default() };
        let expected = bench.store.stored(&key).await.map_or(Expected::Absent, |s| Expected::Version(s.version));
        drop(bench.store.memory.save(&key, &expected, &entity, &[]).await.unwrap());
        let outcomes = bench.pass(&[message("m", &quiet("m"))]).await;
        assert_eq!(words(&outcomes), ["Again Malformed"], "to be retried, not set aside, however often it has come");
        assert!(format!("{outcomes:?}").contains("the stored state cannot be read"), "{outcomes:?}");
        assert_eq!(bench.store.stored(&key).await.unwrap().entity, entity);
    }
}

/// What a unit test of a handler looks at, without an endpoint.
#[tokio::test]
async fn a_context_for_tests_tells_what_is_sent_and_whether_the_saga_has_ended() {
    for (act, sent, has_ended) in [(Act::Nothing, 1, false), (Act::SetAlarm, 2, false), (Act::Close, 1, true)] {
        let mut cx = Context::for_test();
        assert!(!cx.is_completed());
        Ledger::default().handle(Post { act, ..post("m") }, &mut cx).await.unwrap();
        assert_eq!((cx.outgoing().len(), cx.is_completed()), (sent, has_ended), "{act:?}");
    }
}

#[derive(Serialize, Deserialize)]
struct Swap(String);

impl Message for Swap {
    const TYPE: &'static str = "rules.swap";
}

#[derive(Default, Serialize, Deserialize)]
struct Swapper;

impl Saga for Swapper {
    const NAME: &'static str = "swapper";
}

impl Handle<Swap> for Swapper {
    fn correlate(swap: &Swap) -> Correlation<'_> {
        (&swap.0).into()
    }

    async fn handle(&mut self, swap: Swap, cx: &mut Context) -> Result<(), HandlerError> {
        *cx = Context::for_test();
        cx.send("anywhere", swap)
    }
}

#[tokio::test]
async fn a_handler_that_replaces_its_context_is_refused_for_good() {
    let bench = Bench::new(Shape::One).of(Registry::<Swapper>::new().starts::<Swap>());
    let outcomes = bench.pass(&[message("m", &Swap("a".into()))]).await;
    assert_eq!(words(&outcomes), ["DeadLetter"]);
    assert!(format!("{outcomes:?}").contains("replaced its context"));
    assert!(bench.store.stored(&bench.key("a")).await.is_none());
    assert_eq!(bench.out.sent().len(), 0);
}

#[derive(Serialize, Deserialize)]
struct Charge(String);

impl Message for Charge {
    const TYPE: &'static str = "rules.charge";
}

#[derive(Default, Serialize, Deserialize)]
struct Charger;

/// What an outside service was asked for, in the order of the runs.
static CHARGES: Mutex<Vec<[String; 2]>> = Mutex::new(Vec::new());

impl Saga for Charger {
    const NAME: &'static str = "charger";
}

impl Handle<Charge> for Charger {
    fn correlate(charge: &Charge) -> Correlation<'_> {
        (&charge.0).into()
    }

    async fn handle(&mut self, _: Charge, cx: &mut Context) -> Result<(), HandlerError> {
        let keys = [cx.idempotency_key("charge"), cx.idempotency_key("receipt")];
        CHARGES.lock().unwrap_or_else(PoisonError::into_inner).push(keys);
        static RUNS: AtomicU32 = AtomicU32::new(0);
        if RUNS.fetch_add(1, Ordering::Relaxed) == 0 {
            return Err(HandlerError::transient("not yet"));
        }
        Ok(())
    }
}

#[tokio::test]
async fn an_outside_service_is_given_the_same_key_by_every_run_and_every_copy() {
    let bench = Bench::new(Shape::One).of(Registry::<Charger>::new().starts::<Charge>());
    let m = message("m", &Charge("a".into()));
    assert_eq!(words(&bench.pass(std::slice::from_ref(&m)).await), ["Failed"]);
    bench.store.saves(&[Save::UnknownLost]);
    assert_eq!(words(&bench.pass_again(std::slice::from_ref(&m), 2).await), ["Again UnknownOutcome"]);
    assert_eq!(words(&bench.pass_again(&[m], 3).await), ["Handled"]);
    bench.pass(&[message("n", &Charge("a".into()))]).await;
    let runs = CHARGES.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let [first, second, third, other] = runs.as_slice() else { panic!("{runs:?}") };
    assert_eq!((first, second), (second, third));
    assert_ne!(first[0], first[1], "a key for each name");
    assert_ne!(first[0], other[0], "a key for each message");
    assert_eq!(first[0].len(), 32);
}

#[tokio::test]
async fn a_message_that_cannot_be_read_is_a_permanent_error_and_one_of_a_later_schema_is_not() {
    let bench = Bench::new(Shape::One).of(Registry::<Ledger>::new().starts::<Post>());
    let route = |envelope| {
        let receipt = hapax::ports::Receipt::number(1);
        bench.manager.route(&std::sync::Arc::new(envelope), receipt, 1).unwrap_err()
    };
    let mut unreadable = message("m", &quiet("m"));
    unreadable.body = "no posting".into();
    assert!(route(unreadable).is_permanent());
    let mut later = message("m", &quiet("m"));
    later.schema = 9;
    assert!(!route(later).is_permanent(), "the next version of the program may know it");
}
