//! A volume of messages over Kafka.

use hapax::Kafka;

use super::rig::{SESSION, unique, url};

#[path = "../broker/volume.rs"]
mod broker;

struct Topics {
    prefix: String,
    ordered: bool,
}

impl broker::Broker for Topics {
    type Queue = Kafka;

    /// Fewer than elsewhere: the broker of the tests takes one message in a batch, and each death lets a group form anew.
    const FEW: u32 = 1_000;
    const MANY: u32 = 20_000;

    async fn start(ordered: bool) -> Self {
        Self { prefix: unique("volume"), ordered }
    }

    async fn open(&self) -> Kafka {
        let options = Kafka::options().prefix(&self.prefix).session(SESSION).batch(1);
        options.ordered_keys(self.ordered).open(url()).await.unwrap()
    }
}

broker::volumes!(Topics);
