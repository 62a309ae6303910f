//! A server of the test's own, which is killed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use hapax::{
    Nats,
    envelope::Envelope,
    ports::{DispatchError, Dispatcher, Settlement, Transport},
    time::Timestamp,
    transports::nats::NatsOptions,
};
use hapax_tests::NatsServer;

use super::{
    cut::{received, send_until_sent},
    rig::*,
};

const MESSAGES: usize = 300;

fn quick() -> NatsOptions {
    Nats::options().patience(Duration::from_secs(5)).lease(Duration::from_secs(2))
}

/// What was confirmed is there when a server that was killed is back, whether it waited in its queue, was given and not
/// settled, or had a delay; and both ends go on by themselves.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_confirmed_outlives_a_server_that_is_killed() {
    let mut server = NatsServer::start().await;
    let queue = quick().open(server.url()).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let mut expected: Vec<String> = (0..MESSAGES).map(|number| format!("m {number}")).collect();
    let due = |millis| Some(Timestamp::now().after(Duration::from_millis(millis)));
    let outgoing: Vec<_> = expected
        .iter()
        .enumerate()
        .map(|(number, body)| {
            let due = if number % 3 == 0 { due(2000 + number as u64) } else { None };
            to(&here, Envelope { due, ..envelope(body) })
        })
        .collect();
    send(&queue, &outgoing).await;
    let held = next(&ends).await;

    server.kill();
    let failed = queue.dispatch(&[to(&here, envelope("while it is away"))]).await.pop().unwrap();
    assert!(matches!(failed, Err(DispatchError::Transient(_))), "{failed:?}");
    server.restart().await;

    // Its lease is the server's, which may have forgotten that it has given it, and may not.
    drop(ends.receiver.settle(&held.receipt, Settlement::Retry { delay: Duration::ZERO, counts: true }).await);
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
    while !expected.iter().all(|body| came.contains(body)) {
        let deliveries = tokio::time::timeout(PATIENCE, ends.receiver.receive(50)).await;
        let deliveries = deliveries.unwrap_or_else(|_| {
            let missing: Vec<&String> = expected.iter().filter(|body| !came.contains(*body)).collect();
            panic!("some never came: {missing:?}\n{}", server.log())
        });
        let Ok(deliveries) = deliveries else {
            continue; // The connection that was lost, and tries while the server was away.
        };
        for delivery in deliveries {
            let due = delivery.envelope.due;
            assert!(due.is_none_or(|due| due <= Timestamp::now().after(Duration::from_millis(20))), "it is early");
            came.push(body(&delivery));
            ack(&ends, &delivery).await;
        }
        came.sort();
        came.dedup();
    }
    // What failed may have been sent all the same, when that was not known yet.
    came.retain(|body| body != "while it is away");
    assert_eq!(came, expected);
}

/// Of those that are sent while the server is killed, each that was confirmed comes.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_under_way_when_the_server_is_killed_is_confirmed_or_not() {
    let mut server = NatsServer::start().await;
    let queue = quick().open(server.url()).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
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
    let mut came: Vec<String> = Vec::new();
    for _ in 0..100 {
        let delivery = next(&ends).await;
        came.push(body(&delivery));
        ack(&ends, &delivery).await;
    }
    // More is confirmed than has come: without it nothing would be asked of the server.
    let more = async {
        while so_far.load(Ordering::Relaxed) <= 100 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, more).await.expect("no more is confirmed");
    server.kill();
    let confirmed = sending.await.unwrap();
    server.restart().await;
    assert!(confirmed.iter().any(|body| !came.contains(body)), "all that was confirmed had come before");
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

/// Nobody waits when the server is killed, which forgets what it was asked for.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_asked_for_before_the_server_was_killed_is_asked_for_again() {
    let mut server = NatsServer::start().await;
    let queue = quick().open(server.url()).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    expect_none(&ends, Duration::from_millis(200)).await; // It has asked for one.
    server.kill();
    server.restart().await;
    send_until_sent(&queue, &here, "after").await;
    let given = tokio::time::timeout(Duration::from_secs(5), received(&*ends.receiver)).await;
    let given = given.expect("it waits for what it has asked for");
    assert_eq!((body(&given).as_str(), given.attempts), ("after", 1));
}

/// Settled just before a crash, a message may come again after it: what the server has not written yet is not evidence.
#[tokio::test(flavor = "multi_thread")]
async fn a_mark_does_not_pass_before_what_was_settled_is_written() {
    let mut server = NatsServer::start().await;
    let queue = quick().sync_interval(Duration::from_secs(3600)).open(server.url()).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let marks = ends.marks.clone().unwrap();
    send(&queue, &[to(&here, envelope("settled"))]).await;
    let mark = marks.end().await.unwrap();
    let delivery = next(&ends).await;
    ack(&ends, &delivery).await;
    assert!(!marks.passed(&mark).await.unwrap());
    server.kill();
    server.restart().await;
    let sure = quick().sync_interval(Duration::ZERO).open(server.url()).await.unwrap();
    let sure = sure.connect(&here, &[]).await.unwrap();
    // Whether it comes again or not, it can be settled, and then it is gone.
    let until_passed = async {
        while !sure.marks.clone().unwrap().passed(&mark).await.unwrap() {
            if let Ok(Ok(again)) = tokio::time::timeout(Duration::from_millis(100), sure.receiver.receive(1)).await {
                assert_eq!(body(&again[0]), "settled");
                ack(&sure, &again[0]).await;
            }
        }
    };
    tokio::time::timeout(PATIENCE, until_passed).await.expect("it never passes");
}
