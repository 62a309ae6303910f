//! A server that stays away, or stands still.

use std::time::Duration;

use hapax::{Nats, ports::Transport};
use hapax_tests::NatsServer;

use super::{cut::Proxy, rig::*};

#[path = "../broker/away.rs"]
mod broker;

/// The connection tells by itself, once a second.
const TOLD_EVERY: Duration = Duration::from_secs(1);
/// The driver asks a server that says nothing twice, ten seconds apart, before it gives the connection up.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(35);

#[tokio::test(flavor = "multi_thread")]
async fn who_receives_is_told_again_and_again_while_the_server_is_away() {
    let mut server = NatsServer::start().await;
    let queue = Nats::options().patience(TOLD_EVERY).open(server.url()).await.unwrap();
    let ends = queue.connect(&endpoint(), &[]).await.unwrap();
    expect_none(&ends, Duration::from_millis(200)).await; // It has asked.
    server.kill();
    broker::is_told_again_and_again(&*ends.receiver, TOLD_EVERY).await;
}

/// It takes half a minute to notice, so only with `HAPAX_THOROUGH=1`.
#[tokio::test(flavor = "multi_thread")]
async fn who_receives_is_told_again_and_again_while_the_server_stands_still() {
    if std::env::var_os("HAPAX_THOROUGH").is_none() {
        return eprintln!("SKIPPED: half a minute of silence: HAPAX_THOROUGH=1");
    }
    let proxy = Proxy::to(url()).await;
    let queue = options().patience(TOLD_EVERY).open(proxy.url()).await.unwrap();
    let ends = queue.connect(&endpoint(), &[]).await.unwrap();
    expect_none(&ends, Duration::from_millis(200)).await;
    proxy.deafen();
    broker::is_told_again_and_again(&*ends.receiver, GIVEN_UP_AFTER).await;
}
