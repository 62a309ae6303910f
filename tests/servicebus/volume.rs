//! A volume of messages over AMQP 1.0, on a RabbitMQ of the test's own. Such a server keeps no order of this transport's.

use hapax_tests::RabbitMqServer;

use super::{
    endpoints::{Counted, Counts},
    rig::Queues,
};

#[path = "../broker/volume.rs"]
mod broker;

struct Plain {
    server: RabbitMqServer,
    counts: Counts,
}

impl broker::Broker for Plain {
    type Queue = Counted;

    const FEW: u32 = 1_000;
    const MANY: u32 = 20_000;
    const BACKLOG_MAX: u64 = 5_000;

    async fn start(_: bool) -> Self {
        Self { server: RabbitMqServer::with_amqp_1_0().await, counts: Counts::default() }
    }

    async fn open(&self) -> Counted {
        Counted { queues: Queues::open(self.server.url()).await, counts: self.counts.clone() }
    }
}

broker::volumes!(Plain, unordered);
