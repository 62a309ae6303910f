//! A RabbitMQ server for the messages of a run, beside the database that keeps everything else.

use std::{fmt, time::Duration};

use hapax::{
    RabbitMq, Sender,
    ids::EndpointName,
    ports::{ErrorKind, StoreError, TransportError},
};
use uuid::Uuid;

use crate::{Refusal, backend::Backend, say, shop::ENDPOINT};

/// What is sent ahead to one worker: what a kill gives to the others is this much, and no more waits for one that is stopped.
const PREFETCH: u16 = 64;
/// How long nothing is to be seen there before it counts as empty: longer than a message takes from one queue to the next.
const QUIET: Duration = Duration::from_millis(500);

/// Where it is, and what the run's queues are called there.
#[derive(Clone)]
pub(crate) struct Broker {
    url: String,
    prefix: String,
}

impl Broker {
    /// Names that no other run has.
    pub(crate) fn new(url: &str) -> Self {
        Self::named(url, &format!("orders-{}", &Uuid::new_v4().simple().to_string()[..12]))
    }

    /// Those with this prefix, which another process has declared.
    pub(crate) fn named(url: &str, prefix: &str) -> Self {
        Self { url: url.to_owned(), prefix: prefix.to_owned() }
    }

    /// The same, to tell a worker process.
    pub(crate) fn arguments(&self) -> [&str; 4] {
        ["--transport", &self.url, "--queues", &self.prefix]
    }

    async fn open(&self) -> Result<RabbitMq, TransportError> {
        RabbitMq::options()
            .prefix(&self.prefix)
            .prefetch(PREFETCH)
            .connection_name("hapax orders")
            .open(&self.url)
            .await
    }

    /// Refuses what cannot be reached.
    pub(crate) async fn check(&self) -> Result<(), Refusal> {
        let opened = self.open().await;
        opened.map(drop).map_err(|e| {
            let why = Refusal::caused("--transport", &e);
            Refusal::new(format!("{why}; write amqp://USER:PASSWORD@HOST:PORT/VHOST of a RabbitMQ that runs"))
        })
    }

    /// Removes its queues.
    pub(crate) async fn remove(&self) {
        let removed = async {
            let endpoints: Vec<EndpointName> = ENDPOINT.parse().into_iter().collect();
            self.open().await?.remove(&endpoints).await
        };
        if let Err(e) = removed.await {
            say(format_args!("{self} are still there: {e}; delete them"));
        }
    }
}

impl fmt::Display for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RabbitMQ queues {}.*", self.prefix)
    }
}

impl fmt::Debug for Broker {
    /// Without the URL, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Broker").field(&self.prefix).finish()
    }
}

/// The store of a database, and queues on a broker. The queues of the database are there, and stay empty.
pub(crate) struct OnBroker<B> {
    kept: B,
    queue: RabbitMq,
}

impl<B: Backend> Backend for OnBroker<B> {
    type Place = B::Place;
    type Store = B::Store;
    type Queue = RabbitMq;

    async fn open(place: &B::Place, broker: Option<&Broker>, new: bool) -> Result<Self, StoreError> {
        const OPERATION: &str = "opening the queues";
        let Some(broker) = broker else {
            return Err(StoreError::new(ErrorKind::Misconfigured, OPERATION, "there is no broker"));
        };
        let kept = B::open(place, None, new).await?;
        let queue =
            broker.open().await.map_err(|e| StoreError::new(e.kind(), OPERATION, e.to_string()).caused_by(e))?;
        Ok(Self { kept, queue })
    }

    fn store(&self) -> &B::Store {
        self.kept.store()
    }

    fn queue(&self) -> &RabbitMq {
        &self.queue
    }

    fn sender(&self) -> Sender {
        self.queue.sender()
    }

    fn hides_for(&self) -> Duration {
        QUIET
    }

    async fn backlog(&self, endpoint: &EndpointName) -> Result<u64, StoreError> {
        let counted = async { Ok(self.queue.backlog(endpoint).await? + self.queue.delayed().await?) };
        counted
            .await
            .map_err(|e: TransportError| StoreError::new(e.kind(), "counting messages", e.to_string()).caused_by(e))
    }

    async fn close(&self) {
        self.kept.close().await;
    }
}
