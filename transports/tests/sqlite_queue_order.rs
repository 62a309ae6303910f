//! The order of partition keys, where it is asked for.
#![allow(clippy::unwrap_used)]
#![cfg(feature = "sqlite")]

mod common;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use common::*;
use hapax_core::{
    envelope::{Envelope, Outgoing},
    ports::{Settled, Settlement},
    time::Timestamp,
};
use tracing::{
    Event, Level, Metadata, Subscriber,
    span::{Attributes, Id, Record},
};

/// Counts what is said of the order.
struct Ear(Arc<AtomicUsize>);

impl Subscriber for Ear {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN && metadata.target().ends_with("::sql::order")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Goal: it is heard of, once, that somebody sends who has not asked for order. Method: messages with and without keys of one who has, and of
/// one who has not.
#[tokio::test]
async fn a_key_without_a_place_in_the_order_is_warned_of_once() {
    let (place, said) = (Place::new(), Arc::<AtomicUsize>::default());
    let _ear = tracing::subscriber::set_default(Ear(said.clone()));
    let (keeps, forgets) = (place.open_ordered().await, place.open().await);
    let ends = shop(&keeps).await;
    for (queue, sent, warnings) in [
        (&keeps, vec![keyed("k", "placed"), to("shop", envelope("without a key"))], 0),
        (&forgets, vec![to("shop", envelope("without a key"))], 0),
        (&forgets, vec![keyed("k", "unplaced"), keyed("j", "unplaced")], 1),
    ] {
        send(queue, &sent).await;
        for _ in 0..sent.len() {
            ack(&ends, &next(&ends).await).await;
        }
        assert_eq!(said.load(Ordering::Relaxed), warnings, "{sent:?}");
    }
}

#[tokio::test]
async fn a_message_waits_until_the_earlier_ones_of_its_key_are_settled_anywhere() {
    let place = Place::new();
    let (here, there) = (place.open_ordered().await, place.open_ordered().await);
    let (first, second) = (shop(&here).await, shop(&there).await);
    send(&here, &[keyed("k", "k1"), keyed("k", "k2"), keyed("k", "k3"), keyed("j", "j1"), keyed("j", "j2")]).await;
    let k1 = next(&first).await;
    assert_eq!(body(&k1), "k1");
    // The other gets the other key: k2 and k3 wait for k1.
    assert_eq!(bodies(&receive(&second, 10).await), ["j1", "j2"]);
    expect_nothing(&there, &second).await;

    // A retry is not a settlement that lets others pass, however long it rests.
    assert_eq!(settle(&first, &k1, retry(Duration::from_secs(1800))).await, Settled::Done);
    expect_nothing(&there, &second).await;
    place.an_hour_passes().await;
    let again = receive(&second, 10).await;
    // The lease of the other key has run out by then, too.
    let of_k: Vec<String> = bodies(&again).into_iter().filter(|body| body.starts_with('k')).collect();
    assert_eq!(of_k, ["k1", "k2", "k3"]);
}

#[tokio::test]
async fn an_ack_lets_the_next_of_its_key_come_at_once() {
    let place = Place::new();
    let queue = place.open_ordered().await;
    let ends = shop(&queue).await;
    let all: Vec<Outgoing> = (0..20).map(|number| keyed("k", &number.to_string())).collect();
    send(&queue, &all).await;
    for number in 0..20 {
        let delivery = next(&ends).await;
        assert_eq!(body(&delivery), number.to_string());
        expect_nothing(&queue, &ends).await; // Which puts those that wait behind it.
        let settlement = if number % 2 == 0 { Settlement::Ack } else { dead("odd") };
        assert_eq!(settle(&ends, &delivery, settlement).await, Settled::Done);
    }
    assert_eq!(queue.backlog(&endpoint("shop")).await.unwrap(), 0);
}

#[tokio::test]
async fn a_long_line_behind_one_key_does_not_stop_the_others() {
    let place = Place::new();
    let queue = place.open_ordered().await;
    let ends = shop(&queue).await;
    let mut all: Vec<Outgoing> = (0..2500).map(|number| keyed("hot", &number.to_string())).collect();
    all.push(keyed("cold", "cold"));
    send(&queue, &all).await;
    let hot = next(&ends).await;
    assert_eq!(body(&hot), "0");
    let cold = next(&ends).await;
    assert_eq!(body(&cold), "cold");
    ack(&ends, &hot).await;
    assert_eq!(bodies(&receive(&ends, 3).await), ["1", "2", "3"]);
}

#[tokio::test]
async fn one_that_is_retried_and_ready_again_goes_before_those_that_were_ready_sooner() {
    let place = Place::new();
    let queue = place.open_ordered().await;
    let ends = shop(&queue).await;
    send(&queue, &[keyed("k", "k1"), keyed("k", "k2")]).await;
    let k1 = next(&ends).await;
    assert_eq!(settle(&ends, &k1, retry(Duration::ZERO)).await, Settled::Done);
    // It became available later than the second, which is the only candidate for a claim of one.
    place.run("UPDATE hapax_queue_message SET available_at = available_at - 1000 + 10 * (2 - id)").await;
    assert_eq!(body(&next(&ends).await), "k1");
    expect_nothing(&queue, &ends).await;
}

#[tokio::test]
async fn a_message_that_is_not_due_holds_up_nobody_of_its_key() {
    let place = Place::new();
    let queue = place.open_ordered().await;
    let ends = shop(&queue).await;
    let due = Timestamp::now().after(Duration::from_secs(1800));
    let mut timeout = keyed("k", "timeout");
    timeout.envelope = Envelope { due: Some(due), ..(*timeout.envelope).clone() }.into();
    send(&queue, &[timeout, keyed("k", "k1"), keyed("k", "k2")]).await;
    for expected in ["k1", "k2"] {
        let delivery = next(&ends).await;
        assert_eq!(body(&delivery), expected);
        ack(&ends, &delivery).await;
    }
    place.an_hour_passes().await;
    assert_eq!(body(&next(&ends).await), "timeout");
}

/// One process at a time has a key, whichever of its messages was sent first.
#[tokio::test]
async fn a_message_that_becomes_due_waits_for_a_later_one_of_its_key_that_is_given() {
    let place = Place::new();
    let (here, there) = (place.open_ordered().await, place.open_ordered().await);
    let (ends, others) = (shop(&here).await, shop(&there).await);
    let due = Timestamp::now().after(Duration::from_secs(1800));
    let mut timeout = keyed("k", "timeout");
    timeout.envelope = Envelope { due: Some(due), ..(*timeout.envelope).clone() }.into();
    send(&here, &[timeout, keyed("k", "k1"), keyed("k", "k2")]).await;
    let k1 = next(&ends).await;
    assert_eq!(body(&k1), "k1");
    place.run("UPDATE hapax_queue_message SET available_at = sent_at WHERE place = 0").await;
    expect_nothing(&there, &others).await;
    ack(&ends, &k1).await;
    assert_eq!(bodies(&receive(&others, 2).await), ["timeout", "k2"]);
}

#[tokio::test]
async fn order_holds_for_rival_receivers_that_stumble() {
    const MESSAGES: usize = 300;
    const KEYS: usize = 5;
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let place = Place::new();
    let (here, there) = (place.open_ordered().await, place.open_ordered().await);
    let ends = [shop(&here).await, shop(&there).await];
    let all: Vec<Outgoing> =
        (0..MESSAGES).map(|number| keyed(&format!("key {}", number % KEYS), &number.to_string())).collect();
    send(&here, &all).await;
    let mut acked: HashMap<String, Vec<usize>> = HashMap::new();
    let mut left = MESSAGES;
    while left > 0 {
        let ends = &ends[random.usize(..2)];
        let max = random.usize(1..20);
        let Ok(deliveries) = tokio::time::timeout(Duration::from_secs(5), ends.receiver.receive(max)).await else {
            panic!("seed {seed}: {left} messages never come");
        };
        let mut failed: Vec<String> = Vec::new();
        for delivery in deliveries.unwrap() {
            let key = delivery.envelope.partition_key.as_ref().unwrap().to_string();
            // Behind one that failed nothing of its key may be acknowledged: it goes back too, as an endpoint does.
            if failed.contains(&key) || random.u8(..10) == 0 {
                failed.push(key);
                settle(ends, &delivery, retry(Duration::from_millis(random.u64(0..3)))).await;
            } else {
                ack(ends, &delivery).await;
                acked.entry(key).or_default().push(body(&delivery).parse().unwrap());
                left -= 1;
            }
        }
    }
    for (key, numbers) in acked {
        assert!(numbers.is_sorted(), "seed {seed}: {key}: {numbers:?}");
    }
}
