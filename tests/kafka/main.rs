//! Queues on Kafka: the promises of every transport, and what is Kafka's own.

mod away;
mod begin;
mod commits;
mod cut;
mod endpoints;
mod evidence;
mod foreign;
mod led;
mod proxy;
#[allow(dead_code, reason = "shared with the tests of transactions")]
mod raw;
mod rebalance;
mod refused;
mod rig;
mod sasl;
mod scheduled;
mod sent;
#[path = "server.rs"]
mod server_kfake;
mod stalls;
mod tls;
mod tools;
mod volume;
mod wire;

use std::sync::Arc;

use hapax::{
    Endpoint, Sender, Sqlite,
    envelope::Envelope,
    ports::{DeadLetter, DeadLetters, Delays, Dispatcher, Page, Settlement, Transport},
};
use hapax_tests::{LogLines, Scratch, is_discreet};
use rig::*;

mod conformance {
    use super::Queues;

    mod unordered {
        hapax_core::transport_suite!(
            super::Queues { ordered: false },
            unclaimed: ["in_order", "given_in_order", "late_settles_are_refused", "not_early"]
        );
    }

    mod in_order {
        hapax_core::transport_suite!(
            super::Queues { ordered: true },
            unclaimed: ["late_settles_are_refused", "not_early"]
        );
    }

    mod survey {
        hapax_core::queue_survey_suite!(super::Queues { ordered: false });
    }

    mod dead_letters {
        hapax_core::dead_letters_suite!(super::Queues { ordered: false });
    }
}

/// A broker that does not know a topic says so of one that others have made, too: what is published is kept, whoever reads it.
#[tokio::test]
async fn what_is_published_is_kept_though_nobody_has_subscribed_yet() {
    let (queue, unheard) = (open().await, topic());
    send(&queue, &[event(&unheard, "nobody's")]).await;
    let name = format!("{PREFIX}.topic.{unheard}");
    let kept: usize =
        tokio::task::spawn_blocking(move || (0..4).map(|partition| records(&name, partition).len()).sum())
            .await
            .unwrap();
    assert_eq!(kept, 1);
}

#[tokio::test]
async fn its_capabilities_are_those_of_its_options() {
    let usual = hapax::Kafka::options().prefix(PREFIX).open(url()).await.unwrap().capabilities();
    assert!(usual.durable && usual.counts_deliveries && usual.offsets && usual.marks && !usual.ordered_keys);
    assert_eq!((usual.name, usual.lease, usual.delays), ("kafka", None, Delays::Never));
    assert_eq!(usual.message_bytes_max, 960 << 10);
    let week = std::time::Duration::from_secs(7 * 24 * 3600);
    let other = options().ordered_keys(true).message_bytes_max(1000).redelivery_max(4 * week).retention(week);
    let other = other.open(url()).await.unwrap().capabilities();
    assert!(other.ordered_keys);
    assert_eq!((other.message_bytes_max, other.redelivery_max), (1000, week), "no copy is kept for longer");
}

#[tokio::test]
async fn a_retry_holds_up_its_partition_only_where_order_is_kept() {
    for ordered in [false, true] {
        let queue = options().ordered_keys(ordered).open(url()).await.unwrap();
        let here = endpoint();
        let ends = queue.connect(&here, &[]).await.unwrap();
        send(&queue, &[to(&here, keyed("a", "first")), to(&here, keyed("a", "second"))]).await;
        let first = next(&ends).await;
        assert_eq!(body(&first), "first");
        let delay = std::time::Duration::from_millis(if ordered { 300 } else { 2000 });
        settle(&ends, &first, Settlement::Retry { delay, counts: true }).await;
        assert_eq!(body(&next(&ends).await), if ordered { "first" } else { "second" });
    }
}

/// By their hashes as Java's clients have them, which are those of `sent`, one key is in each of two partitions.
#[tokio::test]
async fn a_retry_holds_up_no_other_partition_where_order_is_kept() {
    const BEHIND: usize = 5;
    let (here, [held_up, other]) = (endpoint(), PARTED);
    let queue = options().partitions(2).ordered_keys(true).open(url()).await.unwrap();
    let ends = queue.connect(&here, &[]).await.unwrap();
    send(&queue, &[to(&here, keyed(held_up, "put off")), to(&here, keyed(held_up, "behind it"))]).await;
    let first = next(&ends).await;
    assert_eq!(body(&first), "put off");
    // Longer than anything here waits.
    settle(&ends, &first, Settlement::Retry { delay: PATIENCE * 10, counts: true }).await;
    for number in 0..BEHIND {
        send(&queue, &[to(&here, keyed(other, &number.to_string()))]).await;
        let given = next(&ends).await;
        assert_eq!(body(&given), number.to_string());
        ack(&ends, &given).await;
    }
    let more = tokio::time::timeout(SESSION, ends.receiver.receive(1)).await;
    assert!(more.is_err(), "it is behind one that is put off: {more:?}");
    let (group, topic) = (format!("{PREFIX}.{here}"), format!("{PREFIX}.queue.{here}"));
    let at = move || [0, 1].map(|partition| committed(&group, &topic, partition).unwrap_or(0));
    assert_eq!(tokio::task::spawn_blocking(at).await.unwrap(), [0, BEHIND as i64]);
}

/// Of many that are there already, in a single partition.
#[tokio::test]
async fn no_more_are_given_ahead_than_it_was_told() {
    const AHEAD: u16 = 3;
    let queue = options().partitions(1).prefetch(AHEAD).open(url()).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let sent: Vec<_> = (0..20).map(|number| to(&here, envelope(&number.to_string()))).collect();
    send(&queue, &sent).await;
    let mut given = std::collections::VecDeque::new();
    for _ in 0..AHEAD {
        given.push_back(next(&ends).await);
    }
    let more = std::time::Duration::from_secs(1);
    for delivery in sent.iter().take(5) {
        let ahead = tokio::time::timeout(more, ends.receiver.receive(1)).await;
        assert!(ahead.is_err(), "more than {AHEAD} are given and not settled: {ahead:?}");
        let first = given.pop_front().unwrap();
        assert_eq!(first.envelope.message_id, delivery.envelope.message_id);
        ack(&ends, &first).await;
        given.push_back(next(&ends).await);
    }
}

/// More than are taken between two looks at what is settled.
#[tokio::test]
async fn of_many_that_are_there_at_once_each_is_given() {
    const MANY: usize = 2000;
    let (queue, here) = (options().partitions(1).prefetch(4000).open(url()).await.unwrap(), endpoint());
    let ends = queue.connect(&here, &[]).await.unwrap();
    let sent: Vec<_> = (0..MANY).map(|number| to(&here, envelope(&number.to_string()))).collect();
    send(&queue, &sent).await;
    let mut given = std::collections::BTreeSet::new();
    let all = async {
        while given.len() < MANY {
            for delivery in ends.receiver.receive(MANY).await.unwrap() {
                given.insert(body(&delivery).parse::<usize>().unwrap());
            }
        }
    };
    let all = tokio::time::timeout(PATIENCE, all).await;
    let lost: Vec<usize> = (0..MANY).filter(|number| !given.contains(number)).collect();
    assert!(all.is_ok(), "not given: {lost:?}");
}

#[tokio::test]
async fn what_does_not_fit_is_refused_before_it_is_saved_and_what_fits_may_be_set_aside() {
    let (queue, here) = (open().await, endpoint());
    let ends = queue.connect(&here, &[]).await.unwrap();
    let mut wordy = envelope("wordy");
    for number in 0..40 {
        wordy.headers.set(&format!("header-{number}"), &" ".repeat(4000)).unwrap();
    }
    let wordy = Envelope { body: vec![b'x'; 900 << 10].into(), ..wordy };
    let refused = queue.check(&to(&here, wordy)).unwrap_err();
    assert!(refused.0.contains("bytes"), "{refused}");
    let largest = to(&here, Envelope { body: vec![b'x'; (960 << 10) - 512].into(), ..envelope("") });
    queue.check(&largest).unwrap();
    send(&queue, std::slice::from_ref(&largest)).await;
    let came = next(&ends).await;
    settle(&ends, &came, Settlement::DeadLetter { reason: "ü".repeat(20_000) }).await;
    let letters = queue.list(&here, &Page::first(1)).await.unwrap();
    assert!(letters[0].envelope == largest.envelope && letters[0].reason.starts_with("üü"));
}

/// With one behind it that was there all the time, so that the log is read from before it was taken.
#[tokio::test]
async fn a_letter_that_was_put_again_after_it_was_taken_is_listed_as_it_is_now() {
    let (queue, here) = (open().await, endpoint());
    let letter = |body: &str, reason: &str| DeadLetter {
        envelope: envelope(body).into(),
        endpoint: here.clone(),
        saga: None,
        destination: None,
        reason: reason.to_owned(),
        attempts: 1,
        time: hapax::time::Timestamp::from_millis(1),
    };
    let (other, before) = (letter("another", "stays"), letter("the letter", "before"));
    let now = DeadLetter { reason: "now".to_owned(), ..before.clone() };
    queue.add(&other).await.unwrap();
    queue.add(&before).await.unwrap();
    assert_eq!(queue.discard(std::slice::from_ref(&before)).await.unwrap(), 1);
    queue.add(&now).await.unwrap();
    let listed = queue.list(&here, &Page::first(10)).await.unwrap();
    let reasons: Vec<&str> = listed.iter().map(|letter| letter.reason.as_str()).collect();
    assert_eq!(reasons, ["stays", "now"]);
}

#[tokio::test]
async fn what_is_no_longer_subscribed_does_not_come() {
    // One partition, so that whatever comes comes in order.
    let (queue, here, topic) = (options().partitions(1).open(url()).await.unwrap(), endpoint(), topic());
    let ends = queue.connect(&here, std::slice::from_ref(&topic)).await.unwrap();
    send(&queue, &[event(&topic, "first")]).await;
    ack(&ends, &next(&ends).await).await;
    drop(ends);
    queue.unsubscribe(&here, std::slice::from_ref(&topic)).await.unwrap();
    queue.unsubscribe(&here, std::slice::from_ref(&topic)).await.unwrap();
    send(&queue, &[event(&topic, "unsubscribed")]).await;
    let ends = queue.connect(&here, std::slice::from_ref(&topic)).await.unwrap();
    send(&queue, &[event(&topic, "subscribed again")]).await;
    assert_eq!(body(&next(&ends).await), "subscribed again");
}

#[tokio::test]
async fn a_program_that_had_a_prefix_to_itself_removes_all_of_it() {
    let prefix = unique("gone");
    let queue = options().prefix(&prefix).open(url()).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[message_type()]).await.unwrap();
    send(&queue, &[to(&here, envelope("left"))]).await;
    assert_eq!(queue.backlog(&here).await.unwrap(), 1);
    drop(ends);
    for _ in 0..2 {
        queue.remove(std::slice::from_ref(&here)).await.unwrap();
    }
    assert!(queue.backlog(&here).await.unwrap_err().to_string().contains("start its endpoint"));
}

#[tokio::test]
async fn nobody_logs_what_is_in_a_message() {
    let logged = LogLines::everywhere();
    let (queue, here, scratch) = (open().await, endpoint(), Scratch::new("discreet"));
    let store = Sqlite::open(scratch.file("vault.db")).await.unwrap();
    let vault = Endpoint::builder(here.as_str()).entities(store.clone()).dedup(store.clone()).schedule(store);
    let vault = vault.transport(queue.clone());
    is_discreet(&logged, (&here, vault), Sender::new(Arc::new(queue.clone())), &queue, None).await;
}
