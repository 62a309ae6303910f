//! An outcome without a save counts only on a load that nobody has overtaken.

use hapax::{Completed, Missing, Registry, ports::ErrorKind};
use hapax_model::ledger::{Act, Alarm, Ledger, Post, Trouble, posted_of, runs_of};
use hapax_tests::{Bench, Save, Shape, Workbench, message, words};

use crate::{post, quiet};

/// Runs `judged` on the entity as it was before `posting`, then as it is.
async fn stale_then_fresh(bench: &Workbench, posting: &Post, judged: &hapax::envelope::Envelope) -> Vec<String> {
    let key = bench.key("a");
    let before = bench.store.stored(&key).await;
    assert_eq!(words(&bench.pass(&[message(&posting.cause, posting)]).await), ["Handled"]);
    bench.store.load_stale(before);
    let mut outcomes = words(&bench.pass(std::slice::from_ref(judged)).await);
    outcomes.extend(words(&bench.pass(std::slice::from_ref(judged)).await));
    outcomes
}

#[tokio::test]
async fn a_permanent_error_counts_only_on_a_fresh_load() {
    let bench = Bench::new(Shape::One).ledgers();
    let refused = message("m", &Post { trouble: Trouble::Refuses, ..post("m") });
    assert_eq!(stale_then_fresh(&bench, &quiet("before"), &refused).await, ["Again Conflict", "DeadLetter"]);
}

#[tokio::test]
async fn a_failure_counts_only_on_a_fresh_load() {
    let bench = Bench::new(Shape::One).ledgers();
    let fails = message("m", &Post { trouble: Trouble::Fails(9), ..post("m") });
    assert_eq!(stale_then_fresh(&bench, &quiet("before"), &fails).await, ["Again Conflict", "Failed"]);
}

#[tokio::test]
async fn a_saga_that_is_missing_counts_only_on_a_fresh_load() {
    let registry = Registry::<Ledger>::new().starts::<Post>().handles::<Alarm>().when_missing(Missing::DeadLetter);
    let bench = Bench::new(Shape::One).of(registry);
    let posting = Post { act: Act::SetAlarm, ..quiet("before") };
    bench.store.load_stale(None);
    bench.pass(&[message("before", &posting)]).await;
    let mut alarm = (*bench.out.sent()[0].envelope).clone();
    alarm.timeout = false; // As an ordinary message that may not start a saga.
    bench.store.load_stale(None);
    assert_eq!(words(&bench.pass(std::slice::from_ref(&alarm)).await), ["Again Conflict"]);
    assert_eq!(words(&bench.pass(&[alarm]).await), ["Handled"], "the saga was there all the time");
}

#[tokio::test]
async fn a_timeout_that_is_not_live_counts_only_on_a_fresh_load() {
    let bench = Bench::new(Shape::One).ledgers();
    bench.pass(&[message("before", &Post { act: Act::SetAlarm, ..quiet("before") })]).await;
    let alarm = (*bench.out.sent()[0].envelope).clone();
    bench.store.load_stale(None);
    assert_eq!(words(&bench.pass(std::slice::from_ref(&alarm)).await), ["Again Conflict"]);
    assert_eq!(words(&bench.pass(&[alarm]).await), ["Handled"]);
}

#[tokio::test]
async fn a_completed_saga_counts_when_the_load_is_fresh() {
    for (rule, word) in [(Completed::Drop, "Dropped: saga completed"), (Completed::DeadLetter, "DeadLetter")] {
        let bench = Bench::new(Shape::One).of(Ledger::registry().when_completed(rule));
        let late = message("late", &quiet("late"));
        let outcomes = stale_then_fresh(&bench, &Post { act: Act::Close, ..quiet("close") }, &late).await;
        assert_eq!(outcomes, ["Again Conflict", word], "on the old load it would be handled, and its save loses");
        assert_eq!(runs_of("late"), 1);
    }
}

#[tokio::test]
async fn a_permanent_error_in_a_pass_that_saves_counts_with_the_save() {
    let bench = Bench::new(Shape::One).ledgers();
    let refused = message("bad", &Post { trouble: Trouble::Refuses, ..post("bad") });
    let outcomes = bench.pass(&[message("good", &post("good")), refused.clone()]).await;
    assert_eq!(words(&outcomes), ["Handled", "DeadLetter"]);
    let before = None;
    bench.store.load_stale(before);
    let outcomes = bench.pass(&[message("next", &post("next")), refused]).await;
    assert_eq!(words(&outcomes), ["Again Conflict", "Again Conflict"]);
}

/// Another worker has saved `m` and stopped there; this one has loaded before.
async fn saved_by_a_twin(bench: &Workbench, m: &hapax::envelope::Envelope) {
    bench.crash(m, crate::before(hapax_model::Call::Dispatch)).await;
    bench.store.load_stale(None);
}

#[tokio::test]
async fn that_a_pass_is_too_late_counts_only_on_a_fresh_load() {
    let bench = Bench::new(Shape::One).ledgers();
    let m = message("m", &post("m"));
    saved_by_a_twin(&bench, &m).await;
    bench.clock.jump_after(1);
    assert_eq!(words(&bench.pass(std::slice::from_ref(&m)).await), ["Again Conflict"], "a twin has handled it");
    assert_eq!(words(&bench.pass(&[m]).await), ["Handled"]);
}

#[tokio::test]
async fn that_a_save_is_too_large_counts_only_on_a_fresh_load() {
    let bench = Bench::new(Shape::One).ledgers();
    let m = message("m", &post("m"));
    saved_by_a_twin(&bench, &m).await;
    bench.store.saves(&[Save::TooLarge]);
    assert_eq!(words(&bench.pass(std::slice::from_ref(&m)).await), ["Again Conflict"], "a twin has handled it");
    assert_eq!(words(&bench.pass(&[m]).await), ["Handled"]);
}

#[tokio::test]
async fn a_look_that_fails_is_no_verdict() {
    let bench = Bench::new(Shape::One).ledgers();
    let m = message("m", &post("m"));
    for kind in
        [ErrorKind::Unavailable, ErrorKind::Denied, ErrorKind::Misconfigured, ErrorKind::Absent, ErrorKind::TooLarge]
    {
        bench.store.fail_versions(&[kind, kind]);
        bench.clock.jump_after(1);
        assert_eq!(words(&bench.pass(std::slice::from_ref(&m)).await), ["Again Unavailable"], "too late, and {kind:?}");
        bench.store.saves(&[Save::TooLarge]);
        assert_eq!(
            words(&bench.pass(std::slice::from_ref(&m)).await),
            ["Again Unavailable"],
            "too large, and {kind:?}"
        );
    }
    assert_eq!(words(&bench.pass(&[m]).await), ["Handled"]);
}

#[tokio::test]
async fn a_stale_load_never_doubles_an_effect() {
    for shape in Shape::ALL {
        let bench = Bench::new(shape).ledgers();
        let m = message("m", &post("m"));
        bench.crash(&m, crate::before(hapax_model::Call::Dispatch)).await;
        bench.store.load_stale(None);
        assert_eq!(words(&bench.pass(std::slice::from_ref(&m)).await), ["Again Conflict"]);
        assert_eq!(words(&bench.pass(&[m]).await), ["Handled"]);
        assert_eq!((bench.lines("a").await.len(), bench.out.sent().len()), (1, 1), "{shape:?}");
        assert!(posted_of(&bench.out.sent()[0].envelope).unwrap().is_some());
    }
}
