//! A volume of messages over Redis Streams, on a server that keeps all that it confirms.

use std::time::Duration;

use hapax::RedisStreams;
use hapax_tests::RedisServer;

#[path = "../broker/volume.rs"]
mod broker;

/// As long as one that died keeps what it was given.
const LEASE: Duration = Duration::from_secs(5);

struct Streams {
    server: RedisServer,
    ordered: bool,
}

impl broker::Broker for Streams {
    type Queue = RedisStreams;

    async fn start(ordered: bool) -> Self {
        Self { server: RedisServer::start().await, ordered }
    }

    async fn open(&self) -> RedisStreams {
        let options = RedisStreams::options().lease(LEASE).ordered_keys(self.ordered);
        options.open(self.server.url()).await.unwrap()
    }
}

broker::volumes!(Streams);
