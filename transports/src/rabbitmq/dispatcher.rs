use std::{collections::HashSet, error::Error, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use hapax_core::{
    envelope::{Destination, Outgoing},
    ports::{DispatchError, Dispatcher, ErrorKind, Refused, TransportError},
    time::Timestamp,
};
use lapin::{
    BasicProperties, Confirmation, PublisherConfirm, message::BasicReturnMessage, options::BasicPublishOptions,
};
use tokio::time::timeout;

use super::{
    Broker, RabbitMq,
    errors::{error_of, late},
    message::{HEADERS_BYTES_MAX, Marks, headers_bytes, properties_of},
    names::{delayed, topic_key},
    topology::short,
};
use crate::{
    own_fields::{OWN_FIELDS_BYTES_MAX, has_own_fields_only},
    together::{Asker, Bounds, Caller, Together, tell},
};

pub(super) const DISPATCHING: &str = "dispatching messages";
/// Calls under way at a time, each on a channel, and messages of each: enough of them that the server always has some, and few enough that a
/// process of it for each channel confirms many at once.
const CALLS_MAX: usize = 8;
const TOGETHER_MAX: usize = 512;

/// Messages of several calls on their way to the server.
pub(super) type Dispatches = Arc<Together<Parcel, Result<(), TransportError>>>;

/// None so far.
pub(super) fn dispatches(patience: Duration) -> Dispatches {
    Together::new(Bounds::of(CALLS_MAX, TOGETHER_MAX, patience))
}

/// Where a message is published.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Route {
    pub(super) exchange: String,
    pub(super) key: String,
}

/// A message on its way to the server.
pub(super) struct Parcel {
    pub(super) route: Route,
    /// No queue is fine too. The server does not send such a message back, and so the driver does not log it.
    pub(super) may_go_nowhere: bool,
    pub(super) properties: BasicProperties,
    pub(super) body: Bytes,
}

#[async_trait]
impl Dispatcher for RabbitMq {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        let (bytes, bytes_max) = (outgoing.envelope.size(), self.0.options.message_bytes_max);
        if bytes > bytes_max {
            return Err(Refused(format!("the message has {bytes} bytes; these queues take {bytes_max}")));
        }
        // It is asked before every save.
        const { assert!(OWN_FIELDS_BYTES_MAX < HEADERS_BYTES_MAX) };
        if has_own_fields_only(&outgoing.envelope) {
            return Ok(());
        }
        let bytes = headers_bytes(&outgoing.envelope);
        if bytes > HEADERS_BYTES_MAX {
            return Err(Refused(format!(
                "the headers have {bytes} bytes; RabbitMQ takes {HEADERS_BYTES_MAX} in one frame"
            )));
        }
        Ok(())
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        let now = Timestamp::now();
        let mut results: Vec<Result<(), DispatchError>> = Vec::with_capacity(outgoing.len());
        let (mut parcels, mut bytes) = (Vec::with_capacity(outgoing.len()), 0);
        for outgoing in outgoing {
            results.push(self.check(outgoing).map_err(|refused| {
                DispatchError::Permanent(TransportError::new(ErrorKind::TooLarge, DISPATCHING, refused.0))
            }));
            if results.last().is_some_and(Result::is_ok) {
                parcels.push(self.0.parcel(outgoing, now));
                bytes += outgoing.envelope.size();
            }
        }
        if parcels.is_empty() {
            return results;
        }
        let broker = self.0.clone();
        let published = self.0.dispatches.ask(parcels, bytes, move |caller| broker.publish_together(caller)).await;
        tell(&mut results, published, DISPATCHING);
        results
    }
}

impl Broker {
    /// What several calls have asked for, as long as there is any.
    async fn publish_together(self: Arc<Self>, mut caller: Caller<Parcel, Result<(), TransportError>>) {
        while let Some((parcels, askers)) = caller.next() {
            let mut published = self.publish(DISPATCHING, &parcels).await;
            if askers.len() > 1 && published.iter().any(is_refused) {
                published = self.publish_apart(&parcels, &askers).await;
            }
            let mut published = published.into_iter();
            for asker in askers {
                asker.answer_from(&mut published);
            }
        }
    }

    /// The server has refused one of them for what is in it, and has ended the channel with whatever else was on it. Who has not asked for
    /// that one is not to suffer for it, now and whenever it is sent again. What was sent is sent twice, under the same id.
    async fn publish_apart(
        &self,
        parcels: &[Parcel],
        askers: &[Asker<Result<(), TransportError>>],
    ) -> Vec<Result<(), TransportError>> {
        let (mut published, mut rest) = (Vec::with_capacity(parcels.len()), parcels);
        for asker in askers {
            let (these, others) = rest.split_at(asker.count());
            published.extend(self.publish(DISPATCHING, these).await);
            rest = others;
        }
        published
    }

    fn parcel(&self, outgoing: &Outgoing, now: Timestamp) -> Parcel {
        let envelope = &outgoing.envelope;
        let waits = envelope.due.and_then(|due| self.waiting(due, now, &outgoing.destination));
        let marks = Marks { waits: waits.is_some(), ..Marks::default() };
        // An event that nobody subscribes goes nowhere; one that is to wait must have a queue for that.
        let may_go_nowhere = waits.is_none() && matches!(outgoing.destination, Destination::Topic(_));
        let route = waits.unwrap_or_else(|| self.route(&outgoing.destination));
        let properties = properties_of(envelope, &marks, &self.names, now);
        Parcel { route, may_go_nowhere, properties, body: envelope.body.clone() }
    }

    pub(super) fn route(&self, destination: &Destination) -> Route {
        match destination {
            Destination::Endpoint(endpoint) => Route { exchange: String::new(), key: self.names.queue(endpoint) },
            Destination::Topic(topic) => Route { exchange: self.names.topics(), key: topic_key(topic) },
        }
    }

    /// Where what is due at `due` waits until then; `None` if it need not.
    pub(super) fn waiting(&self, due: Timestamp, now: Timestamp, destination: &Destination) -> Option<Route> {
        let millis = u64::try_from(due.since(now).as_millis()).unwrap_or(u64::MAX);
        let (level, key) = delayed(millis, destination)?;
        Some(Route { exchange: self.names.delay(level), key })
    }

    /// Publishes `parcels` in order; one result for each.
    pub(super) async fn publish(&self, operation: &'static str, parcels: &[Parcel]) -> Vec<Result<(), TransportError>> {
        if parcels.is_empty() {
            return Vec::new();
        }
        let (place, patience) = (self.link.place(), self.options.patience);
        let mut lent = match self.publisher.channel(&self.link).await {
            Ok(lent) => lent,
            Err(e) => {
                let again = || TransportError::new(e.kind(), operation, format!("{e}"));
                let mut all: Vec<_> = parcels.iter().skip(1).map(|_| Err(again())).collect();
                all.push(Err(e));
                return all;
            }
        };
        let mut results: Vec<Result<(), TransportError>> = Vec::with_capacity(parcels.len());
        let mut returned: Vec<BasicReturnMessage> = Vec::new();
        lent.begin();
        let confirmed = async {
            let mut confirms: Vec<PublisherConfirm> = Vec::with_capacity(parcels.len());
            for parcel in parcels {
                let mandatory = !parcel.may_go_nowhere;
                let options = BasicPublishOptions { mandatory, ..BasicPublishOptions::default() };
                let (exchange, key) = (short(&parcel.route.exchange)?, short(&parcel.route.key)?);
                let properties = parcel.properties.clone();
                confirms.push(lent.channel.basic_publish(exchange, key, options, &parcel.body, properties).await?);
            }
            for confirm in confirms {
                let confirmation = confirm.await?;
                let refused = || {
                    let why = format!("{place} refused the message: its queue is full, or could not write it");
                    TransportError::new(ErrorKind::Unavailable, operation, why)
                };
                results.push(if confirmation.is_ack() { Ok(()) } else { Err(refused()) });
                debug_assert!(!matches!(confirmation, Confirmation::NotRequested));
                returned.extend(confirmation.take_message());
            }
            Ok::<(), lapin::Error>(())
        };
        match timeout(patience, confirmed).await {
            // What was returned may hang on any of the confirmations: only when all are here is it known who was, and the
            // channel another's.
            Ok(Ok(())) => {
                lent.ended();
                lent.give_back();
            }
            Ok(Err(e)) => {
                lent.ended();
                return parcels.iter().map(|_| Err(error_of(operation, place, e.clone(), true))).collect();
            }
            Err(_) => return parcels.iter().map(|_| Err(late(operation, place, patience, true))).collect(),
        }
        self.count_returned(operation, parcels, &returned, &mut results);
        results
    }

    /// What the server has returned went into no queue, though it was confirmed. Known by its address and not by the
    /// confirmation it came with: see [`Publisher`](super::publisher::Publisher).
    fn count_returned(
        &self,
        operation: &'static str,
        parcels: &[Parcel],
        returned: &[BasicReturnMessage],
        results: &mut [Result<(), TransportError>],
    ) {
        if returned.is_empty() {
            return;
        }
        let nowhere: HashSet<(&str, &str)> =
            returned.iter().map(|message| (message.exchange.as_str(), message.routing_key.as_str())).collect();
        for (parcel, result) in parcels.iter().zip(results) {
            let Route { exchange, key } = &parcel.route;
            if result.is_ok() && nowhere.contains(&(exchange, key)) {
                let why = format!(
                    "{} has no queue for `{key}`: start its endpoint once, or correct the address",
                    self.link.place()
                );
                *result = Err(TransportError::new(ErrorKind::Unavailable, operation, why));
            }
        }
    }
}

/// Whether the server has ended the channel for what was said on it.
fn is_refused(published: &Result<(), TransportError>) -> bool {
    let said = published.as_ref().err().and_then(|e| e.source()?.downcast_ref::<lapin::Error>());
    said.is_some_and(|error| matches!(error.kind(), lapin::ErrorKind::ProtocolError(_)))
}
