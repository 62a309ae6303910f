//! Endpoints over AMQP 1.0: the scenario of every broker.

use hapax_tests::RabbitMqServer;

use super::rig::Queues;

#[path = "../broker/endpoints.rs"]
mod broker;

const MESSAGES: usize = 300;

impl broker::Server for RabbitMqServer {
    type Queue = Queues;

    async fn open(&self, _: bool) -> Queues {
        Queues::open(self.url()).await
    }

    async fn is_killed(&mut self) {
        self.kill();
        self.restart().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_handle_each_message_once_while_their_broker_is_killed() {
    broker::each_is_handled_once(RabbitMqServer::with_amqp_1_0().await, false, MESSAGES).await;
}
