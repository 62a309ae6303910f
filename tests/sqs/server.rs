//! An emulator of the test's own, which is killed.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use hapax::{
    Sqs,
    envelope::Envelope,
    ports::{DispatchError, Dispatcher, Settled, Settlement, Transport},
    time::Timestamp,
    transports::sqs::SqsOptions,
};
use hapax_tests::SqsServer;

use super::rig::*;

const MESSAGES: usize = 60;

fn options() -> SqsOptions {
    Sqs::options().lease(LEASE).wait(Duration::from_secs(2))
}

async fn open(server: &SqsServer) -> Sqs {
    options().open(&Sqs::local_client(&server.url())).await.unwrap()
}

/// What was confirmed is there when a service that was away is back, whether it waited in its queue, was given and not
/// settled, or had a delay; what was acknowledged does not come again; and both ends go on by themselves.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_confirmed_comes_when_a_service_that_was_killed_is_back() {
    let mut server = SqsServer::start().await;
    let sqs = open(&server).await;
    let here = endpoint();
    let ends = sqs.connect(&here, &[]).await.unwrap();
    let mut expected: Vec<String> = (0..MESSAGES).map(|number| format!("m {number}")).collect();
    let due = |millis| Some(Timestamp::now().after(Duration::from_millis(millis)));
    let outgoing: Vec<_> = expected
        .iter()
        .enumerate()
        .map(|(number, body)| {
            let due = if number % 3 == 0 { due(1000 + number as u64) } else { None };
            to(&here, Envelope { due, ..envelope(body) })
        })
        .collect();
    send(&sqs, &outgoing).await;
    // Not due yet, acknowledged, put off, and held.
    let (done, later, held) = (next(&ends).await, next(&ends).await, next(&ends).await);
    ack(&ends, &done).await;
    expected.retain(|left| *left != body(&done));
    settle(&ends, &later, Settlement::Retry { delay: Duration::from_millis(500), counts: true }).await;

    server.kill();
    let failed = sqs.dispatch(&[to(&here, envelope("while it is away"))]).await.pop().unwrap();
    assert!(matches!(failed, Err(DispatchError::Transient(_))), "{failed:?}");
    tokio::time::sleep(LEASE).await;
    server.restart().await;

    // Its lease has run out meanwhile.
    let late = ends.receiver.settle(&held.receipt, Settlement::Ack).await;
    assert!(matches!(late, Ok(Settled::LeaseLost)), "{late:?}");
    send(&sqs, &[to(&here, envelope("after it came back"))]).await;
    expected.push("after it came back".to_owned());
    expected.sort();
    let mut came: Vec<(String, u32)> = Vec::new();
    while came.len() < expected.len() {
        let deliveries = tokio::time::timeout(PATIENCE, ends.receiver.receive(50)).await;
        let deliveries = deliveries.unwrap_or_else(|_| {
            let is_there = |body: &&String| !came.iter().any(|(there, _)| there == *body);
            let missing: Vec<&String> = expected.iter().filter(is_there).collect();
            panic!("some never came: {missing:?}\n{}", server.log())
        });
        let Ok(deliveries) = deliveries else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue; // The call that was cut off, and tries while the service was away.
        };
        let acks = deliveries.iter().map(|delivery| ends.receiver.settle(&delivery.receipt, Settlement::Ack));
        for (delivery, settled) in deliveries.iter().zip(join_all(acks).await) {
            // Else it comes again: a lease is short, and the machine may be busy.
            if matches!(settled, Ok(Settled::Done)) {
                came.push((body(delivery), delivery.attempts));
            }
        }
        // A message that was sent while it was away may be there, or not.
        came.retain(|(body, _)| body != "while it is away");
    }
    let attempts = |of: &str| came.iter().find(|(body, _)| body == of).unwrap().1;
    assert!(attempts(&body(&later)) >= 2 && attempts(&body(&held)) >= 2, "deliveries are counted across the kill");
    came.sort();
    assert_eq!(came.into_iter().map(|(body, _)| body).collect::<Vec<_>>(), expected);
    assert_eq!(sqs.backlog(&here).await.unwrap(), 0);
}

/// Of those that are sent while the service is killed, each that was confirmed comes; and none that was acknowledged comes again.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_under_way_when_the_service_is_killed_is_confirmed_or_not() {
    let mut server = SqsServer::start().await;
    let sqs = open(&server).await;
    let here = endpoint();
    let ends = sqs.connect(&here, &[]).await.unwrap();
    let sent_so_far = Arc::new(AtomicUsize::new(0));
    let sending = {
        let (sqs, here, sent_so_far) = (sqs.clone(), here.clone(), sent_so_far.clone());
        tokio::spawn(async move {
            let mut confirmed = Vec::new();
            for number in 0.. {
                let bodies: Vec<String> = (0..15).map(|index| format!("{number} {index}")).collect();
                let outgoing: Vec<_> = bodies.iter().map(|body| to(&here, envelope(body))).collect();
                let results = sqs.dispatch(&outgoing).await;
                let failed = results.iter().any(Result::is_err);
                let sent = bodies.into_iter().zip(results).filter(|(_, result)| result.is_ok());
                confirmed.extend(sent.map(|(body, _)| body));
                sent_so_far.store(confirmed.len(), Ordering::SeqCst);
                if failed {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            confirmed
        })
    };
    let mut done: HashSet<String> = HashSet::new();
    // Some have come, and some that were confirmed have not: else the kill would put nothing to the test.
    while done.len() < 20 || sent_so_far.load(Ordering::SeqCst) <= done.len() {
        let delivery = next(&ends).await;
        if ends.receiver.settle(&delivery.receipt, Settlement::Ack).await.unwrap() == Settled::Done {
            done.insert(body(&delivery));
        }
    }
    server.kill();
    let confirmed = sending.await.unwrap();
    assert!(confirmed.iter().any(|body| !done.contains(body)), "all that was confirmed had come before");
    server.restart().await;
    let mut came: HashSet<String> = HashSet::new();
    while !confirmed.iter().all(|body| came.contains(body) || done.contains(body)) {
        let received = tokio::time::timeout(PATIENCE, ends.receiver.receive(50)).await.expect("some never came");
        let Ok(deliveries) = received else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let acks = deliveries.iter().map(|delivery| ends.receiver.settle(&delivery.receipt, Settlement::Ack));
        drop(join_all(acks).await);
        for delivery in deliveries {
            assert!(!done.contains(&body(&delivery)), "it comes again although its acknowledgement was confirmed");
            came.insert(body(&delivery));
        }
    }
}

/// As after another account was named: what was in it is lost, and all goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_has_nothing_any_more_is_begun_with_anew() {
    let mut server = SqsServer::that_forgets().await;
    let sqs = open(&server).await;
    let here = endpoint();
    let ends = sqs.connect(&here, &[message_type()]).await.unwrap();
    send(&sqs, &[to(&here, envelope("lost"))]).await;
    server.kill();
    server.restart().await;
    let sending = {
        let (sqs, here) = (sqs.clone(), here.clone());
        tokio::spawn(async move {
            // Until its endpoint has declared its queue again.
            while sqs.dispatch(&[to(&here, envelope("after"))]).await.pop().unwrap().is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
    };
    let delivery = loop {
        match tokio::time::timeout(PATIENCE, ends.receiver.receive(1)).await.expect("nothing came") {
            Ok(mut deliveries) => break deliveries.pop().unwrap(),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    assert_eq!(body(&delivery), "after");
    ack(&ends, &delivery).await;
    sending.await.unwrap();
}
