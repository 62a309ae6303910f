//! A broker that is out of reach, or does only half of it, while something is under way.

use std::{collections::HashMap, time::Duration};

use futures_util::future::join_all;
use hapax::ports::{DispatchError, Dispatcher, Settled, Settlement, Transport};

use super::{proxy::Proxied, rig::*};

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_while_the_broker_is_away_is_told_and_goes_on_when_it_is_back() {
    let proxied = Proxied::start().await;
    let queue = options().patience(Duration::from_secs(3)).open(proxied.url()).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    send(&queue, &[to(&here, envelope("before"))]).await;
    ack(&ends, &next(&ends).await).await;
    proxied.goes();
    let told = tokio::time::timeout(PATIENCE, ends.receiver.receive(1)).await.expect("it waits for ever");
    assert!(told.unwrap_err().is_transient());
    let failed = queue.dispatch(&[to(&here, envelope("while it is away"))]).await.pop().unwrap();
    let Err(DispatchError::Transient(error)) = failed else { panic!("{failed:?}") };
    assert!(error.is_unknown_outcome(), "{error:?}");
    proxied.comes_back();
    let sent = async {
        while queue.dispatch(&[to(&here, envelope("after"))]).await.iter().any(Result::is_err) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, sent).await.expect("it cannot be sent");
    let received = async {
        loop {
            match ends.receiver.receive(1).await {
                Ok(given) if body(&given[0]) == "after" => break,
                Ok(given) => ack(&ends, &given[0]).await, // What was sent while it was away may have been.
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    tokio::time::timeout(PATIENCE, received).await.expect("nothing comes");
}

/// A commit of several partitions that is refused for one of them is repeated.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_committed_of_one_partition_among_several_is_not_settled() {
    let (proxied, here) = (Proxied::start().await, endpoint());
    let queue = options().partitions(2).patience(Duration::from_secs(5)).open(proxied.url()).await.unwrap();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let (group, topic) = (format!("{PREFIX}.{here}"), format!("{PREFIX}.queue.{here}"));
    let mut settled = 0;
    let rounds = async {
        // The first commit of all is of where it begins: so what has come once is settled before.
        while settled == 0 || !proxied.has_refused() {
            let (url, of) = (proxied.url(), topic.clone());
            let put = move || {
                let headers = [("hapax-message-id", &b"one of them"[..]), ("hapax-type", b"shop.added")];
                (0..2).for_each(|partition| put_by(&config_of(&url), &of, Some(partition), &headers, b""));
            };
            tokio::task::spawn_blocking(put).await.unwrap();
            let came = [next(&ends).await, next(&ends).await];
            join_all(came.iter().map(|delivery| ack(&ends, delivery))).await;
            settled += 2;
            let (url, group, of) = (proxied.url(), group.clone(), topic.clone());
            let at = move || (0..2).filter_map(|partition| committed_at(&url, &group, &of, partition)).sum::<i64>();
            assert_eq!(tokio::task::spawn_blocking(at).await.unwrap(), settled);
            if settled == 2 {
                proxied.refuses_one_of_several(&topic);
            }
        }
    };
    tokio::time::timeout(PATIENCE, rounds).await.expect("no commit is of both partitions");
}

/// For a moment, after which they are still its own, and for longer than a session, after which they come again.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_given_before_the_broker_was_away_is_settled_or_comes_again() {
    const MESSAGES: usize = 8;
    let (proxied, here) = (Proxied::start().await, endpoint());
    let queue = options().partitions(2).patience(Duration::from_secs(5)).open(proxied.url()).await.unwrap();
    let ends = queue.connect(&here, &[]).await.unwrap();
    for away in [Duration::from_millis(200), SESSION * 2] {
        let mut open = HashMap::new();
        for number in 0..MESSAGES {
            send(&queue, &[to(&here, envelope(&number.to_string()))]).await;
        }
        while open.len() < MESSAGES {
            let delivery = next(&ends).await;
            open.insert(delivery.envelope.message_id.clone(), delivery);
        }
        proxied.goes();
        tokio::time::sleep(away).await;
        proxied.comes_back();
        let accounted = async {
            while !open.is_empty() {
                for delivery in open.clone().into_values() {
                    if let Ok(Settled::Done) = ends.receiver.settle(&delivery.receipt, Settlement::Ack).await {
                        open.remove(&delivery.envelope.message_id);
                    }
                }
                // What is not settled comes again, or has gone in spite of its answer.
                if let Ok(Ok(given)) = tokio::time::timeout(Duration::from_millis(500), ends.receiver.receive(1)).await
                {
                    open.extend(given.into_iter().map(|again| (again.envelope.message_id.clone(), again)));
                }
                if queue.backlog(&here).await.is_ok_and(|left| left == 0) {
                    open.clear();
                }
            }
        };
        tokio::time::timeout(PATIENCE, accounted).await.expect("some are neither settled nor come again");
        let empty = async { while !queue.backlog(&here).await.is_ok_and(|left| left == 0) {} };
        tokio::time::timeout(PATIENCE, empty).await.expect("what is settled is not committed");
    }
}
