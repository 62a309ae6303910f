//! A server of the test's own, which is killed.

use std::collections::HashSet;

use hapax::ports::{Dispatcher, Settled, Settlement, Transport};
use hapax_tests::RabbitMqServer;

use super::rig::*;

const MESSAGES: usize = 60;

/// What was confirmed is there when a server that was killed is back, whether it waited in its queue or was given and not settled; what
/// was acknowledged before does not come again; and both ends go on by themselves.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_confirmed_comes_when_a_server_that_was_killed_is_back() {
    let mut server = RabbitMqServer::with_amqp_1_0().await;
    let queue = Queues::open(server.url()).await;
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let all: Vec<String> = (0..MESSAGES).map(|number| format!("m {number}")).collect();
    let outgoing: Vec<_> = all.iter().map(|body| to(&here, envelope(body))).collect();
    send(&queue, &outgoing).await;
    let held = next(&ends).await;

    server.kill();
    let failed = queue.dispatch(&[to(&here, envelope("while it is away"))]).await.pop().unwrap();
    assert!(failed.is_err());
    server.restart().await;

    let late = ends.receiver.settle(&held.receipt, Settlement::Ack).await;
    assert!(!matches!(late, Ok(Settled::Done)), "{late:?}");
    let mut missing: HashSet<String> = all.into_iter().collect();
    let came = async {
        while !missing.is_empty() {
            let Ok(deliveries) = ends.receiver.receive(16).await else {
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            };
            for delivery in deliveries {
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
    assert_eq!(body(&next(&ends).await), "afterwards");
}
