//! A RabbitMQ, NATS or Redis server, SQS, or Kafka, for the messages of a run, beside the database that keeps everything else.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use hapax::{
    Nats, RabbitMq, RedisStreams, Sender,
    endpoint::EndpointBuilder,
    ids::{EndpointName, TypeName},
    ports::{Connected, Delays, ErrorKind, Schedule, StoreError, Transport, TransportCapabilities, TransportError},
    transports::redis::MayLose,
};
use uuid::Uuid;

use crate::{Refusal, backend::Backend, itself::Vendor, place::is_host_and_port, say, shop::ENDPOINT, workers::LEASE};

/// What is sent ahead to one worker: what a kill gives to the others is this much, and no more waits for one that is stopped.
const PREFETCH: u16 = 64;
/// How long an answer of NATS is waited for: what is asked just as its server is killed is never answered, and is asked again while the run has
/// patience left.
const ANSWER: Duration = Duration::from_secs(5);
/// How long SQS waits for a message before it says that there is none: what comes for a worker that was killed meanwhile is hidden.
#[cfg(feature = "sqs")]
const WAIT: Duration = Duration::from_secs(1);
/// After how long without a sign of life a worker's partitions go to others. Brokers refuse less, unless they are told otherwise.
pub(crate) const SESSION: Duration = Duration::from_secs(6);
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

    async fn open(&self) -> Result<BrokerQueue, TransportError> {
        const NAME: &str = "hapax-orders";
        let (url, prefix) = (&self.url, &self.prefix);
        match self.kind() {
            Kind::RabbitMq => {
                let options = RabbitMq::options().prefix(prefix).prefetch(PREFETCH).connection_name(NAME);
                options.open(url).await.map(BrokerQueue::RabbitMq)
            }
            Kind::Nats => {
                let options = Nats::options().prefix(prefix).prefetch(PREFETCH).lease(LEASE).connection_name(NAME);
                options.patience(ANSWER).open(url).await.map(BrokerQueue::Nats)
            }
            #[cfg(feature = "sqs")]
            Kind::Sqs => {
                // In a box: the SDK's futures are too deep for the compiler together with those of a run.
                Box::pin(sqs_queues(url, prefix)).await.map(BrokerQueue::Sqs)
            }
            #[cfg(not(feature = "sqs"))]
            Kind::Sqs => Err(TransportError::new(
                ErrorKind::Misconfigured,
                "opening SQS queues",
                "this program was built without SQS; build it with --features sqs",
            )),
            #[cfg(feature = "kafka")]
            Kind::Kafka => {
                let options = hapax::Kafka::options().prefix(prefix).prefetch(PREFETCH).session(SESSION);
                // One message in a batch: what is left is counted, and Tansu counts wrongly where a larger one ends.
                options.batch(1).connection_name(NAME).open(url).await.map(BrokerQueue::Kafka)
            }
            #[cfg(not(feature = "kafka"))]
            Kind::Kafka => Err(TransportError::new(
                ErrorKind::Misconfigured,
                "opening Kafka queues",
                "this program was built without Kafka; build it with --features kafka",
            )),
            Kind::Redis => {
                let options = RedisStreams::options().prefix(prefix).connection_name(NAME).lease(LEASE);
                // Whether it keeps anything is its owner's affair; only the run's own, which does, is killed.
                options.may_lose(MayLose::Everything).open(url).await.map(BrokerQueue::Redis)
            }
        }
    }

    /// What it is.
    pub(crate) fn kind(&self) -> Kind {
        Kind::of(&self.url).unwrap_or(Kind::RabbitMq)
    }

    /// Whether it answers.
    pub(crate) async fn ask(&self) -> Result<(), TransportError> {
        self.open().await.map(drop)
    }

    /// Refuses what cannot be reached.
    pub(crate) async fn check(&self) -> Result<(), Refusal> {
        if self.kind() == Kind::Sqs && !is_host_and_port(sqs_at(&self.url)) {
            Vendor::Aws.check("--transport", "sqs", sqs_at(&self.url))?;
        }
        self.ask().await.map_err(|e| {
            let why = Refusal::caused("--transport", &e);
            Refusal::new(format!("{why}; write {} of a {} that runs", self.kind().form(), self.kind()))
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
        let of = match self.kind() {
            Kind::Nats => "streams",
            Kind::Kafka => "topics",
            Kind::RabbitMq | Kind::Redis | Kind::Sqs => "queues",
        };
        write!(f, "{} {of} {}*", self.kind(), self.prefix)
    }
}

impl fmt::Debug for Broker {
    /// Without the URL, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Broker").field(&self.prefix).finish()
    }
}

/// What stands behind the scheme: host and port of an emulator, or a region.
fn sqs_at(url: &str) -> &str {
    url.trim_start_matches("sqs://").trim_end_matches('/')
}

#[cfg(feature = "sqs")]
async fn sqs_queues(url: &str, prefix: &str) -> Result<hapax::Sqs, TransportError> {
    let misconfigured = |why| TransportError::new(ErrorKind::Misconfigured, "opening SQS queues", why);
    let client = sqs_client(sqs_at(url)).await.map_err(misconfigured)?;
    hapax::Sqs::options().prefix(prefix).lease(LEASE).wait(WAIT).open(&client).await
}

#[cfg(feature = "sqs")]
async fn sqs_client(at: &str) -> Result<aws_sdk_sqs::Client, String> {
    if is_host_and_port(at) {
        return Ok(hapax::Sqs::local_client(&format!("http://{at}")));
    }
    #[cfg(feature = "real")]
    {
        Ok(hapax_servers::real::sqs_client(&crate::itself::aws(at).await?))
    }
    #[cfg(not(feature = "real"))]
    Err(format!("{at} is no HOST:PORT, and this program was built without TLS; build it with --features real"))
}

/// Whether `url` asks for a broker that the run is to start.
pub(crate) fn is_private(url: &str) -> bool {
    Kind::of(url).is_some() && url.split_once(':').is_some_and(|(_, rest)| rest.trim_matches('/').is_empty())
}

/// Which broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    RabbitMq,
    Nats,
    Redis,
    Sqs,
    Kafka,
}

impl Kind {
    /// The one that a URL is for.
    pub(crate) fn of(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once(':')?;
        if !rest.is_empty() && !rest.starts_with("//") {
            return None;
        }
        match scheme {
            "amqp" | "amqps" => Some(Self::RabbitMq),
            "nats" | "tls" => Some(Self::Nats),
            "redis" | "rediss" => Some(Self::Redis),
            "sqs" => Some(Self::Sqs),
            "kafka" | "kafka+tls" => Some(Self::Kafka),
            _ => None,
        }
    }

    /// What its URLs look like.
    const fn form(self) -> &'static str {
        match self {
            Self::RabbitMq => "amqp://USER:PASSWORD@HOST:PORT/VHOST",
            Self::Nats => "nats://USER:PASSWORD@HOST:PORT",
            Self::Redis => "redis://USER:PASSWORD@HOST:PORT/DATABASE",
            Self::Sqs => "sqs://HOST:PORT",
            Self::Kafka => "kafka://HOST:PORT",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RabbitMq => "RabbitMQ",
            Self::Nats => "NATS",
            Self::Redis => "Redis",
            Self::Sqs => "SQS",
            Self::Kafka => "Kafka",
        })
    }
}

/// Queues on one of the brokers.
#[derive(Debug, Clone)]
pub(crate) enum BrokerQueue {
    RabbitMq(RabbitMq),
    Nats(Nats),
    Redis(RedisStreams),
    #[cfg(feature = "sqs")]
    Sqs(hapax::Sqs),
    #[cfg(feature = "kafka")]
    Kafka(hapax::Kafka),
}

impl BrokerQueue {
    fn sender(&self) -> Sender {
        match self {
            Self::RabbitMq(queue) => queue.sender(),
            Self::Nats(queue) => queue.sender(),
            Self::Redis(queue) => queue.sender(),
            #[cfg(feature = "sqs")]
            Self::Sqs(queue) => queue.sender(),
            #[cfg(feature = "kafka")]
            Self::Kafka(queue) => queue.sender(),
        }
    }

    /// What waits, and what is not due: on NATS, Redis and Kafka with what is given. What is not due on Kafka is not there.
    async fn backlog(&self, endpoint: &EndpointName) -> Result<u64, TransportError> {
        match self {
            Self::RabbitMq(queue) => Ok(queue.backlog(endpoint).await? + queue.delayed().await?),
            Self::Nats(queue) => Ok(queue.backlog(endpoint).await? + queue.unsettled(endpoint).await?),
            Self::Redis(queue) => queue.backlog(endpoint).await,
            #[cfg(feature = "sqs")]
            Self::Sqs(queue) => queue.backlog(endpoint).await,
            #[cfg(feature = "kafka")]
            Self::Kafka(queue) => queue.backlog(endpoint).await,
        }
    }

    async fn remove(&self, endpoints: &[EndpointName]) -> Result<(), TransportError> {
        match self {
            Self::RabbitMq(queue) => queue.remove(endpoints).await,
            Self::Nats(queue) => queue.remove(endpoints).await,
            Self::Redis(queue) => queue.remove(endpoints).await,
            #[cfg(feature = "sqs")]
            Self::Sqs(queue) => queue.remove(endpoints).await,
            #[cfg(feature = "kafka")]
            Self::Kafka(queue) => queue.remove(endpoints).await,
        }
    }
}

#[async_trait]
impl Transport for BrokerQueue {
    fn capabilities(&self) -> TransportCapabilities {
        match self {
            Self::RabbitMq(queue) => queue.capabilities(),
            Self::Nats(queue) => queue.capabilities(),
            Self::Redis(queue) => queue.capabilities(),
            #[cfg(feature = "sqs")]
            Self::Sqs(queue) => queue.capabilities(),
            #[cfg(feature = "kafka")]
            Self::Kafka(queue) => queue.capabilities(),
        }
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        match self {
            Self::RabbitMq(queue) => queue.connect(endpoint, types).await,
            Self::Nats(queue) => queue.connect(endpoint, types).await,
            Self::Redis(queue) => queue.connect(endpoint, types).await,
            #[cfg(feature = "sqs")]
            Self::Sqs(queue) => queue.connect(endpoint, types).await,
            #[cfg(feature = "kafka")]
            Self::Kafka(queue) => queue.connect(endpoint, types).await,
        }
    }
}

/// The store of a database, and queues on a broker. The queues of the database are there, and stay empty.
pub(crate) struct OnBroker<B> {
    kept: B,
    queue: BrokerQueue,
}

impl<B: Backend> Backend for OnBroker<B> {
    type Place = B::Place;
    type Store = B::Store;
    type Queue = BrokerQueue;

    async fn open(place: &B::Place, broker: Option<&Broker>, new: bool) -> Result<Self, StoreError> {
        const OPERATION: &str = "opening the queues";
        let Some(broker) = broker else {
            return Err(StoreError::new(ErrorKind::Misconfigured, OPERATION, "there is no broker"));
        };
        let kept = B::open(place, None, new).await?;
        let queue =
            broker.open().await.map_err(|e| StoreError::new(e.kind(), OPERATION, e.to_string()).caused_by(e))?;
        if queue.capabilities().delays == Delays::Never && kept.schedule().is_none() {
            let why = "these queues hold nothing back until it is due, and this store cannot; take another of the two";
            return Err(StoreError::new(ErrorKind::Misconfigured, OPERATION, why));
        }
        Ok(Self { kept, queue })
    }

    fn store(&self) -> &B::Store {
        self.kept.store()
    }

    fn queue(&self) -> &BrokerQueue {
        &self.queue
    }

    fn sender(&self) -> Sender {
        self.queue.sender()
    }

    fn hides_for(&self) -> Duration {
        match &self.queue {
            BrokerQueue::RabbitMq(_) | BrokerQueue::Nats(_) => QUIET,
            // What workers hold is counted.
            BrokerQueue::Redis(_) => Duration::ZERO,
            // The service counts about.
            #[cfg(feature = "sqs")]
            BrokerQueue::Sqs(_) => QUIET,
            #[cfg(feature = "kafka")]
            BrokerQueue::Kafka(_) => Duration::ZERO,
        }
    }

    async fn backlog(&self, endpoint: &EndpointName) -> Result<u64, StoreError> {
        let counted = self.queue.backlog(endpoint).await;
        let counted =
            counted.map_err(|e| StoreError::new(e.kind(), "counting messages", e.to_string()).caused_by(e))?;
        // What the schedule has goes to the queue first, and is taken off the schedule after that.
        match self.schedule() {
            Some(schedule) => Ok(counted + u64::from(schedule.next(endpoint).await?.is_some())),
            None => Ok(counted),
        }
    }

    fn schedule(&self) -> Option<impl Schedule + Clone + 'static> {
        let is_needed = self.queue.capabilities().delays == Delays::Never;
        self.kept.schedule().filter(|_| is_needed)
    }

    fn scheduled(&self, shop: EndpointBuilder) -> EndpointBuilder {
        match self.schedule() {
            Some(schedule) => shop.schedule(schedule),
            None => shop,
        }
    }

    async fn close(&self) {
        self.kept.close().await;
    }
}
