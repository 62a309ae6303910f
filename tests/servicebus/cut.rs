//! A connection that is cut, or on which nothing moves any more.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use hapax::{
    envelope::Outgoing,
    ids::MessageId,
    ports::{
        Connected, DeadLetters, Delivery, DispatchError, Dispatcher, Page, Receiver, Settled, Settlement, Transport,
    },
};
use tokio::time::timeout;

use super::{proxy::Proxy, rig::*};

/// As long as something takes that is answered at once.
const MOMENT: Duration = Duration::from_millis(300);
/// Why there is nothing to cut where the service itself is tested with.
const NO_LINE: &str = "the line that is cut has no TLS, without which the service takes nothing";

/// The next messages, through what is told of the connection meanwhile.
async fn received(receiver: &dyn Receiver, max: usize) -> Vec<Delivery> {
    let received = async {
        loop {
            if let Ok(given) = receiver.receive(max).await {
                return given;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, received).await.expect("nothing comes")
}

async fn sent_until_confirmed(queue: &Queues, outgoing: &[Outgoing]) {
    let mut left = outgoing.to_vec();
    let sending = async {
        while !left.is_empty() {
            let mut results = queue.dispatch(&left).await.into_iter();
            left.retain(|_| results.next().unwrap().is_err());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, sending).await.expect("they are never confirmed");
}

/// Whoever had it says that it is over, whatever it says.
async fn is_late(ends: &Connected, late: &Delivery) {
    let settlements = [
        Settlement::Ack,
        Settlement::Retry { delay: Duration::ZERO, counts: true },
        Settlement::Retry { delay: Duration::from_secs(3600), counts: false },
        Settlement::DeadLetter { reason: "late".into() },
    ];
    for settlement in settlements {
        let settled = ends.receiver.settle(&late.receipt, settlement.clone()).await;
        assert!(!matches!(settled, Ok(Settled::Done)), "{settlement:?}");
    }
}

pub(crate) async fn nothing_comes(ends: &Connected) {
    let nothing = timeout(Duration::from_millis(500), ends.receiver.receive(1)).await;
    assert!(nothing.is_err(), "{nothing:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_confirmed_when_the_connection_was_cut_is_unknown_and_sent_again_under_its_id() {
    const MESSAGES: u32 = 20;
    if is_azure() {
        return eprintln!("SKIPPED: {NO_LINE}");
    }
    let (proxy, here) = (Proxy::to(&url()).await, endpoint());
    let queue = Queues::over(options(), proxy.url(), url()).await;
    queue.declare(&here, &[]).await;
    send(&queue, &[to(&here, envelope("first"))]).await; // Its connection and its link are there.
    let outgoing: Vec<_> = (0..MESSAGES).map(|number| to(&here, envelope(&format!("m {number}")))).collect();
    proxy.deafen();
    let sending = {
        let (queue, outgoing) = (queue.clone(), outgoing.clone());
        tokio::spawn(async move { queue.dispatch(&outgoing).await })
    };
    // The server has all of them, and nobody here knows.
    until_waiting(&here, 1 + MESSAGES).await;
    assert!(!sending.is_finished(), "they count as sent, unconfirmed");
    proxy.cut();
    let results = timeout(PATIENCE, sending).await.expect("nothing is told of them").unwrap();
    assert_eq!(results.len(), outgoing.len());
    for result in results {
        let Err(DispatchError::Transient(error)) = result else { panic!("{result:?}") };
        assert!(error.is_unknown_outcome(), "{error:?}");
    }
    sent_until_confirmed(&queue, &outgoing).await;
    let ends = open().await.connect(&here, &[]).await.unwrap();
    let mut came: HashMap<MessageId, usize> = HashMap::new();
    // One before the cut, one after it.
    while outgoing.iter().any(|sent| came.get(&sent.envelope.message_id).is_none_or(|copies| *copies < 2)) {
        let delivery = next(&ends).await;
        *came.entry(delivery.envelope.message_id.clone()).or_default() += 1;
        settle(&ends, &delivery, Settlement::Ack).await;
    }
    assert_eq!(came.len(), 1 + outgoing.len(), "copies have their ids");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_given_and_not_settled_when_the_connection_was_cut_comes_again_and_its_receipt_is_worth_nothing() {
    const FEW: u16 = 10;
    if is_azure() {
        return eprintln!("SKIPPED: {NO_LINE}");
    }
    let (proxy, direct, here) = (Proxy::to(&url()).await, open().await, endpoint());
    let queue = Queues::over(options().prefetch(FEW), proxy.url(), url()).await;
    let ends = queue.connect(&here, &[]).await.unwrap();
    let sent: Vec<_> = (0..=FEW).map(|number| to(&here, envelope(&number.to_string()))).collect();
    send(&direct, &sent).await;
    let mut held = Vec::new();
    while held.len() < usize::from(FEW) {
        held.extend(received(&*ends.receiver, sent.len()).await);
    }
    settle(&ends, &held[0], Settlement::Ack).await;
    // It comes for the credit that was given after that, so the server has taken both.
    held.push(next(&ends).await);
    // One is being set aside while the line is cut: it is there once at least, whatever came of that.
    proxy.deafen();
    let setting_aside = {
        let (receiver, receipt) = (ends.receiver.clone(), held[1].receipt.clone());
        let letter = Settlement::DeadLetter { reason: "it is of no use".into() };
        tokio::spawn(async move { receiver.settle(&receipt, letter).await })
    };
    tokio::time::sleep(MOMENT).await;
    assert!(!setting_aside.is_finished(), "it counts as set aside, unconfirmed");
    proxy.cut();
    let set_aside = timeout(PATIENCE, setting_aside).await.expect("it is never answered").unwrap();
    assert!(!matches!(set_aside, Ok(Settled::Done)), "{set_aside:?}");
    let mut missing: BTreeSet<String> = held[1..].iter().map(body).collect();
    while !missing.is_empty() {
        for delivery in received(&*ends.receiver, sent.len()).await {
            assert!(missing.remove(&body(&delivery)), "{} comes once more", body(&delivery));
            settle(&ends, &delivery, Settlement::Ack).await;
        }
    }
    for late in &held {
        is_late(&ends, late).await;
    }
    nothing_comes(&ends).await;
    let letters = direct.list(&here, &Page::first(10)).await.unwrap();
    let unknown = &held[1].envelope.message_id;
    assert!(letters.iter().all(|letter| letter.envelope.message_id == *unknown), "{letters:?}");
}

/// It had asked, and the server has forgotten; nobody waits for what cannot come.
#[tokio::test(flavor = "multi_thread")]
async fn who_waits_when_the_connection_is_cut_is_told_and_asks_again() {
    if is_azure() {
        return eprintln!("SKIPPED: {NO_LINE}");
    }
    let (proxy, here) = (Proxy::to(&url()).await, endpoint());
    let queue = Queues::over(options(), proxy.url(), url()).await;
    let ends = queue.connect(&here, &[]).await.unwrap();
    let receiver = ends.receiver.clone();
    let waits = tokio::spawn(async move { receiver.receive(10).await });
    tokio::time::sleep(MOMENT).await; // It has asked by then, or asks on the next connection.
    proxy.cut();
    send(&open().await, &[to(&here, envelope("after"))]).await;
    let given = match timeout(PATIENCE, waits).await.expect("it waits for ever").unwrap() {
        Ok(given) => given,
        Err(error) => {
            assert!(error.is_transient(), "{error:?}");
            received(&*ends.receiver, 1).await
        }
    };
    assert_eq!(body(&given[0]), "after");
    settle(&ends, &given[0], Settlement::Ack).await;
}

/// The server has given up its connection, and it goes on as if nothing were.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_stood_still_changes_nothing_of_what_another_has() {
    if is_azure() {
        return eprintln!("SKIPPED: {NO_LINE}");
    }
    let (proxy, direct, here) = (Proxy::to(&url()).await, open().await, endpoint());
    let queue = Queues::over(options(), proxy.url(), url()).await;
    let first = queue.connect(&here, &[]).await.unwrap();
    send(&direct, &["one", "two"].map(|body| to(&here, envelope(body)))).await;
    let held = [next(&first).await, next(&first).await];
    proxy.stand_still(true);
    proxy.cut();
    let second = direct.connect(&here, &[]).await.unwrap();
    let taken = [next(&second).await, next(&second).await];
    assert_eq!(bodies(&taken), ["one", "two"]);
    // What it says now is written and goes nowhere: AMQP answers no settlement.
    drop(first.receiver.settle(&held[0].receipt, Settlement::Ack).await);
    proxy.stand_still(false);
    // It hears of it, as an endpoint does, which always receives.
    let heard = timeout(PATIENCE, first.receiver.receive(1)).await.expect("it never hears of it");
    assert!(heard.is_err(), "{heard:?}");
    for late in &held {
        is_late(&first, late).await;
    }
    for delivery in &taken {
        settle(&second, delivery, Settlement::Ack).await;
    }
    nothing_comes(&second).await;
    assert_eq!(direct.list(&here, &Page::first(1)).await.unwrap(), [], "it has set aside what another has");
}

/// As in a crash, nothing that it has begun is finished, and it takes no leave.
#[tokio::test(flavor = "multi_thread")]
async fn what_one_that_dies_held_goes_to_another_and_what_it_says_of_it_is_not_done() {
    if is_azure() {
        return eprintln!("SKIPPED: in the service what one held that died is locked for longer than this waits");
    }
    let (queue, here) = (open().await, endpoint());
    queue.declare(&here, &[]).await;
    send(&queue, &["one", "two"].map(|body| to(&here, envelope(body)))).await;
    let its = here.clone();
    let process = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let held = runtime.block_on(async {
            let ends = open().await.connect(&its, &[]).await.unwrap();
            let held = [next(&ends).await, next(&ends).await];
            (ends, held)
        });
        runtime.shutdown_background();
        held
    });
    let (dead, held) = process.join().unwrap();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let taken = [next(&ends).await, next(&ends).await];
    assert_eq!(bodies(&taken), bodies(&held));
    let again = Settlement::Retry { delay: Duration::ZERO, counts: true };
    for (late, settlement) in held.iter().zip([Settlement::Ack, again]) {
        let settled = dead.receiver.settle(&late.receipt, settlement).await;
        assert!(!matches!(settled, Ok(Settled::Done)), "{settled:?}");
    }
    for delivery in &taken {
        settle(&ends, delivery, Settlement::Ack).await;
    }
    nothing_comes(&ends).await;
}

fn bodies(deliveries: &[Delivery; 2]) -> [String; 2] {
    let mut bodies = deliveries.each_ref().map(body);
    bodies.sort();
    bodies
}
