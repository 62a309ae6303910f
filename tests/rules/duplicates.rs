//! What is seen, what has an entry, and what only looks like it.

use hapax::{
    ReusedId,
    entity::DedupEntry,
    envelope::{Destination, Envelope},
    ids::{AttemptId, DedupKey, Fingerprint},
    ports::DedupStore,
};
use hapax_model::{
    Call,
    ledger::{Act, Ledger, Post, runs_of},
};
use hapax_tests::{Bench, Save, Shape, message, words};

use crate::{after, before, post, quiet};

const OTHER: AttemptId = AttemptId::from_bytes([0xEE; AttemptId::BYTES]);

#[tokio::test]
async fn a_copy_of_what_is_over_is_a_duplicate() {
    for shape in Shape::ALL {
        for posting in [post("m"), quiet("m")] {
            let bench = Bench::new(shape).ledgers();
            let m = message("m", &posting);
            assert_eq!(words(&bench.pass(std::slice::from_ref(&m)).await), ["Handled"]);
            let sent = bench.out.sent().len();
            assert_eq!(words(&bench.pass(&[m]).await), ["Duplicate"]);
            assert_eq!(bench.out.sent().len(), sent, "nothing is sent again");
            assert_eq!((bench.lines("a").await.len(), runs_of("m")), (1, 1));
        }
    }
}

#[tokio::test]
async fn a_copy_of_what_is_saved_is_sent_and_not_handled_again() {
    for shape in Shape::ALL {
        let bench = Bench::new(shape).ledgers();
        let m = message("m", &post("m"));
        bench.crash(&m, before(Call::Dispatch)).await;
        assert_eq!(words(&bench.pass(&[m]).await), ["Handled"]);
        assert_eq!((bench.out.sent().len(), runs_of("m")), (1, 1), "{shape:?}");
    }
}

#[tokio::test]
async fn after_an_unknown_save_the_entry_that_is_found_counts() {
    for shape in Shape::ALL {
        for posting in [post("m"), quiet("m")] {
            let bench = Bench::new(shape).ledgers();
            bench.store.saves(&[Save::Unknown]);
            bench.deliver(&[message("m", &posting)], 1).await;
            assert_eq!((bench.lines("a").await.len(), runs_of("m")), (1, 1), "{shape:?}");
            assert_eq!(bench.out.sent().len(), usize::from(posting.outputs));
            assert!(bench.queue.is_empty());
        }
    }
}

#[tokio::test]
async fn a_left_over_of_the_seen_attempt_is_cleaned_up_and_not_sent() {
    let bench = Bench::new(Shape::Two).ledgers();
    let m = message("m", &post("m"));
    bench.crash(&m, after(Call::Insert)).await;
    assert_eq!(bench.store.stored(&bench.key("a")).await.unwrap().entity.outbox.len(), 1);
    let sent = bench.out.sent().len();
    assert_eq!(words(&bench.pass(&[m]).await), ["Duplicate"]);
    assert_eq!(bench.store.stored(&bench.key("a")).await.unwrap().entity.outbox.len(), 0);
    assert_eq!(bench.out.sent().len(), sent);
}

#[tokio::test]
async fn an_entry_of_another_attempt_is_sent_and_counted_as_a_breach_of_retention() {
    for shape in Shape::ALL {
        let bench = Bench::new(shape).ledgers();
        let m = message("m", &post("m"));
        bench.crash(&m, before(Call::Dispatch)).await;
        let entry = bench.store.stored(&bench.key("a")).await.unwrap().entity.outbox[0].to_dedup_entry();
        bench.store.memory.insert(&[DedupEntry { attempt: OTHER, ..entry }]).await.unwrap();
        assert_eq!(words(&bench.pass(&[m]).await), ["Handled"]);
        assert_eq!(bench.out.sent().len(), 1, "{shape:?}");
        assert!(bench.events.seen().contains(&"RetentionBreached".to_owned()));
        assert_eq!(bench.store.stored(&bench.key("a")).await.unwrap().entity.outbox.len(), 0);
    }
}

#[tokio::test]
async fn a_seen_identity_with_another_body_is_dead_lettered() {
    let bench = Bench::new(Shape::One).ledgers();
    bench.pass(&[message("m", &post("m"))]).await;
    let other = message("m", &post("another"));
    assert_eq!(words(&bench.pass(std::slice::from_ref(&other)).await), ["DeadLetter"]);
    bench.deliver(&[other], 1).await;
    let letters = bench.letters().await;
    assert!(letters[0].reason.contains("used before with another type or body"), "{}", letters[0].reason);
    assert_eq!(bench.lines("a").await.len(), 1);
}

#[tokio::test]
async fn a_saved_identity_with_another_body_is_dead_lettered() {
    let bench = Bench::new(Shape::One).ledgers();
    bench.crash(&message("m", &post("m")), before(Call::Dispatch)).await;
    assert_eq!(words(&bench.pass(&[message("m", &post("another"))]).await), ["DeadLetter"]);
    assert_eq!(bench.out.sent().len(), 0, "the entry waits for its own message or for the sweeper");
}

#[tokio::test]
async fn copies_with_different_bodies_in_one_pass_are_not_taken_for_copies() {
    // What sends nothing leaves no entry that would tell.
    for posting in [post as fn(&str) -> Post, quiet] {
        let bench = Bench::new(Shape::One).ledgers();
        let outcomes = bench.pass(&[message("m", &posting("m")), message("m", &posting("another"))]).await;
        assert_eq!(words(&outcomes), ["Handled", "DeadLetter"]);
        assert_eq!(bench.lines("a").await.len(), 1);
    }
}

/// Found by the explorer: a foreign body that comes first in a pass says nothing about whose the identity is.
#[tokio::test]
async fn a_copy_of_what_is_remembered_is_a_copy_also_behind_another_body_in_its_pass() {
    for shape in Shape::ALL {
        let bench = Bench::new(shape).ledgers();
        bench.pass(&[message("m", &post("m"))]).await;
        let outcomes = bench.pass(&[message("m", &post("another")), message("m", &post("m"))]).await;
        assert_eq!(words(&outcomes), ["DeadLetter", "Duplicate"], "{shape:?}");
        // Whatever else its pass handles.
        let outcomes =
            bench.pass(&[message("n", &post("n")), message("m", &post("another")), message("m", &post("m"))]).await;
        assert_eq!(words(&outcomes), ["Handled", "DeadLetter", "Duplicate"], "{shape:?}");
    }
}

/// Found by the explorer: whose the identity is was decided by what this pass had handled and then could not save.
#[tokio::test]
async fn another_body_is_not_set_aside_for_one_of_its_pass_that_was_not_saved() {
    for posting in [post as fn(&str) -> Post, quiet] {
        let bench = Bench::new(Shape::One).ledgers();
        bench.store.saves(&[Save::UnknownLost]);
        let outcomes = bench.pass(&[message("m", &posting("m")), message("m", &posting("another"))]).await;
        assert_eq!(words(&outcomes), ["Again UnknownOutcome"; 2]);
    }
}

#[tokio::test]
async fn a_message_type_may_say_that_reused_ids_are_dropped() {
    let registry = hapax::Registry::<Ledger>::new().starts::<Post>().when_id_reused(ReusedId::Drop);
    let bench = Bench::new(Shape::One).of(registry);
    bench.pass(&[message("m", &post("m"))]).await;
    assert_eq!(words(&bench.pass(&[message("m", &post("another"))]).await), ["Dropped: id reused"]);
}

#[tokio::test]
async fn a_reply_is_repeated_to_a_duplicate_under_its_old_id_and_at_the_duplicates_address() {
    for shape in Shape::ALL {
        let bench = Bench::new(shape).ledgers();
        let mut m = message("m", &Post { act: Act::Reply, ..post("m") });
        assert_eq!(words(&bench.pass(std::slice::from_ref(&m)).await), ["Handled"]);
        m.reply_to = Some(Destination::Endpoint("elsewhere".parse().unwrap()));
        assert_eq!(words(&bench.pass(std::slice::from_ref(&m)).await), ["Duplicate"]);
        let sent = bench.out.sent();
        let [posted, answer, again] = sent.as_slice() else { panic!("{sent:?}") };
        assert_eq!(posted.envelope.message_type.as_str(), "ledger.posted");
        assert_eq!(answer.envelope, again.envelope, "{shape:?}");
        assert_eq!(Some(&again.destination), m.reply_to.as_ref());
    }
}

#[tokio::test]
async fn a_duplicate_that_asks_for_no_answer_gets_none() {
    let bench = Bench::new(Shape::One).ledgers();
    let mut m = message("m", &Post { act: Act::Reply, ..quiet("m") });
    bench.pass(std::slice::from_ref(&m)).await;
    m.reply_to = None;
    assert_eq!(words(&bench.pass(&[m]).await), ["Duplicate"]);
    assert_eq!(bench.out.sent().len(), 1);
}

#[tokio::test]
async fn marking_what_is_marked_changes_nothing() {
    let bench = Bench::new(Shape::Two).ledgers();
    let m = message("m", &post("m"));
    let (key, fingerprint) = (DedupKey::of(&bench.key("a"), &m), Fingerprint::of(&m));
    bench.crash(&m, before(Call::Insert)).await;
    let entry = bench.store.stored(&bench.key("a")).await.unwrap().entity.outbox[0].to_dedup_entry();
    bench.store.memory.insert(std::slice::from_ref(&entry)).await.unwrap(); // A late write of somebody else.
    bench.sweep(&bench.key("a")).await;
    let known = bench.store.memory.contains(&[key]).await.unwrap();
    assert_eq!(known.entry(&key).map(|entry| entry.fingerprint), Some(fingerprint));
    assert_eq!(bench.store.stored(&bench.key("a")).await.unwrap().entity.outbox.len(), 0);
}

fn elsewhere() -> Option<Destination> {
    Some(Destination::Endpoint("elsewhere".parse().unwrap()))
}

/// A question, and a copy of it that wants its answer at another address.
fn asked_twice() -> (Envelope, Envelope) {
    let first = message("m", &Post { act: Act::Reply, ..quiet("m") });
    let copy = Envelope { reply_to: elsewhere(), ..first.clone() };
    (first, copy)
}

#[tokio::test]
async fn a_duplicate_whose_answer_cannot_be_sent_now_comes_again_for_it() {
    for shape in Shape::ALL {
        let bench = Bench::new(shape).ledgers();
        let (first, copy) = asked_twice();
        assert_eq!(words(&bench.pass(&[first]).await), ["Handled"]);
        bench.out.fail(1);
        let outcomes = bench.pass(std::slice::from_ref(&copy)).await;
        assert_eq!(words(&outcomes), ["Unanswered"], "{shape:?}");
        assert!(format!("{outcomes:?}").contains("as scripted"), "{outcomes:?}");
        assert_eq!(words(&bench.pass(&[copy]).await), ["Duplicate"]);
        assert_eq!(bench.out.sent().last().map(|sent| sent.destination.clone()), elsewhere());
    }
}

/// Whoever has asked may ask from somewhere else since it has started anew, and nobody be any more where it was.
#[tokio::test]
async fn a_copy_that_wants_its_answer_elsewhere_does_not_wait_for_the_first_address() {
    for shape in Shape::ALL {
        let bench = Bench::new(shape).ledgers();
        let (first, copy) = asked_twice();
        bench.out.fail(1);
        let outcomes = bench.pass(&[first.clone(), copy, first]).await;
        assert_eq!(words(&outcomes), ["Unsent"; 3], "{shape:?}");
        assert!(format!("{:?}", outcomes[0]).contains("as scripted"), "{outcomes:?}");
        let to: Vec<_> = bench.out.sent().into_iter().map(|sent| Some(sent.destination)).collect();
        assert_eq!(to, [elsewhere()], "{shape:?}");
    }
}

#[tokio::test]
async fn a_copy_that_wants_its_answer_elsewhere_is_not_left_to_the_sweeper() {
    for shape in Shape::ALL {
        let bench = Bench::new(shape).ledgers();
        let (first, copy) = asked_twice();
        let same = first.clone();
        bench.out.fail(2);
        let outcomes = bench.pass(&[first, copy.clone(), same]).await;
        assert_eq!(words(&outcomes), ["Unsent", "Unanswered", "Unsent"], "{shape:?}");
        bench.out.fail(2);
        assert_eq!(words(&bench.pass(std::slice::from_ref(&copy)).await), ["Unanswered"], "what is saved is not sent");
        assert_eq!(words(&bench.pass(&[copy]).await), ["Handled"]);
        let to: Vec<_> = bench.out.sent().into_iter().map(|sent| Some(sent.destination)).collect();
        assert_eq!(to.last(), Some(&elsewhere()));
    }
}

#[tokio::test]
async fn a_copy_waits_for_the_answer_of_its_own_message_and_of_no_other() {
    let bench = Bench::new(Shape::One).ledgers();
    let (first, _) = asked_twice();
    let same = first.clone();
    let mut other = message("n", &Post { act: Act::Reply, ..quiet("n") });
    other.reply_to = elsewhere();
    bench.out.fail(2);
    assert_eq!(words(&bench.pass(&[first, same, other]).await), ["Unsent", "Unsent", "Unsent"]);
}

/// Another delivery may have sent the answer a moment ago, to who has lost it since, and be about to mark the message: nobody would send it again.
#[tokio::test]
async fn a_copy_that_finds_the_entry_of_another_delivery_is_not_left_to_the_sweeper() {
    for shape in Shape::ALL {
        let bench = Bench::new(shape).ledgers();
        let (m, _) = asked_twice();
        bench.out.fail(1);
        assert_eq!(words(&bench.pass(std::slice::from_ref(&m)).await), ["Unsent"], "who has saved it");
        let (key, mut incoming) = bench.incoming(std::slice::from_ref(&m), 1);
        bench.out.fail(1);
        assert_eq!(words(&bench.manager.pass(&key, &mut incoming, &[]).await), ["Unanswered"], "{shape:?}");
        bench.sweep(&key).await;
        assert_eq!(bench.out.sent().len(), 1);
        assert_eq!(words(&bench.manager.pass(&key, &mut incoming, &[]).await), ["Duplicate"]);
        assert_eq!(bench.out.sent().len(), 2, "{shape:?}");
    }
}

/// However often it is tried: what it has saved nobody has answered before.
#[tokio::test]
async fn a_delivery_that_has_saved_its_message_may_leave_the_answer_to_the_sweeper() {
    for shape in Shape::ALL {
        let bench = Bench::new(shape).ledgers();
        let (m, _) = asked_twice();
        let (key, mut incoming) = bench.incoming(std::slice::from_ref(&m), 1);
        for _ in 0..3 {
            bench.out.fail(1);
            assert_eq!(words(&bench.manager.pass(&key, &mut incoming, &[]).await), ["Unsent"], "{shape:?}");
        }
    }
}
