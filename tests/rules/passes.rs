//! Several messages in one pass.

use std::cell::Cell;

use hapax::{Context, Correlation, Handle, HandlerError, Message, Registry, Saga};
use hapax_model::{
    Call,
    ledger::{Post, Trouble, runs_of},
};
use hapax_tests::{Bench, Save, Shape, message, words};
use serde::{Deserialize, Deserializer, Serialize};

use crate::{before, post, quiet};

#[tokio::test]
async fn copies_within_a_pass_settle_with_the_first_and_are_handled_once() {
    for shape in Shape::ALL {
        let bench = Bench::new(shape).ledgers();
        let m = message("m", &post("m"));
        let outcomes = bench.pass(&[m.clone(), message("n", &post("n")), m.clone(), m]).await;
        assert_eq!(words(&outcomes), ["Handled", "Handled", "Duplicate", "Duplicate"]);
        assert_eq!((runs_of("m"), bench.out.sent().len()), (1, 2), "{shape:?}");
    }
}

#[tokio::test]
async fn messages_of_a_pass_are_saved_once_and_each_is_marked() {
    for shape in Shape::ALL {
        let bench = Bench::new(shape).ledgers();
        let messages = [message("l", &quiet("l")), message("m", &post("m")), message("n", &post("n"))];
        bench.crash_pass(&messages, before(Call::Dispatch)).await;
        let stored = bench.store.stored(&bench.key("a")).await.unwrap();
        assert_eq!(stored.entity.commits, 3, "one save, {shape:?}");
        assert_eq!(words(&bench.pass(&messages).await)[1..], ["Handled", "Handled"]);
        for m in &messages {
            assert!(bench.is_marked(&bench.key("a"), m).await);
        }
    }
}

#[tokio::test]
async fn an_error_in_a_pass_keeps_what_came_before_and_leaves_the_rest() {
    for trouble in [Trouble::Fails(1), Trouble::Panics(1)] {
        for shape in Shape::ALL {
            let bench = Bench::new(shape).ledgers();
            let bad = message("bad", &Post { trouble, ..post("bad") });
            let outcomes = bench.pass(&[message("m", &post("m")), bad, message("n", &post("n"))]).await;
            assert_eq!(words(&outcomes), ["Handled", "Failed", "Rest"]);
            let causes: Vec<String> = bench.lines("a").await.into_iter().map(|line| line.cause).collect();
            assert_eq!(causes, ["m"], "nothing of the failed run is kept, {shape:?}");
            assert_eq!((runs_of("n"), bench.out.sent().len()), (0, 1));
        }
    }
}

#[tokio::test]
async fn a_permanent_error_in_a_pass_does_not_hold_up_the_rest() {
    let bench = Bench::new(Shape::One).ledgers();
    let bad = message("bad", &Post { trouble: Trouble::Refuses, ..post("bad") });
    let outcomes = bench.pass(&[message("m", &post("m")), bad, message("n", &post("n"))]).await;
    assert_eq!(words(&outcomes), ["Handled", "DeadLetter", "Handled"]);
    assert_eq!(bench.lines("a").await.len(), 2);
}

#[tokio::test]
async fn what_came_before_an_error_counts_only_when_its_save_has_won() {
    let bench = Bench::new(Shape::One).ledgers();
    bench.store.saves(&[Save::UnknownLost]);
    let bad = message("bad", &Post { trouble: Trouble::Fails(1), ..post("bad") });
    let outcomes = bench.pass(&[message("m", &post("m")), bad, message("n", &post("n"))]).await;
    assert_eq!(words(&outcomes), ["Again UnknownOutcome", "Again UnknownOutcome", "Again UnknownOutcome"]);
    assert_eq!(bench.out.sent().len(), 0);
}

#[tokio::test]
async fn a_failed_message_is_tried_again_alone_and_before_the_rest() {
    let bench = Bench::new(Shape::One).ledgers();
    let bad = message("bad", &Post { trouble: Trouble::Fails(1), ..post("bad") });
    bench.deliver(&[message("m", &post("m")), bad, message("n", &post("n"))], 1).await;
    assert_eq!(bench.pass_sizes(), [3, 1, 1]);
    let causes: Vec<String> = bench.lines("a").await.into_iter().map(|line| line.cause).collect();
    assert_eq!(causes, ["m", "bad", "n"]);
    assert!(bench.queue.is_empty());
}

#[tokio::test]
async fn a_message_on_a_later_attempt_runs_alone() {
    let bench = Bench::new(Shape::One).ledgers();
    let (key, mut messages) = bench.incoming(&[message("a", &post("a")), message("b", &post("b"))], 1);
    let (_, again) = bench.incoming(&[message("c", &post("c"))], 2);
    let (_, fresh) = bench.incoming(&[message("d", &post("d")), message("e", &post("e"))], 1);
    messages.extend(again);
    messages.extend(fresh);
    bench.deliver.deliver(&*bench.manager, &key, messages).await;
    assert_eq!(bench.pass_sizes(), [2, 1, 2]);
}

#[tokio::test]
async fn a_pass_that_the_store_refuses_as_too_large_is_halved() {
    let bench = Bench::new(Shape::One).ledgers();
    bench.store.saves(&[Save::TooLarge, Save::TooLarge]);
    let messages: Vec<_> = (0..8).map(|n| message(&format!("m{n}"), &quiet(&format!("m{n}")))).collect();
    bench.deliver(&messages, 1).await;
    assert_eq!(bench.pass_sizes()[..4], [8, 4, 2, 2], "{:?}", bench.pass_sizes());
    assert_eq!(bench.lines("a").await.len(), 8);
    assert!(bench.queue.is_empty());
}

#[tokio::test]
async fn a_single_message_that_is_always_too_large_is_dead_lettered() {
    let bench = Bench::new(Shape::One).ledgers();
    bench.store.saves(&[Save::TooLarge; 100]);
    bench.deliver(&[message("m", &post("m"))], 1).await;
    assert_eq!(bench.letters().await.len(), 1);
    assert!(bench.queue.is_empty());
}

/// Somebody else saves all the time, and then the budget ends with a pass that is too large: that says nothing of any of its messages.
#[tokio::test]
async fn several_messages_that_are_too_large_together_are_not_dead_lettered() {
    let bench = Bench::new(Shape::One).ledgers();
    bench.store.saves(&[Save::UnknownLost, Save::UnknownLost, Save::UnknownLost, Save::UnknownLost, Save::TooLarge]);
    let messages: Vec<_> = (0..8).map(|n| message(&format!("m{n}"), &quiet(&format!("m{n}")))).collect();
    bench.deliver(&messages, 1).await;
    assert_eq!(bench.letters().await.len(), 0);
    assert_eq!(bench.pass_sizes(), [8; 5]);
    assert!(!bench.queue.is_empty(), "they are given again");
}

#[tokio::test]
async fn what_does_not_fit_with_the_others_of_its_pass_is_left_for_the_next() {
    const ROOM_FOR_TWO: usize = 2200;
    let bench = Bench { entity_bytes_max: ROOM_FOR_TWO, ..Bench::new(Shape::One) }.ledgers();
    let messages: Vec<_> = (0..3).map(|n| message(&format!("m{n}"), &post(&format!("m{n}")))).collect();
    assert_eq!(words(&bench.pass(&messages).await), ["Handled", "Handled", "Rest"]);
    assert_eq!(words(&bench.pass(&messages[2..]).await), ["Handled"]);
}

#[tokio::test]
async fn every_message_of_a_pass_is_settled_by_its_own_dispatch() {
    let bench = Bench::new(Shape::One).ledgers();
    bench.out.fail(1);
    let messages = [message("m", &post("m")), message("n", &post("n")), message("l", &quiet("l"))];
    assert_eq!(words(&bench.pass(&messages).await), ["Unsent", "Handled", "Handled"]);
    assert_eq!(words(&bench.pass(&messages).await), ["Handled", "Duplicate", "Duplicate"]);
}

#[tokio::test]
async fn what_was_saved_with_its_mark_is_over_although_the_mark_of_another_is_unknown() {
    let bench = Bench::new(Shape::One).ledgers();
    bench.store.saves(&[Save::Done, Save::UnknownLost]);
    let messages = [message("l", &quiet("l")), message("m", &post("m"))];
    assert_eq!(words(&bench.pass(&messages).await), ["Handled", "Unsent"]);
}

thread_local! {
    static READS: Cell<u32> = const { Cell::new(0) };
}

#[derive(Serialize, Deserialize)]
struct Count(String);

impl Message for Count {
    const TYPE: &'static str = "rules.count";
}

/// Counts how often it is read.
#[derive(Default, Serialize)]
struct Counted(u32);

impl<'de> Deserialize<'de> for Counted {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        READS.set(READS.get() + 1);
        u32::deserialize(deserializer).map(Self)
    }
}

impl Saga for Counted {
    const NAME: &'static str = "counted";
}

impl Handle<Count> for Counted {
    fn correlate(count: &Count) -> Correlation<'_> {
        (&count.0).into()
    }

    async fn handle(&mut self, _: Count, _: &mut Context) -> Result<(), HandlerError> {
        self.0 += 1;
        Ok(())
    }
}

#[tokio::test]
async fn the_state_is_read_once_for_all_messages_of_a_pass() {
    let bench = Bench::new(Shape::One).of(Registry::<Counted>::new().starts::<Count>());
    for (round, reads) in [(0, 0), (1, 1)] {
        let messages: Vec<_> = (0..3).map(|n| message(&format!("{round}-{n}"), &Count("a".into()))).collect();
        assert_eq!(words(&bench.pass(&messages).await), ["Handled"; 3]);
        assert_eq!(READS.get(), reads, "in pass {round}");
    }
}

/// Thousands of passes wait for their stores at a time: beyond a kilobyte most allocators look for a place instead of having
/// one at hand, and the cache holds few of them.
#[tokio::test]
async fn what_waits_for_a_store_is_small() {
    const BYTES_MAX: usize = 1000;
    let bench = Bench::new(Shape::One).ledgers();
    let (key, mut incoming) = bench.incoming(&[message("m", &post("m"))], 1);
    let pass = bench.manager.pass(&key, &mut incoming, &[]);
    let bytes = size_of_val(&*pass);
    drop(pass);
    assert!(bytes <= BYTES_MAX, "a pass takes {bytes} bytes");
    let delivery = bench.deliver.deliver(bench.manager.as_ref(), &key, incoming);
    // Beside it a lane keeps its key and its span.
    let bytes = size_of_val(&delivery);
    assert!(bytes + 100 <= BYTES_MAX, "a delivery takes {bytes} bytes");
}
