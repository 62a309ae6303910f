//! A server that stays away.

use std::time::Duration;

use hapax::ports::{Settlement, Transport};
use hapax_tests::RabbitMqServer;

use super::rig::*;

#[path = "../broker/away.rs"]
mod broker;

const PATIENT: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread")]
async fn who_receives_is_told_again_and_again_while_the_server_is_away() {
    let mut server = RabbitMqServer::with_amqp_1_0().await;
    let options = options_at(&server.url()).patience(PATIENT);
    let queue = Queues::over(options, &server.url(), server.url()).await;
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    send(&queue, &[to(&here, envelope("before"))]).await;
    settle(&ends, &next(&ends).await, Settlement::Ack).await; // It consumes.
    server.kill();
    broker::is_told_again_and_again(&*ends.receiver, PATIENT).await;
}
