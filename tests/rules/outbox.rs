//! Entries of others: carried, helped, swept, ordered, and what becomes of messages that cannot be sent.

use std::sync::Arc;

use hapax::{
    entity::{DedupEntry, Expected, OutboxEntry},
    ids::AttemptId,
    manager::Limits,
    ports::{DedupStore, EntityStore},
};
use hapax_model::{
    Call,
    ledger::{Act, Ledger, Post, runs_of},
};
use hapax_tests::{Bench, Shape, Workbench, message, words};

use crate::{after, before, post, quiet};

const OTHER: AttemptId = AttemptId::from_bytes([0xEE; AttemptId::BYTES]);

#[tokio::test]
async fn a_save_carries_the_entries_of_others_unchanged() {
    for shape in Shape::ALL {
        let bench = Bench::new(shape).ledgers();
        bench.crash(&message("first", &post("first")), before(Call::Dispatch)).await;
        let waiting = bench.store.stored(&bench.key("a")).await.unwrap().entity.outbox;
        for next in [post("second"), quiet("third")] {
            assert_eq!(words(&bench.pass(&[message(&next.cause, &next)]).await), ["Handled"]);
            let stored = bench.store.stored(&bench.key("a")).await.unwrap().entity;
            assert_eq!(stored.outbox, waiting, "{shape:?} after {}", next.cause);
        }
    }
}

#[tokio::test]
async fn the_next_save_drops_an_entry_whose_attempt_is_marked() {
    for shape in Shape::ALL {
        let bench = Bench::new(shape).ledgers();
        bench.crash(&message("first", &post("first")), before(Call::Dispatch)).await;
        let mark = bench.store.stored(&bench.key("a")).await.unwrap().entity.outbox[0].to_dedup_entry();
        bench.store.memory.insert(&[mark]).await.unwrap();
        // Stopped right after its save, so that it is the save that has helped.
        bench.crash(&message("second", &post("second")), after(Call::Save)).await;
        let outbox = bench.store.stored(&bench.key("a")).await.unwrap().entity.outbox;
        assert_eq!(outbox.len(), 1, "{shape:?}: its own entry is left");
        assert_eq!(outbox[0].commit, 2);
    }
}

#[tokio::test]
async fn helping_drops_nothing_on_the_word_of_another_attempt() {
    for shape in Shape::ALL {
        let bench = Bench::new(shape).ledgers();
        bench.crash(&message("first", &post("first")), before(Call::Dispatch)).await;
        let waiting = bench.store.stored(&bench.key("a")).await.unwrap().entity.outbox;
        let mark = DedupEntry { attempt: OTHER, ..waiting[0].to_dedup_entry() };
        bench.store.memory.insert(&[mark]).await.unwrap();
        assert_eq!(words(&bench.pass(&[message("second", &post("second"))]).await), ["Handled"]);
        assert_eq!(bench.store.stored(&bench.key("a")).await.unwrap().entity.outbox, waiting, "{shape:?}");
    }
}

#[tokio::test]
async fn a_clean_up_that_lost_its_race_removes_its_own_entry_and_no_other() {
    for (shape, last) in [(Shape::One, Call::Finish), (Shape::Two, Call::Insert)] {
        let bench = Bench::new(shape).ledgers();
        let first = message("first", &post("first"));
        let (key, mut messages) = bench.incoming(std::slice::from_ref(&first), 1);
        let mut slow = Box::pin(bench.manager.pass(&key, &mut messages, &[]));
        // The first pass stands before its mark while the second message is saved.
        bench.world.until(before(last), &mut slow).await;
        bench.crash(&message("second", &post("second")), before(Call::Dispatch)).await;
        assert_eq!(words(&slow.await), ["Handled"]);
        let outbox = bench.store.stored(&key).await.unwrap().entity.outbox;
        assert_eq!(outbox.iter().map(|entry| entry.commit).collect::<Vec<_>>(), [2], "{shape:?}");
        assert!(bench.is_marked(&key, &first).await);
    }
}

#[tokio::test]
async fn a_clean_up_removes_the_attempt_that_was_sent_and_no_other_of_the_same_message() {
    for shape in Shape::ALL {
        let bench = Bench::new(shape).ledgers();
        let key = bench.key("a");
        bench.crash(&message("m", &post("m")), before(Call::Dispatch)).await;
        // Handled twice, because its mark had been evicted too early.
        let stored = bench.store.stored(&key).await.unwrap();
        let mut entity = stored.entity;
        let sent = entity.outbox[0].clone();
        entity.outbox.push(Arc::new(OutboxEntry { attempt: OTHER, ..(*sent).clone() }));
        let saved = bench.store.memory.save(&key, &Expected::Version(stored.version), &entity, &[]).await;
        assert!(saved.is_ok());
        bench.manager.pass(&key, &mut [], &[sent.attempt]).await;
        let outbox = bench.store.stored(&key).await.unwrap().entity.outbox;
        assert_eq!(outbox.iter().map(|entry| entry.attempt).collect::<Vec<_>>(), [OTHER], "{shape:?}");
    }
}

#[tokio::test]
async fn when_the_budget_of_dispatching_is_spent_the_message_is_acked_and_the_sweeper_has_the_rest() {
    for shape in Shape::ALL {
        let bench = Bench::new(shape).ledgers();
        bench.out.fail(u32::MAX);
        bench.deliver(&[message("m", &post("m"))], 1).await;
        assert!(bench.queue.is_empty() && bench.queue.dead_lettered().is_empty(), "it was acked");
        assert!(bench.events.seen().contains(&"LeftToSweeper".to_owned()));
        assert_eq!(bench.store.stored(&bench.key("a")).await.unwrap().entity.outbox.len(), 1);
        bench.out.fail(0);
        bench.sweep(&bench.key("a")).await;
        assert_eq!((bench.out.sent().len(), runs_of("m")), (1, 1), "{shape:?}");
        assert!(bench.is_marked(&bench.key("a"), &message("m", &post("m"))).await);
        assert_eq!(bench.store.stored(&bench.key("a")).await.unwrap().entity.outbox.len(), 0);
    }
}

#[tokio::test]
async fn while_the_dedup_store_takes_no_marks_what_was_sent_is_not_sent_again_and_again() {
    for outputs in [1, 2] {
        let bench = Bench::new(Shape::Two).ledgers();
        let (key, m) = (bench.key("a"), message("m", &Post { outputs, ..post("m") }));
        bench.store.fail_inserts(5);
        assert_eq!(words(&bench.pass(std::slice::from_ref(&m)).await), ["Unsent"]);
        let versions = bench.store.stored(&key).await.unwrap().version;
        for _ in 0..3 {
            bench.sweep(&key).await;
        }
        assert_eq!(words(&bench.pass(std::slice::from_ref(&m)).await), ["Unsent"]);
        assert_eq!(bench.out.sent().len(), outputs as usize);
        let stored = bench.store.stored(&key).await.unwrap();
        assert_eq!(
            (stored.entity.outbox.len(), stored.version),
            (1, versions),
            "it waits for its mark, and nothing is written for that"
        );
        bench.sweep(&key).await;
        assert!(bench.is_marked(&key, &m).await);
        assert_eq!(bench.store.stored(&key).await.unwrap().entity.outbox.len(), 0);
        assert_eq!((bench.out.sent().len(), runs_of("m")), (outputs as usize, 1));
    }
}
#[tokio::test]
async fn the_sweeper_sends_nothing_of_what_is_marked() {
    let bench = Bench::new(Shape::Two).ledgers();
    bench.crash(&message("m", &post("m")), after(Call::Insert)).await;
    let sent = bench.out.sent().len();
    bench.sweep(&bench.key("a")).await;
    assert_eq!(bench.out.sent().len(), sent);
    assert_eq!(bench.store.stored(&bench.key("a")).await.unwrap().entity.outbox.len(), 0);
}

#[tokio::test]
async fn the_sweeper_finishes_only_what_it_was_told_to() {
    let bench = Bench::new(Shape::One).ledgers();
    bench.crash(&message("old", &post("old")), before(Call::Dispatch)).await;
    let old = bench.store.stored(&bench.key("a")).await.unwrap().entity.outbox[0].attempt;
    bench.crash(&message("young", &post("young")), before(Call::Dispatch)).await;
    bench.manager.pass(&bench.key("a"), &mut [], &[old]).await;
    let outbox = bench.store.stored(&bench.key("a")).await.unwrap().entity.outbox;
    assert_eq!((bench.out.sent().len(), outbox.len()), (1, 1), "the young one may have an owner at work");
    assert_ne!(outbox[0].attempt, old);
}

#[tokio::test]
async fn an_outgoing_message_that_can_never_be_sent_is_dead_lettered_and_the_others_go_on() {
    for shape in Shape::ALL {
        let bench = Bench::new(shape).ledgers();
        bench.out.never("ledger.unsendable");
        let m = message("m", &Post { outputs: 2, act: Act::SendUnsendable, ..post("m") });
        bench.store.fail_letters(1);
        assert_eq!(words(&bench.pass(std::slice::from_ref(&m)).await), ["Unsent"], "until the letter is confirmed");
        assert_eq!(words(&bench.pass(&[m]).await), ["Handled"], "{shape:?}");
        let letters = bench.letters().await;
        assert_eq!(letters.len(), 1);
        assert_eq!(letters[0].envelope.message_type.as_str(), "ledger.unsendable");
        assert_eq!(letters[0].destination.as_ref().unwrap().to_string(), "endpoint:lower");
        assert!(letters[0].reason.contains("as scripted"), "{}", letters[0].reason);
        assert_eq!(bench.store.stored(&bench.key("a")).await.unwrap().entity.outbox.len(), 0);
        assert!(bench.events.seen().contains(&"OutgoingDeadLettered".to_owned()));
    }
}

/// Sent again at every sweep, they would be sent for longer than who has taken them remembers it.
#[tokio::test]
async fn what_was_sent_of_an_entry_is_not_sent_again_with_the_rest() {
    for shape in Shape::ALL {
        for refused in 1..=2 {
            let bench = Bench::new(shape).ledgers();
            let m = message("m", &Post { outputs: 2, act: Act::Reply, ..post("m") });
            let key = bench.key("a");
            bench.out.fail(refused);
            assert_eq!(words(&bench.pass(std::slice::from_ref(&m)).await), ["Unsent"]);
            let some = bench.out.sent();
            assert_eq!(some.len(), 3 - refused as usize, "{shape:?}");
            // Nothing goes, a few times over.
            for _ in 0..3 {
                bench.out.fail(u32::MAX);
                bench.sweep(&key).await;
                assert_eq!(bench.out.sent(), some, "{shape:?}");
            }
            bench.out.fail(0);
            bench.sweep(&key).await;
            let all = bench.out.sent();
            let mut ids: Vec<_> = all.iter().map(|sent| sent.envelope.message_id.to_string()).collect();
            ids.sort();
            ids.dedup();
            assert_eq!((all.len(), ids.len()), (3, 3), "{shape:?}: each once");
            assert_eq!(bench.store.stored(&key).await.unwrap().entity.outbox, Vec::new());
            // The answer was kept, although it had left before the others.
            assert_eq!(words(&bench.pass(std::slice::from_ref(&m)).await), ["Duplicate"]);
            let again = bench.out.sent();
            assert_eq!((again.len(), again.last().map(|sent| Some(&sent.destination))), (4, Some(m.reply_to.as_ref())));
            assert_eq!(runs_of("m"), 1, "{shape:?}");
        }
    }
}

#[tokio::test]
async fn what_was_set_aside_of_an_entry_is_not_set_aside_again_with_the_rest() {
    for shape in Shape::ALL {
        let bench = Bench::new(shape).ledgers();
        bench.out.never("ledger.unsendable");
        let m = message("m", &Post { outputs: 1, act: Act::SendUnsendable, ..post("m") });
        bench.crash(&m, before(Call::Dispatch)).await;
        // The letter waits for what stands before it, and then is one.
        for failing in [1, 1, 0, 0] {
            bench.out.fail(failing);
            bench.sweep(&bench.key("a")).await;
        }
        assert_eq!((bench.letters().await.len(), bench.out.sent().len()), (1, 1), "{shape:?}");
    }
}

#[tokio::test]
async fn what_has_no_route_is_refused_before_anything_is_saved() {
    let bench = Bench::new(Shape::One).ledgers();
    bench.out.unroutable("ledger.unroutable");
    let outcomes = bench.pass(&[message("m", &Post { act: Act::SendUnroutable, ..post("m") })]).await;
    assert_eq!(words(&outcomes), ["DeadLetter"]);
    assert!(format!("{outcomes:?}").contains("no route"), "{outcomes:?}");
    assert!(bench.store.stored(&bench.key("a")).await.is_none());
    assert_eq!(bench.out.sent().len(), 0);
}

#[tokio::test]
async fn what_does_not_fit_the_store_is_refused_before_anything_is_saved() {
    const SMALL: usize = 1000;
    let bench = Bench { entity_bytes_max: SMALL, ..Bench::new(Shape::One) }.ledgers();
    let outcomes = bench.pass(&[message("m", &Post { outputs: 9, ..post("m") })]).await;
    assert_eq!(words(&outcomes), ["DeadLetter"]);
    assert!(format!("{outcomes:?}").contains("memory takes 1000"), "{outcomes:?}");
    assert!(bench.store.stored(&bench.key("a")).await.is_none());
}

#[tokio::test]
async fn an_entity_with_too_many_entries_takes_no_more_messages_but_finishes_what_it_has() {
    let limits = Limits { entries_max: 1, ..Limits::default() };
    let bench = Bench { limits, ..Bench::new(Shape::One) }.ledgers();
    let first = message("first", &post("first"));
    bench.crash(&first, before(Call::Dispatch)).await;
    assert_eq!(words(&bench.pass(&[message("second", &post("second"))]).await), ["Again Full"]);
    assert_eq!(words(&bench.pass(&[first]).await), ["Handled"]);
    assert_eq!(words(&bench.pass(&[message("second", &post("second"))]).await), ["Handled"]);
}

#[tokio::test]
async fn ordered_outputs_send_older_entries_first_under_their_own_keys() {
    for shape in Shape::ALL {
        let bench = Bench::new(shape).of(Ledger::registry().ordered_outputs());
        let first = message("first", &post("first"));
        bench.crash(&first, before(Call::Dispatch)).await;
        assert_eq!(words(&bench.pass(&[message("second", &post("second"))]).await), ["Handled"]);
        let causes: Vec<String> =
            bench.out.sent().iter().map(|sent| sent.envelope.causation_id.as_ref().unwrap().to_string()).collect();
        assert_eq!(causes, ["first", "second"], "{shape:?}");
        assert!(bench.is_marked(&bench.key("a"), &first).await);
        assert_eq!(words(&bench.pass(&[first]).await), ["Duplicate"]);
    }
}

#[tokio::test]
async fn ordered_outputs_do_not_overtake_one_that_cannot_be_sent_now() {
    let bench = Bench::new(Shape::One).of(Ledger::registry().ordered_outputs());
    bench.crash(&message("first", &post("first")), before(Call::Dispatch)).await;
    bench.out.fail(1);
    let second = message("second", &post("second"));
    assert_eq!(words(&bench.pass(std::slice::from_ref(&second)).await), ["Unsent"]);
    assert_eq!(bench.out.sent().len(), 0, "the second waits behind the first");
    assert_eq!(words(&bench.pass(&[second]).await), ["Handled"]);
    assert_eq!(bench.out.sent().len(), 2);
}

#[tokio::test]
async fn a_pass_past_its_deadline_saves_nothing() {
    let bench = Bench::new(Shape::One).ledgers();
    bench.clock.jump_after(1); // The first reading is before the load.
    assert_eq!(words(&bench.pass(&[message("m", &post("m"))]).await), ["Again Deadline"]);
    assert!(bench.store.stored(&bench.key("a")).await.is_none());
}

#[tokio::test]
async fn a_pass_past_its_deadline_dispatches_nothing_not_even_for_the_sweeper() {
    let bench = Bench::new(Shape::One).ledgers();
    bench.clock.jump_after(readings_until(&bench, Call::Dispatch).await);
    let m = message("m", &post("m"));
    assert_eq!(words(&bench.pass(std::slice::from_ref(&m)).await), ["Unsent"]);
    assert_eq!(bench.out.sent().len(), 0);
    bench.clock.jump_after(1);
    bench.sweep(&bench.key("a")).await;
    assert_eq!(bench.out.sent().len(), 0);
    bench.sweep(&bench.key("a")).await;
    assert_eq!(bench.out.sent().len(), 1);
}

/// How often the clock is read by a pass before its first `call`, less the last of those readings.
async fn readings_until(bench: &Workbench, call: Call) -> u32 {
    let clock = bench.clock.readings();
    bench.crash(&message("probe", &Post { ledger: "probe".into(), ..post("probe") }), before(call)).await;
    bench.clock.readings() - clock - 1
}

#[tokio::test]
async fn a_message_is_never_dead_lettered_once_it_is_saved() {
    for shape in Shape::ALL {
        const OFTEN: u32 = 1000;
        let bench = Bench::new(shape).ledgers();
        let m = message("m", &post("m"));
        bench.crash(&m, before(Call::Dispatch)).await;
        bench.out.fail(u32::MAX);
        bench.deliver(std::slice::from_ref(&m), OFTEN).await;
        assert_eq!(bench.letters().await, Vec::new(), "how often it came does not matter any more, {shape:?}");
        assert!(bench.queue.is_empty());
        bench.out.fail(0);
        bench.sweep(&bench.key("a")).await;
        assert_eq!(bench.out.sent().len(), 1);
    }
}
