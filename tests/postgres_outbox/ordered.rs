//! Messages of one key, in the order of their commits.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use hapax::{PostgresOutbox, envelope::Outgoing};
use sqlx::Row;

use super::rig::{Fate, Place, Placed, Sink, patient, quick, relay};

/// Numbers of this many belong to one key each.
const OF_A_KEY: u32 = 1000;

async fn ordered(place: &Place) -> PostgresOutbox {
    let options = PostgresOutbox::options().migrate(true).ordered(true);
    options.open_database(place.schema.options().table_prefix("o_")).await.unwrap()
}

fn keyed(outbox: &PostgresOutbox, order: u32) -> Outgoing {
    let Outgoing { destination, envelope } = outbox.outgoing(&Placed { order }).unwrap();
    let mut envelope = (*envelope).clone();
    envelope.partition_key = Some(format!("key-{}", order / OF_A_KEY).parse().unwrap());
    Outgoing { destination, envelope: Arc::new(envelope) }
}

async fn store(place: &Place, outbox: &PostgresOutbox, orders: &[u32]) {
    let messages: Vec<Outgoing> = orders.iter().map(|order| keyed(outbox, *order)).collect();
    let mut tx = place.begin().await;
    let ticket = outbox.enqueue_all(&mut tx, &messages).await.unwrap();
    outbox.commit(tx, ticket).await.unwrap();
}

/// Each key's first sendings are in their order.
fn assert_order(sink: &Sink) {
    let mut newest: HashMap<u32, u32> = HashMap::new();
    let mut seen = std::collections::HashSet::new();
    for order in sink.orders() {
        if seen.insert(order) {
            let before = newest.insert(order / OF_A_KEY, order);
            assert!(before.is_none_or(|before| before < order), "{order} was first sent after {before:?}");
        }
    }
}

#[tokio::test]
async fn messages_of_a_key_are_sent_in_the_order_of_their_commits() {
    let place = Place::new().await;
    let (outbox, sink) = (ordered(&place).await, Sink::new());
    let relay = relay(&outbox, &sink, quick());
    place.run("CREATE TABLE log (id int PRIMARY KEY, at bigserial)").await;
    // Several writers for each key at once.
    let next: Arc<Vec<AtomicU32>> = Arc::new((0..5).map(|key| AtomicU32::new(key * OF_A_KEY)).collect());
    let place = Arc::new(place);
    let writers = (0..4).map(|_| {
        let (place, next) = (place.clone(), next.clone());
        tokio::spawn(async move {
            let outbox = ordered(&place).await;
            for round in 0..20 {
                let order = next[round % next.len()].fetch_add(1, Ordering::Relaxed);
                let mut tx = place.begin().await;
                let ticket = outbox.enqueue_all(&mut tx, &[keyed(&outbox, order)]).await.unwrap();
                // Whoever comes later to the same key waits by now, so this is the order of commits.
                sqlx::query("INSERT INTO log VALUES ($1)").bind(order as i32).execute(&mut *tx).await.unwrap();
                tokio::task::yield_now().await;
                outbox.commit(tx, ticket).await.unwrap();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    sink.until(|sink| sink.distinct().len() == 80).await;
    relay.stop().await.unwrap();
    assert_eq!(sink.taken().len(), 80, "each once");
    let mut tx = place.begin().await;
    let log = sqlx::query("SELECT id FROM log ORDER BY at").fetch_all(&mut *tx).await.unwrap();
    let committed: Vec<u32> = log.iter().map(|row| row.get::<i32, _>(0) as u32).collect();
    for key in 0..5 {
        let of_key =
            |orders: Vec<u32>| orders.into_iter().filter(|order| order / OF_A_KEY == key).collect::<Vec<u32>>();
        assert_eq!(of_key(sink.orders()), of_key(committed.clone()));
    }
}

#[tokio::test]
async fn a_message_that_waits_holds_up_its_key_and_no_other() {
    let place = Place::new().await;
    let stuck = Arc::new(AtomicBool::new(true));
    let is_stuck = stuck.clone();
    let fate = move |order| match order {
        5 if is_stuck.load(Ordering::Relaxed) => Fate::Refused,
        1003 => Fate::Impossible,
        _ => Fate::Taken,
    };
    let (outbox, sink) = (ordered(&place).await, Sink::with(fate));
    store(&place, &outbox, &Vec::from_iter((0..10).chain(1000..1010).chain(2000..2010))).await;
    let relay = relay(&outbox, &sink, quick().attempts_max(1_000_000));
    sink.until(|sink| sink.distinct().len() == 5 + 3 + 10).await;
    sink.until(|sink| sink.asked() > 30).await;
    assert_eq!(sink.distinct(), Vec::from_iter((0..5).chain(1000..1003).chain(2000..2010)));
    stuck.store(false, Ordering::Relaxed);
    sink.until(|sink| sink.distinct().len() == 10 + 3 + 10).await;
    // A person decides: it is not sent any more.
    place.until("SELECT count(*) FROM o_outbox WHERE status = 2", 1).await;
    place.run("UPDATE o_outbox SET status = 3, ended_at = 0 WHERE status = 2").await;
    sink.until(|sink| sink.distinct().len() == 29).await;
    relay.stop().await.unwrap();
    assert_order(&sink);
}

#[tokio::test]
async fn relays_share_the_keys_and_take_over_from_one_that_dies() {
    let place = Place::new().await;
    let (sink, writer) = (Sink::new(), ordered(&place).await);
    let outboxes = [ordered(&place).await, ordered(&place).await, ordered(&place).await];
    let [first, second, third] = outboxes.each_ref().map(|outbox| relay(outbox, &sink, quick()));
    let fair = "SELECT count(*) FROM (SELECT owner FROM o_outbox_partition GROUP BY owner HAVING owner IS NOT NULL
                AND count(*) BETWEEN 3000 AND 3400) AS fair";
    place.until(fair, 3).await;
    for round in 0..10 {
        store(&place, &writer, &Vec::from_iter((0..40).map(|key| key * OF_A_KEY + round))).await;
    }
    sink.until(|sink| sink.distinct().len() == 400).await;
    assert!([&first, &second, &third].iter().all(|relay| relay.counts().sent > 0), "all three have sent");
    // One dies, another one stops: what was theirs is the third one's.
    drop(first);
    second.stop().await.unwrap();
    for round in 10..20 {
        store(&place, &writer, &Vec::from_iter((0..40).map(|key| key * OF_A_KEY + round))).await;
    }
    sink.until(|sink| sink.distinct().len() == 800).await;
    third.stop().await.unwrap();
    assert_order(&sink);
    assert_eq!(place.number("SELECT count(*) FROM o_outbox_partition WHERE owner IS NOT NULL").await, 0);
}

#[tokio::test]
async fn a_table_keeps_order_for_all_or_for_nobody() {
    let place = Place::new().await;
    ordered(&place).await;
    let options = PostgresOutbox::options().open_database(place.schema.options().table_prefix("o_"));
    let error = options.await.unwrap_err();
    assert!(error.to_string().contains("keeps order"), "{error}");
    let options = PostgresOutbox::options().ordered(true).open_database(place.schema.options());
    let error = options.await.unwrap_err();
    assert!(error.to_string().contains("does not keep order"), "{error}");
}

#[tokio::test]
async fn what_is_committed_is_sent_at_once_in_order_too() {
    let place = Place::new().await;
    let (outbox, sink) = (ordered(&place).await, Sink::new());
    let relay = relay(&outbox, &sink, patient());
    // The first looks of a relay find out what is its.
    place.until("SELECT count(*) FROM o_outbox_partition WHERE owner IS NOT NULL", 10_000).await;
    for order in 0..20 {
        store(&place, &outbox, &[order]).await;
        sink.until_all(0..order + 1).await;
    }
    relay.stop().await.unwrap();
}

#[tokio::test]
async fn a_relay_that_was_forgotten_begins_anew() {
    let place = Place::new().await;
    let (outbox, sink) = (ordered(&place).await, Sink::new());
    let relay = relay(&outbox, &sink, quick());
    place.until("SELECT count(*) FROM o_outbox_partition WHERE owner IS NOT NULL", 10_000).await;
    let before = place.number("SELECT max(id) FROM o_outbox_relay").await;
    place.run("DELETE FROM o_outbox_relay").await; // As others do with one that was not heard of.
    store(&place, &outbox, &[0, 1, 2]).await;
    sink.until_all(0..3).await;
    assert_ne!(place.number("SELECT max(id) FROM o_outbox_relay").await, before);
    relay.stop().await.unwrap();
}
