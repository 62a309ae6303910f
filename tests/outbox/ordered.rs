//! Messages of one key, in the order of their commits.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use hapax::{envelope::Outgoing, ports::Page};

use super::{
    rig::{FAIR, LOG, OWNED, Outbox, Place, SHARES},
    sink::{Fate, Placed, Sink, patient, quick, relay},
};

/// Numbers of this many belong to one key each.
const OF_A_KEY: u32 = 1000;

fn keyed(outbox: &Outbox, order: u32) -> Outgoing {
    let Outgoing { destination, envelope } = outbox.outgoing(&Placed { order }).unwrap();
    let mut envelope = (*envelope).clone();
    envelope.partition_key = Some(format!("key-{}", order / OF_A_KEY).parse().unwrap());
    Outgoing { destination, envelope: Arc::new(envelope) }
}

async fn store(place: &Place, outbox: &Outbox, orders: &[u32]) {
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
    let place = Place::ordered().await;
    let (outbox, sink) = (place.outbox().await, Sink::new());
    let relay = relay(&outbox, &sink, quick());
    place.run(LOG).await;
    // Several writers for each key at once.
    let next: Arc<Vec<AtomicU32>> = Arc::new((0..5).map(|key| AtomicU32::new(key * OF_A_KEY)).collect());
    let place = Arc::new(place);
    let writers = (0..4).map(|_| {
        let (place, next) = (place.clone(), next.clone());
        tokio::spawn(async move {
            let outbox = place.outbox().await;
            for round in 0..20 {
                let order = next[round % next.len()].fetch_add(1, Ordering::Relaxed);
                let mut tx = place.begin().await;
                let ticket = outbox.enqueue_all(&mut tx, &[keyed(&outbox, order)]).await.unwrap();
                // Whoever comes later to the same key waits by now, so this is the order of commits.
                place.within(&mut tx, &format!("INSERT INTO hapax.log (id) VALUES ({order})")).await;
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
    let mut committed = Vec::new();
    for at in 0..80 {
        committed.push(place.number(&format!("SELECT id FROM hapax.log ORDER BY at LIMIT 1 OFFSET {at}")).await as u32);
    }
    for key in 0..5 {
        let of_key =
            |orders: Vec<u32>| orders.into_iter().filter(|order| order / OF_A_KEY == key).collect::<Vec<u32>>();
        assert_eq!(of_key(sink.orders()), of_key(committed.clone()));
    }
}

#[tokio::test]
async fn a_message_that_waits_holds_up_its_key_and_no_other() {
    let place = Place::ordered().await;
    let stuck = Arc::new(AtomicBool::new(true));
    let is_stuck = stuck.clone();
    let fate = move |order| match order {
        5 if is_stuck.load(Ordering::Relaxed) => Fate::Refused,
        1003 => Fate::Impossible,
        _ => Fate::Taken,
    };
    let (outbox, sink) = (place.outbox().await, Sink::with(fate));
    store(&place, &outbox, &Vec::from_iter((0..10).chain(1000..1010).chain(2000..2010))).await;
    let relay = relay(&outbox, &sink, quick().attempts_max(1_000_000));
    sink.until(|sink| sink.distinct().len() == 5 + 3 + 10).await;
    sink.until(|sink| sink.asked() > 30).await;
    assert_eq!(sink.distinct(), Vec::from_iter((0..5).chain(1000..1003).chain(2000..2010)));
    stuck.store(false, Ordering::Relaxed);
    sink.until(|sink| sink.distinct().len() == 10 + 3 + 10).await;
    // A person decides: it is not sent any more.
    place.until("SELECT count(*) FROM hapax.outbox WHERE status = 2", 1).await;
    let failed = outbox.failed(&Page::first(10)).await.unwrap();
    assert_eq!(outbox.discard(&[failed[0].message_id.clone()]).await.unwrap(), 1);
    sink.until(|sink| sink.distinct().len() == 29).await;
    relay.stop().await.unwrap();
    assert_order(&sink);
}

#[tokio::test]
async fn relays_share_the_keys_and_take_over_from_one_that_dies() {
    let place = Place::ordered().await;
    let (sink, writer) = (Sink::new(), place.outbox().await);
    let outboxes = [place.outbox().await, place.outbox().await, place.outbox().await];
    let [first, second, third] = outboxes.each_ref().map(|outbox| relay(outbox, &sink, quick()));
    place.until(FAIR, 3).await;
    for round in 0..10 {
        store(&place, &writer, &Vec::from_iter((0..40).map(|key| key * OF_A_KEY + round))).await;
    }
    sink.until(|sink| sink.distinct().len() == 400).await;
    assert!(!SHARES || [&first, &second, &third].iter().all(|relay| relay.counts().sent > 0), "all three have sent");
    // One dies, another one stops: what was theirs is the third one's.
    drop(first);
    second.stop().await.unwrap();
    for round in 10..20 {
        store(&place, &writer, &Vec::from_iter((0..40).map(|key| key * OF_A_KEY + round))).await;
    }
    sink.until(|sink| sink.distinct().len() == 800).await;
    third.stop().await.unwrap();
    assert_order(&sink);
    assert_eq!(place.number(OWNED).await, 0);
}

#[tokio::test]
async fn a_table_keeps_order_for_all_or_for_nobody() {
    for (place, says) in [(Place::ordered().await, "keeps order"), (Place::new().await, "does not keep order")] {
        let options = place.options().ordered_keys(says != "keeps order");
        let error = options.open_database(place.database()).await.unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[tokio::test]
async fn what_is_committed_is_sent_at_once_in_order_too() {
    let place = Place::ordered().await;
    let (outbox, sink) = (place.outbox().await, Sink::new());
    let relay = relay(&outbox, &sink, patient());
    // The first looks of a relay find out what is its.
    place.until(OWNED, 10_000).await;
    for order in 0..20 {
        store(&place, &outbox, &[order]).await;
        sink.until_all(0..order + 1).await;
    }
    relay.stop().await.unwrap();
}

#[tokio::test]
async fn a_relay_that_was_forgotten_begins_anew() {
    let place = Place::ordered().await;
    let (outbox, sink) = (place.outbox().await, Sink::new());
    let relay = relay(&outbox, &sink, quick());
    place.until(OWNED, 10_000).await;
    let before = place.number("SELECT max(id) FROM hapax.outbox_relay").await;
    place.run("DELETE FROM hapax.outbox_relay").await; // As others do with one that was not heard of.
    store(&place, &outbox, &[0, 1, 2]).await;
    sink.until_all(0..3).await;
    assert_ne!(place.number("SELECT max(id) FROM hapax.outbox_relay").await, before);
    relay.stop().await.unwrap();
}
