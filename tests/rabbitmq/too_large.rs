//! A server that takes less of a message than it was told here (`max_message_size`), of which the protocol says nothing.

use futures_util::future::join_all;
use hapax::{
    RabbitMq,
    envelope::Envelope,
    ports::{DispatchError, Dispatcher, ErrorKind, Transport},
};
use hapax_tests::RabbitMqServer;

use super::rig::*;

const SERVERS_MAX: usize = 100_000;

fn of_size(bytes: usize) -> Envelope {
    envelope(&"x".repeat(bytes))
}

/// The server ends the channel for it. Whoever has sent something with it in one call, or in another at the same time, is not to suffer for it.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_larger_than_the_server_takes_is_refused_for_good_and_nothing_else_is() {
    const OTHERS: usize = 100;
    let server = RabbitMqServer::start_with(&[("max_message_size", SERVERS_MAX as u64)]).await;
    let (queue, here) = (RabbitMq::open(server.url()).await.unwrap(), endpoint());
    let ends = queue.connect(&here, &[]).await.unwrap();
    let mut call: Vec<_> = (0..20).map(|number| to(&here, envelope(&format!("in one call {number}")))).collect();
    for place in [3, 11] {
        call[place] = to(&here, of_size(SERVERS_MAX + 1));
    }
    call.push(to(&here, of_size(SERVERS_MAX)));
    let others = (0..OTHERS).map(|number| to(&here, envelope(&format!("beside it {number}"))));
    let calls = std::iter::once(call).chain(others.map(|other| vec![other]));
    let calls = calls.map(|outgoing| {
        let queue = queue.clone();
        async move { queue.dispatch(&outgoing).await }
    });
    let results = join_all(calls).await;
    for (place, result) in results[0].iter().enumerate() {
        match (place, result) {
            (3 | 11, Err(DispatchError::Permanent(why))) => {
                assert_eq!(why.kind(), ErrorKind::TooLarge);
                assert!(why.to_string().contains("max_message_size"), "{why}");
            }
            (3 | 11, other) => panic!("{place}: {other:?}"),
            (_, result) => assert!(result.is_ok(), "{place}: {result:?}"),
        }
    }
    for other in &results[1..] {
        assert!(matches!(other[..], [Ok(())]), "{other:?}");
    }
    let mut came = std::collections::BTreeSet::new();
    while came.len() < 18 + 1 + OTHERS {
        let delivery = next(&ends).await;
        assert!(delivery.envelope.body.len() <= SERVERS_MAX);
        came.insert(delivery.envelope.message_id.to_string());
        ack(&ends, &delivery).await;
    }

    // Said here, it is refused before anything is saved.
    let told = RabbitMq::options().message_bytes_max(SERVERS_MAX).open(server.url()).await.unwrap();
    let refused = told.check(&to(&here, of_size(SERVERS_MAX + 1))).unwrap_err();
    assert!(refused.0.contains("these queues take 100000"), "{refused}");
    assert!(told.check(&to(&here, of_size(SERVERS_MAX / 2))).is_ok());
}
