//! What is sent, as it goes over the wire.

use std::{collections::BTreeSet, time::Duration};

use futures_util::future::join_all;
use hapax::ports::{DispatchError, Dispatcher, Transport};

use super::{proxy::Proxied, rig::*};

/// Read in the requests: all replicas are waited for, and who sends is known by a number and counts what it sends.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_sent_waits_for_all_replicas_and_is_numbered() {
    let (proxied, here) = (Proxied::start().await, endpoint());
    let queue = options().partitions(1).open(proxied.url()).await.unwrap();
    queue.connect(&here, &[]).await.unwrap();
    for name in ["1", "2", "3"] {
        send(&queue, &[to(&here, envelope(name))]).await;
    }
    let sent = proxied.produced(&format!("{PREFIX}.queue.{here}"));
    assert_eq!(sent.iter().map(|batch| batch.sequence).collect::<Vec<_>>(), [0, 1, 2], "{sent:?}");
    let (first, notes) = (&sent[0], proxied.produced(&format!("{PREFIX}.notes.{here}")));
    assert!(!notes.is_empty(), "what it notes is sent as well");
    for batch in sent.iter().chain(&notes) {
        assert_eq!((batch.acks, batch.producer, batch.epoch), (-1, first.producer, first.epoch));
        assert!(batch.producer >= 0 && batch.epoch >= 0, "{batch:?}");
    }
}

/// While the broker's answers are kept back. A client that numbers what it sends has five requests under way on a connection, each of one message
/// here; one of them may be a question.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_sent_does_not_wait_until_what_was_sent_before_is_confirmed() {
    const MESSAGES: usize = 20;
    const AT_ONCE: usize = 4;
    let (proxied, here) = (Proxied::start().await, endpoint());
    let queue = options().partitions(1).patience(PATIENCE).open(proxied.url()).await.unwrap();
    // Nobody receives: what is noted of what is given would be under way, too.
    drop(queue.connect(&here, &[]).await.unwrap());
    send(&queue, &[to(&here, envelope("before"))]).await;
    let topic = format!("{PREFIX}.queue.{here}");
    // What is tried again has the number that it had.
    let numbers = || proxied.produced(&topic).iter().map(|batch| batch.sequence).collect::<BTreeSet<_>>();
    // All in one call, and each in a call of its own.
    for of_a_call in [MESSAGES, 1] {
        let before = numbers().len();
        proxied.holds_answers(&topic);
        let sent: Vec<_> = (0..MESSAGES).map(|number| to(&here, envelope(&number.to_string()))).collect();
        let calls = sent.chunks(of_a_call).map(|call| {
            let (queue, call) = (queue.clone(), call.to_vec());
            tokio::spawn(async move { send(&queue, &call).await })
        });
        let calls: Vec<_> = calls.collect();
        let under_way = async {
            while numbers().len() < before + AT_ONCE {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let under_way = tokio::time::timeout(PATIENCE / 2, under_way).await;
        assert!(under_way.is_ok(), "{} at once, in calls of {of_a_call}", numbers().len() - before);
        assert!(!calls.iter().any(|call| call.is_finished()), "nobody has confirmed it");
        proxied.lets_answers_go();
        let ended = tokio::time::timeout(PATIENCE, join_all(calls)).await.expect("some is never confirmed");
        ended.into_iter().for_each(Result::unwrap);
    }
    let all = i32::try_from(1 + 2 * MESSAGES).unwrap();
    assert_eq!(numbers(), (0..all).collect::<BTreeSet<_>>());
}

/// The broker has it, and nobody knows. It is sent again under the number that it had, or its sender is told that it may be there.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_though_the_answer_is_lost_is_there_once_by_its_id() {
    let (proxied, here) = (Proxied::start().await, endpoint());
    let queue = options().partitions(1).patience(Duration::from_secs(10)).open(proxied.url()).await.unwrap();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let topic = format!("{PREFIX}.queue.{here}");
    send(&queue, &[to(&here, envelope("before"))]).await;
    ack(&ends, &next(&ends).await).await;
    proxied.loses_an_answer(&topic);
    let lost = to(&here, envelope("its answer is lost"));
    let sent = async {
        while let Some(Err(error)) = queue.dispatch(std::slice::from_ref(&lost)).await.pop() {
            let DispatchError::Transient(error) = &error else { panic!("{error:?}") };
            assert!(error.is_unknown_outcome(), "it may be there: {error:?}");
        }
    };
    tokio::time::timeout(PATIENCE, sent).await.expect("it is never confirmed");
    assert!(proxied.has_lost_it(), "no answer was lost");
    let tries = proxied.produced(&topic);
    let [_, first, again, ..] = &tries[..] else { panic!("it was not sent again: {tries:?}") };
    assert_eq!(again, first, "it is sent again as another message");
    send(&queue, &[to(&here, envelope("after"))]).await;
    let mut came = Vec::new();
    while came.last().is_none_or(|(_, body): &(_, String)| body != "after") {
        let delivery = next(&ends).await;
        ack(&ends, &delivery).await;
        came.push((delivery.envelope.message_id.clone(), body(&delivery)));
    }
    let ids: Vec<_> = came.iter().filter(|(_, body)| body == "its answer is lost").map(|(id, _)| id).collect();
    assert!(!ids.is_empty(), "it is lost: {came:?}");
    assert!(ids.iter().all(|id| **id == lost.envelope.message_id), "{came:?}");
}

/// As Java's clients hash a key: a `murmur2` of their own, without its sign, over the number of partitions. The hashes are those of the tests
/// of Kafka's own `Utils.murmur2`.
#[tokio::test(flavor = "multi_thread")]
async fn the_partition_of_a_key_is_that_of_clients_in_java() {
    const PARTITIONS: u16 = 7;
    let known: [(&str, i32); 6] = [
        ("21", -973_932_308),
        ("abc", 479_470_107),
        ("foobar", -790_332_482),
        ("a-little-bit-long-string", -985_981_536),
        ("a-little-bit-longer-string", -1_486_304_829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
    ];
    let here = endpoint();
    let queue = options().partitions(PARTITIONS).open(url()).await.unwrap();
    queue.connect(&here, &[]).await.unwrap();
    for (key, _) in known {
        send(&queue, &[to(&here, keyed(key, key))]).await;
    }
    let topic = format!("{PREFIX}.queue.{here}");
    let found = tokio::task::spawn_blocking(move || {
        let of =
            |partition: u16| records(&topic, partition.into()).into_iter().map(move |(key, _, _)| (key, partition));
        (0..PARTITIONS).flat_map(of).collect::<Vec<_>>()
    });
    let found = found.await.unwrap();
    for (key, hash) in known {
        let partition = u16::try_from((hash & 0x7fff_ffff) % i32::from(PARTITIONS)).unwrap();
        assert!(found.contains(&(key.as_bytes().to_vec(), partition)), "`{key}` is not in {partition}: {found:?}");
    }
}
