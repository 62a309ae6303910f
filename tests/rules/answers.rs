//! Answers: who asks again has his, at his address, whatever else of its entry waits; and nobody has it twice for one delivery.

use hapax::envelope::{Destination, Envelope};
use hapax_model::ledger::{Act, Ledger, Post};
use hapax_tests::{Bench, Shape, message, words};

use crate::{post, quiet};

#[tokio::test]
async fn an_answer_whose_mark_failed_is_kept_for_duplicates() {
    let bench = Bench::new(Shape::Two).ledgers();
    let key = bench.key("a");
    let m = message("m", &Post { act: Act::Reply, ..post("m") });
    bench.store.fail_inserts(3);
    for answers in [1, 2] {
        assert_eq!(words(&bench.pass(std::slice::from_ref(&m)).await), ["Unsent"]);
        assert_eq!(bench.out.sent().len(), answers + 1, "the other message once, and an answer to each who asks");
    }
    bench.sweep(&key).await;
    assert_eq!(bench.out.sent().len(), 3, "the sweeper answers nobody again");
    assert_eq!(words(&bench.pass(std::slice::from_ref(&m)).await), ["Handled"]);
    assert_eq!(words(&bench.pass(&[m]).await), ["Duplicate"]);
    assert_eq!(bench.out.sent().len(), 5);
}

/// Two who ask, at an address each, of what was answered before and could not be marked, and cannot be now: both get it.
#[tokio::test]
async fn each_copy_of_a_pass_is_answered_for_itself_while_marks_fail() {
    for turned in [false, true] {
        let bench = Bench::new(Shape::Two).ledgers();
        let m = message("m", &Post { act: Act::Reply, ..post("m") });
        let elsewhere = Envelope { reply_to: Some(Destination::parse("endpoint:elsewhere").unwrap()), ..m.clone() };
        bench.store.fail_inserts(2);
        assert_eq!(words(&bench.pass(std::slice::from_ref(&m)).await), ["Unsent"]);
        let before = bench.out.sent().len();
        let mut copies = [elsewhere.clone(), m.clone()];
        if turned {
            copies.reverse();
        }
        assert_eq!(words(&bench.pass(&copies).await), ["Unsent"; 2]);
        let to: Vec<_> = bench.out.sent().split_off(before).into_iter().map(|sent| Some(sent.destination)).collect();
        assert_eq!(to, copies.map(|copy| copy.reply_to));
    }
}

/// Its answer was sent, something else was not: whoever asks in another delivery, as after a restart of who has asked, may not have it.
#[tokio::test]
async fn who_asks_again_for_an_answer_that_was_sent_before_the_others_has_it_before_it_is_acknowledged() {
    for shape in Shape::ALL {
        let bench = Bench::new(shape).ledgers();
        let m = message("m", &Post { act: Act::Reply, ..post("m") });
        bench.out.fail(1);
        assert_eq!(words(&bench.pass(std::slice::from_ref(&m)).await), ["Unsent"], "its answer has gone");
        let answers = || bench.out.sent().iter().filter(|sent| Some(&sent.destination) == m.reply_to.as_ref()).count();
        assert_eq!((answers(), bench.out.sent().len()), (1, 1));
        bench.out.fail(1);
        // It does not wait for the other, whose destination may be away for long.
        assert_eq!(words(&bench.pass(&[m.clone(), m.clone()]).await), ["Unsent"; 2], "{shape:?}");
        assert_eq!((answers(), bench.out.sent().len()), (3, 3), "{shape:?}");
        // Nor for its mark.
        bench.out.fail(2);
        assert_eq!(words(&bench.pass(std::slice::from_ref(&m)).await), ["Unanswered"], "{shape:?}");
        assert_eq!(words(&bench.pass(std::slice::from_ref(&m)).await), ["Handled"]);
        assert_eq!((answers(), bench.out.sent().len()), (4, 5), "{shape:?}");
    }
}

/// A destination that is away, or marks that are, are no reason to answer it at each try.
#[tokio::test]
async fn one_delivery_is_answered_once_however_often_it_is_tried() {
    for (destination_fails, inserts_fail) in [(3, 0), (0, 3), (2, 1)] {
        let bench = Bench::new(Shape::Two).ledgers();
        let m = message("m", &Post { act: Act::Reply, ..post("m") });
        let elsewhere = Envelope { reply_to: Some(Destination::parse("endpoint:elsewhere").unwrap()), ..m.clone() };
        let (key, mut incoming) = bench.incoming(&[m, elsewhere], 1);
        bench.store.fail_inserts(inserts_fail);
        let mut tries = 0;
        loop {
            tries += 1;
            bench.out.fail(u32::from(tries <= destination_fails));
            let outcomes = bench.manager.pass(&key, &mut incoming, &[]).await;
            if words(&outcomes)[0] == "Handled" {
                break;
            }
            assert_eq!(words(&outcomes)[0], "Unsent", "it has its answer: the rest is left to the sweeper");
            assert!(tries < 10);
        }
        let sent = bench.out.sent();
        let mut to: Vec<_> = sent.iter().map(|sent| sent.destination.to_string()).collect();
        to.sort();
        assert_eq!(sent.len(), 3, "the other message, and an answer to each address: {to:?}");
        to.dedup();
        assert_eq!(to.len(), 3);
    }
}

/// An answer that was never sent is one of them, wherever it goes.
#[tokio::test]
async fn ordered_outputs_are_not_overtaken_by_an_answer_to_another_address() {
    for shape in Shape::ALL {
        let bench = Bench::new(shape).of(Ledger::registry().ordered_outputs());
        let asks = message("asks", &Post { act: Act::Reply, ..quiet("asks") });
        let elsewhere = Envelope { reply_to: Some(Destination::parse("endpoint:elsewhere").unwrap()), ..asks.clone() };
        bench.out.fail(1);
        assert_eq!(words(&bench.pass(&[message("old", &post("old"))]).await), ["Unsent"]);
        bench.out.fail(1);
        let outcomes = bench.pass(&[asks.clone(), elsewhere.clone()]).await;
        assert_eq!(words(&outcomes), ["Unsent", "Unanswered"], "{shape:?}");
        assert!(bench.out.sent().is_empty(), "{shape:?}: {:?}", bench.out.sent());
        assert_eq!(words(&bench.pass(&[elsewhere]).await), ["Handled"]);
        assert_eq!(bench.out.sent().len(), 3);
    }
}
