//! Leases, counts, delays and signals of the SQLite queue. Handles that are opened apart stand for processes.
#![allow(clippy::unwrap_used)]
#![cfg(feature = "sqlite")]

mod common;

use std::{collections::HashSet, time::Duration};

use common::*;
use futures_util::future::join_all;
use hapax_core::{
    envelope::Envelope,
    ports::{Settled, Settlement, Transport},
    time::Timestamp,
};
use hapax_transports::SqliteQueue;

#[tokio::test]
async fn a_lease_that_another_has_now_is_lost_whatever_is_asked() {
    let place = Place::new();
    let (here, there) = (place.open().await, place.open().await);
    let (first, second) = (shop(&here).await, shop(&there).await);
    send_bodies(&here, &["a"]).await;
    let late = next(&first).await;
    place.an_hour_passes().await;
    let current = next(&second).await;
    assert_eq!((late.attempts, current.attempts), (1, 2));
    first.receiver.extend(std::slice::from_ref(&late.receipt)).await.unwrap();
    for settlement in [Settlement::Ack, retry(Duration::ZERO), dead("late")] {
        assert_eq!(settle(&first, &late, settlement).await, Settled::LeaseLost);
    }
    assert_eq!(here.backlog(&endpoint("shop")).await.unwrap(), 1);
    assert_eq!(place.number("SELECT count(*) FROM hapax_queue_dead_letter").await, 0);
    ack(&second, &current).await;
    assert_eq!(settle(&second, &current, Settlement::Ack).await, Settled::LeaseLost);
    assert_eq!(here.backlog(&endpoint("shop")).await.unwrap(), 0);
}

#[tokio::test]
async fn a_lease_that_has_run_out_is_lost_before_anybody_takes_it_and_is_not_revived() {
    let place = Place::new();
    let queue = place.open().await;
    let ends = shop(&queue).await;
    send_bodies(&queue, &["a"]).await;
    let late = next(&ends).await;
    place.an_hour_passes().await;
    ends.receiver.extend(std::slice::from_ref(&late.receipt)).await.unwrap();
    for settlement in [dead("late"), retry(Duration::ZERO), Settlement::Ack] {
        assert_eq!(settle(&ends, &late, settlement).await, Settled::LeaseLost);
    }
    assert_eq!(next(&ends).await.attempts, 2);
}

#[tokio::test]
async fn an_extension_begins_the_lease_anew() {
    let place = Place::new();
    let queue = SqliteQueue::options().lease(Duration::from_secs(7200)).open(place.file()).await.unwrap();
    let ends = shop(&queue).await;
    send_bodies(&queue, &["a", "b"]).await;
    let deliveries = receive(&ends, 2).await;
    place.an_hour_passes().await;
    ends.receiver.extend(std::slice::from_ref(&deliveries[0].receipt)).await.unwrap();
    place.an_hour_passes().await;
    ack(&ends, &deliveries[0]).await;
    assert_eq!(settle(&ends, &deliveries[1], Settlement::Ack).await, Settled::LeaseLost);
}

#[tokio::test]
async fn a_foreign_receipt_settles_nothing() {
    let place = Place::new();
    let queue = place.open().await;
    let ends = shop(&queue).await;
    send_bodies(&queue, &["a"]).await;
    let delivery = next(&ends).await;
    let own = delivery.receipt.as_text().unwrap().to_owned();
    let (id, token) = own.split_once(':').unwrap();
    let token: i64 = token.parse().unwrap();
    for text in ["", "1", "x:y", &format!("{id}:{}", token.wrapping_add(1)), &format!("99:{token}")] {
        let receipt = hapax_core::ports::Receipt::text(text);
        assert_eq!(ends.receiver.settle(&receipt, Settlement::Ack).await.unwrap(), Settled::LeaseLost, "{text}");
    }
    ack(&ends, &delivery).await;
}

#[tokio::test]
async fn messages_counts_and_delays_survive_the_process() {
    let place = Place::new();
    let queue = place.open().await;
    let ends = shop(&queue).await;
    let due = Timestamp::now().after(Duration::from_secs(1800));
    send(&queue, &[to("shop", Envelope { due: Some(due), ..envelope("later") })]).await;
    send_bodies(&queue, &["now"]).await;
    let sent = next(&ends).await;
    assert_eq!((body(&sent).as_str(), sent.attempts), ("now", 1));
    drop(ends);
    queue.close().await;

    let queue = place.open().await;
    let ends = shop(&queue).await;
    assert_eq!(queue.backlog(&endpoint("shop")).await.unwrap(), 2);
    expect_nothing(&queue, &ends).await;
    place.an_hour_passes().await;
    let mut again = receive(&ends, 10).await;
    again.sort_by_key(body);
    assert_eq!(bodies(&again), ["later", "now"]);
    assert_eq!(again.iter().map(|delivery| delivery.attempts).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(again[1].envelope, sent.envelope);
}

#[tokio::test]
async fn a_retry_that_does_not_count_is_taken_off_the_count_and_one_with_a_delay_waits() {
    let place = Place::new();
    let queue = place.open().await;
    let ends = shop(&queue).await;
    send_bodies(&queue, &["a"]).await;
    for _ in 0..3 {
        let delivery = next(&ends).await;
        assert_eq!(delivery.attempts, 1);
        let stop = Settlement::Retry { delay: Duration::ZERO, counts: false };
        assert_eq!(settle(&ends, &delivery, stop).await, Settled::Done);
        assert_eq!(settle(&ends, &delivery, Settlement::Ack).await, Settled::LeaseLost);
    }
    let delivery = next(&ends).await;
    assert_eq!(settle(&ends, &delivery, retry(Duration::from_secs(1800))).await, Settled::Done);
    expect_nothing(&queue, &ends).await;
    place.an_hour_passes().await;
    assert_eq!(next(&ends).await.attempts, 2);
}

#[tokio::test]
async fn several_receivers_of_one_queue_share_its_messages() {
    const MESSAGES: usize = 500;
    let place = Place::new();
    let (here, there) = (place.open().await, place.open().await);
    let all: Vec<String> = (0..MESSAGES).map(|number| number.to_string()).collect();
    let queues = [&here, &here, &there];
    let mut receivers = Vec::new();
    for queue in queues {
        receivers.push(shop(queue).await);
    }
    send_bodies(&here, &all.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let work = receivers.iter().map(|ends| async {
        let mut got = Vec::new();
        while let Ok(deliveries) = tokio::time::timeout(Duration::from_millis(500), ends.receiver.receive(7)).await {
            let deliveries = deliveries.unwrap();
            join_all(deliveries.iter().map(|delivery| ack(ends, delivery))).await;
            got.extend(bodies(&deliveries));
        }
        got
    });
    let got: Vec<String> = join_all(work).await.concat();
    assert_eq!(got.len(), MESSAGES, "a message was given twice under a lease, or never");
    assert_eq!(got.into_iter().collect::<HashSet<_>>().len(), MESSAGES);
    assert_eq!(here.messages().await.unwrap(), 0);
}

#[tokio::test]
async fn what_another_process_sends_arrives() {
    let place = Place::new();
    let (here, there) = (place.open().await, place.open().await);
    let ends = shop(&here).await;
    for round in 0..5 {
        let (delivery, ()) = tokio::join!(next(&ends), async {
            // Only when the receiver has looked and found nothing.
            tokio::task::yield_now().await;
            send_bodies(&there, &[&round.to_string()]).await;
        });
        assert_eq!(body(&delivery), round.to_string());
        ack(&ends, &delivery).await;
    }
}

/// Gives whoever waits for messages the time to look and find nothing: what is asked of the file now is answered after
/// what was asked before.
async fn let_look(queue: &SqliteQueue) {
    for _ in 0..10 {
        send(queue, &[to("elsewhere", envelope("x"))]).await;
        queue.backlog(&endpoint("shop")).await.unwrap();
    }
}

#[tokio::test]
async fn what_this_process_sends_needs_no_look() {
    let place = Place::new();
    let queue = SqliteQueue::options().polls(NEVER, NEVER).open(place.file()).await.unwrap();
    let ends = queue.connect(&endpoint("shop"), &[message_type()]).await.unwrap();
    let bystander = queue.connect(&endpoint("bystander"), &[]).await.unwrap();
    let soon = || Timestamp::now().after(Duration::from_millis(500));
    for alone in [false, true] {
        // It looks for all, and must be told of what is to come; and then hand that over when it goes.
        let receiver = bystander.receiver.clone();
        let looking = tokio::spawn(async move { receiver.receive(1).await });
        let_look(&queue).await;
        if alone {
            looking.abort();
        }
        for kind in ["sent", "published", "due"] {
            let outgoing = match kind {
                "published" => published("published"),
                "due" => to("shop", Envelope { due: Some(soon()), ..envelope("due") }),
                _ => to("shop", envelope("sent")),
            };
            let (mut delivery, ()) = tokio::join!(next(&ends), async {
                let_look(&queue).await;
                send(&queue, std::slice::from_ref(&outgoing)).await;
            });
            assert!(outgoing.envelope.due.is_none_or(|due| Timestamp::now() >= due));
            for delay in [Duration::ZERO, Duration::from_millis(50)] {
                (delivery, ()) = tokio::join!(next(&ends), async {
                    let_look(&queue).await;
                    assert_eq!(settle(&ends, &delivery, retry(delay)).await, Settled::Done);
                });
            }
            ack(&ends, &delivery).await;
        }
        looking.abort();
        let _ = looking.await;
    }
}

#[tokio::test]
async fn a_claim_gives_no_more_bytes_than_fit_into_memory() {
    let place = Place::new();
    let queue = place.open().await;
    let ends = shop(&queue).await;
    let large = "x".repeat(900 << 10);
    for _ in 0..4 {
        send_bodies(&queue, &[large.as_str(); 6]).await;
    }
    let first = receive(&ends, 100).await.len();
    let second = receive(&ends, 100).await.len();
    assert!((15..24).contains(&first), "{first} of nearly 1 MiB each");
    assert_eq!(first + second, 24);
}

#[tokio::test]
async fn a_message_that_cannot_be_read_does_not_stop_the_others() {
    let place = Place::new();
    let queue = place.open().await;
    let ends = shop(&queue).await;
    send_bodies(&queue, &["a", "b", "c"]).await;
    place.run("UPDATE hapax_queue_message SET envelope = x'7063' WHERE id = 2").await;
    assert_eq!(bodies(&receive(&ends, 10).await), ["a", "c"]);
    assert_eq!(queue.backlog(&endpoint("shop")).await.unwrap(), 3, "it was thrown away");
}

#[tokio::test]
async fn what_a_dropped_call_has_claimed_comes_again_at_once_and_is_not_counted() {
    let place = Place::new();
    let queue = place.open().await;
    let ends = shop(&queue).await;
    let names: Vec<String> = (0..40).map(|number| number.to_string()).collect();
    send_bodies(&queue, &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    // Dropped after more and more steps of the runtime, so that some calls end before, some in and some after the claim.
    for steps in 0..200 {
        tokio::select! {
            biased;
            () = async { for _ in 0..steps { tokio::task::yield_now().await } } => {}
            given = ends.receiver.receive(40) => {
                for delivery in given.unwrap() {
                    let stop = Settlement::Retry { delay: Duration::ZERO, counts: false };
                    assert_eq!(settle(&ends, &delivery, stop).await, Settled::Done);
                }
            }
        }
    }
    let mut left = 40;
    while left > 0 {
        for delivery in receive(&ends, 40).await {
            assert_eq!(delivery.attempts, 1);
            ack(&ends, &delivery).await;
            left -= 1;
        }
    }
}

#[tokio::test]
async fn after_the_clock_was_set_back_no_lease_outlasts_one_of_now() {
    const SECOND: Duration = Duration::from_secs(1);
    let place = Place::new();
    let open = || SqliteQueue::options().lease(SECOND).open(place.file());
    let queue = open().await.unwrap();
    let ends = shop(&queue).await;
    let due = Timestamp::now().after(Duration::from_secs(1800));
    send_bodies(&queue, &["leased", "put off"]).await;
    send(&queue, &[to("shop", Envelope { due: Some(due), ..envelope("due") })]).await;
    let given = receive(&ends, 2).await;
    assert_eq!(settle(&ends, &given[1], retry(Duration::from_secs(1800))).await, Settled::Done);
    // As it was an hour later, before the clock was set back by an hour.
    place
        .run("UPDATE hapax_queue_message SET available_at = available_at + 3600000, sent_at = sent_at + 3600000")
        .await;
    drop(ends);
    queue.close().await;
    let queue = open().await.unwrap();
    let again = next(&shop(&queue).await).await;
    assert_eq!((body(&again).as_str(), again.attempts), ("leased", 2));
    let later = "SELECT count(*) FROM hapax_queue_message WHERE available_at > (unixepoch() + 3600) * 1000";
    assert_eq!(place.number(later).await, 2, "what was to come later was shortened too");
}
