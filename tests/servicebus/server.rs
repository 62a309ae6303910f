//! A server of the test's own, which is killed.

use std::collections::HashSet;

use hapax::ports::{Dispatcher, Settled, Settlement, Transport};
use hapax_tests::RabbitMqServer;

use super::rig::*;

const MESSAGES: usize = 60;
/// Fewer than there are: the next comes when one of them is done.
const PREFETCH: u16 = 10;

/// What was confirmed is there when a server that was killed is back, whether it waited in its queue or was given and not settled; what
/// was acknowledged before does not come again; and both ends go on by themselves.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_confirmed_comes_when_a_server_that_was_killed_is_back() {
    let mut server = RabbitMqServer::with_amqp_1_0().await;
    let options = options_at(&server.url()).prefetch(PREFETCH);
    let queue = Queues::over(options, &server.url(), server.url()).await;
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let all: Vec<String> = (0..MESSAGES).map(|number| format!("m {number}")).collect();
    let outgoing: Vec<_> = all.iter().map(|body| to(&here, envelope(body))).collect();
    send(&queue, &outgoing).await;
    let mut held = Vec::new();
    while held.len() < usize::from(PREFETCH) {
        held.push(next(&ends).await);
    }
    let done = held.remove(0);
    settle(&ends, &done, Settlement::Ack).await;
    // AMQP answers no settlement. This comes for the credit that was given after it, so the server has taken both.
    held.push(next(&ends).await);
    // And what is confirmed after that is written behind it, in the one journal of the queue.
    send(&queue, &[to(&here, envelope("behind"))]).await;

    server.kill();
    let failed = queue.dispatch(&[to(&here, envelope("while it is away"))]).await.pop().unwrap();
    assert!(failed.is_err());
    server.restart().await;

    let late = ends.receiver.settle(&held[0].receipt, Settlement::Ack).await;
    assert!(!matches!(late, Ok(Settled::Done)), "{late:?}");
    let mut missing: HashSet<String> = all.into_iter().chain(["behind".to_owned()]).collect();
    assert!(missing.remove(&body(&done)));
    let came = async {
        while !missing.is_empty() {
            let Ok(deliveries) = ends.receiver.receive(16).await else {
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            };
            for delivery in deliveries {
                assert_ne!(body(&delivery), body(&done), "it was acknowledged before");
                missing.remove(&body(&delivery));
                drop(ends.receiver.settle(&delivery.receipt, Settlement::Ack).await);
            }
        }
    };
    if tokio::time::timeout(PATIENCE, came).await.is_err() {
        panic!("{} never came", missing.len());
    }
    let again = async {
        while queue.dispatch(&[to(&here, envelope("afterwards"))]).await.pop().unwrap().is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, again).await.expect("nothing can be sent any more");
    // Also not behind all others.
    assert_eq!(body(&next(&ends).await), "afterwards");
}
