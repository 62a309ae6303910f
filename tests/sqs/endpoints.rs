//! Endpoints over SQS: the scenarios of every broker.

use std::time::Duration;

use hapax::Sqs;
use hapax_tests::{SqsQueues, SqsServer};

use super::rig::*;

#[path = "../broker/endpoints.rs"]
mod broker;

/// Fewer than elsewhere: the emulator serves one request at a time.
const MESSAGES: usize = 200;

impl broker::Server for SqsServer {
    type Queue = Sqs;

    async fn open(&self, ordered: bool) -> Sqs {
        let options = Sqs::options().lease(LEASE).ordered_keys(ordered).patience(Duration::from_secs(5));
        options.wait(Duration::from_secs(2)).open(&Sqs::local_client(&self.url())).await.unwrap()
    }

    async fn is_killed(&mut self) {
        self.kill();
        self.restart().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_handle_each_message_once_while_their_server_is_killed() {
    broker::each_is_handled_once(SqsServer::start().await, false, MESSAGES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_that_keep_order_handle_each_message_once_while_their_server_is_killed() {
    broker::each_is_handled_once(SqsServer::start().await, true, MESSAGES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn poison_ends_among_the_dead_letters_on_the_server_and_holds_up_nothing() {
    let queues = SqsQueues::new();
    let (queue, here) = (open(&queues).await, endpoint());
    broker::poison_is_set_aside(queue.clone(), here.clone(), async || queue.backlog(&here).await.unwrap() == 0).await;
}
