//! Who has a message, and who has it no longer; and how often it was given.

use std::time::Duration;

use aws_sdk_sqs::types::QueueAttributeName as Attribute;
use hapax::ports::{Connected, DeadLetters, Delivery, Page, Settled, Settlement, Transport};
use hapax_tests::SqsQueues;

use super::rig::*;

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
    for ordered in [false, true] {
        let queues = SqsQueues::new();
        let sqs = queues.open(options(&queues).ordered_keys(ordered)).await;
        let here = endpoint();
        let (first, second) = (sqs.connect(&here, &[]).await.unwrap(), sqs.connect(&here, &[]).await.unwrap());
        send(&sqs, &[to(&here, keyed("k", "m"))]).await;
        let stale = next(&first).await;
        tokio::time::sleep(LEASE + MARGIN).await;
        // Run out, and nobody has it yet.
        is_late(&first, &stale).await;
        let taken = next(&second).await;
        assert_eq!((taken.attempts, &taken.envelope), (2, &stale.envelope));
        // Another has it.
        is_late(&first, &stale).await;
        assert_eq!(sqs.list(&here, &Page::first(1)).await.unwrap(), []);
        ack(&second, &taken).await;
        // It is gone.
        is_late(&first, &stale).await;
        assert_eq!(sqs.backlog(&here).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn what_was_put_off_is_not_settled_by_the_receipt_it_was_put_off_with() {
    let queues = SqsQueues::new();
    let sqs = open(&queues).await;
    let here = endpoint();
    let ends = sqs.connect(&here, &[]).await.unwrap();
    send(&sqs, &[to(&here, envelope("m"))]).await;
    let before = next(&ends).await;
    settle(&ends, &before, Settlement::Retry { delay: Duration::from_secs(1), counts: true }).await;
    is_late(&ends, &before).await;
    let now = next(&ends).await;
    assert_eq!((body(&now).as_str(), now.attempts), ("m", 2));
    ack(&ends, &now).await;
    assert_eq!(sqs.backlog(&here).await.unwrap(), 0);
}

/// What does not count is sent again by its receiver, so that the service begins to count anew; nothing of it is lost by that.
#[tokio::test]
async fn a_retry_that_does_not_count_is_not_counted_and_one_that_waits_is() {
    for ordered in [false, true] {
        let queues = SqsQueues::new();
        let sqs = queues.open(options(&queues).ordered_keys(ordered).lease(PATIENCE)).await;
        let here = endpoint();
        let ends = sqs.connect(&here, &[]).await.unwrap();
        let sent = keyed("k", "again");
        send(&sqs, &[to(&here, sent.clone())]).await;
        let millis = Duration::from_millis;
        let retries =
            [(0, true, 1), (0, false, 2), (1200, false, 2), (30, true, 2), (30, false, 3), (0, true, 3), (0, true, 4)];
        for (delay, counts, attempts) in retries {
            let delivery = next(&ends).await;
            assert_eq!((delivery.attempts, &*delivery.envelope), (attempts, &sent), "ordered: {ordered}");
            let begun = std::time::Instant::now();
            settle(&ends, &delivery, Settlement::Retry { delay: millis(delay), counts }).await;
            let again = next(&ends).await;
            assert!(begun.elapsed() + millis(20) >= millis(delay), "it comes after {:?}", begun.elapsed());
            // For the next round.
            settle(&ends, &again, Settlement::Retry { delay: Duration::ZERO, counts: false }).await;
        }
        let last = next(&ends).await;
        assert_eq!(last.attempts, 5);
        ack(&ends, &last).await;
        assert_eq!(sqs.backlog(&here).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn a_lease_that_is_extended_is_kept_and_one_beside_it_is_not() {
    let queues = SqsQueues::new();
    let sqs = open(&queues).await;
    let here = endpoint();
    let (first, second) = (sqs.connect(&here, &[]).await.unwrap(), sqs.connect(&here, &[]).await.unwrap());
    send(&sqs, &["kept", "lost"].map(|body| to(&here, envelope(body)))).await;
    let (one, other) = (next(&first).await, next(&first).await);
    let (kept, lost) = if body(&one) == "kept" { (one, other) } else { (other, one) };
    for _ in 0..9 {
        tokio::time::sleep(LEASE / 4).await;
        first.receiver.extend(std::slice::from_ref(&kept.receipt)).await.unwrap();
    }
    let taken = next(&second).await;
    assert_eq!((body(&taken), taken.attempts), (body(&lost), 2));
    nothing(&second, MARGIN).await;
    ack(&first, &kept).await;
    ack(&second, &taken).await;
}

/// More than one call takes, each of its own.
#[tokio::test]
async fn of_many_that_are_settled_and_extended_at_once_each_is_told_how_its_own_ended() {
    const MESSAGES: usize = 45;
    let queues = SqsQueues::new();
    let sqs = queues.open(options(&queues).lease(Duration::from_secs(20))).await;
    let here = endpoint();
    let ends = sqs.connect(&here, &[]).await.unwrap();
    let sent: Vec<_> = (0..MESSAGES).map(|number| to(&here, envelope(&number.to_string()))).collect();
    send(&sqs, &sent).await;
    let mut held = Vec::new();
    while held.len() < MESSAGES {
        held.extend(ends.receiver.receive(MESSAGES - held.len()).await.unwrap());
    }
    let receipts: Vec<_> = held.iter().map(|delivery| delivery.receipt.clone()).collect();
    ends.receiver.extend(&receipts).await.unwrap();
    // One of them is deleted by somebody else meanwhile, which is success to the service; and one is settled before.
    ack(&ends, &held[7]).await;
    let all = receipts.iter().map(|receipt| ends.receiver.settle(receipt, Settlement::Ack));
    let settled: Vec<Settled> = futures_util::future::try_join_all(all).await.unwrap();
    for (place, settled) in settled.into_iter().enumerate() {
        assert_eq!(settled, if place == 7 { Settled::LeaseLost } else { Settled::Done }, "{place}");
    }
    assert_eq!(sqs.backlog(&here).await.unwrap(), 0);
}

/// Messages that a call was given after it was dropped are for the next one, and nobody has taken them.
#[tokio::test]
async fn what_a_dropped_call_was_given_is_given_by_the_next_and_not_counted() {
    const MESSAGES: usize = 60;
    let queues = SqsQueues::new();
    let sqs = queues.open(options(&queues).lease(Duration::from_secs(600))).await;
    let here = endpoint();
    let ends = sqs.connect(&here, &[]).await.unwrap();
    let sent: Vec<_> = (0..MESSAGES).map(|number| to(&here, envelope(&number.to_string()))).collect();
    send(&sqs, &sent).await;
    let mut held = 0;
    for round in 0..40 {
        // Dropped before, while and after the service is asked. What is answered in time is given for good, and let go.
        let receiving = ends.receiver.receive(5);
        if let Ok(given) = tokio::time::timeout(Duration::from_micros(round * 200), receiving).await {
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
    assert_eq!(sqs.backlog(&here).await.unwrap() as usize, held);
}

/// What is not asked for stays at the service, for whoever asks: also where several calls are under way for it.
#[tokio::test]
async fn no_more_is_taken_from_the_service_than_was_asked_for() {
    const MESSAGES: usize = 60;
    let queues = SqsQueues::new();
    let sqs = queues.open(options(&queues).lease(Duration::from_secs(600)).parallel(8)).await;
    let (here, client) = (endpoint(), queues.client());
    let (first, second) = (sqs.connect(&here, &[]).await.unwrap(), sqs.connect(&here, &[]).await.unwrap());
    let url = queue_url(&client, &queue_of(&queues, &here)).await;
    let taken = async || {
        let not_visible = Attribute::ApproximateNumberOfMessagesNotVisible;
        let asked = client.get_queue_attributes().queue_url(&url).attribute_names(not_visible.clone());
        asked.send().await.unwrap().attributes().unwrap()[&not_visible].parse::<usize>().unwrap()
    };
    let sent: Vec<_> = (0..MESSAGES).map(|number| to(&here, envelope(&number.to_string()))).collect();
    send(&sqs, &sent).await;
    let mut held = Vec::new();
    for more in [1, 7, 25, 13] {
        let most = held.len() + more;
        while held.len() < most {
            held.extend(first.receiver.receive(most - held.len()).await.unwrap());
            let taken = taken().await;
            assert!(held.len() <= most && taken <= most, "{taken} are taken and {} given of {most}", held.len());
        }
    }
    // A whole lease would pass before the first one's came here.
    let mut rest = Vec::new();
    while held.len() + rest.len() < MESSAGES {
        let given = tokio::time::timeout(PATIENCE, second.receiver.receive(MESSAGES)).await;
        rest.extend(given.expect("the first has more than it asked for").unwrap());
    }
    assert!(rest.iter().all(|delivery| delivery.attempts == 1));
}

/// What it has, and what comes to it afterwards, others have at once.
#[tokio::test]
async fn what_a_receiver_has_that_is_let_go_of_comes_to_another_before_its_lease_runs_out() {
    let queues = SqsQueues::new();
    let sqs = queues.open(options(&queues).lease(Duration::from_secs(600))).await;
    let here = endpoint();
    let first = sqs.connect(&here, &[]).await.unwrap();
    send(&sqs, &["had", "ready"].map(|body| to(&here, envelope(body)))).await;
    next(&first).await;
    // The second call finds nothing, and is under way: the service answers it when nobody asks any more.
    for _ in 0..2 {
        nothing_or_some(&first).await;
    }
    drop(first);
    send(&sqs, &[to(&here, envelope("after"))]).await;
    let second = sqs.connect(&here, &[]).await.unwrap();
    let mut came = Vec::new();
    for _ in 0..3 {
        let delivery = next(&second).await;
        ack(&second, &delivery).await;
        came.push(body(&delivery));
    }
    came.sort();
    assert_eq!(came, ["after", "had", "ready"]);
}

async fn nothing_or_some(ends: &Connected) {
    drop(tokio::time::timeout(Duration::from_millis(100), ends.receiver.receive(10)).await);
}
