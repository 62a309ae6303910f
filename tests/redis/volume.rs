//! A volume of messages over Redis Streams, on a server that keeps all that it confirms.

use std::time::Duration;

use hapax::RedisStreams;
use hapax_tests::RedisServer;

#[path = "../broker/volume.rs"]
mod broker;

/// As long as one that died keeps what it was given.
const LEASE: Duration = Duration::from_secs(5);
const FEW: u32 = 5_000;

struct Streams {
    server: RedisServer,
    ordered: bool,
}

impl broker::Broker for Streams {
    type Queue = RedisStreams;

    async fn open(&self) -> RedisStreams {
        let options = RedisStreams::options().lease(LEASE).ordered_keys(self.ordered);
        options.open(self.server.url()).await.unwrap()
    }
}

async fn of(ordered: bool) {
    let server = RedisServer::start().await;
    let messages = broker::messages(FEW, broker::MANY);
    broker::passes_through(Streams { server, ordered }, messages, 2, ordered).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_volume_each_message_has_its_effect_once() {
    of(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_volume_in_order_each_message_has_its_effect_once_and_each_key_its_order() {
    of(true).await;
}
