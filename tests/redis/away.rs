//! A server that stays away, or stands still.

use std::time::Duration;

use hapax::{RedisStreams, ports::Transport};
use hapax_tests::RedisServer;

use super::{cut::Line, rig::*};

#[path = "../broker/away.rs"]
mod broker;

const PATIENT: Duration = Duration::from_millis(500);

#[tokio::test(flavor = "multi_thread")]
async fn who_receives_is_told_again_and_again_while_the_server_is_away() {
    let mut server = RedisServer::start().await;
    for ordered in [false, true] {
        server.restart().await;
        let queue = RedisStreams::options().patience(PATIENT).ordered_keys(ordered).open(server.url()).await.unwrap();
        let ends = queue.connect(&endpoint(), &[]).await.unwrap();
        nothing(&ends, Duration::from_millis(300)).await; // Its connections are there.
        server.kill();
        broker::is_told_again_and_again(&*ends.receiver, PATIENT).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_receives_is_told_again_and_again_while_the_server_stands_still() {
    let server = RedisServer::start().await;
    for ordered in [false, true] {
        let line = Line::to(server.port()).await;
        let queue = RedisStreams::options().patience(PATIENT).ordered_keys(ordered).open(line.url()).await.unwrap();
        let ends = queue.connect(&endpoint(), &[]).await.unwrap();
        nothing(&ends, Duration::from_millis(300)).await;
        line.keep_answers(true);
        broker::is_told_again_and_again(&*ends.receiver, PATIENT).await;
    }
}
