//! A volume of messages over RabbitMQ.

use hapax::{RabbitMq, ids::EndpointName};

use super::rig::{unique, url};

#[path = "../broker/volume.rs"]
mod broker;

const FEW: u32 = 5_000;

struct Queues {
    prefix: String,
    ordered: bool,
}

impl broker::Broker for Queues {
    type Queue = RabbitMq;

    async fn open(&self) -> RabbitMq {
        RabbitMq::options().prefix(&self.prefix).ordered_keys(self.ordered).open(url()).await.unwrap()
    }
}

async fn of(ordered: bool) {
    let prefix = unique("v");
    let messages = broker::messages(FEW, broker::MANY);
    broker::passes_through(Queues { prefix: prefix.clone(), ordered }, messages, 2, ordered).await;
    let queue = RabbitMq::options().prefix(&prefix).open(url()).await.unwrap();
    queue.remove(&["front", "back"].map(|name| EndpointName::parse(name).unwrap())).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_volume_each_message_has_its_effect_once() {
    of(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_volume_in_order_each_message_has_its_effect_once_and_each_key_its_order() {
    of(true).await;
}
