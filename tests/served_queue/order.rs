//! The order of partition keys, where it is asked for.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use super::{common::*, rig::*};
use hapax::{
    envelope::{Envelope, Outgoing},
    ports::{Settled, Settlement},
    time::Timestamp,
};
use hapax_tests::LogLines;

/// Goal: it is heard of, once, that somebody sends who has not asked for order. Method: messages with and without keys of one who has, and of
/// one who has not.
#[tokio::test]
async fn a_key_without_a_place_in_the_order_is_warned_of_once() {
    let (tables, lines) = (Tables::new(), LogLines::here());
    let (keeps, forgets) = (ordered(&tables).await, open(&tables).await);
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
        assert_eq!(lines.with("has no place in the order").len(), warnings, "{sent:?}");
    }
}

#[tokio::test]
async fn a_message_waits_until_the_earlier_ones_of_its_key_are_settled_anywhere() {
    let tables = Tables::new();
    let (here, there) = (ordered(&tables).await, ordered(&tables).await);
    let (first, second) = (shop(&here).await, shop(&there).await);
    send(&here, &[keyed("k", "k1"), keyed("k", "k2"), keyed("k", "k3"), keyed("j", "j1"), keyed("j", "j2")]).await;
    let k1 = next(&first).await;
    assert_eq!(body(&k1), "k1");
    // The other gets the other key: k2 and k3 wait for k1.
    let of_j = receive(&second, 10).await;
    assert_eq!(bodies(&of_j), ["j1", "j2"]);
    expect_nothing(&there, &second).await;
    for delivery in &of_j {
        ack(&second, delivery).await;
    }

    // A retry is not a settlement that lets others pass, however long it rests.
    assert_eq!(settle(&first, &k1, retry(Duration::from_secs(1800))).await, Settled::Done);
    expect_nothing(&there, &second).await;
    an_hour_passes(&tables).await;
    for expected in ["k1", "k2", "k3"] {
        let delivery = next(&second).await;
        assert_eq!(body(&delivery), expected);
        ack(&second, &delivery).await;
    }
}

#[tokio::test]
async fn an_ack_lets_the_next_of_its_key_come_at_once() {
    let tables = Tables::new();
    let queue = tables.open_queue(options().ordered_keys(true).polls(NEVER, NEVER)).await;
    let ends = shop(&queue).await;
    let all: Vec<Outgoing> = (0..20).map(|number| keyed("k", &number.to_string())).collect();
    send(&queue, &all).await;
    for number in 0..20 {
        let delivery = next(&ends).await;
        assert_eq!(body(&delivery), number.to_string());
        expect_nothing(&queue, &ends).await; // With which the others of the key are passed.
        let settlement = if number % 2 == 0 { Settlement::Ack } else { dead("odd") };
        assert_eq!(settle(&ends, &delivery, settlement).await, Settled::Done);
    }
    assert_eq!(queue.backlog(&endpoint("shop")).await.unwrap(), 0);
    assert_eq!(number(&mut beside(&tables).await, "SELECT count(*) FROM hapax.queue_given").await, 0);
}

/// Nothing of a key can be given before what is under a lease is settled, and looking again and again does not change that.
#[tokio::test]
async fn new_messages_of_a_key_under_a_lease_are_not_looked_at_again_and_again() {
    let tables = Tables::new();
    let (here, there) = (ordered(&tables).await, ordered(&tables).await);
    let ends = shop(&here).await;
    send(&here, &[keyed("k", "k1")]).await;
    let k1 = next(&ends).await;
    let before = here.commits();
    for number in 0..3 {
        send(&there, &[keyed("k", &format!("late {number}"))]).await;
        let nothing = tokio::time::timeout(Duration::from_millis(400), ends.receiver.receive(1)).await;
        assert!(nothing.is_err(), "it was given beside an earlier one of its key");
    }
    // Told or found, and with each full look: a few.
    let takes = here.commits() - before;
    assert!((1..25).contains(&takes), "{takes} takes in 1.2 s for 3 messages that could not be given");
    // What others send of other keys comes all the same, and the next of this key with the ack.
    let other = [keyed("j", "j1")];
    let (j1, ()) = tokio::join!(next(&ends), send(&there, &other));
    assert_eq!(body(&j1), "j1");
    let (next, ()) = tokio::join!(next(&ends), ack(&ends, &k1));
    assert_eq!(body(&next), "late 0");
}

#[tokio::test]
async fn a_long_line_behind_one_key_does_not_stop_the_others() {
    let tables = Tables::new();
    let queue = ordered(&tables).await;
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
    let tables = Tables::new();
    let queue = ordered(&tables).await;
    let ends = shop(&queue).await;
    send(&queue, &[keyed("k", "k1"), keyed("k", "k2")]).await;
    let k1 = next(&ends).await;
    assert_eq!(settle(&ends, &k1, retry(Duration::ZERO)).await, Settled::Done);
    // It became available later than the second, though there is room for one only.
    assert_eq!(body(&next(&ends).await), "k1");
    expect_nothing(&queue, &ends).await;
}

#[tokio::test]
async fn a_message_that_is_not_due_holds_up_nobody_of_its_key() {
    let tables = Tables::new();
    let queue = ordered(&tables).await;
    let ends = shop(&queue).await;
    send(&queue, &[due_in("k", "timeout", Duration::from_secs(1800)), keyed("k", "k1"), keyed("k", "k2")]).await;
    for expected in ["k1", "k2"] {
        let delivery = next(&ends).await;
        assert_eq!(body(&delivery), expected);
        ack(&ends, &delivery).await;
    }
    an_hour_passes(&tables).await;
    assert_eq!(body(&next(&ends).await), "timeout");
}

/// One process at a time has a key, whichever of its messages was sent first.
#[tokio::test]
async fn a_message_that_becomes_due_waits_for_a_later_one_of_its_key_that_is_given() {
    let tables = Tables::new();
    let (here, there) = (ordered(&tables).await, ordered(&tables).await);
    let (ends, others) = (shop(&here).await, shop(&there).await);
    send(&here, &[due_in("k", "timeout", Duration::from_secs(1800)), keyed("k", "k1"), keyed("k", "k2")]).await;
    let k1 = next(&ends).await;
    assert_eq!(body(&k1), "k1");
    run(&mut beside(&tables).await, DUE_NOW).await;
    expect_nothing(&there, &others).await;
    let nothing = tokio::time::timeout(Duration::from_secs(1), others.receiver.receive(2)).await;
    assert!(nothing.is_err(), "it was given beside a later one of its key");
    ack(&ends, &k1).await;
    assert_eq!(bodies(&receive(&others, 2).await), ["timeout", "k2"]);
}

/// Somebody may be about to extend or settle what was under a lease that has run out.
#[tokio::test]
async fn a_message_before_which_one_is_locked_by_somebody_is_not_given_without_it() {
    let tables = Tables::new();
    let queue = ordered(&tables).await;
    let ends = shop(&queue).await;
    send(&queue, &[keyed("k", "k1"), keyed("k", "k2"), keyed("j", "j1")]).await;
    let mut lock = beside(&tables).await;
    run(&mut lock, "BEGIN; SELECT id FROM hapax.queue_message WHERE id = 1 FOR UPDATE").await;
    let j1 = receive(&ends, 10).await;
    assert_eq!(bodies(&j1), ["j1"]);
    expect_nothing(&queue, &ends).await;
    run(&mut lock, "ROLLBACK").await;
    assert_eq!(bodies(&receive(&ends, 10).await), ["k1", "k2"]);

    send(&queue, &[keyed("m", "m1"), keyed("m", "m2"), keyed("m", "m3")]).await;
    let second = format!("SELECT min(id) + 1 FROM hapax.queue_message WHERE {KEY} = 'm'");
    run(&mut lock, &format!("BEGIN; SELECT id FROM hapax.queue_message WHERE id = ({second}) FOR UPDATE")).await;
    let m1 = next_of(&receive(&ends, 10).await, "m1");
    run(&mut lock, "ROLLBACK").await;
    ack(&ends, &m1).await;
    assert_eq!(bodies(&receive(&ends, 10).await), ["m2", "m3"]);
}

/// The only one that was given.
fn next_of(given: &[hapax::ports::Delivery], expected: &str) -> hapax::ports::Delivery {
    assert_eq!(bodies(given), [expected]);
    given[0].clone()
}

fn due_in(key: &str, body: &str, delay: Duration) -> Outgoing {
    let mut outgoing = keyed(key, body);
    let due = Some(Timestamp::now().after(delay));
    outgoing.envelope = Envelope { due, ..(*outgoing.envelope).clone() }.into();
    outgoing
}

/// Who has messages of which key, and what was acknowledged of it.
#[derive(Default)]
struct Held {
    by: HashMap<String, (usize, usize)>,
    acked: HashMap<String, Vec<usize>>,
    left: usize,
}

/// Processes that race for a few keys, stumble and send late timeouts: at no moment two of them have messages of one key,
/// and those without a due time are acknowledged in the order in which they were sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_one_process_s_at_a_time_however_many_race_for_it() {
    const MESSAGES: usize = 240;
    const KEYS: usize = 2;
    let seed = fastrand::u64(..);
    let tables = Tables::new();
    let held = Arc::new(Mutex::new(Held { left: MESSAGES, ..Held::default() }));
    let mut racers = Vec::new();
    for racer in 0..3 {
        let options = looking().ordered_keys(true).writers(1);
        let ends = shop(&tables.open_queue(options).await).await;
        let (held, random) = (held.clone(), fastrand::Rng::with_seed(seed.wrapping_add(racer as u64)));
        racers.push(tokio::spawn(race(racer, ends, held, random)));
    }
    let sender = ordered(&tables).await;
    for number in 0..MESSAGES {
        let key = format!("key {}", number % KEYS);
        let soon = Duration::from_millis(5 + number as u64 % 30);
        let outgoing = if number % 3 == 0 { due_in(&key, "due", soon) } else { keyed(&key, &number.to_string()) };
        send(&sender, &[outgoing]).await;
    }
    for racer in racers {
        tokio::time::timeout(4 * PATIENCE, racer).await.expect("messages that never come").unwrap();
    }
    for (key, numbers) in &held.lock().unwrap().acked {
        assert!(numbers.is_sorted(), "seed {seed}: {key}: {numbers:?}");
    }
}

async fn race(racer: usize, ends: hapax::ports::Connected, held: Arc<Mutex<Held>>, mut random: fastrand::Rng) {
    while held.lock().unwrap().left > 0 {
        let max = random.usize(1..6);
        let Ok(given) = tokio::time::timeout(Duration::from_millis(100), ends.receiver.receive(max)).await else {
            continue;
        };
        let deliveries = given.unwrap();
        for delivery in &deliveries {
            let key = delivery.envelope.partition_key.as_ref().unwrap().to_string();
            let mut held = held.lock().unwrap();
            let by = held.by.entry(key.clone()).or_insert((racer, 0));
            assert!(by.1 == 0 || by.0 == racer, "{key} is given to {racer} while {} has it", by.0);
            *by = (racer, by.1 + 1);
        }
        let mut failed: Vec<String> = Vec::new();
        for delivery in &deliveries {
            let key = delivery.envelope.partition_key.as_ref().unwrap().to_string();
            // Behind one that failed nothing of its key may be acknowledged: it goes back too, as an endpoint does.
            let fails = failed.contains(&key) || random.u8(..8) == 0;
            {
                let mut held = held.lock().unwrap();
                held.by.get_mut(&key).unwrap().1 -= 1;
                if !fails {
                    held.left -= 1;
                    if let Ok(number) = body(delivery).parse() {
                        held.acked.entry(key.clone()).or_default().push(number);
                    }
                }
            }
            let settlement = match fails {
                true => retry(Duration::from_millis(random.u64(0..3))),
                false => Settlement::Ack,
            };
            assert_eq!(settle(&ends, delivery, settlement).await, Settled::Done);
            if fails {
                failed.push(key);
            }
        }
    }
}
