//! Queues inside the process: what their limits and their faults mean for what is given again.

use std::{sync::Arc, time::Duration};

use hapax::{
    InProcess,
    envelope::{Destination, Envelope, Outgoing},
    ids::{EndpointName, MessageId, TypeName},
    ports::{
        Connected, DeadLetter, DeadLetters, Delivery, DispatchError, Dispatcher, ErrorKind, Page, Settled, Settlement,
        Transport,
    },
    time::Timestamp,
    transports::in_process::{DEAD_LETTERS_MAX, Faults, LEASE},
};
use tokio::{
    task::{JoinHandle, yield_now},
    time::{Instant, timeout},
};

use crate::work::{send, task};

const RETRY: Duration = Duration::from_secs(7);

fn work() -> EndpointName {
    EndpointName::parse("work").unwrap()
}

async fn connect(hub: &InProcess) -> Connected {
    hub.connect(&work(), &[]).await.unwrap()
}

/// A receiver that waits by now: the runtime has one thread, and the task has had its turn.
async fn waiting(hub: &InProcess) -> JoinHandle<Vec<Delivery>> {
    let receiver = connect(hub).await.receiver;
    let waiting = tokio::spawn(async move { receiver.receive(1).await.unwrap() });
    yield_now().await;
    assert!(!waiting.is_finished());
    waiting
}

/// Goal: nobody waits beside a message. Method: of two that wait, one is told, leaves at once, and the other has it when
/// the lease is over.
#[tokio::test(start_paused = true)]
async fn one_that_waits_has_what_another_took_and_left() {
    let hub = InProcess::new("left");
    let (first, other) = (waiting(&hub).await, waiting(&hub).await);
    send(&hub, &task("a", "1")).await;
    let begin = Instant::now();
    drop(first.await.unwrap()); // In paused time it is over before any lease is.
    assert!(begin.elapsed() < LEASE);
    assert_eq!(timeout(LEASE * 2, other).await.expect("woken").unwrap()[0].attempts, 2);
}

/// The same, for one that is told of a message that is held back, and is gone when it comes due.
#[tokio::test(start_paused = true)]
async fn one_that_waits_has_what_another_waited_for_and_left() {
    let hub = InProcess::new("held");
    let here = connect(&hub).await.receiver;
    send(&hub, &task("a", "1")).await;
    let given = here.receive(1).await.unwrap();
    let (first, other) = (waiting(&hub).await, waiting(&hub).await);
    let again = Settlement::Retry { delay: RETRY, counts: true };
    assert_eq!(here.settle(&given[0].receipt, again).await.unwrap(), Settled::Done);
    yield_now().await;
    first.abort();
    assert_eq!(timeout(RETRY * 2, other).await.expect("woken").unwrap()[0].attempts, 2);
}

#[test]
fn the_longest_redelivery_counts_the_longest_hold() {
    let day = Duration::from_secs(24 * 3600);
    let longest = |delay_max| {
        let faults = Faults { delay_max, ..Faults::default() };
        InProcess::with_faults("late", LEASE, faults).capabilities().redelivery_max
    };
    assert_eq!(longest(day), longest(Duration::ZERO) + day);
    assert_eq!(longest(Duration::MAX), Duration::MAX);
}

#[tokio::test(start_paused = true)]
async fn a_hub_holds_as_many_messages_as_it_was_told_and_those_that_are_not_due_count() {
    let hub = InProcess::new("counted").messages_max(2);
    let due = Some(Timestamp::now().after(RETRY));
    let message = |id: &str, due| {
        let envelope = Envelope::new(MessageId::parse(id).unwrap(), TypeName::parse("work.task").unwrap(), "{}");
        Outgoing { destination: Destination::Endpoint(work()), envelope: Arc::new(Envelope { due, ..envelope }) }
    };
    let sent = hub.dispatch(&[message("later", due), message("now", None), message("beyond", None)]).await;
    assert!(sent[0].is_ok() && sent[1].is_ok(), "{sent:?}");
    let Err(DispatchError::Transient(error)) = &sent[2] else { panic!("{sent:?}") };
    assert!(error.to_string().contains("holds 2 messages"), "{error}");

    let more = hub.clone().messages_max(3);
    assert!(hub.dispatch(&[message("beyond", None)]).await[0].is_ok());
    assert_eq!(more.backlog(&work()), 3);
}

fn letter(number: usize) -> DeadLetter {
    let id = MessageId::parse(&number.to_string()).unwrap();
    DeadLetter {
        envelope: Arc::new(Envelope::new(id, TypeName::parse("work.task").unwrap(), "{}")),
        endpoint: work(),
        saga: None,
        destination: None,
        reason: "no reason".into(),
        attempts: 1,
        time: Timestamp::now(),
    }
}

#[tokio::test]
async fn beyond_the_limit_no_dead_letter_is_taken_and_the_message_stays() {
    let hub = InProcess::new("full");
    for number in 0..DEAD_LETTERS_MAX {
        hub.add(&letter(number)).await.unwrap();
    }
    hub.add(&letter(0)).await.unwrap(); // It is there.
    let error = hub.add(&letter(DEAD_LETTERS_MAX)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("keep them in a store, with .dead_letters(..)"), "{error}");
    assert_eq!(hub.list(&work(), &Page::first(usize::MAX)).await.unwrap().len(), DEAD_LETTERS_MAX);

    let here = connect(&hub).await.receiver;
    send(&hub, &task("a", "one more")).await;
    let given = here.receive(1).await.unwrap();
    let aside = Settlement::DeadLetter { reason: "no room".into() };
    assert_eq!(here.settle(&given[0].receipt, aside).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(hub.backlog(&work()), 1);
}
