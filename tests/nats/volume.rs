//! A volume of messages over NATS, on a server of the test's own.

use std::time::Duration;

use hapax::Nats;
use hapax_tests::NatsServer;

#[path = "../broker/volume.rs"]
mod broker;

/// As long as one that died keeps what it was given.
const LEASE: Duration = Duration::from_secs(5);
const FEW: u32 = 5_000;

struct Streams {
    server: NatsServer,
    ordered: bool,
}

impl broker::Broker for Streams {
    type Queue = Nats;

    const DROPS_REPEATS: bool = true;

    async fn open(&self) -> Nats {
        let options = Nats::options().lease(LEASE).ordered_keys(self.ordered);
        options.open(self.server.url()).await.unwrap()
    }
}

async fn of(ordered: bool) {
    let server = NatsServer::start().await;
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
