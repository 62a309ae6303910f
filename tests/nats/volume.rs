//! A volume of messages over NATS, on a server of the test's own.

use std::time::Duration;

use hapax::Nats;
use hapax_tests::NatsServer;

#[path = "../broker/volume.rs"]
mod broker;

/// As long as one that died keeps what it was given.
const LEASE: Duration = Duration::from_secs(5);

struct Streams {
    server: NatsServer,
    ordered: bool,
}

impl broker::Broker for Streams {
    type Queue = Nats;

    const DROPS_REPEATS: bool = true;

    async fn start(ordered: bool) -> Self {
        Self { server: NatsServer::start().await, ordered }
    }

    async fn open(&self) -> Nats {
        let options = Nats::options().lease(LEASE).ordered_keys(self.ordered);
        options.open(self.server.url()).await.unwrap()
    }
}

broker::volumes!(Streams);
