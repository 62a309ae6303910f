//! Sending: confirmed publishing. A message that the server refuses ends its channel, so it is found and the others are sent without it.

use std::{collections::HashSet, error::Error, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use hapax_core::{
    envelope::{Destination, Envelope, Outgoing},
    ports::{DispatchError, Dispatcher, ErrorKind, Refused, TransportError},
    time::Timestamp,
};
use lapin::{
    BasicProperties, Confirmation, PublisherConfirm, message::BasicReturnMessage, options::BasicPublishOptions,
};
use tokio::time::timeout;

use super::{
    Broker, RabbitMq,
    errors::{error_of, late, too_large},
    message::{Extras, HEADERS_BYTES_MAX, headers_bytes, properties_of},
    names::{delayed, topic_key},
    topology::short,
};
use crate::{
    own_fields::{OWN_FIELDS_BYTES_MAX, has_own_fields_only},
    together::{Asker, Bounds, Caller, Together, tell},
    written_as::WrittenAs,
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

/// What became of each of some messages, or of all of them.
type Published = Result<Vec<Result<(), TransportError>>, TransportError>;

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
    pub(super) fields: Fields,
    pub(super) body: Bytes,
}

/// What AMQP carries beside a body.
pub(super) enum Fields {
    /// Made when it is sent, since the driver keeps what it is given, and a copy costs as much: of a message that waits for its due time, or
    /// of one that does not.
    Of {
        envelope: Arc<Envelope>,
        waits: bool,
    },
    Made(Box<BasicProperties>),
}

#[async_trait]
impl Dispatcher for RabbitMq {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        let options = &self.0.options;
        let body = options.written_as.body(&outgoing.envelope);
        let (bytes, bytes_max) = (outgoing.envelope.size().max(body.len()), options.message_bytes_max);
        if bytes > bytes_max {
            return Err(Refused(format!("the message has {bytes} bytes; these queues take {bytes_max}")));
        }
        // It is asked before every save.
        const { assert!(OWN_FIELDS_BYTES_MAX < HEADERS_BYTES_MAX) };
        if has_own_fields_only(&outgoing.envelope) && options.written_as == WrittenAs::Plain {
            return Ok(());
        }
        let bytes = headers_bytes(&outgoing.envelope, &options.written_as);
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
        results.into_iter().map(|result| result.map_err(for_good)).collect()
    }
}

impl Broker {
    /// What several calls have asked for, as long as there is any.
    async fn publish_together(self: Arc<Self>, mut caller: Caller<Parcel, Result<(), TransportError>>) {
        while let Some((parcels, askers)) = caller.next() {
            match self.publish_once(DISPATCHING, &parcels).await {
                Err(e) if parcels.len() > 1 && is_refused(&e) => self.publish_apart(&parcels, askers).await,
                published => {
                    let mut published = each(DISPATCHING, published, parcels.len()).into_iter();
                    for asker in askers {
                        asker.answer_from(&mut published);
                    }
                }
            }
        }
    }

    /// The server has refused one of them for what is in it, and has ended the channel with whatever else was on it. Who has not asked for
    /// that one is not to suffer for it, now and whenever it is sent again, nor to wait for more than goes before it. What was sent is sent
    /// twice, under the same id.
    async fn publish_apart(&self, parcels: &[Parcel], askers: Vec<Asker<Result<(), TransportError>>>) {
        let (mut rest, mut away) = (parcels, None);
        for asker in askers {
            let (these, others) = rest.split_at(asker.count());
            rest = others;
            asker.answer_from(&mut self.publish_halves(these, &mut away).await.into_iter());
        }
    }

    /// What one has asked for. Where the server refuses it, first one half and then the other, until the refused one is alone: a table's relay
    /// asks for what many have stored, and what stands behind that one would never be sent.
    async fn publish_halves(
        &self,
        these: &[Parcel],
        away: &mut Option<TransportError>,
    ) -> Vec<Result<(), TransportError>> {
        let (mut results, mut left) = (Vec::with_capacity(these.len()), vec![these]);
        while let Some(part) = left.pop() {
            let published = match away.as_ref() {
                None => self.publish_once(DISPATCHING, part).await,
                Some(e) => Err(again(DISPATCHING, e)),
            };
            match published {
                Err(e) if part.len() > 1 && is_refused(&e) => {
                    let (first, second) = part.split_at(part.len() / 2);
                    left.extend([second, first]);
                }
                published => {
                    // A server that is gone, or does not answer, would be waited for once more for each that is left.
                    if let Err(e) = &published
                        && away.is_none()
                        && !is_refused(e)
                    {
                        *away = Some(again(DISPATCHING, e));
                    }
                    results.extend(each(DISPATCHING, published, part.len()));
                }
            }
        }
        results
    }

    fn parcel(&self, outgoing: &Outgoing, now: Timestamp) -> Parcel {
        let envelope = &outgoing.envelope;
        let waits = envelope.due.and_then(|due| self.waiting(due, now, &outgoing.destination));
        let fields = Fields::Of { envelope: envelope.clone(), waits: waits.is_some() };
        // An event that nobody subscribes goes nowhere; one that is to wait must have a queue for that.
        let may_go_nowhere = waits.is_none() && matches!(outgoing.destination, Destination::Topic(_));
        let route = waits.unwrap_or_else(|| self.route(&outgoing.destination));
        Parcel { route, may_go_nowhere, fields, body: self.options.written_as.body(envelope) }
    }

    fn properties(&self, fields: &Fields) -> BasicProperties {
        match fields {
            Fields::Of { envelope, waits } => {
                let extras = Extras { waits: *waits, ..Extras::default() };
                properties_of(envelope, &extras, &self.names, &self.options.written_as, Timestamp::now())
            }
            Fields::Made(properties) => (**properties).clone(),
        }
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
        each(operation, self.publish_once(operation, parcels).await, parcels.len())
    }

    /// The same, or what became of all of them.
    async fn publish_once(&self, operation: &'static str, parcels: &[Parcel]) -> Published {
        if parcels.is_empty() {
            return Ok(Vec::new());
        }
        let (place, patience) = (self.link.place(), self.options.patience);
        let mut lent = self.publisher.channel(&self.link).await?;
        let mut results: Vec<Result<(), TransportError>> = Vec::with_capacity(parcels.len());
        let mut returned: Vec<BasicReturnMessage> = Vec::new();
        lent.begin();
        let confirmed = async {
            let mut confirms: Vec<PublisherConfirm> = Vec::with_capacity(parcels.len());
            for parcel in parcels {
                let mandatory = !parcel.may_go_nowhere;
                let options = BasicPublishOptions { mandatory, ..BasicPublishOptions::default() };
                let (exchange, key) = (short(&parcel.route.exchange)?, short(&parcel.route.key)?);
                let properties = self.properties(&parcel.fields);
                match lent.channel.basic_publish(exchange, key, options, &parcel.body, properties).await {
                    Ok(confirm) => confirms.push(confirm),
                    Err(e) => return Err(why_ended(e, confirms).await),
                }
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
                let e = match parcels.len() {
                    1 => too_large(operation, place, e),
                    _ => Err(e),
                };
                return Err(e.unwrap_or_else(|e| error_of(operation, place, e, true)));
            }
            Err(_) => return Err(late(operation, place, patience, true)),
        }
        self.count_returned(operation, parcels, &returned, &mut results);
        Ok(results)
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

/// What the server takes less of than this was told it does is never sent.
fn for_good(error: DispatchError) -> DispatchError {
    match error {
        DispatchError::Transient(e) if e.kind() == ErrorKind::TooLarge => DispatchError::Permanent(e),
        error => error,
    }
}

/// Why a message could not be published behind `confirms`: what comes when the channel has ended is told that it has, and what was not confirmed
/// before is told why.
async fn why_ended(error: lapin::Error, confirms: Vec<PublisherConfirm>) -> lapin::Error {
    if !matches!(error.kind(), lapin::ErrorKind::ProtocolError(_)) {
        for confirm in confirms {
            if let Err(why) = confirm.await {
                return why;
            }
        }
    }
    error
}

/// Whether the server has ended the channel for what was said on it; also where it had done so before a word was said, which nothing but
/// another channel can tell.
fn is_refused(error: &TransportError) -> bool {
    use lapin::ErrorKind::{InvalidChannelState, ProtocolError};
    said(error).is_some_and(|error| matches!(error.kind(), ProtocolError(_) | InvalidChannelState(..)))
}

/// What the driver has said.
fn said(error: &TransportError) -> Option<&lapin::Error> {
    error.source()?.downcast_ref()
}

/// The same error, told of another message.
pub(super) fn again(operation: &'static str, error: &TransportError) -> TransportError {
    let text = error.to_string();
    let text = text.strip_prefix(operation).and_then(|text| text.strip_prefix(": ")).unwrap_or(&text);
    let again = TransportError::new(error.kind(), operation, text);
    match said(error) {
        Some(cause) => again.caused_by(cause.clone()),
        None => again,
    }
}

/// What became of each of `count` messages.
fn each(operation: &'static str, published: Published, count: usize) -> Vec<Result<(), TransportError>> {
    published.unwrap_or_else(|e| (0..count).map(|_| Err(again(operation, &e))).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use lapin::{
        ChannelState,
        protocol::{AMQPError, AMQPSoftError},
    };

    use super::*;

    #[test]
    fn a_channel_that_the_server_has_ended_is_told_from_a_connection_that_is_gone() {
        let of = |kind: lapin::ErrorKind| error_of(DISPATCHING, "RabbitMQ", kind.into(), true);
        let refused = AMQPError::new(AMQPSoftError::PRECONDITIONFAILED.into(), "too large".into());
        let refused = of(lapin::ErrorKind::ProtocolError(refused));
        let behind = of(lapin::ErrorKind::InvalidChannelState(ChannelState::Closed, "basic.publish"));
        let gone = of(lapin::ErrorKind::MissingHeartbeatError);
        let is_refused =
            [&refused, &behind, &gone, &late(DISPATCHING, "RabbitMQ", Duration::ZERO, true)].map(is_refused);
        assert_eq!(is_refused, [true, true, false, false]);
    }

    #[test]
    fn each_message_of_a_call_is_told_the_same_with_its_cause() {
        let gone = error_of(DISPATCHING, "RabbitMQ", lapin::ErrorKind::MissingHeartbeatError.into(), true);
        let all = each(DISPATCHING, Err(again(DISPATCHING, &gone)), 2);
        assert_eq!(all.len(), 2);
        for one in all {
            let one = one.unwrap_err();
            assert_eq!((one.kind(), format!("{one:?}")), (gone.kind(), format!("{gone:?}")));
        }
    }
}
