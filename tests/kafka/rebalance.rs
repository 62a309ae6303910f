//! Several processes of one endpoint, which come and go.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use hapax::ports::{Connected, Delivery, Settled, Settlement, Transport};
use rdkafka::producer::{BaseRecord, Producer};

use super::rig::*;

/// What is settled is committed before its partition is another's: none of it comes again.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_settled_does_not_come_again_to_whoever_comes_later() {
    const MESSAGES: usize = 40;
    let (queue, here) = (open().await, endpoint());
    let first = queue.connect(&here, &[]).await.unwrap();
    let sent: Vec<_> = (0..MESSAGES).map(|number| to(&here, envelope(&number.to_string()))).collect();
    send(&queue, &sent).await;
    let mut done = HashSet::new();
    while done.len() < MESSAGES / 2 {
        let delivery = next(&first).await;
        ack(&first, &delivery).await;
        done.insert(body(&delivery));
    }
    let second = open().await.connect(&here, &[]).await.unwrap();
    let deadline = Instant::now() + PATIENCE;
    let mut by_second = 0;
    while done.len() < MESSAGES {
        assert!(Instant::now() < deadline, "{} came", done.len());
        for (ends, is_second) in [(&first, false), (&second, true)] {
            let Ok(given) = tokio::time::timeout(Duration::from_millis(100), ends.receiver.receive(1)).await else {
                continue;
            };
            for delivery in given.unwrap() {
                let settled = ends.receiver.settle(&delivery.receipt, Settlement::Ack).await;
                if matches!(settled, Ok(Settled::Done)) {
                    assert!(done.insert(body(&delivery)), "what was settled comes again");
                    by_second += usize::from(is_second);
                }
            }
        }
    }
    // Both have partitions, by now or before long.
    while by_second == 0 {
        assert!(Instant::now() < deadline, "the second has no partition");
        send(&queue, &[to(&here, envelope("more"))]).await;
        for (ends, is_second) in [(&first, false), (&second, true)] {
            if let Ok(Ok(given)) = tokio::time::timeout(Duration::from_millis(200), ends.receiver.receive(5)).await {
                for delivery in given {
                    drop(ends.receiver.settle(&delivery.receipt, Settlement::Ack).await);
                    by_second += usize::from(is_second);
                }
            }
        }
    }
}

/// A session is long here: nobody waits for its end.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_stops_has_its_messages_given_to_others_at_once_and_counted_right() {
    // In order, so that what is put off comes before what is behind it.
    let long = options().ordered_keys(true).session(SESSION * 15);
    let (queue, here) = (long.open(url()).await.unwrap(), endpoint());
    let first = queue.connect(&here, &[]).await.unwrap();
    send(&queue, &[to(&here, keyed("a", "held")), to(&here, keyed("a", "never given"))]).await;
    let held = next(&first).await;
    settle(&first, &held, Settlement::Retry { delay: Duration::ZERO, counts: false }).await;
    let held = next(&first).await;
    assert_eq!((body(&held).as_str(), held.attempts), ("held", 1), "a retry that does not count was counted");
    let begun = Instant::now();
    drop(first);
    let second = queue.connect(&here, &[]).await.unwrap();
    let (one, two) = (next(&second).await, next(&second).await);
    assert_eq!((body(&one).as_str(), one.attempts), ("held", 2));
    assert_eq!((body(&two).as_str(), two.attempts), ("never given", 1));
    // Brokers hold those who join for some time of their own, but not for a session.
    assert!(begun.elapsed() < SESSION * 14, "after {:?}", begun.elapsed());
    ack(&second, &one).await;
    ack(&second, &two).await;
    drop(second);
    let group = format!("{PREFIX}.{here}");
    let topic = format!("{PREFIX}.queue.{here}");
    let at = move || (0..4).filter_map(|partition| committed(&group, &topic, partition)).sum::<i64>();
    assert_eq!(tokio::task::spawn_blocking(at).await.unwrap(), 2);
}

/// It does not know that its partitions are another's, and notes what it believes.
#[tokio::test(flavor = "multi_thread")]
async fn what_one_notes_that_stood_still_lowers_no_count() {
    let (queue, here) = (options().partitions(1).open(url()).await.unwrap(), endpoint());
    let notes = format!("{PREFIX}.notes.{here}");
    let given = async || {
        let notes = notes.clone();
        let mut all = tokio::task::spawn_blocking(move || records(&notes, 0)).await.unwrap();
        all.retain(|(key, _, _)| key.starts_with(b"given "));
        all.pop()
    };
    let ends = queue.connect(&here, &[]).await.unwrap();
    send(&queue, &[to(&here, envelope("held"))]).await;
    assert_eq!(next(&ends).await.attempts, 1);
    drop(ends);
    let (key, _, body) = given().await.unwrap();
    for attempts in 2..4 {
        let ends = queue.connect(&here, &[]).await.unwrap();
        assert_eq!(next(&ends).await.attempts, attempts);
    }
    let topic = notes.clone();
    let noted = move || {
        let producer = producer();
        producer.send(BaseRecord::to(&topic).partition(0).key(&key).payload(&body)).map_err(|(e, _)| e).unwrap();
        producer.flush(PATIENCE).unwrap();
    };
    tokio::task::spawn_blocking(noted).await.unwrap();
    let ends = queue.connect(&here, &[]).await.unwrap();
    assert_eq!(next(&ends).await.attempts, 4);
}

/// As many are given and not settled as the first may have, so that its partitions are held back when they are dealt anew.
#[tokio::test(flavor = "multi_thread")]
async fn partitions_that_are_held_back_go_on_with_whoever_has_them_next() {
    const MESSAGES: usize = 20;
    let (queue, here) = (options().prefetch(2).open(url()).await.unwrap(), endpoint());
    let first = queue.connect(&here, &[]).await.unwrap();
    let sent: Vec<_> = (0..MESSAGES).map(|number| to(&here, envelope(&number.to_string()))).collect();
    send(&queue, &sent).await;
    let held = [next(&first).await, next(&first).await];
    // Long enough for all of its partitions to be held back.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let second = queue.connect(&here, &[]).await.unwrap();
    let (mut done, deadline) = (HashSet::new(), Instant::now() + PATIENCE);
    while done.len() < MESSAGES {
        assert!(Instant::now() < deadline, "{} of {MESSAGES} came", done.len());
        for ends in [&first, &second] {
            let Ok(given) = tokio::time::timeout(Duration::from_millis(100), ends.receiver.receive(1)).await else {
                continue;
            };
            for delivery in given.unwrap() {
                if let Ok(Settled::Done) = ends.receiver.settle(&delivery.receipt, Settlement::Ack).await {
                    done.insert(body(&delivery));
                }
            }
        }
    }
    for delivery in &held {
        let late = first.receiver.settle(&delivery.receipt, Settlement::Ack).await;
        assert!(matches!(late, Ok(Settled::LeaseLost)), "{late:?}");
    }
}

/// The first that is given something, within that time.
async fn asked<'a>(all: &[&'a Connected], within: Duration) -> Option<(&'a Connected, Delivery)> {
    let end = Instant::now() + within;
    while Instant::now() < end {
        for ends in all {
            if let Ok(given) = tokio::time::timeout(Duration::from_millis(100), ends.receiver.receive(1)).await {
                return given.unwrap().pop().map(|delivery| (*ends, delivery));
            }
        }
    }
    None
}

/// Its lease is the session, which a process keeps up that has nothing to settle; else another would be given the only partition.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_for_longer_than_a_session_stays_its_own_while_its_process_lives() {
    let (queue, here) = (options().partitions(1).open(url()).await.unwrap(), endpoint());
    let (first, second) = (queue.connect(&here, &[]).await.unwrap(), queue.connect(&here, &[]).await.unwrap());
    let both = [&first, &second];
    send(&queue, &[to(&here, envelope("held"))]).await;
    let stays = async {
        let mut held = asked(&both, PATIENCE).await.expect("nothing came");
        // While the group is formed, which is soon over, it is given again.
        while let Some(again) = asked(&both, SESSION * 3).await {
            held = again;
        }
        held
    };
    let (its, held) = tokio::time::timeout(PATIENCE, stays).await.expect("it is given again and again");
    ack(its, &held).await;
    send(&queue, &[to(&here, envelope("next"))]).await;
    let (_, next) = asked(&both, PATIENCE).await.expect("nothing more came");
    assert_eq!((body(&next).as_str(), next.attempts), ("next", 1), "what was held was another's");
}

/// Settled with what was given before, nothing is changed.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_given_before_a_partition_was_handed_over_cannot_be_settled() {
    let (queue, here) = (options().partitions(1).open(url()).await.unwrap(), endpoint());
    let first = queue.connect(&here, &[]).await.unwrap();
    send(&queue, &[to(&here, envelope("held")), to(&here, envelope("put off"))]).await;
    let (held, put_off) = (next(&first).await, next(&first).await);
    let second = queue.connect(&here, &[]).await.unwrap();
    // As it joins, all partitions are dealt anew; one of the two has them again.
    let again = async {
        let mut again = Vec::new();
        while again.len() < 2 {
            for ends in [&second, &first] {
                let given = tokio::time::timeout(Duration::from_millis(300), ends.receiver.receive(2)).await;
                again.extend(given.into_iter().flat_map(|given| given.unwrap()).map(|delivery| (ends, delivery)));
            }
        }
        again
    };
    let again = tokio::time::timeout(PATIENCE, again).await.expect("they do not come again");
    let came: Vec<_> = again.iter().map(|(_, again)| (body(again), again.attempts)).collect();
    assert_eq!(came, [("held".into(), 2), ("put off".into(), 2)]);
    let retry = Settlement::Retry { delay: Duration::ZERO, counts: true };
    for (late, settlement) in [(&held, Settlement::Ack), (&put_off, retry)] {
        let late = first.receiver.settle(&late.receipt, settlement).await;
        assert!(matches!(late, Ok(Settled::LeaseLost)), "{late:?}");
    }
    for (ends, again) in &again {
        ack(ends, again).await;
    }
}
