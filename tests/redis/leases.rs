//! Who has a message, and who has it no longer.

use std::time::Duration;

use hapax::ports::{Connected, DeadLetters, Delivery, Page, Settled, Settlement, Transport};

use super::rig::*;

/// Of these tests: some calls one after the other are made within it, also on a machine that is very busy.
const LEASE: Duration = Duration::from_secs(2);
/// Not long after a lease.
const MARGIN: Duration = Duration::from_millis(100);

async fn is_late(ends: &Connected, late: &Delivery) {
    let settlements = [
        Settlement::Ack,
        Settlement::Retry { delay: Duration::ZERO, counts: true },
        Settlement::Retry { delay: Duration::from_secs(3600), counts: false },
        Settlement::DeadLetter { reason: "late".into() },
    ];
    for settlement in settlements {
        let settled = ends.receiver.settle(&late.receipt, settlement.clone()).await.unwrap();
        assert_eq!(settled, Settled::LeaseLost, "{settlement:?}");
    }
    ends.receiver.extend(std::slice::from_ref(&late.receipt)).await.unwrap();
}

/// It stands still for longer than its lease, as a process that is stopped does, and goes on as if nothing were.
#[tokio::test]
async fn one_that_stood_still_beyond_its_lease_changes_nothing_of_what_another_has() {
    let queue = options().lease(LEASE).open(url()).await.unwrap();
    let here = endpoint();
    let (first, second) = (queue.connect(&here, &[]).await.unwrap(), queue.connect(&here, &[]).await.unwrap());
    send(&queue, &[to(&here, envelope("m"))]).await;
    let stale = next(&first).await;
    tokio::time::sleep(LEASE + MARGIN).await;
    // Run out, and nobody has it yet.
    is_late(&first, &stale).await;
    let taken = next(&second).await;
    assert_eq!((taken.attempts, &taken.envelope), (2, &stale.envelope));
    // Another has it.
    is_late(&first, &stale).await;
    assert_eq!(queue.list(&here, &Page::first(1)).await.unwrap(), []);
    ack(&second, &taken).await;
    // It is gone.
    is_late(&first, &stale).await;
    assert_eq!(queue.backlog(&here).await.unwrap(), 0);
}

/// Where it takes its own message again, both receipts are of one consumer.
#[tokio::test]
async fn a_receipt_of_before_does_not_end_the_lease_of_now_of_the_same_receiver() {
    let queue = options().lease(LEASE).open(url()).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    send(&queue, &[to(&here, envelope("m"))]).await;
    let mut before = Vec::new();
    for counts in [false, true, false] {
        let delivery = next(&ends).await;
        let again = Settlement::Retry { delay: Duration::ZERO, counts };
        assert_eq!(ends.receiver.settle(&delivery.receipt, again).await.unwrap(), Settled::Done);
        before.push(delivery);
    }
    let ran_out = next(&ends).await;
    tokio::time::sleep(LEASE + MARGIN).await;
    let now = next(&ends).await;
    assert_eq!(now.attempts, 3);
    for late in before.iter().chain([&ran_out]) {
        is_late(&ends, late).await;
    }
    ack(&ends, &now).await;
}

/// Nobody has it now, and it has been given no more often than when it was put off.
#[tokio::test]
async fn what_was_put_off_is_not_settled_by_the_receipt_it_was_put_off_with() {
    let queue = options().lease(LEASE).open(url()).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    send(&queue, &[to(&here, envelope("m"))]).await;
    let before = next(&ends).await;
    let later = Settlement::Retry { delay: Duration::from_secs(1), counts: true };
    assert_eq!(ends.receiver.settle(&before.receipt, later).await.unwrap(), Settled::Done);
    is_late(&ends, &before).await;
    let now = next(&ends).await;
    assert_eq!((body(&now).as_str(), now.attempts), ("m", 2));
    ack(&ends, &now).await;
}

/// Acknowledgements that are asked for at the same time go together, and each has its own answer.
#[tokio::test]
async fn of_many_that_are_settled_at_once_each_is_told_how_its_own_ended() {
    const MESSAGES: usize = 100;
    let queue = options().lease(LEASE).open(url()).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let sent: Vec<_> = (0..MESSAGES).map(|number| to(&here, envelope(&number.to_string()))).collect();
    send(&queue, &sent[..1]).await;
    let lost = next(&ends).await;
    tokio::time::sleep(LEASE + MARGIN).await;
    send(&queue, &sent[1..]).await;
    let mut held = Vec::new();
    while held.len() < MESSAGES {
        held.extend(ends.receiver.receive(MESSAGES).await.unwrap());
    }
    // One has a lease of before, too, which is asked for first; and one is asked for twice.
    let receipts = [&lost].into_iter().chain(&held).chain([&held[7]]).map(|delivery| &delivery.receipt);
    let all = receipts.map(|receipt| ends.receiver.settle(receipt, Settlement::Ack));
    let settled: Vec<Settled> = futures_util::future::try_join_all(all).await.unwrap();
    assert_eq!((settled[0], settled[MESSAGES + 1]), (Settled::LeaseLost, Settled::LeaseLost));
    assert!(settled[1..=MESSAGES].iter().all(|settled| *settled == Settled::Done), "{settled:?}");
    assert_eq!(queue.backlog(&here).await.unwrap(), 0);
}

#[tokio::test]
async fn a_lease_that_is_extended_is_kept_and_one_beside_it_is_not() {
    let queue = options().lease(LEASE).open(url()).await.unwrap();
    let here = endpoint();
    let (first, second) = (queue.connect(&here, &[]).await.unwrap(), queue.connect(&here, &[]).await.unwrap());
    send(&queue, &["kept", "lost"].map(|body| to(&here, envelope(body)))).await;
    let (kept, lost) = (next(&first).await, next(&first).await);
    for _ in 0..6 {
        tokio::time::sleep(LEASE / 3).await;
        first.receiver.extend(std::slice::from_ref(&kept.receipt)).await.unwrap();
    }
    let taken = next(&second).await;
    assert_eq!((body(&taken), taken.attempts), (body(&lost), 2));
    nothing(&second, MARGIN).await;
    ack(&first, &kept).await;
    ack(&second, &taken).await;
}

/// Messages that a call was given after it was dropped go back at once, and not when their lease runs out.
#[tokio::test]
async fn what_a_dropped_call_was_given_is_given_again_at_once_and_not_counted() {
    let long = Duration::from_secs(600);
    let queue = options().lease(long).open(url()).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    const MESSAGES: usize = 200;
    let sent: Vec<_> = (0..MESSAGES).map(|number| to(&here, envelope(&number.to_string()))).collect();
    send(&queue, &sent).await;
    let mut held = 0;
    for round in 0..100 {
        // Dropped before, while and after the server is asked. What is answered in time is given for good, and let go.
        let receiving = ends.receiver.receive(5);
        if let Ok(given) = tokio::time::timeout(Duration::from_micros(round * 20), receiving).await {
            held += given.unwrap().len();
        }
    }
    let mut came: Vec<u32> = Vec::new();
    while came.len() + held < MESSAGES {
        let received = tokio::time::timeout(PATIENCE, ends.receiver.receive(50)).await;
        for delivery in received.expect("some are kept by nobody").unwrap() {
            came.push(delivery.attempts);
            ack(&ends, &delivery).await;
        }
    }
    assert!(came.iter().all(|attempts| *attempts == 1), "{came:?}");
    assert_eq!(queue.backlog(&here).await.unwrap() as usize, held);
}

/// With order, another takes over when the leases of the first have run out, and goes on where it stopped.
#[tokio::test]
async fn one_at_a_time_receives_where_order_is_kept_and_another_goes_on_where_it_stopped() {
    let queue = options().lease(LEASE).ordered_keys(true).open(url()).await.unwrap();
    let here = endpoint();
    let (first, second) = (queue.connect(&here, &[]).await.unwrap(), queue.connect(&here, &[]).await.unwrap());
    const MESSAGES: usize = 40;
    let sent: Vec<_> = (0..MESSAGES).map(|number| to(&here, envelope(&number.to_string()))).collect();
    send(&queue, &sent).await;
    let mut held = Vec::new();
    while held.len() < 20 {
        held.extend(first.receiver.receive(20 - held.len()).await.unwrap());
    }
    ack(&first, &held[0]).await;
    nothing(&second, LEASE / 2).await;
    drop(first);
    let mut came = Vec::new();
    while came.len() < MESSAGES - 1 {
        for delivery in
            tokio::time::timeout(PATIENCE, second.receiver.receive(7)).await.expect("some never came").unwrap()
        {
            came.push(body(&delivery));
            ack(&second, &delivery).await;
        }
    }
    assert_eq!(came, (1..MESSAGES).map(|number| number.to_string()).collect::<Vec<_>>());
}

/// Nothing is read ahead: what nobody has asked for is for whoever asks next.
#[tokio::test]
async fn no_more_are_under_lease_than_were_given() {
    // Nothing comes again while it is counted.
    let (queue, here) = (options().lease(PATIENCE).open(url()).await.unwrap(), endpoint());
    let ends = queue.connect(&here, &[]).await.unwrap();
    send(&queue, &Vec::from_iter((0..20).map(|number| to(&here, envelope(&number.to_string()))))).await;
    let mut connection = plain(&url()).await;
    let mut held = 0;
    while held < 7 {
        let given = tokio::time::timeout(PATIENCE, ends.receiver.receive(3)).await.expect("nothing came").unwrap();
        assert!(given.len() <= 3, "{given:?}");
        held += given.len();
        let pending: Vec<redis::Value> =
            ask(&mut connection, &format!("XPENDING {} hapax - + 100", queue_of(&here))).await;
        assert_eq!(pending.len(), held, "{pending:?}");
    }
}
