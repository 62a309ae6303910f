//! Leases, wake-up, late commits, lost connections and migrations of the MariaDB queue. Handles that are opened apart
//! stand for processes.

mod common;
mod failing;
mod order;
mod sending;
mod server;

use std::{collections::HashSet, time::Duration};

use common::*;
use futures_util::future::join_all;
use hapax::{
    MySql, MySqlQueue,
    envelope::Envelope,
    ports::{DeadLetters, Page, Receipt, Settled, Settlement, Transport},
    time::Timestamp,
};
use hapax_tests::MySqlTables;

async fn open(tables: &MySqlTables) -> MySqlQueue {
    tables.open_queue(MySqlQueue::options()).await
}

#[tokio::test]
async fn a_lease_that_runs_out_is_another_s_though_its_holder_is_alive() {
    let tables = MySqlTables::new();
    let options = MySqlQueue::options().lease(Duration::from_millis(300));
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
    let tables = MySqlTables::new();
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
    let tables = MySqlTables::new();
    let queue = tables.open_queue(MySqlQueue::options().lease(Duration::from_secs(7200))).await;
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
    let tables = MySqlTables::new();
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
    let tables = MySqlTables::new();
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
    let tables = MySqlTables::new();
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
    let tables = MySqlTables::new();
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

/// Nobody looks before an hour has passed, so that what comes was told within the process.
#[tokio::test]
async fn what_the_own_process_sends_needs_no_look() {
    let tables = MySqlTables::new();
    let queue = tables.open_queue(MySqlQueue::options().polls(NEVER, NEVER)).await;
    let ends = queue.connect(&endpoint("shop"), &[message_type()]).await.unwrap();
    let soon = || Timestamp::now().after(Duration::from_millis(300));
    for round in 0..4 {
        for outgoing in [
            to("shop", envelope("sent")),
            published("published"),
            to("shop", Envelope { due: Some(soon()), ..envelope("due") }),
        ] {
            let (delivery, ()) = tokio::join!(next(&ends), async {
                // Only when the receiver has looked and found nothing.
                for _ in 0..3 {
                    queue.backlog(&endpoint("shop")).await.unwrap();
                }
                send(&queue, std::slice::from_ref(&outgoing)).await;
            });
            assert_eq!(delivery.envelope, outgoing.envelope, "round {round}");
            assert!(outgoing.envelope.due.is_none_or(|due| Timestamp::now().after(Duration::from_millis(20)) >= due));
            ack(&ends, &delivery).await;
        }
    }
}

/// However long nothing has come.
#[tokio::test]
async fn what_another_process_sends_is_found_by_a_look() {
    let tables = MySqlTables::new();
    let idle = Duration::from_millis(240);
    let (here, there) = (tables.open_queue(MySqlQueue::options().polls(idle, idle)).await, open(&tables).await);
    let ends = shop(&here).await;
    for round in 0..5 {
        let (delivery, ()) = tokio::join!(next(&ends), send_bodies(&there, &["a"]));
        assert_eq!(body(&delivery), "a", "round {round}");
        ack(&ends, &delivery).await;
    }
}

#[tokio::test]
async fn a_listing_of_dead_letters_that_takes_long_holds_up_nobody_who_receives() {
    let tables = MySqlTables::new();
    let (here, there) = (open(&tables).await, open(&tables).await);
    let ends = shop(&here).await;
    let mut lock = beside(&tables).await;
    run(&mut lock, "LOCK TABLES hapax.queue_dead_letter WRITE").await;
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
    run(&mut lock, "UNLOCK TABLES").await;
}

/// A slow transaction: its message has an older time and a smaller number than many that were given since.
#[tokio::test]
async fn what_is_committed_late_behind_what_was_given_comes_all_the_same() {
    for ordered_keys in [false, true] {
        let tables = MySqlTables::new();
        let queue = tables.open_queue(MySqlQueue::options().ordered_keys(ordered_keys)).await;
        let ends = shop(&queue).await;
        send(&queue, &[to("elsewhere", envelope("late"))]).await;
        let mut slow = beside(&tables).await;
        let sql = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; BEGIN; INSERT INTO hapax.queue_message (queue, due_at, sent_at, bytes, message_id, envelope) \
             SELECT q.id, m.due_at - 10000, m.sent_at, m.bytes, m.message_id, m.envelope \
             FROM hapax.queue_message AS m CROSS JOIN hapax.queue AS q WHERE q.endpoint = 'shop'";
        run(&mut slow, sql).await;
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
    let tables = MySqlTables::new();
    let queues = join_all((0..4).map(|_| open(&tables))).await;
    let store = tables.open().await; // Beside the queue's tables.
    let beside_it = MySqlQueue::on(&store).await.unwrap();
    let versions = number(&mut beside(&tables).await, "SELECT count(*) FROM hapax.queue_migration").await;
    assert_eq!(versions, 1);
    send_bodies(&queues[3], &["a"]).await;
    assert_eq!(body(&next(&shop(&beside_it).await).await), "a");
}

#[tokio::test]
async fn the_schema_may_be_made_by_hand_and_an_account_needs_what_is_granted_and_no_more() {
    let tables = MySqlTables::new();
    let place = MySql::options(tables.url()).table_prefix(tables.prefix());
    let none = MySqlQueue::options().open_database(place.clone()).await.unwrap_err();
    assert!(none.to_string().contains("has no schema, this hapax needs 1: set `migrate(true)`"), "{none}");
    let account = format!("role_{}", tables.prefix());
    let mut owner = beside(&tables).await;
    for _ in 0..2 {
        run(&mut owner, &MySqlQueue::schema_sql(&place).unwrap()).await;
    }
    run(&mut owner, &format!("CREATE USER {account}")).await;
    run(&mut owner, &MySqlQueue::grants_sql(&place, &account).unwrap()).await;

    let place = by(&tables, &account);
    for ordered_keys in [false, true] {
        let queue = MySqlQueue::options().ordered_keys(ordered_keys).open_database(place.clone()).await.unwrap();
        let ends = queue.connect(&endpoint("shop"), &[message_type()]).await.unwrap();
        send(&queue, &[keyed("k", "a"), keyed("k", "b"), keyed("j", "c"), published("d")]).await;
        let mut settlements = [Settlement::Ack, dead("no"), retry(Duration::ZERO), Settlement::Ack, Settlement::Ack];
        for settlement in &mut settlements {
            let delivery = next(&ends).await;
            ends.receiver.extend(std::slice::from_ref(&delivery.receipt)).await.unwrap();
            assert_eq!(settle(&ends, &delivery, settlement.clone()).await, Settled::Done);
        }
        queue.purge(Duration::ZERO, 10).await.unwrap();
        queue.unsubscribe(&endpoint("shop"), &[message_type()]).await.unwrap();
        queue.abandon(&endpoint("shop"), 10).await.unwrap();
        queue.close().await;
    }
    forget(&tables, &account).await;
}

#[tokio::test]
async fn messages_that_the_server_does_not_take_are_refused_at_the_start() {
    let tables = MySqlTables::new();
    let packet = number(&mut beside(&tables).await, "SELECT CAST(@@max_allowed_packet AS SIGNED)").await;
    let most = usize::try_from(packet / 2).unwrap();
    let place = MySql::options(tables.url()).table_prefix(tables.prefix());
    let options = MySqlQueue::options().message_bytes_max(most).migrate(true);
    let refused = options.open_database(place).await.unwrap_err();
    assert!(refused.to_string().contains("`max_allowed_packet`"), "{refused}");
    let queue = tables.open_queue(MySqlQueue::options().message_bytes_max(most - (1 << 20))).await;
    let ends = shop(&queue).await;
    let large = "x".repeat(most - (1 << 20) - 1000);
    send_bodies(&queue, &["a", &large, "b", &large]).await;
    let mut lengths: Vec<usize> = Vec::new();
    while lengths.len() < 4 {
        lengths.extend(receive(&ends, 10).await.iter().map(|delivery| delivery.envelope.body.len()));
    }
    assert_eq!(lengths, [1, large.len(), 1, large.len()]);
}
