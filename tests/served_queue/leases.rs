//! Leases, wake-up, late commits and starts. Handles that are opened apart stand for processes.

use std::{collections::HashSet, time::Duration};

use futures_util::future::join_all;
use hapax::{
    envelope::Envelope,
    ports::{DeadLetters, Page, Receipt, Settled, Settlement},
    time::Timestamp,
};

use super::{common::*, rig::*};

#[tokio::test]
async fn a_lease_that_runs_out_is_another_s_though_its_holder_is_alive() {
    let tables = Tables::new();
    let options = options().lease(Duration::from_millis(300));
    let (here, there) = (tables.open_queue(options.clone()).await, tables.open_queue(options).await);
    let (first, second) = (shop(&here).await, shop(&there).await);
    send_bodies(&here, &["a"]).await;
    let late = next(&first).await;
    let current = next(&second).await;
    assert_eq!((late.attempts, current.attempts), (1, 2));
    second.receiver.extend(std::slice::from_ref(&current.receipt)).await.unwrap();
    first.receiver.extend(std::slice::from_ref(&late.receipt)).await.unwrap();
    for settlement in [Settlement::Ack, retry(Duration::ZERO), dead("late")] {
        assert_eq!(settle(&first, &late, settlement).await, Settled::LeaseLost);
    }
    assert_eq!(here.backlog(&endpoint("shop")).await.unwrap(), 1);
    assert_eq!(number(&mut beside(&tables).await, "SELECT count(*) FROM hapax.queue_dead_letter").await, 0);
    // Its lease may have run out by now, too: then it comes once more.
    let ended = settle(&second, &current, Settlement::Ack).await;
    assert!(ended == Settled::Done || next(&second).await.attempts > 2);
}

#[tokio::test]
async fn a_lease_that_has_run_out_is_lost_before_anybody_takes_it_and_is_not_revived() {
    let tables = Tables::new();
    let queue = open(&tables).await;
    let ends = shop(&queue).await;
    send_bodies(&queue, &["a"]).await;
    let late = next(&ends).await;
    an_hour_passes(&tables).await;
    ends.receiver.extend(std::slice::from_ref(&late.receipt)).await.unwrap();
    for settlement in [dead("late"), retry(Duration::ZERO), Settlement::Ack] {
        assert_eq!(settle(&ends, &late, settlement).await, Settled::LeaseLost);
    }
    assert_eq!(next(&ends).await.attempts, 2);
}

#[tokio::test]
async fn an_extension_begins_the_lease_anew_and_a_foreign_receipt_settles_nothing() {
    let tables = Tables::new();
    let queue = tables.open_queue(options().lease(Duration::from_secs(7200))).await;
    let ends = shop(&queue).await;
    send_bodies(&queue, &["a", "b"]).await;
    let deliveries = receive(&ends, 2).await;
    an_hour_passes(&tables).await;
    ends.receiver.extend(std::slice::from_ref(&deliveries[0].receipt)).await.unwrap();
    an_hour_passes(&tables).await;
    let own = deliveries[0].receipt.as_text().unwrap().to_owned();
    let (id, token) = own.split_once(':').unwrap();
    let token: i64 = token.parse().unwrap();
    for text in ["", "1", "x:y", &format!("{id}:{}", token.wrapping_add(1)), &format!("99:{token}")] {
        let receipt = Receipt::text(text);
        assert_eq!(ends.receiver.settle(&receipt, Settlement::Ack).await.unwrap(), Settled::LeaseLost, "{text}");
    }
    ack(&ends, &deliveries[0]).await;
    assert_eq!(settle(&ends, &deliveries[1], Settlement::Ack).await, Settled::LeaseLost);
}

/// One lease settled twice at once, beside others of the same token: it ends once.
#[tokio::test]
async fn of_two_settlements_of_one_lease_at_once_one_counts() {
    let tables = Tables::new();
    let queue = open(&tables).await;
    let ends = shop(&queue).await;
    send_bodies(&queue, &["a", "b", "c"]).await;
    let deliveries = receive(&ends, 3).await;
    let twice = deliveries.iter().chain([&deliveries[0], &deliveries[1]]);
    let settled = join_all(twice.map(|delivery| settle(&ends, delivery, Settlement::Ack))).await;
    assert_eq!(settled.iter().filter(|settled| **settled == Settled::Done).count(), 3);
    assert_eq!(queue.messages().await.unwrap(), 0);
}

#[tokio::test]
async fn a_retry_that_does_not_count_is_taken_off_the_count_and_one_with_a_delay_waits() {
    let tables = Tables::new();
    let queue = open(&tables).await;
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
    an_hour_passes(&tables).await;
    assert_eq!(next(&ends).await.attempts, 2);
}

#[tokio::test]
async fn messages_counts_and_delays_survive_the_process() {
    let tables = Tables::new();
    let queue = open(&tables).await;
    let ends = shop(&queue).await;
    let due = Timestamp::now().after(Duration::from_secs(1800));
    send(&queue, &[to("shop", Envelope { due: Some(due), ..envelope("later") })]).await;
    send_bodies(&queue, &["now"]).await;
    let sent = next(&ends).await;
    assert_eq!((body(&sent).as_str(), sent.attempts), ("now", 1));
    drop(ends);
    queue.close().await;

    let queue = open(&tables).await;
    let ends = shop(&queue).await;
    assert_eq!(queue.backlog(&endpoint("shop")).await.unwrap(), 2);
    expect_nothing(&queue, &ends).await;
    an_hour_passes(&tables).await;
    let mut again = vec![next(&ends).await, next(&ends).await];
    again.sort_by_key(body);
    assert_eq!(bodies(&again), ["later", "now"]);
    assert_eq!(again.iter().map(|delivery| delivery.attempts).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(again[1].envelope, sent.envelope);
}

#[tokio::test]
async fn several_receivers_of_one_queue_share_its_messages() {
    const MESSAGES: usize = 500;
    let tables = Tables::new();
    let (here, there) = (open(&tables).await, open(&tables).await);
    let all: Vec<String> = (0..MESSAGES).map(|number| number.to_string()).collect();
    let mut receivers = Vec::new();
    for queue in [&here, &here, &there] {
        receivers.push(shop(queue).await);
    }
    send_bodies(&here, &all.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let work = receivers.iter().map(|ends| async {
        let mut got = Vec::new();
        while let Ok(deliveries) = tokio::time::timeout(Duration::from_secs(1), ends.receiver.receive(7)).await {
            let deliveries = deliveries.unwrap();
            join_all(deliveries.iter().map(|delivery| ack(ends, delivery))).await;
            got.extend(bodies(&deliveries));
        }
        got
    });
    let got: Vec<String> = join_all(work).await.concat();
    assert_eq!(got.len(), MESSAGES, "a message was given twice under a lease, or never");
    assert_eq!(got.into_iter().collect::<HashSet<_>>().len(), MESSAGES);
}

#[tokio::test]
async fn a_listing_of_dead_letters_that_takes_long_holds_up_nobody_who_receives() {
    let tables = Tables::new();
    let (here, there) = (tables.open_queue(looking()).await, open(&tables).await);
    let ends = shop(&here).await;
    let mut lock = beside(&tables).await;
    run(&mut lock, LOCK_LETTERS).await;
    let (shop, page) = (endpoint("shop"), Page::first(10));
    tokio::select! {
        biased;
        _ = here.list(&shop, &page) => panic!("it was to take long"),
        () = async {
            for number in ["first, with no look", "second", "third"] {
                send_bodies(&there, &[number]).await;
                assert_eq!(bodies(&receive(&ends, 10).await), [number]);
            }
        } => {}
    }
    run(&mut lock, UNLOCK).await;
}

/// A slow transaction: its message has an older time and a smaller number than many that were given since.
#[tokio::test]
async fn what_is_committed_late_behind_what_was_given_comes_all_the_same() {
    for ordered_keys in [false, true] {
        let tables = Tables::new();
        let queue = tables.open_queue(options().ordered_keys(ordered_keys)).await;
        let ends = shop(&queue).await;
        send(&queue, &[to("elsewhere", envelope("late"))]).await;
        let mut slow = beside(&tables).await;
        run(&mut slow, BEGIN_LATE).await;
        for round in 0..5 {
            let all: Vec<String> = (0..20).map(|number| format!("{round} {number}")).collect();
            send_bodies(&queue, &all.iter().map(String::as_str).collect::<Vec<_>>()).await;
            let mut left = all.len();
            while left > 0 {
                let deliveries = receive(&ends, 7).await;
                assert!(deliveries.iter().all(|delivery| body(delivery) != "late"), "it is not committed yet");
                join_all(deliveries.iter().map(|delivery| ack(&ends, delivery))).await;
                left -= deliveries.len();
            }
        }
        // A full look, which finds nothing, and begins again only with the next poll.
        let nothing = tokio::time::timeout(Duration::from_millis(500), ends.receiver.receive(1)).await;
        assert!(nothing.is_err(), "it is not committed yet");
        run(&mut slow, "COMMIT").await;
        assert_eq!(body(&next(&ends).await), "late");
    }
}

#[tokio::test]
async fn four_that_start_at_once_make_the_tables_once() {
    let tables = Tables::new();
    let queues = join_all((0..4).map(|_| open(&tables))).await;
    let store = tables.open().await; // Beside the queue's tables.
    let beside_it = Queue::on(&store).await.unwrap();
    let versions = number(&mut beside(&tables).await, "SELECT count(*) FROM hapax.queue_migration").await;
    assert_eq!(versions, 1);
    send_bodies(&queues[3], &["a"]).await;
    assert_eq!(body(&next(&shop(&beside_it).await).await), "a");
}
