//! What is published on one broker is published on another: see `main.rs`.

mod across;

use std::{sync::Arc, time::Duration};

pub use across::Across;
use hapax::{
    Context, Endpoint, Handler, HandlerError, Message, Nats, RabbitMq, RedisStreams, Sender, Sqlite,
    endpoint::EndpointBuilder,
    ports::{Dispatcher, Transport},
};
use serde::{Deserialize, Serialize};

/// For so long at most a program that has died keeps others from what it had been given; one that lives extends it.
const LEASE: Duration = Duration::from_secs(5);
/// What is given to one program ahead of its work, and so has to wait when it dies.
const PREFETCH: u16 = 64;

/// What goes wrong at the start.
pub type Failed = Box<dyn std::error::Error + Send + Sync>;

/// An order has been placed: published by a shop on one broker, wanted by others on another.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Placed {
    /// Its number.
    pub order: u64,
}

impl Message for Placed {
    const TYPE: &'static str = "shop.placed";
}

/// Header of what has come over a bridge: its name.
pub const BRIDGED_BY: &str = "bridged-by";

/// Takes what is published here and publishes it there, unless it has come over a bridge itself: two bridges of both directions would send
/// it round and round, under a new id each time.
struct Forward;

impl Handler<Placed> for Forward {
    const NAME: &'static str = "forward";

    async fn handle(&self, placed: Placed, cx: &mut Context) -> Result<(), HandlerError> {
        match cx.incoming().headers.value(BRIDGED_BY) {
            Some(_) => Ok(()),
            None => cx.publish(placed),
        }
    }
}

/// A broker, by its URL.
#[derive(Debug, Clone)]
pub struct Broker {
    /// Receives.
    pub transport: Arc<dyn Transport>,
    /// Sends.
    pub dispatcher: Arc<dyn Dispatcher>,
}

impl Broker {
    /// Connects to the broker at `url`; what belongs to the bridge is named with `prefix` there.
    ///
    /// # Errors
    /// When it cannot be reached, is refused, or `url` is for none of these brokers.
    pub async fn open(url: &str, prefix: &str) -> Result<Self, Failed> {
        match url.split_once("://").map(|(scheme, _)| scheme) {
            Some("amqp" | "amqps") => {
                Ok(Self::of(RabbitMq::options().prefix(prefix).prefetch(PREFETCH).open(url).await?))
            }
            Some("nats" | "tls") => {
                Ok(Self::of(Nats::options().prefix(prefix).prefetch(PREFETCH).lease(LEASE).open(url).await?))
            }
            Some("redis" | "rediss") => {
                Ok(Self::of(RedisStreams::options().prefix(prefix).lease(LEASE).open(url).await?))
            }
            // A URL may hold a password: it is not repeated.
            _ => Err("a broker is amqp://HOST:PORT, nats://HOST:PORT or redis://HOST:PORT".into()),
        }
    }

    fn of<T: Transport + Dispatcher + 'static>(queues: T) -> Self {
        let queues = Arc::new(queues);
        Self { transport: queues.clone(), dispatcher: queues }
    }

    /// For whoever sends without being an endpoint.
    #[must_use]
    pub fn sender(&self) -> Sender {
        Sender::new(self.dispatcher.clone())
    }
}

/// The bridge: whatever comes twice from `here`, and however often a program of it dies, `there` has each message under one id.
///
/// `name` is that of its endpoint, and so of its queue `here` and of its entries in `store`. Programs of one bridge share it. Another bridge
/// from the same broker, or in the same store, has another: with the same, each would take a part of the other's messages.
pub fn bridge(name: &str, store: Sqlite, here: Broker, there: Broker) -> EndpointBuilder {
    Endpoint::builder(name).store(store).transport(Across::new(name, here, there)).handler(Forward)
}
