//! A server that stays away.

use std::time::Duration;

use hapax::{RabbitMq, ports::Transport};
use hapax_tests::RabbitMqServer;

use super::rig::*;

#[path = "../broker/away.rs"]
mod broker;

const PATIENT: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread")]
async fn who_receives_is_told_again_and_again_while_the_server_is_away() {
    let mut server = RabbitMqServer::start().await;
    let queue = RabbitMq::options().patience(PATIENT * 20).open(server.url()).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    send(&queue, &[to(&here, envelope("before"))]).await;
    ack(&ends, &next(&ends).await).await; // It consumes.
    server.kill();
    broker::is_told_again_and_again(&*ends.receiver, PATIENT).await;
}
