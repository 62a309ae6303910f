//! A service that stays away.

use std::time::Duration;

use hapax::{Sqs, ports::Transport};
use hapax_tests::SqsServer;

use super::rig::*;

#[path = "../broker/away.rs"]
mod broker;

const WAIT: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread")]
async fn who_receives_is_told_again_and_again_while_the_service_is_away() {
    let mut server = SqsServer::start().await;
    let sqs = Sqs::options().lease(LEASE).wait(WAIT).open(&Sqs::local_client(&server.url())).await.unwrap();
    let here = endpoint();
    let ends = sqs.connect(&here, &[]).await.unwrap();
    send(&sqs, &[to(&here, envelope("before"))]).await;
    ack(&ends, &next(&ends).await).await;
    server.kill();
    broker::is_told_again_and_again(&*ends.receiver, WAIT).await;
}
