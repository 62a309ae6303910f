//! Endpoints over RabbitMQ: the scenario of every broker.

use std::time::Duration;

use hapax::RabbitMq;
use hapax_tests::RabbitMqServer;

use super::rig::{endpoint, open};

#[path = "../broker/endpoints.rs"]
pub(crate) mod broker;

const MESSAGES: usize = 600;
/// See `server.rs`: a queue that is younger may not outlive it.
const SERVER_SAVES: Duration = Duration::from_secs(2);

impl broker::Server for RabbitMqServer {
    type Queue = RabbitMq;

    async fn open(&self, ordered: bool) -> RabbitMq {
        let options = RabbitMq::options().patience(Duration::from_secs(5)).ordered_keys(ordered);
        options.open(self.url()).await.unwrap()
    }

    async fn is_killed(&mut self) {
        self.kill();
        self.restart().await;
    }

    async fn has_saved(&self) {
        tokio::time::sleep(SERVER_SAVES).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_handle_each_message_once_while_their_broker_is_killed() {
    broker::each_is_handled_once(RabbitMqServer::start().await, false, MESSAGES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_that_keep_order_handle_each_message_once_while_their_broker_is_killed() {
    broker::each_is_handled_once(RabbitMqServer::start().await, true, MESSAGES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn poison_ends_among_the_dead_letters_on_the_server_and_holds_up_nothing() {
    let (queue, here) = (open().await, endpoint());
    broker::poison_is_set_aside(queue.clone(), here.clone(), async || queue.backlog(&here).await.unwrap() == 0).await;
}
