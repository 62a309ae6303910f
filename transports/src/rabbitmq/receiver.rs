//! An endpoint's end of a queue. Whatever is not simply acknowledged is first put, confirmed, where it goes, and only then taken from here.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, future::BoxFuture};
use hapax_core::{
    envelope::{Destination, Envelope},
    ids::{EndpointName, TypeName},
    ports::{Delivery, Receipt, Receiver, Settled, Settlement, TransportError},
    time::Timestamp,
};
use lapin::{
    BasicProperties, Channel, Consumer,
    message::Delivery as Given,
    options::{BasicConsumeOptions, BasicQosOptions},
    types::FieldTable,
};
use tokio::{sync::Mutex as AsyncMutex, time::timeout};

use super::{
    RabbitMq,
    dispatcher::{Fields, Parcel, Route},
    endings::{Endings, How, SETTLING, Tagged, Unsettled, endings},
    errors::{ended, error_of, late},
    letters::letter_extras,
    link::Linked,
    message::{Extras, as_letter, envelope_of, properties_of},
    topology::short,
};
use crate::reason::reason_of;

const RECEIVING: &str = "receiving messages";
/// What comes less than this before its due time is given: clocks differ by more.
const EARLY: Duration = Duration::from_millis(10);
/// Before a message that could not be put where it belongs is tried again, or given back, from where it comes again at once.
const REST: Duration = Duration::from_secs(1);

/// One endpoint's end of a queue, with a connection of its own: a server that holds publishers back goes on delivering.
pub(super) struct EndpointQueue(Arc<End>);

struct End {
    rabbit: RabbitMq,
    endpoint: EndpointName,
    types: Vec<TypeName>,
    consuming: AsyncMutex<Option<Consuming>>,
    held: Mutex<HashMap<u64, Held>>,
    endings: Endings,
    next: AtomicU64,
    /// A connection was, so that what it needs is declared before the next one.
    lost: AtomicBool,
}

struct Consuming {
    /// Held since messages come on it. Dropped, it is closed, and what is not settled is given to others.
    _connection: Linked,
    /// Held since the consumer ends with it.
    _channel: Channel,
    consumer: Consumer,
    unsettled: Arc<Unsettled>,
}

/// A message that is not settled.
#[derive(Clone)]
struct Held {
    tagged: Tagged,
    envelope: Arc<Envelope>,
    attempts: u32,
}

impl EndpointQueue {
    /// It begins to consume when it is first asked for messages: the server hands them out to whoever consumes, asked or
    /// not, and those that one holds who never asks would be kept from all others.
    pub(super) fn new(rabbit: RabbitMq, endpoint: EndpointName, types: &[TypeName]) -> Self {
        let endings = endings(rabbit.0.options.patience);
        Self(Arc::new(End {
            rabbit,
            endpoint,
            types: types.to_vec(),
            consuming: AsyncMutex::default(),
            held: Mutex::default(),
            endings,
            next: AtomicU64::new(1),
            lost: AtomicBool::new(false),
        }))
    }
}

#[async_trait]
impl Receiver for EndpointQueue {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, TransportError> {
        let mut consuming = self.0.consuming.lock().await;
        loop {
            let Consuming { consumer, unsettled, .. } = match &mut *consuming {
                Some(consuming) => consuming,
                None => consuming.insert(self.0.consume().await?),
            };
            // From the first on nothing is waited for: a call that is dropped has taken nothing.
            let mut given = Some(consumer.next().await);
            let mut deliveries: Vec<Delivery> = Vec::new();
            while let Some(Some(Ok(message))) = given {
                deliveries.extend(self.0.take(message, unsettled));
                given = if deliveries.len() < max.max(1) { consumer.next().now_or_never() } else { None };
            }
            // The end is told once. What has come before it is the server's again, like all that is not settled.
            if let Some(end) = given {
                self.0.lost(consuming.take());
                return Err(ended(RECEIVING, self.0.rabbit.0.link.place(), end.and_then(Result::err)));
            }
            if !deliveries.is_empty() {
                return Ok(deliveries);
            }
        }
    }

    /// Leases last as long as the connection.
    async fn extend(&self, _receipts: &[Receipt]) -> Result<(), TransportError> {
        Ok(())
    }

    async fn settle(&self, receipt: &Receipt, settlement: Settlement) -> Result<Settled, TransportError> {
        let Some(number) = receipt.as_number() else { return Ok(Settled::LeaseLost) };
        let Some(held) = self.0.held().get(&number).cloned() else { return Ok(Settled::LeaseLost) };
        let settled = self.0.settle(&held, settlement).await;
        self.0.held().remove(&number);
        if settled.is_err() {
            // Its lease does not run out by itself, so it would be kept from everybody.
            self.0.give_back_later(held);
        }
        settled
    }
}

impl End {
    fn held(&self) -> MutexGuard<'_, HashMap<u64, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection that messages come on.
    async fn consume(&self) -> Result<Consuming, TransportError> {
        let broker = &self.rabbit.0;
        let (place, patience) = (broker.link.place(), broker.options.patience);
        let connection = broker.link.connect().await?;
        if self.lost.swap(true, Ordering::Relaxed) {
            // The queue may have gone with a server whose disk was lost. On this connection: a server that is short of memory
            // does not read from those who publish, and would never be relieved.
            broker.set_up_on(&connection).await?;
            broker.subscribe_on(&connection, &self.endpoint, &self.types).await?;
        }
        let begun = async {
            let channel = connection.create_channel().await?;
            channel.basic_qos(broker.options.prefetch, BasicQosOptions::default()).await?;
            let (queue, tag) = (short(&broker.names.queue(&self.endpoint))?, short("")?);
            let options = BasicConsumeOptions::default();
            let consumer = channel.basic_consume(queue, tag, options, FieldTable::default()).await?;
            Ok((channel, consumer))
        };
        match timeout(patience, begun).await {
            Ok(Ok((channel, consumer))) => {
                self.lost.store(false, Ordering::Relaxed);
                Ok(Consuming { _connection: connection, _channel: channel, consumer, unsettled: Arc::default() })
            }
            Ok(Err(e)) => Err(error_of(RECEIVING, place, e, false)),
            Err(_) => Err(late(RECEIVING, place, patience, false)),
        }
    }

    /// What was given on a connection that has ended is the server's again.
    fn lost(&self, consuming: Option<Consuming>) {
        self.lost.store(true, Ordering::Relaxed);
        drop(consuming);
        self.held().clear();
    }

    /// A message for the endpoint, unless it is none, or not due yet.
    fn take(self: &Arc<Self>, given: Given, unsettled: &Arc<Unsettled>) -> Option<Delivery> {
        let Given { properties, data, acker, delivery_tag, .. } = given;
        if !acker.usable() {
            return None; // It came ahead of a connection's end, and is the server's again.
        }
        let tagged = Tagged::new(acker, delivery_tag, unsettled);
        match envelope_of(&properties, data.clone(), &self.rabbit.0.names) {
            Ok((envelope, attempts)) => {
                let held = Held { tagged, envelope: envelope.clone(), attempts };
                if envelope.due.is_some_and(|due| Timestamp::now().after(EARLY) < due) {
                    self.put_off(held);
                    return None;
                }
                let number = self.next.fetch_add(1, Ordering::Relaxed);
                self.held().insert(number, held);
                Some(Delivery { envelope, receipt: Receipt::number(number), attempts })
            }
            Err(problem) => {
                self.set_aside(tagged, properties, data, reason_of(&problem));
                None
            }
        }
    }

    /// Ends a delivery. What is not simply acknowledged is first put, confirmed, where it goes, and only then taken from
    /// here: a crash in between leaves two copies, and never none.
    async fn settle(&self, held: &Held, settlement: Settlement) -> Result<Settled, TransportError> {
        if !held.tagged.is_held() {
            return Ok(Settled::LeaseLost);
        }
        match settlement {
            Settlement::Ack => {}
            Settlement::Retry { delay: Duration::ZERO, counts: true } => return self.give_back(held).await,
            Settlement::Retry { delay, counts } => {
                let attempts = if counts { held.attempts } else { held.attempts.saturating_sub(1) };
                self.again_after(held, delay, attempts).await?;
            }
            Settlement::DeadLetter { reason } => {
                let letter = letter_extras(&self.endpoint, None, None, &reason, Timestamp::now());
                let extras = Extras { attempts: held.attempts, letter, waits: true };
                let (broker, now) = (&self.rabbit.0, Timestamp::now());
                let written_as = broker.options.written_as.with_body_as_it_is();
                let properties = properties_of(&held.envelope, &extras, &broker.names, &written_as, now);
                broker.put_letter(SETTLING, &self.endpoint, properties, &held.envelope.body).await?;
            }
        }
        self.acknowledge(held).await
    }

    async fn acknowledge(&self, held: &Held) -> Result<Settled, TransportError> {
        self.rabbit.0.end(&self.endings, held.tagged.clone(), How::Acknowledged).await
    }

    /// To the server, which counts it and gives it again at once.
    async fn give_back(&self, held: &Held) -> Result<Settled, TransportError> {
        self.rabbit.0.end(&self.endings, held.tagged.clone(), How::GivenBack).await
    }

    /// Another copy, which says how often the message has been given.
    async fn again_after(&self, held: &Held, delay: Duration, attempts: u32) -> Result<(), TransportError> {
        let (broker, now) = (&self.rabbit.0, Timestamp::now());
        let here = Destination::Endpoint(self.endpoint.clone());
        let waiting = broker.waiting(now.after(delay), now, &here);
        let extras = Extras { attempts, waits: waiting.is_some(), letter: Vec::new() };
        let written_as = broker.options.written_as.with_body_as_it_is();
        let properties = properties_of(&held.envelope, &extras, &broker.names, &written_as, now);
        self.put(waiting.unwrap_or_else(|| broker.route(&here)), properties, &held.envelope.body).await
    }

    async fn put(&self, route: Route, properties: BasicProperties, body: &Bytes) -> Result<(), TransportError> {
        let parcel =
            Parcel { route, may_go_nowhere: false, fields: Fields::Made(Box::new(properties)), body: body.clone() };
        self.rabbit.0.publish(SETTLING, &[parcel]).await.into_iter().collect()
    }

    /// Waits on for its due time: one delay may be too short for it, and clocks differ.
    fn put_off(self: &Arc<Self>, held: Held) {
        let tagged = held.tagged.clone();
        self.put_in_the_end(tagged, "putting off a message that is not due", move |end| {
            let held = held.clone();
            Box::pin(async move {
                let delay = held.envelope.due.map_or(Duration::ZERO, |due| due.since(Timestamp::now()));
                // It was given to nobody, so it is not counted.
                end.again_after(&held, delay, held.attempts.saturating_sub(1)).await
            })
        });
    }

    /// What is no message of ours, with its properties as they came.
    fn set_aside(self: &Arc<Self>, tagged: Tagged, properties: BasicProperties, data: Vec<u8>, reason: String) {
        tracing::error!(endpoint = %self.endpoint, reason, "a message that cannot be read is set aside among the dead letters");
        let extras = letter_extras(&self.endpoint, None, None, &reason, Timestamp::now());
        let (properties, data) = (as_letter(&properties, &extras), Bytes::from(data));
        self.put_in_the_end(tagged, "setting a message aside", move |end| {
            let (properties, data) = (properties.clone(), data.clone());
            Box::pin(async move { end.rabbit.0.put_letter(SETTLING, &end.endpoint, properties, &data).await })
        });
    }

    /// Puts a message where it belongs and then acknowledges it, however often it takes; in a task of its own, since nobody
    /// waits for it. It ends with the connection, or with this end, and then the message comes again.
    fn put_in_the_end<F>(self: &Arc<Self>, tagged: Tagged, what: &'static str, put: F)
    where
        F: Fn(Arc<Self>) -> BoxFuture<'static, Result<(), TransportError>> + Send + 'static,
    {
        let weak = Arc::downgrade(self);
        tokio::spawn(async move {
            while tagged.is_held() {
                // Not held while it rests: the connection goes with the last who holds it.
                let Some(end) = weak.upgrade() else { return };
                match put(end.clone()).await {
                    Ok(()) => return drop(end.rabbit.0.end(&end.endings, tagged, How::Acknowledged).await),
                    Err(e) => tracing::warn!(error = ?e, "{what} failed; tried again"),
                }
                drop(end);
                tokio::time::sleep(REST).await;
            }
        });
    }

    /// Gives a message back after a rest, since what it failed for may last.
    fn give_back_later(self: &Arc<Self>, held: Held) {
        let weak = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep(REST).await;
            // If the connection is lost, so is the delivery, and the message comes again anyway.
            if let Some(end) = weak.upgrade() {
                drop(end.give_back(&held).await);
            }
        });
    }
}

impl fmt::Debug for EndpointQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointQueue").field("endpoint", &self.0.endpoint).finish_non_exhaustive()
    }
}
