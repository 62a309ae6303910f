//! A broker that is killed, and keeps what it has confirmed: kfake, after which the module is called, so that its tests are left out where there is none.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use hapax::{
    Kafka,
    ids::EndpointName,
    ports::{Connected, DispatchError, Dispatcher, Settlement, Transport},
    transports::kafka::KafkaOptions,
};
use hapax_tests::KfakeServer;

use super::rig::*;

const MESSAGES: usize = 200;
/// Between two tries.
const REST: Duration = Duration::from_millis(20);

fn quick() -> KafkaOptions {
    options().patience(Duration::from_secs(5))
}

async fn send_until_sent(queue: &Kafka, here: &EndpointName, body: &str) {
    let message = [to(here, envelope(body))];
    let sent = async {
        loop {
            match queue.dispatch(&message).await.pop().unwrap() {
                Ok(()) => break,
                Err(e) => assert!(matches!(e, DispatchError::Transient(_)), "{e:?}"),
            }
            tokio::time::sleep(REST).await;
        }
    };
    tokio::time::timeout(PATIENCE, sent).await.expect("it cannot be sent");
}

/// Whatever comes until all of `expected` has, and nothing is left in the queue. What is settled while partitions are dealt anew comes again.
async fn drained(queue: &Kafka, here: &EndpointName, ends: &Connected, expected: &[String]) -> Vec<String> {
    let mut came: Vec<String> = Vec::new();
    let all = async {
        while !expected.iter().all(|body| came.contains(body)) || !queue.backlog(here).await.is_ok_and(|left| left == 0)
        {
            // The connection that was lost, a session that is over; or nothing more comes.
            let given = tokio::time::timeout(Duration::from_millis(500), ends.receiver.receive(50)).await;
            let Ok(Ok(given)) = given else {
                tokio::time::sleep(REST).await;
                continue;
            };
            for delivery in given {
                came.push(body(&delivery));
                drop(ends.receiver.settle(&delivery.receipt, Settlement::Ack).await);
            }
        }
    };
    let ended = tokio::time::timeout(PATIENCE, all).await;
    let missing: Vec<&String> = expected.iter().filter(|body| !came.contains(*body)).collect();
    assert!(ended.is_ok() && missing.is_empty(), "never came: {missing:?}, or is left in the queue");
    came
}

/// What was confirmed is there when a broker that was killed is back, whether it waited in its topic, was given and not settled, or was put off;
/// what was settled does not come again; and both ends go on by themselves.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_confirmed_outlives_a_broker_that_is_killed() {
    let Some(mut server) = KfakeServer::start().await else { return };
    let queue = quick().partitions(1).open(server.url()).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let mut expected: Vec<String> = (0..MESSAGES).map(|number| format!("m {number}")).collect();
    let outgoing: Vec<_> = expected.iter().map(|body| to(&here, envelope(body))).collect();
    send(&queue, &outgoing).await;
    // In a single partition they come as they were sent, and what is settled at its beginning is committed.
    let mut settled = Vec::new();
    for _ in 0..10 {
        let delivery = next(&ends).await;
        ack(&ends, &delivery).await;
        settled.push(body(&delivery));
    }
    expected.retain(|body| !settled.contains(body));
    let (held, put_off) = (next(&ends).await, next(&ends).await);
    settle(&ends, &put_off, Settlement::Retry { delay: Duration::from_millis(500), counts: true }).await;

    server.kill();
    let failed = queue.dispatch(&[to(&here, envelope("while it is away"))]).await.pop().unwrap();
    assert!(matches!(failed, Err(DispatchError::Transient(_))), "{failed:?}");
    server.restart().await;

    // Its lease is its session's, which the broker has forgotten.
    drop(ends.receiver.settle(&held.receipt, Settlement::Retry { delay: Duration::ZERO, counts: true }).await);
    send_until_sent(&queue, &here, "after it came back").await;
    expected.push("after it came back".to_owned());
    let mut came = drained(&queue, &here, &ends, &expected).await;
    // What failed may have been sent all the same, when that was not known yet.
    came.retain(|body| body != "while it is away");
    came.sort();
    came.dedup();
    expected.sort();
    assert_eq!(came, expected, "what was settled comes again");
}

/// Of those that are sent while the broker is killed, each that was confirmed comes. None has come before it is killed.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_under_way_when_the_broker_is_killed_is_confirmed_or_not() {
    const CONFIRMED: usize = 100;
    let Some(mut server) = KfakeServer::start().await else { return };
    let queue = quick().open(server.url()).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let sending = {
        let (queue, here, count) = (queue.clone(), here.clone(), count.clone());
        tokio::spawn(async move {
            let mut confirmed = Vec::new();
            for number in 0.. {
                let bodies: Vec<String> = (0..20).map(|index| format!("{number} {index}")).collect();
                let outgoing: Vec<_> = bodies.iter().map(|body| to(&here, envelope(body))).collect();
                let results = queue.dispatch(&outgoing).await;
                let failed = results.iter().any(Result::is_err);
                let sent = bodies.into_iter().zip(results).filter(|(_, result)| result.is_ok());
                confirmed.extend(sent.map(|(body, _)| body));
                count.store(confirmed.len(), Ordering::SeqCst);
                if failed {
                    break;
                }
            }
            confirmed
        })
    };
    let enough = async {
        while count.load(Ordering::SeqCst) < CONFIRMED {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, enough).await.expect("nothing is confirmed");
    server.kill();
    let confirmed = tokio::time::timeout(PATIENCE, sending).await.expect("it is sent to nobody").unwrap();
    server.restart().await;
    assert!(confirmed.len() >= CONFIRMED, "{}", confirmed.len());
    drained(&queue, &here, &ends, &confirmed).await;
}

/// Who waits is a member of a group of which a broker that begins again has forgotten who is in it.
#[tokio::test(flavor = "multi_thread")]
async fn who_waited_when_the_broker_was_killed_is_given_what_comes_after() {
    let Some(mut server) = KfakeServer::start().await else { return };
    let queue = quick().open(server.url()).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    send(&queue, &[to(&here, envelope("before"))]).await;
    ack(&ends, &next(&ends).await).await;
    let waits = tokio::time::timeout(Duration::from_millis(200), ends.receiver.receive(1)).await;
    assert!(waits.is_err(), "{waits:?}");
    for round in ["once", "twice"] {
        server.kill();
        server.restart().await;
        send_until_sent(&queue, &here, round).await;
        drained(&queue, &here, &ends, &[round.to_owned()]).await;
    }
}
