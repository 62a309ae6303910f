//! A server of the test's own, which is killed.

use std::{collections::HashSet, time::Duration};

use futures_util::future::join_all;
use hapax::{
    RedisStreams,
    envelope::Envelope,
    ports::{DispatchError, Dispatcher, Settled, Settlement, Transport},
    time::Timestamp,
    transports::redis::MayLose,
};
use hapax_tests::RedisServer;

use super::rig::*;

const MESSAGES: usize = 300;

/// What was confirmed is there when a server that was killed is back, whether it waited in its queue, was given and not
/// settled, or had a delay; what was acknowledged does not come again; and both ends go on by themselves.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_confirmed_outlives_a_server_that_is_killed() {
    let mut server = RedisServer::start().await;
    let queue = RedisStreams::options().lease(LEASE).open(server.url()).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
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
    send(&queue, &outgoing).await;
    // Not due yet, acknowledged, put off, and held.
    let (done, later, held) = (next(&ends).await, next(&ends).await, next(&ends).await);
    ack(&ends, &done).await;
    expected.retain(|left| *left != body(&done));
    let retry = Settlement::Retry { delay: Duration::from_millis(500), counts: true };
    assert_eq!(ends.receiver.settle(&later.receipt, retry).await.unwrap(), Settled::Done);

    server.kill();
    let failed = queue.dispatch(&[to(&here, envelope("while it is away"))]).await.pop().unwrap();
    assert!(matches!(failed, Err(DispatchError::Transient(_))), "{failed:?}");
    tokio::time::sleep(LEASE).await;
    server.restart().await;

    // Its lease has run out meanwhile; whether the connection's end has been noticed by now is not said.
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
            continue; // The connection that was lost, and tries while the server was away.
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
    assert_eq!(queue.backlog(&here).await.unwrap(), 0);
}

/// Of those that are sent while the server is killed, each that was confirmed comes; and none that was acknowledged comes again.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_under_way_when_the_server_is_killed_is_confirmed_or_not() {
    let mut server = RedisServer::start().await;
    let queue = RedisStreams::options().lease(LEASE).open(server.url()).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let sending = {
        let (queue, here) = (queue.clone(), here.clone());
        tokio::spawn(async move {
            let mut confirmed = Vec::new();
            for number in 0.. {
                let bodies: Vec<String> = (0..20).map(|index| format!("{number} {index}")).collect();
                let outgoing: Vec<_> = bodies.iter().map(|body| to(&here, envelope(body))).collect();
                let results = queue.dispatch(&outgoing).await;
                let failed = results.iter().any(Result::is_err);
                let sent = bodies.into_iter().zip(results).filter(|(_, result)| result.is_ok());
                confirmed.extend(sent.map(|(body, _)| body));
                if failed {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            confirmed
        })
    };
    let mut done: HashSet<String> = HashSet::new();
    for _ in 0..100 {
        let delivery = next(&ends).await;
        ack(&ends, &delivery).await;
        done.insert(body(&delivery));
    }
    server.kill();
    let confirmed = sending.await.unwrap();
    server.restart().await;
    assert!(confirmed.len() >= done.len());
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

/// A server that keeps nothing, which was accepted: what was in it is lost, and all goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_keeps_nothing_is_begun_with_anew() {
    let mut server = RedisServer::start_with(&[("appendonly", "no")]).await;
    let queue = RedisStreams::options().lease(LEASE).may_lose(MayLose::Everything).open(server.url()).await.unwrap();
    assert!(!queue.capabilities().durable);
    let here = endpoint();
    let ends = queue.connect(&here, &[message_type()]).await.unwrap();
    send(&queue, &[to(&here, envelope("lost"))]).await;
    server.kill();
    server.restart().await;
    let sending = {
        let (queue, here) = (queue.clone(), here.clone());
        tokio::spawn(async move {
            // Until its endpoint has declared its queue again.
            while queue.dispatch(&[to(&here, envelope("after"))]).await.pop().unwrap().is_err() {
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
