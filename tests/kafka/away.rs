//! A broker that stays out of reach.

use std::time::Duration;

use hapax::ports::Transport;

use super::{proxy::Proxied, rig::*};

#[path = "../broker/away.rs"]
mod broker;

/// Nothing has come for five seconds, and nobody answers for three.
const TOLD_EVERY: Duration = Duration::from_secs(8);

#[tokio::test(flavor = "multi_thread")]
async fn who_receives_is_told_again_and_again_while_the_broker_is_out_of_reach() {
    let proxied = Proxied::start().await;
    let queue = options().patience(Duration::from_secs(3)).open(proxied.url()).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    send(&queue, &[to(&here, envelope("before"))]).await;
    ack(&ends, &next(&ends).await).await;
    proxied.goes();
    broker::is_told_again_and_again(&*ends.receiver, TOLD_EVERY).await;
}
