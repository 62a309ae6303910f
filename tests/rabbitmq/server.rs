//! A server of the test's own, which is killed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use hapax::{
    RabbitMq,
    ports::{DispatchError, Dispatcher, Settled, Settlement, Transport},
};
use hapax_tests::RabbitMqServer;

use super::rig::*;

const MESSAGES: usize = 300;
/// RabbitMQ 3.10 writes which queues there are twice in a second: one that is younger may be beyond use when the server was
/// killed. Nothing tells when it has.
const SERVER_SAVES: Duration = Duration::from_secs(2);
/// What moves from a queue of delays while the server starts may find the next queue not there yet. The server's own worker
/// repeats what was not confirmed to it after three minutes (`dead_letter_worker_publisher_confirm_timeout`).
const SERVER_REPEATS: Duration = Duration::from_secs(200);

/// What was confirmed is there when a server that was killed is back, whether it waited in its queue, was given and not
/// settled, or had a delay; and both ends go on by themselves.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_confirmed_outlives_a_server_that_is_killed() {
    let mut server = RabbitMqServer::start().await;
    let queue = RabbitMq::options().patience(Duration::from_secs(5)).open(server.url()).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    tokio::time::sleep(SERVER_SAVES).await;
    let mut expected: Vec<String> = (0..MESSAGES).map(|number| format!("m {number}")).collect();
    let due = |millis| Some(hapax::time::Timestamp::now().after(Duration::from_millis(millis)));
    let outgoing: Vec<_> = expected
        .iter()
        .enumerate()
        .map(|(number, body)| {
            let due = if number % 3 == 0 { due(2000 + number as u64) } else { None };
            to(&here, hapax::envelope::Envelope { due, ..envelope(body) })
        })
        .collect();
    send(&queue, &outgoing).await;
    let held = next(&ends).await;

    server.kill();
    let failed = queue.dispatch(&[to(&here, envelope("while it is away"))]).await.pop().unwrap();
    assert!(matches!(failed, Err(DispatchError::Transient(_))), "{failed:?}");
    server.restart().await;

    // Its connection ended, and with it its lease; whether that has been noticed by now is not said.
    let late = ends.receiver.settle(&held.receipt, Settlement::Ack).await;
    assert!(!matches!(late, Ok(Settled::Done)), "{late:?}");
    loop {
        match queue.dispatch(&[to(&here, envelope("after it came back"))]).await.pop().unwrap() {
            Ok(()) => break,
            Err(e) => assert!(matches!(e, DispatchError::Transient(_)), "{e:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    expected.push("after it came back".to_owned());
    expected.sort();
    let mut came = Vec::new();
    while came.len() < expected.len() {
        let deliveries = tokio::time::timeout(PATIENCE + SERVER_REPEATS, ends.receiver.receive(50)).await;
        let deliveries = deliveries.unwrap_or_else(|_| {
            let missing: Vec<&String> = expected.iter().filter(|body| !came.contains(*body)).collect();
            panic!("some never came: {missing:?}\n{}", server.log())
        });
        let Ok(deliveries) = deliveries else {
            continue; // The connection that was lost, and tries while the server was away.
        };
        for delivery in deliveries {
            came.push(body(&delivery));
            ack(&ends, &delivery).await;
        }
        came.sort();
        came.dedup();
    }
    assert_eq!(came, expected);
}

/// Of those that are sent while the server is killed, each that was confirmed comes.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_under_way_when_the_server_is_killed_is_confirmed_or_not() {
    let mut server = RabbitMqServer::start().await;
    let queue = RabbitMq::options().patience(Duration::from_secs(5)).open(server.url()).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    tokio::time::sleep(SERVER_SAVES).await;
    let so_far = Arc::new(AtomicUsize::new(0));
    let sending = {
        let (queue, here, so_far) = (queue.clone(), here.clone(), so_far.clone());
        tokio::spawn(async move {
            let mut confirmed = Vec::new();
            for number in 0.. {
                let bodies: Vec<String> = (0..20).map(|index| format!("{number} {index}")).collect();
                let outgoing: Vec<_> = bodies.iter().map(|body| to(&here, envelope(body))).collect();
                let results = queue.dispatch(&outgoing).await;
                let failed = results.iter().any(Result::is_err);
                let sent = bodies.into_iter().zip(results).filter(|(_, result)| result.is_ok());
                confirmed.extend(sent.map(|(body, _)| body));
                so_far.store(confirmed.len(), Ordering::Relaxed);
                if failed {
                    break;
                }
            }
            confirmed
        })
    };
    for _ in 0..100 {
        ack(&ends, &next(&ends).await).await;
    }
    // More is confirmed than has come: without it nothing would be asked of the server.
    let more = async {
        while so_far.load(Ordering::Relaxed) <= 100 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, more).await.expect("no more is confirmed");
    let mut came: Vec<String> = Vec::new();
    server.kill();
    let mut confirmed = sending.await.unwrap();
    server.restart().await;
    // The first hundred came before, in order.
    confirmed.drain(..100);
    assert!(!confirmed.is_empty());
    while !confirmed.iter().all(|body| came.contains(body)) {
        let Ok(deliveries) = tokio::time::timeout(PATIENCE, ends.receiver.receive(50)).await.expect("some never came")
        else {
            continue;
        };
        for delivery in deliveries {
            came.push(body(&delivery));
            drop(ends.receiver.settle(&delivery.receipt, Settlement::Ack).await);
        }
    }
}

/// The driver hears that its connection has ended while a handler keeps the thread busy, and what is settled next is asked for
/// too late: it is answered all the same, and never as done.
#[tokio::test]
async fn what_is_settled_just_as_the_connection_ends_is_answered() {
    let mut server = RabbitMqServer::start().await;
    let queue = RabbitMq::open(server.url()).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    send(&queue, &Vec::from_iter((0..10).map(|number| to(&here, envelope(&format!("m {number}")))))).await;
    let mut held = Vec::new();
    while held.len() < 10 {
        held.extend(ends.receiver.receive(10).await.unwrap());
    }
    server.kill();
    for delivery in &held {
        tokio::task::yield_now().await;
        // The handler, which is no good neighbour: the driver's thread goes on meanwhile, its task on this one does not.
        std::thread::sleep(Duration::from_millis(20));
        let settling = ends.receiver.settle(&delivery.receipt, Settlement::Ack);
        let settled = tokio::time::timeout(PATIENCE, settling).await.expect("it is never answered");
        assert!(!matches!(settled, Ok(Settled::Done)), "{settled:?}");
    }
}
