//! Who waits is told by the server that something has come, on a connection for that alone, and gets on without it.

use std::time::Duration;

use hapax::{
    RedisStreams,
    ports::{Connected, Delivery, Transport},
};
use hapax_tests::RedisServer;

use super::{cut::Line, rig::*};

/// Nobody waits until it is over.
const LONG: Duration = Duration::from_secs(600);
/// Of an endpoint, with the one for sending: what is behind them is what it is told on.
const WITHOUT_BELL: usize = 2;
/// Longer than it takes until leases of [`LEASE`] are looked for again, shorter than what a call has found out is good for.
const BETWEEN: Duration = Duration::from_millis(140);

/// More than there are, so that the next call knows that it took all.
async fn all(ends: &Connected) -> Vec<Delivery> {
    let received = tokio::time::timeout(PATIENCE, ends.receiver.receive(10)).await;
    received.expect("nothing came").unwrap()
}

/// Whether the question was refused, and what was asked behind it was not, is the same to who waits.
#[tokio::test]
async fn what_was_taken_behind_a_question_that_failed_is_given_all_the_same() {
    let server = RedisServer::start().await;
    let mut connection = plain(&server.url()).await;
    ask::<String>(&mut connection, "ACL SETUSER deaf on >secret ~* +@all -xread").await;
    let deaf = format!("redis://deaf:secret@127.0.0.1:{}", server.port());
    let queue = RedisStreams::options().lease(LONG).open(deaf).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    for number in 0..20 {
        let sent = format!("m {number}");
        send(&queue, &[to(&here, envelope(&sent))]).await;
        let given = all(&ends).await;
        let given: Vec<_> = given.iter().map(|delivery| (delivery, body(delivery), delivery.attempts)).collect();
        let [(delivery, came, 1)] = &given[..] else { panic!("{given:?}") };
        assert_eq!(*came, sent);
        ack(&ends, delivery).await;
    }
}

/// That it cannot be told keeps it from nothing, also where something new comes all the time.
#[tokio::test]
async fn who_cannot_be_told_finds_what_another_has_left() {
    let server = RedisServer::start().await;
    let line = Line::to(server.port()).await;
    line.carry_only(WITHOUT_BELL);
    let options = || RedisStreams::options().lease(LEASE);
    let (direct, here) = (options().open(server.url()).await.unwrap(), endpoint());
    let other = direct.connect(&here, &[]).await.unwrap();
    send(&direct, &[to(&here, envelope("left"))]).await;
    assert_eq!(body(&next(&other).await), "left");
    let ends = options().open(line.url()).await.unwrap().connect(&here, &[]).await.unwrap();
    for number in 0..100 {
        send(&direct, &[to(&here, envelope(&format!("new {number}")))]).await;
        for delivery in all(&ends).await {
            ack(&ends, &delivery).await;
            if body(&delivery) == "left" {
                assert_eq!(delivery.attempts, 2);
                return;
            }
        }
        tokio::time::sleep(BETWEEN).await;
    }
    panic!("nobody looks for it");
}

#[tokio::test]
async fn a_connection_on_which_nothing_is_answered_holds_up_nobody_who_waits() {
    let server = RedisServer::start().await;
    let line = Line::to(server.port()).await;
    line.answer_only(WITHOUT_BELL);
    let queue = RedisStreams::options().lease(LONG).patience(LONG).open(line.url()).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    for _ in 0..10 {
        send(&queue, &[to(&here, envelope("m"))]).await;
        for delivery in all(&ends).await {
            assert_eq!(delivery.attempts, 1);
            ack(&ends, &delivery).await;
        }
    }
}

/// What was taken for an answer that never comes has its lease; nothing else waits for that.
#[tokio::test]
async fn a_server_that_stops_telling_is_not_waited_for() {
    let server = RedisServer::start().await;
    let line = Line::to(server.port()).await;
    let queue = RedisStreams::options().lease(LEASE).patience(LONG).open(line.url()).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    // It waits, so that it has been told of nothing at least once.
    nothing(&ends, Duration::from_millis(600)).await;
    line.answer_only(WITHOUT_BELL);
    let later = async {
        // Who waits has asked to be told by then.
        tokio::time::sleep(Duration::from_millis(300)).await;
        send(&queue, &[to(&here, envelope("m"))]).await;
    };
    let (delivery, ()) = futures_util::future::join(next(&ends), later).await;
    assert_eq!(body(&delivery), "m");
    ack(&ends, &delivery).await;
    send(&queue, &[to(&here, envelope("after"))]).await;
    let delivery = next(&ends).await;
    assert_eq!((body(&delivery).as_str(), delivery.attempts), ("after", 1));
    ack(&ends, &delivery).await;
}
