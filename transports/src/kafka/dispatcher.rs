//! Sending: records, each confirmed by the brokers.

use std::collections::HashMap;

use async_trait::async_trait;
use bytes::Bytes;
use hapax_core::{
    envelope::{Destination, Outgoing},
    ports::{DispatchError, Dispatcher, ErrorKind, Refused, TransportError},
};

use super::{
    Broker, Kafka,
    errors::{failure, is_too_large, is_unknown_topic},
    message::{Headers, REASON_BYTES_MAX, wire_bytes, written},
    options::HEADERS_BYTES,
    producing::Parcel,
    topology::Use,
};

const DISPATCHING: &str = "dispatching messages";
/// Of what topics take, kept for what is said beside a message that is set aside.
const LETTER_BYTES: usize = REASON_BYTES_MAX + (2 << 10);

#[async_trait]
impl Dispatcher for Kafka {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        self.0.checked(outgoing).map(drop)
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        let mut absent: HashMap<String, Option<String>> = HashMap::new();
        let mut results: Vec<Result<(), DispatchError>> = Vec::with_capacity(outgoing.len());
        let mut parcels = Vec::with_capacity(outgoing.len());
        for outgoing in outgoing {
            let written = match self.0.checked(outgoing) {
                Ok(written) => written,
                Err(Refused(why)) => {
                    let refused = TransportError::new(ErrorKind::TooLarge, DISPATCHING, why);
                    results.push(Err(DispatchError::Permanent(refused)));
                    continue;
                }
            };
            let topic = self.0.names.address(&outgoing.destination);
            if !absent.contains_key(&topic) {
                let found = self.0.found(&outgoing.destination, &topic).await;
                absent.insert(topic.clone(), found.err().map(|e| format!("{e}")));
            }
            results.push(match absent.get(&topic) {
                Some(Some(why)) => {
                    let absent = TransportError::new(ErrorKind::Unavailable, DISPATCHING, why.clone());
                    Err(DispatchError::Transient(absent))
                }
                _ => {
                    parcels.push(parcel(outgoing, topic, written));
                    Ok(())
                }
            });
        }
        #[cfg(feature = "preview-kafka-transactions")]
        if let Some(transacting) = &self.0.transacting {
            return self.0.in_one_transaction(transacting, results, parcels).await;
        }
        let mut puts = self.0.link.producing.put_all(&parcels).await.into_iter().zip(&parcels);
        for result in results.iter_mut().filter(|result| result.is_ok()) {
            if let Some((Err(e), parcel)) = puts.next() {
                if is_unknown_topic(&e) {
                    self.0.link.forget(&parcel.topic);
                }
                let told = failure(DISPATCHING, self.0.link.place(), &e, true);
                let permanent = is_too_large(&e);
                *result = Err(if permanent { DispatchError::Permanent(told) } else { DispatchError::Transient(told) });
            }
        }
        results
    }
}

impl Broker {
    /// Headers and body of a message that topics take with all that may be said beside it later.
    fn checked(&self, outgoing: &Outgoing) -> Result<(Headers, Bytes), Refused> {
        let envelope = &outgoing.envelope;
        let (headers, body) = written(envelope, &self.options.written_as);
        let (bytes, bytes_max) = (envelope.size().max(body.len()), self.options.message_bytes_max);
        if bytes > bytes_max {
            return Err(Refused(format!("the message has {bytes} bytes; these queues take {bytes_max}")));
        }
        let bytes = wire_bytes(&headers, envelope.partition_key.as_ref(), &body);
        let bytes_max = bytes_max + HEADERS_BYTES - LETTER_BYTES;
        if bytes > bytes_max {
            return Err(Refused(format!(
                "the message has {bytes} bytes with its headers; the topics take {bytes_max}, and something for the reason if it is set aside"
            )));
        }
        Ok((headers, body))
    }

    /// That the topic is there. That of a type is made by whoever comes first; that of an endpoint by the endpoint alone, so that nothing goes
    /// where nobody will ever read. A broker may not know yet what another has: so nothing is taken for sent on the word that it is not there.
    async fn found(&self, destination: &Destination, topic: &str) -> Result<(), TransportError> {
        if self.link.is_known(topic) {
            return Ok(());
        }
        // The one client that asks does so one question at a time: all that is sent there at once would wait for an answer each.
        let _looking = self.link.looking.lock().await;
        if self.link.is_known(topic) {
            return Ok(());
        }
        match destination {
            Destination::Topic(_) => self.declared(DISPATCHING, topic, Use::Messages).await.map(drop),
            Destination::Endpoint(endpoint) if !self.is_there(DISPATCHING, topic).await? => {
                let place = self.link.place();
                let why = format!(
                    "{place} has no topic `{topic}`, or not yet: start endpoint `{endpoint}` once, or correct the address"
                );
                Err(TransportError::new(ErrorKind::Unavailable, DISPATCHING, why))
            }
            Destination::Endpoint(_) => Ok(()),
        }
    }
}

/// A message as it is sent.
pub(super) fn parcel(outgoing: &Outgoing, topic: String, (headers, body): (Headers, Bytes)) -> Parcel {
    let key = outgoing.envelope.partition_key.as_ref().map(|key| key.as_str().to_owned());
    Parcel { topic, partition: None, key, headers, body: Some(body) }
}
