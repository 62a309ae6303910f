use async_trait::async_trait;
use hapax_core::{
    envelope::Outgoing,
    ports::{DispatchError, Dispatcher, ErrorKind, Refused, TransportError},
    time::Timestamp,
};

use super::{
    Broker, Nats,
    message::{MESSAGE_ID, REASON_BYTES_MAX, escaped, headers_of, map_of, wire_bytes},
    names::slot_of,
    publisher::Parcel,
};

pub(super) const DISPATCHING: &str = "dispatching messages";
/// Of what the server takes, kept for what is said beside a message that is set aside.
const LETTER_BYTES: usize = REASON_BYTES_MAX + (2 << 10);

/// What a message is sent with.
type Headers = Vec<(String, String)>;

#[async_trait]
impl Dispatcher for Nats {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        self.0.checked(outgoing).map(drop)
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        let now = Timestamp::now();
        let mut results: Vec<Result<(), DispatchError>> = Vec::with_capacity(outgoing.len());
        let mut parcels = Vec::with_capacity(outgoing.len());
        for outgoing in outgoing {
            let checked = self.0.checked(outgoing).map_err(|refused| {
                DispatchError::Permanent(TransportError::new(ErrorKind::TooLarge, DISPATCHING, refused.0))
            });
            results.push(checked.map(|headers| parcels.push(self.0.parcel(outgoing, &headers, now))));
        }
        let mut published = self.0.publish(DISPATCHING, parcels).await.into_iter();
        for result in results.iter_mut().filter(|result| result.is_ok()) {
            if let Some(Err(e)) = published.next() {
                *result = Err(DispatchError::Transient(e));
            }
        }
        results
    }
}

impl Broker {
    /// The headers of a message that these queues take, and the server with all that may be said beside it later.
    fn checked(&self, outgoing: &Outgoing) -> Result<Headers, Refused> {
        let envelope = &outgoing.envelope;
        let (bytes, bytes_max) = (envelope.size(), self.bytes_max);
        if bytes > bytes_max {
            return Err(Refused(format!("the message has {bytes} bytes; these queues take {bytes_max}")));
        }
        let headers = headers_of(envelope, &self.options);
        let bytes = wire_bytes(&headers, &envelope.body);
        let bytes_max = self.link.payload_max().saturating_sub(LETTER_BYTES);
        if bytes > bytes_max {
            return Err(Refused(format!(
                "the message has {bytes} bytes with its headers; the server takes {bytes_max}, and something for the reason if it is set aside"
            )));
        }
        Ok(headers)
    }

    fn parcel(&self, outgoing: &Outgoing, headers: &Headers, now: Timestamp) -> Parcel {
        let envelope = &outgoing.envelope;
        // What waits for its due time would hold up what comes behind it, where there is an order.
        let waits = envelope.due.is_some_and(|due| due > now);
        let slot = envelope.partition_key.as_ref().filter(|_| !waits).map(slot_of);
        let subject = self.names.subject(&outgoing.destination, slot);
        let id = escaped(&envelope.message_id.to_string());
        let all = headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        Parcel { subject, headers: map_of(all.chain([(MESSAGE_ID, id.as_str())])), body: envelope.body.clone() }
    }
}
