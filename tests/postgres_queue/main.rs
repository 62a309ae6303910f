//! Leases, wake-up, late commits, lost connections and migrations of the PostgreSQL queue. Handles that are opened apart
//! stand for processes.

mod common;
mod failing;
mod order;
mod sending;

use std::{collections::HashSet, time::Duration};

use common::*;
use futures_util::future::join_all;
use hapax::{
    Postgres, PostgresQueue,
    envelope::Envelope,
    ports::{DeadLetters, Page, Receipt, Settled, Settlement, Transport},
    time::Timestamp,
};
use hapax_tests::PostgresSchema;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

async fn open(schema: &PostgresSchema) -> PostgresQueue {
    schema.open_queue(PostgresQueue::options()).await
}

#[tokio::test]
async fn a_lease_that_runs_out_is_another_s_though_its_holder_is_alive() {
    let schema = PostgresSchema::new();
    let options = PostgresQueue::options().lease(Duration::from_millis(300));
    let (here, there) = (schema.open_queue(options.clone()).await, schema.open_queue(options).await);
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
    assert_eq!(number(&mut beside(&schema).await, "SELECT count(*) FROM queue_dead_letter").await, 0);
    // Its lease may have run out by now, too: then it comes once more.
    let ended = settle(&second, &current, Settlement::Ack).await;
    assert!(ended == Settled::Done || next(&second).await.attempts > 2);
}

#[tokio::test]
async fn a_lease_that_has_run_out_is_lost_before_anybody_takes_it_and_is_not_revived() {
    let schema = PostgresSchema::new();
    let queue = open(&schema).await;
    let ends = shop(&queue).await;
    send_bodies(&queue, &["a"]).await;
    let late = next(&ends).await;
    an_hour_passes(&schema).await;
    ends.receiver.extend(std::slice::from_ref(&late.receipt)).await.unwrap();
    for settlement in [dead("late"), retry(Duration::ZERO), Settlement::Ack] {
        assert_eq!(settle(&ends, &late, settlement).await, Settled::LeaseLost);
    }
    assert_eq!(next(&ends).await.attempts, 2);
}

#[tokio::test]
async fn an_extension_begins_the_lease_anew_and_a_foreign_receipt_settles_nothing() {
    let schema = PostgresSchema::new();
    let queue = schema.open_queue(PostgresQueue::options().lease(Duration::from_secs(7200))).await;
    let ends = shop(&queue).await;
    send_bodies(&queue, &["a", "b"]).await;
    let deliveries = receive(&ends, 2).await;
    an_hour_passes(&schema).await;
    ends.receiver.extend(std::slice::from_ref(&deliveries[0].receipt)).await.unwrap();
    an_hour_passes(&schema).await;
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
    let schema = PostgresSchema::new();
    let queue = open(&schema).await;
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
    let schema = PostgresSchema::new();
    let queue = open(&schema).await;
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
    an_hour_passes(&schema).await;
    assert_eq!(next(&ends).await.attempts, 2);
}

#[tokio::test]
async fn messages_counts_and_delays_survive_the_process() {
    let schema = PostgresSchema::new();
    let queue = open(&schema).await;
    let ends = shop(&queue).await;
    let due = Timestamp::now().after(Duration::from_secs(1800));
    send(&queue, &[to("shop", Envelope { due: Some(due), ..envelope("later") })]).await;
    send_bodies(&queue, &["now"]).await;
    let sent = next(&ends).await;
    assert_eq!((body(&sent).as_str(), sent.attempts), ("now", 1));
    drop(ends);
    queue.close().await;

    let queue = open(&schema).await;
    let ends = shop(&queue).await;
    assert_eq!(queue.backlog(&endpoint("shop")).await.unwrap(), 2);
    expect_nothing(&queue, &ends).await;
    an_hour_passes(&schema).await;
    let mut again = vec![next(&ends).await, next(&ends).await];
    again.sort_by_key(body);
    assert_eq!(bodies(&again), ["later", "now"]);
    assert_eq!(again.iter().map(|delivery| delivery.attempts).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(again[1].envelope, sent.envelope);
}

#[tokio::test]
async fn several_receivers_of_one_queue_share_its_messages() {
    const MESSAGES: usize = 500;
    let schema = PostgresSchema::new();
    let (here, there) = (open(&schema).await, open(&schema).await);
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

/// Nobody looks before an hour has passed, so that what comes was told by the server.
#[tokio::test]
async fn what_another_process_sends_is_told_and_needs_no_look() {
    let schema = PostgresSchema::new();
    let options = PostgresQueue::options().polls(NEVER, NEVER);
    let (here, there) = (schema.open_queue(options.clone()).await, schema.open_queue(options).await);
    let ends = here.connect(&endpoint("shop"), &[message_type()]).await.unwrap();
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
                    here.backlog(&endpoint("shop")).await.unwrap();
                }
                send(&there, std::slice::from_ref(&outgoing)).await;
            });
            assert_eq!(delivery.envelope, outgoing.envelope, "round {round}");
            assert!(outgoing.envelope.due.is_none_or(|due| Timestamp::now().after(Duration::from_millis(20)) >= due));
            ack(&ends, &delivery).await;
        }
    }
}

#[tokio::test]
async fn where_nobody_listens_new_messages_are_looked_for() {
    let schema = PostgresSchema::new();
    let (here, there) = (schema.open_queue(PostgresQueue::options().listen(false)).await, open(&schema).await);
    let ends = shop(&here).await;
    for round in 0..5 {
        let (delivery, ()) = tokio::join!(next(&ends), send_bodies(&there, &["a"]));
        assert_eq!(body(&delivery), "a", "round {round}");
        ack(&ends, &delivery).await;
    }
}

#[tokio::test]
async fn a_listing_of_dead_letters_that_takes_long_holds_up_nobody_who_receives() {
    let schema = PostgresSchema::new();
    let (here, there) = (schema.open_queue(PostgresQueue::options().listen(false)).await, open(&schema).await);
    let ends = shop(&here).await;
    let mut lock = beside(&schema).await;
    run(&mut lock, "BEGIN; LOCK TABLE queue_dead_letter").await;
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
    run(&mut lock, "ROLLBACK").await;
}

/// A slow transaction: its message has an older time and a smaller number than many that were given since.
#[tokio::test]
async fn what_is_committed_late_behind_what_was_given_comes_all_the_same() {
    for ordered_keys in [false, true] {
        let schema = PostgresSchema::new();
        let queue = schema.open_queue(PostgresQueue::options().ordered_keys(ordered_keys)).await;
        let ends = shop(&queue).await;
        send(&queue, &[to("elsewhere", envelope("late"))]).await;
        let mut slow = beside(&schema).await;
        let sql = "BEGIN; INSERT INTO queue_message \
             (queue, due_at, leased_until, token, deliveries, sent_at, message_id, envelope) \
             SELECT q.id, m.due_at - 10000, 0, 0, 0, m.sent_at, m.message_id, m.envelope \
             FROM queue_message AS m CROSS JOIN queue AS q WHERE q.endpoint = 'shop'";
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
    let schema = PostgresSchema::new();
    let queues = join_all((0..4).map(|_| open(&schema))).await;
    let store = schema.open().await; // Beside the queue's tables.
    let beside_it = PostgresQueue::on(&store).await.unwrap();
    let versions = number(&mut beside(&schema).await, "SELECT count(*) FROM queue_migration").await;
    assert_eq!(versions, 1);
    send_bodies(&queues[3], &["a"]).await;
    assert_eq!(body(&next(&shop(&beside_it).await).await), "a");
}

#[tokio::test]
async fn the_schema_may_be_made_by_hand_and_a_role_needs_what_is_granted_and_no_more() {
    let schema = PostgresSchema::new();
    let database = Postgres::options(schema.url()).schema(schema.name());
    let none = PostgresQueue::options().open_database(database.clone()).await.unwrap_err();
    assert!(none.to_string().contains("has no schema, this hapax needs 1: set `migrate(true)`"), "{none}");
    let role = format!("role_{}", schema.name());
    let mut owner = PgConnection::connect(schema.url()).await.unwrap();
    for _ in 0..2 {
        run(&mut owner, &format!("BEGIN; {} COMMIT", PostgresQueue::schema_sql(&database).unwrap())).await;
    }
    run(&mut owner, &format!("CREATE ROLE {role} LOGIN")).await;
    run(&mut owner, &PostgresQueue::grants_sql(&database, &role).unwrap()).await;

    let place: sqlx::postgres::PgConnectOptions = schema.url().parse().unwrap();
    let database = Postgres::with(place.username(&role)).schema(schema.name());
    for ordered_keys in [false, true] {
        let queue = PostgresQueue::options().ordered_keys(ordered_keys).open_database(database.clone()).await.unwrap();
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
    run(&mut owner, &format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

/// Without one of our own behind it, but each statement as it is behind one: prepared and run in a transaction.
#[tokio::test]
async fn behind_a_connection_pooler_all_is_as_it_is_without_one_but_nobody_listens() {
    let schema = PostgresSchema::new();
    for ordered_keys in [false, true] {
        let database = Postgres::options(schema.url()).schema(schema.name()).pooler(true);
        let options = PostgresQueue::options().ordered_keys(ordered_keys).migrate(true);
        let queue = options.open_database(database).await.unwrap();
        let ends = shop(&queue).await;
        send(&queue, &[keyed("k", "a"), keyed("k", "b")]).await;
        for expected in ["a", "b"] {
            let delivery = next(&ends).await;
            assert_eq!(body(&delivery), expected);
            ack(&ends, &delivery).await;
        }
        let mut connection = beside(&schema).await;
        let listeners = "SELECT count(*) FROM pg_stat_activity WHERE query = 'LISTEN \"' || $1 || '.\"'";
        let listeners: i64 = sqlx::query_scalar(AssertSqlSafe(listeners.to_owned()))
            .bind(schema.name())
            .fetch_one(&mut connection)
            .await
            .unwrap();
        assert_eq!(listeners, 0);
        queue.close().await;
    }
}
