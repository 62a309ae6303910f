//! Which step waits for which.

use hapax::ports::DedupStore;
use hapax_model::{
    Call, Point,
    ledger::{Act, Post, Trouble},
};
use hapax_tests::{Bench, Save, Shape, Workbench, message, words};

use crate::{after, before, post, quiet};

/// Where a point was reached, in the order of time.
fn places(bench: &Workbench, point: Point) -> Vec<usize> {
    let trace = bench.world.trace();
    trace.iter().enumerate().filter(|(_, reached)| **reached == point).map(|(place, _)| place).collect()
}

fn first(bench: &Workbench, point: Point) -> usize {
    *places(bench, point).first().unwrap_or_else(|| panic!("{point:?} was not reached: {:?}", bench.world.trace()))
}

#[tokio::test]
async fn the_check_begins_only_after_the_load_has_returned() {
    let bench = Bench::new(Shape::Two).ledgers();
    assert_eq!(words(&bench.pass(&[message("m", &post("m"))]).await), ["Handled"]);
    assert!(first(&bench, before(Call::Contains)) > first(&bench, after(Call::Load)));
    assert_eq!(places(&bench, before(Call::Contains)).len(), 1, "also for an entity that is not there");
}

#[tokio::test]
async fn one_store_for_both_is_asked_once() {
    let bench = Bench::new(Shape::One).ledgers();
    assert_eq!(words(&bench.pass(&[message("m", &post("m"))]).await), ["Handled"]);
    assert_eq!(places(&bench, before(Call::Load)).len(), 1);
    assert!(places(&bench, before(Call::Contains)).is_empty(), "load and check are one snapshot");
}

#[tokio::test]
async fn a_copy_of_what_is_over_costs_one_load_and_one_check() {
    for (shape, asked) in [(Shape::One, vec![Call::Load]), (Shape::Two, vec![Call::Load, Call::Contains])] {
        let bench = Bench::new(shape).ledgers();
        let m = message("m", &post("m"));
        assert_eq!(words(&bench.pass(std::slice::from_ref(&m)).await), ["Handled"]);
        bench.world.clear_trace();
        assert_eq!(words(&bench.pass(&[m]).await), ["Duplicate"]);
        let trace = bench.world.trace();
        let calls: Vec<Call> =
            trace.iter().filter(|point| **point == before(point.call)).map(|point| point.call).collect();
        assert_eq!(calls, asked, "what is seen rests on no version, {shape:?}");
    }
}

#[tokio::test]
async fn a_left_over_that_cannot_be_removed_now_is_none_of_the_messages_business() {
    let bench = Bench::new(Shape::One).ledgers();
    let m = message("m", &post("m"));
    bench.crash(&m, before(Call::Finish)).await;
    let mark = bench.store.stored(&bench.key("a")).await.unwrap().entity.outbox[0].to_dedup_entry();
    bench.store.memory.insert(&[mark]).await.unwrap();
    bench.store.saves(&[Save::UnknownLost]); // Nothing is saved, so it is the clean-up that is lost.
    let bad = message("bad", &Post { trouble: Trouble::Fails(1), ..post("bad") });
    let outcomes = bench.pass(&[m, bad, message("n", &post("n"))]).await;
    assert_eq!(words(&outcomes), ["Duplicate", "Failed", "Rest"]);
    assert_eq!(bench.store.stored(&bench.key("a")).await.unwrap().entity.outbox.len(), 1, "left to the next save");
}

#[tokio::test]
async fn nothing_is_dispatched_before_the_save_has_returned() {
    for shape in Shape::ALL {
        let bench = Bench::new(shape).ledgers();
        bench.pass(&[message("m", &post("m"))]).await;
        assert!(first(&bench, before(Call::Dispatch)) > first(&bench, after(Call::Save)), "{shape:?}");
    }
}

#[tokio::test]
async fn nothing_is_dispatched_when_the_outcome_of_the_save_is_unknown() {
    for shape in Shape::ALL {
        let bench = Bench::new(shape).ledgers();
        bench.store.saves(&[Save::Unknown]);
        assert_eq!(words(&bench.pass(&[message("m", &post("m"))]).await), ["Again UnknownOutcome"]);
        assert_eq!(bench.out.sent().len(), 0, "{shape:?}");
    }
}

#[tokio::test]
async fn the_mark_is_made_only_after_every_dispatch_is_confirmed() {
    for (shape, mark) in [(Shape::One, Call::Finish), (Shape::Two, Call::Insert)] {
        let bench = Bench::new(shape).ledgers();
        let two = message("m", &Post { outputs: 2, ..post("m") });
        bench.out.fail(1);
        assert_eq!(words(&bench.pass(std::slice::from_ref(&two)).await), ["Unsent"]);
        // With one store the call that marks is also the one that takes out what was sent, and then marks nothing.
        assert!(
            shape == Shape::One || places(&bench, before(mark)).is_empty(),
            "one of two was not confirmed, {shape:?}"
        );
        assert!(!bench.is_marked(&bench.key("a"), &two).await);
        bench.world.clear_trace();
        assert_eq!(words(&bench.pass(std::slice::from_ref(&two)).await), ["Handled"]);
        assert!(first(&bench, before(mark)) > first(&bench, after(Call::Dispatch)), "{shape:?}");
    }
}

#[tokio::test]
async fn the_clean_up_begins_only_after_the_mark_is_confirmed() {
    let bench = Bench::new(Shape::Two).ledgers();
    bench.pass(&[message("m", &post("m"))]).await;
    let saves = places(&bench, before(Call::Save));
    assert_eq!(saves.len(), 2, "the entry is saved, then cleaned up");
    assert!(saves[1] > first(&bench, after(Call::Insert)));
}

#[tokio::test]
async fn nothing_is_cleaned_up_when_the_outcome_of_the_mark_is_unknown() {
    let bench = Bench::new(Shape::Two).ledgers();
    let m = message("m", &post("m"));
    bench.store.fail_inserts(1);
    assert_eq!(words(&bench.pass(std::slice::from_ref(&m)).await), ["Unsent"]);
    assert_eq!(bench.store.stored(&bench.key("a")).await.unwrap().entity.outbox.len(), 1);
    assert_eq!(words(&bench.pass(&[m]).await), ["Handled"]);
    assert_eq!(bench.lines("a").await.len(), 1);
}

#[tokio::test]
async fn an_unknown_clean_up_is_none_of_the_messages_business() {
    let bench = Bench::new(Shape::Two).ledgers();
    bench.store.saves(&[Save::Done, Save::UnknownLost]);
    assert_eq!(words(&bench.pass(&[message("m", &post("m"))]).await), ["Handled"]);
}

#[tokio::test]
async fn the_ack_comes_last() {
    for shape in Shape::ALL {
        for outputs in [0, 2] {
            let bench = Bench::new(shape).ledgers();
            bench.deliver(&[message("m", &Post { outputs, ..post("m") })], 1).await;
            let last = bench.world.trace().iter().rposition(|point| point.call != Call::Settle).unwrap();
            assert!(first(&bench, before(Call::Settle)) > last, "{shape:?}, {outputs} outgoing");
            assert!(bench.queue.is_empty());
        }
    }
}

#[tokio::test]
async fn a_dead_letter_is_confirmed_before_the_ack() {
    let bench = Bench::new(Shape::One).ledgers();
    bench.store.fail_letters(1);
    let refused = Post { act: Act::SendUnroutable, ..post("m") };
    bench.out.unroutable("ledger.unroutable");
    bench.deliver(&[message("m", &refused)], 1).await;
    let set_aside = places(&bench, after(Call::SetAside));
    assert_eq!(set_aside.len(), 1, "the first was refused and never came to its end");
    assert!(first(&bench, before(Call::Settle)) > set_aside[0]);
    assert_eq!(bench.letters().await.len(), 1);
}

#[tokio::test]
async fn with_one_store_nothing_outgoing_leaves_no_entry() {
    let bench = Bench::new(Shape::One).ledgers();
    let m = message("m", &quiet("m"));
    bench.crash(&m, after(Call::Save)).await;
    let stored = bench.store.stored(&bench.key("a")).await.unwrap();
    assert_eq!(stored.entity.outbox.len(), 0);
    assert!(bench.is_marked(&bench.key("a"), &m).await, "state and mark are one commit");
    assert!(places(&bench, before(Call::Finish)).is_empty());
}

#[tokio::test]
async fn with_two_stores_nothing_outgoing_leaves_an_entry_until_the_mark() {
    let bench = Bench::new(Shape::Two).ledgers();
    let m = message("m", &quiet("m"));
    bench.crash(&m, after(Call::Save)).await;
    assert_eq!(bench.store.stored(&bench.key("a")).await.unwrap().entity.outbox.len(), 1);
    assert!(!bench.is_marked(&bench.key("a"), &m).await);
    assert_eq!(words(&bench.pass(&[m]).await), ["Handled"]);
    assert_eq!(bench.store.stored(&bench.key("a")).await.unwrap().entity.outbox.len(), 0);
}

#[tokio::test]
async fn a_message_with_something_outgoing_is_never_marked_in_the_commit_that_saves_it() {
    let bench = Bench::new(Shape::One).ledgers();
    let m = message("m", &post("m"));
    bench.crash(&m, after(Call::Save)).await;
    assert!(!bench.is_marked(&bench.key("a"), &m).await, "its messages would be lost now");
    assert_eq!(bench.store.stored(&bench.key("a")).await.unwrap().entity.outbox.len(), 1);
}

#[tokio::test]
async fn a_check_that_fails_is_not_a_message_that_was_not_seen() {
    let bench = Bench::new(Shape::Two).ledgers();
    bench.store.fail_contains(1);
    assert_eq!(words(&bench.pass(&[message("m", &post("m"))]).await), ["Again Unavailable"]);
    assert_eq!(bench.lines("a").await, []);
}
