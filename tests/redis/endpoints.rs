//! Endpoints over Redis Streams: the scenarios of every broker.

use std::time::Duration;

use hapax::RedisStreams;
use hapax_tests::RedisServer;

use super::rig::*;

#[path = "../broker/endpoints.rs"]
mod broker;
#[path = "../broker/evidence.rs"]
mod evidence;

const MESSAGES: usize = 600;

impl broker::Server for RedisServer {
    type Queue = RedisStreams;

    async fn open(&self, ordered: bool) -> RedisStreams {
        let options = RedisStreams::options().lease(LEASE).ordered_keys(ordered).patience(Duration::from_secs(5));
        options.open(self.url()).await.unwrap()
    }

    async fn is_killed(&mut self) {
        self.kill();
        self.restart().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_handle_each_message_once_while_their_server_is_killed() {
    broker::each_is_handled_once(RedisServer::start().await, false, MESSAGES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_that_keep_order_handle_each_message_once_while_their_server_is_killed() {
    broker::each_is_handled_once(RedisServer::start().await, true, MESSAGES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn poison_ends_among_the_dead_letters_on_the_server_and_holds_up_nothing() {
    let (queue, here) = (open().await, endpoint());
    broker::poison_is_set_aside(queue.clone(), here.clone(), async || queue.backlog(&here).await.unwrap() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_remembered_is_forgotten_when_the_queue_has_shown_that_it_is_gone() {
    let server = RedisServer::start().await;
    for ordered in [false, true] {
        let queue = RedisStreams::options().ordered_keys(ordered).open(server.url()).await.unwrap();
        evidence::entries_go_when_the_queue_has_shown_that_their_messages_are_gone(queue, endpoint()).await;
    }
}
