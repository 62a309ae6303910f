//! A volume of messages over SQS, on an emulator of the test's own.

use std::time::Duration;

use hapax::Sqs;
use hapax_tests::SqsServer;

#[path = "../broker/volume.rs"]
mod broker;

/// As long as one that died keeps what it was given.
const LEASE: Duration = Duration::from_secs(5);

struct Queues {
    server: SqsServer,
    ordered: bool,
}

impl broker::Broker for Queues {
    type Queue = Sqs;

    /// Fewer than elsewhere: the emulator serves one request at a time.
    const FEW: u32 = 500;
    const MANY: u32 = 20_000;
    /// It looks through all that wait for each call.
    const BACKLOG_MAX: u64 = 200;
    /// Of several of a group whose time has run out together, the emulator passes over all but the last: one of its group is still on its way, it
    /// says, of each in front of that (`receive_message` in moto's `sqs/models.py`). So that comes first.
    const KEEPS_ITS_PLACE: bool = false;

    async fn start(ordered: bool) -> Self {
        // Nobody kills it here, and to write thousands of messages to the disk at each request would be all that it does.
        Self { server: SqsServer::that_forgets().await, ordered }
    }

    async fn open(&self) -> Sqs {
        let options = Sqs::options().lease(LEASE).ordered_keys(self.ordered).wait(Duration::from_secs(2));
        options.open(&Sqs::local_client(&self.server.url())).await.unwrap()
    }
}

broker::volumes!(Queues);
