//! Whatever is slow, full or unreadable: nothing runs for ever, and what went wrong is said.

use std::{sync::Arc, time::Duration};

use hapax::{
    Context, Correlation, Handle, HandlerError, Message, MessageId, Registry, Saga, Sender, envelope::Destination,
};
use hapax_model::{
    Call,
    ledger::{Act, Post},
};
use hapax_tests::{Bench, Shape, message, words};
use serde::{Deserialize, Serialize};

use crate::{before, post, quiet};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn a_pass_of_slow_handlers_saves_what_it_has_before_its_time_is_over() {
    let bench = Bench::new(Shape::One).ledgers();
    bench.clock.step(Duration::from_secs(12)); // Half of the deadline of 60 s is over at the third look.
    let messages: Vec<_> = (0..40).map(|n| message(&format!("m{n}"), &quiet(&format!("m{n}")))).collect();
    bench.deliver(&messages, 1).await;
    assert_eq!(bench.lines("a").await.len(), 40);
    assert_eq!(bench.pass_sizes(), [40, 16], "24 of the first pass were judged in half of its time");
    assert!(bench.queue.is_empty());
}

#[tokio::test]
async fn a_pass_past_its_deadline_is_halved() {
    let bench = Bench::new(Shape::One).ledgers();
    bench.clock.step(HOUR);
    let messages: Vec<_> = (0..8).map(|n| message(&format!("m{n}"), &quiet(&format!("m{n}")))).collect();
    bench.deliver(&messages, 1).await;
    assert_eq!(bench.pass_sizes()[..4], [8, 4, 2, 1], "{:?}", bench.pass_sizes());
}

#[tokio::test]
async fn a_handler_that_is_always_slower_than_the_deadline_is_given_up() {
    const LAST: u32 = 5;
    let bench = Bench::new(Shape::One).ledgers();
    bench.clock.step(HOUR);
    bench.deliver(&[message("m", &quiet("m"))], LAST).await;
    let letters = bench.letters().await;
    assert_eq!(letters.len(), 1);
    assert!(letters[0].reason.contains("its deadline"), "{}", letters[0].reason);
}

#[tokio::test]
async fn a_message_that_fits_once_the_outbox_is_empty_waits_and_is_no_dead_letter() {
    const ROOM_FOR_TWO: usize = 2200;
    let bench = Bench { entity_bytes_max: ROOM_FOR_TWO, ..Bench::new(Shape::One) }.ledgers();
    bench.out.fail(2);
    let messages: Vec<_> = (0..3).map(|n| message(&format!("m{n}"), &post(&format!("m{n}")))).collect();
    assert_eq!(words(&bench.pass(&messages[..2]).await), ["Unsent", "Unsent"]);
    assert_eq!(words(&bench.pass(&messages[2..]).await), ["Again Full"]);
    bench.sweep(&bench.key("a")).await;
    assert_eq!(words(&bench.pass(&messages[2..]).await), ["Handled"]);
}

#[tokio::test]
async fn a_message_whose_entity_cannot_be_read_does_not_wait_in_place() {
    let bench = Bench::new(Shape::One).ledgers();
    bench.store.unreadable_loads(1);
    bench.deliver(&[message("m", &quiet("m"))], 1).await;
    assert_eq!(bench.pass_sizes(), [1], "no try in place");
    assert!(!bench.queue.is_empty(), "given back");
    assert_eq!(bench.letters().await.len(), 0);
}

#[tokio::test]
async fn a_sweep_that_fails_says_so_and_one_that_works_does_too() {
    for shape in Shape::ALL {
        let bench = Bench::new(shape).ledgers();
        bench.crash(&message("m", &post("m")), before(Call::Dispatch)).await;
        bench.out.fail(1);
        bench.sweep(&bench.key("a")).await;
        bench.store.unreadable_loads(1);
        bench.sweep(&bench.key("a")).await;
        bench.sweep(&bench.key("a")).await;
        let seen = bench.events.seen();
        let swept: Vec<_> = seen.iter().filter(|event| event.starts_with("Swe")).collect();
        assert_eq!(swept, ["SweepFailed", "SweepFailed", "Swept"], "{shape:?}: {seen:?}");
    }
}

#[tokio::test]
async fn a_copy_in_the_same_pass_is_answered_at_its_own_address() {
    let bench = Bench::new(Shape::One).ledgers();
    let first = message("m", &Post { act: Act::Reply, ..quiet("m") });
    let mut copy = first.clone();
    copy.reply_to = Some(Destination::Endpoint("elsewhere".parse().unwrap()));
    let same = first.clone();
    assert_eq!(words(&bench.pass(&[first.clone(), copy.clone(), same]).await), ["Handled", "Duplicate", "Duplicate"]);
    let sent = bench.out.sent();
    let [answer, again] = sent.as_slice() else { panic!("{sent:?}") };
    assert_eq!(
        (Some(&answer.destination), Some(&again.destination)),
        (first.reply_to.as_ref(), copy.reply_to.as_ref())
    );
    assert_eq!(answer.envelope, again.envelope);
}

#[tokio::test]
async fn a_copy_that_finishes_what_another_has_saved_is_answered_at_its_own_address() {
    for shape in Shape::ALL {
        let bench = Bench::new(shape).ledgers();
        let first = message("m", &Post { act: Act::Reply, ..quiet("m") });
        bench.crash(&first, before(Call::Dispatch)).await;
        let mut copy = first.clone();
        copy.reply_to = Some(Destination::Endpoint("elsewhere".parse().unwrap()));
        assert_eq!(words(&bench.pass(std::slice::from_ref(&copy)).await), ["Handled"]);
        let to: Vec<_> = bench.out.sent().into_iter().map(|sent| Some(sent.destination)).collect();
        assert_eq!(to, [first.reply_to, copy.reply_to], "{shape:?}");
    }
}

#[tokio::test]
async fn what_is_sent_again_under_an_id_of_ones_own_is_the_same_message() {
    let bench = Bench::new(Shape::One).ledgers();
    let sender = Sender::new(Arc::new(bench.out.clone()));
    let id = MessageId::parse("order-7").unwrap();
    for _ in 0..2 {
        sender.send_as(id.clone(), "upper", &quiet("m")).await.unwrap();
        bench.clock.step(HOUR);
    }
    let sent = bench.out.sent();
    assert_eq!(sent[0].envelope, sent[1].envelope);
    assert_eq!(sent[0].envelope.occurred_at, None, "a time would differ between the two");
}

/// Sets timeouts that can never come back to it.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Forgetful;

#[derive(Debug, Serialize, Deserialize)]
struct Begin {
    wrong: Wrong,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Wrong {
    Handler,
    Key,
}

#[derive(Debug, Serialize, Deserialize)]
struct Unhandled;

#[derive(Debug, Serialize, Deserialize)]
struct Elsewhere;

impl Message for Begin {
    const TYPE: &'static str = "forgetful.begin";
}

impl Message for Unhandled {
    const TYPE: &'static str = "forgetful.unhandled";
}

impl Message for Elsewhere {
    const TYPE: &'static str = "forgetful.elsewhere";
}

impl Saga for Forgetful {
    const NAME: &'static str = "forgetful";
}

impl Handle<Begin> for Forgetful {
    fn correlate(_: &Begin) -> Correlation<'_> {
        "here".into()
    }

    async fn handle(&mut self, begin: Begin, cx: &mut Context) -> Result<(), HandlerError> {
        match begin.wrong {
            Wrong::Handler => cx.timeout(HOUR, Unhandled).map(drop),
            Wrong::Key => cx.timeout(HOUR, Elsewhere).map(drop),
        }
    }
}

impl Handle<Elsewhere> for Forgetful {
    fn correlate(_: &Elsewhere) -> Correlation<'_> {
        "elsewhere".into()
    }

    async fn handle(&mut self, _: Elsewhere, _: &mut Context) -> Result<(), HandlerError> {
        Ok(())
    }
}

#[tokio::test]
async fn a_timeout_that_could_not_come_back_is_refused_before_it_is_saved() {
    for (wrong, named) in [(Wrong::Handler, "add .handles(..)"), (Wrong::Key, "correlates to elsewhere")] {
        let bench = Bench::new(Shape::One).of(Registry::<Forgetful>::new().starts::<Begin>().handles::<Elsewhere>());
        let outcomes = bench.pass(&[message("m", &Begin { wrong })]).await;
        assert!(format!("{outcomes:?}").contains(named), "{outcomes:?}");
        assert_eq!(words(&outcomes), ["DeadLetter"]);
        assert!(bench.store.stored(&bench.key("here")).await.is_none());
    }
}
