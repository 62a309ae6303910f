//! Sending: what several calls ask for at the same time goes together, each message with its own result.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use hapax_core::{
    envelope::Outgoing,
    ports::{DispatchError, Dispatcher, ErrorKind, Refused, TransportError},
    time::Timestamp,
};

use super::{
    Broker, Nats,
    message::{MESSAGE_ID, REASON_BYTES_MAX, escaped, wire_bytes, written},
    names::{Names, slot_of},
    publisher::{Parcel, Put, Sent, is_repeat, put},
};
use crate::{
    own_fields::{OWN_FIELDS_BYTES_MAX, has_own_fields_only},
    together::{Bounds, Caller, Together, tell},
    written_as::WrittenAs,
};

pub(super) const DISPATCHING: &str = "dispatching messages";
/// Of what the server takes, kept for what is said beside a message that is set aside.
const LETTER_BYTES: usize = REASON_BYTES_MAX + (2 << 10);

/// Calls under way at a time, and messages of each: enough of them that the server always has some, and as many messages as an endpoint
/// has under way unless told otherwise.
const CALLS_MAX: usize = 8;
const TOGETHER_MAX: usize = 1024;

/// Messages of several calls on their way to the server.
pub(super) type Dispatches = Arc<Together<Parcel, Result<Put, TransportError>>>;

/// None so far.
pub(super) fn dispatches(patience: Duration) -> Dispatches {
    Together::new(Bounds::of(CALLS_MAX, TOGETHER_MAX, patience))
}

/// What a message is sent with.
pub(super) type Headers = Vec<(String, String)>;

#[async_trait]
impl Dispatcher for Nats {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        let envelope = &outgoing.envelope;
        // It is asked before every save.
        let largest = envelope.body.len() + OWN_FIELDS_BYTES_MAX + LETTER_BYTES;
        // A server that takes less than the one that was opened may have come in its place: what is saved now and refused at each dispatch would
        // never be sent.
        let fits = largest <= self.0.bytes_max.min(self.0.link.payload_max());
        if fits && has_own_fields_only(envelope) && self.0.options.written_as == WrittenAs::Plain {
            return Ok(());
        }
        self.0.checked(outgoing).map(drop)
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        let now = Timestamp::now();
        let mut results: Vec<Result<(), DispatchError>> = Vec::with_capacity(outgoing.len());
        let (mut parcels, mut bytes) = (Vec::with_capacity(outgoing.len()), 0);
        for outgoing in outgoing {
            let checked = self.0.checked(outgoing).map_err(|refused| {
                DispatchError::Permanent(TransportError::new(ErrorKind::TooLarge, DISPATCHING, refused.0))
            });
            results.push(checked.map(|written| {
                bytes += outgoing.envelope.size();
                parcels.push(parcel(&self.0.names, outgoing, written, now));
            }));
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
    async fn publish_together(self: Arc<Self>, mut caller: Caller<Parcel, Result<Put, TransportError>>) {
        while let Some((parcels, askers)) = caller.next() {
            let acks = self.publish_once(DISPATCHING, &parcels).await;
            let mut sent = acks.into_iter().zip(parcels);
            let (mut unsure, mut waiting) = (Vec::new(), Vec::new());
            for asker in askers {
                let its: Vec<Sent> = sent.by_ref().take(asker.count()).collect();
                // Who has sent nothing that the server has had before does not wait for those who have.
                if its.iter().any(|(ack, _)| is_repeat(ack)) {
                    unsure.extend(its);
                    waiting.push(asker);
                } else {
                    asker.answer_from(&mut its.into_iter().map(|(ack, _)| put(ack)));
                }
            }
            let mut sure = self.made_sure(DISPATCHING, unsure).await.into_iter();
            for asker in waiting {
                asker.answer_from(&mut sure);
            }
        }
    }

    /// Headers and body of a message that these queues take, and the server with all that may be said beside it later.
    fn checked(&self, outgoing: &Outgoing) -> Result<(Headers, Bytes), Refused> {
        let envelope = &outgoing.envelope;
        let (headers, body) = written(envelope, &self.options.written_as);
        let (bytes, bytes_max) = (envelope.size().max(body.len()), self.bytes_max);
        if bytes > bytes_max {
            return Err(Refused(format!("the message has {bytes} bytes; these queues take {bytes_max}")));
        }
        let bytes = wire_bytes(&headers, &body);
        let bytes_max = self.link.payload_max().saturating_sub(LETTER_BYTES);
        if bytes > bytes_max {
            return Err(Refused(format!(
                "the message has {bytes} bytes with its headers; the server takes {bytes_max}, and something for the reason if it is set aside"
            )));
        }
        Ok((headers, body))
    }
}

/// A message as it is sent at `now`, with what goes beside its own headers.
pub(super) fn parcel(names: &Names, outgoing: &Outgoing, written: (Headers, Bytes), now: Timestamp) -> Parcel {
    let (mut headers, body) = written;
    let envelope = &outgoing.envelope;
    // What waits for its due time would hold up what comes behind it, where there is an order.
    let waits = envelope.due.is_some_and(|due| due > now);
    let slot = envelope.partition_key.as_ref().filter(|_| !waits).map(slot_of);
    let subject = names.subject(&outgoing.destination, slot);
    headers.push((MESSAGE_ID.to_owned(), escaped(&envelope.message_id.to_string())));
    Parcel { subject, headers, body }
}
