//! A volume of messages over RabbitMQ.

use hapax::{RabbitMq, ids::EndpointName};

use super::rig::{unique, url};

#[path = "../broker/volume.rs"]
mod broker;

struct Queues {
    prefix: String,
    ordered: bool,
}

impl broker::Broker for Queues {
    type Queue = RabbitMq;

    async fn start(ordered: bool) -> Self {
        Self { prefix: unique("v"), ordered }
    }

    async fn open(&self) -> RabbitMq {
        RabbitMq::options().prefix(&self.prefix).ordered_keys(self.ordered).open(url()).await.unwrap()
    }

    async fn ends(&self) {
        let names = broker::NAMES.map(|name| EndpointName::parse(name).unwrap());
        self.open().await.remove(&names).await.unwrap();
    }
}

broker::volumes!(Queues);
