//! Sending: entries of a call, each with a result of its own.

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::future::join_all;
use hapax_core::{
    envelope::{Destination, Envelope, Outgoing},
    ports::{DispatchError, Dispatcher, ErrorKind, Refused, TransportError},
    time::Timestamp,
};

use super::{
    Broker, Sqs, addresses::Address, apart::dedup_id, errors::again, letters::LETTER_BYTES, message::Parcel,
    names::group_of, publisher::Sent,
};

pub(super) const DISPATCHING: &str = "dispatching messages";

#[async_trait]
impl Dispatcher for Sqs {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        self.0.checked(&outgoing.envelope).map(drop)
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        let broker = &self.0;
        let mut results: Vec<Result<(), DispatchError>> = Vec::with_capacity(outgoing.len());
        let mut parcels = Vec::with_capacity(outgoing.len());
        for outgoing in outgoing {
            let checked = broker.checked(&outgoing.envelope);
            results.push(checked.map(|parcel| parcels.push(Some(parcel))).map_err(|refused| {
                parcels.push(None);
                DispatchError::Permanent(TransportError::new(ErrorKind::TooLarge, DISPATCHING, refused.0))
            }));
        }
        let going: Vec<usize> = (0..outgoing.len()).filter(|place| results[*place].is_ok()).collect();
        let (queues, lost) = broker.queues(&going, outgoing).await;
        for (place, error) in lost {
            results[place] = Err(DispatchError::Transient(error));
        }
        let now = Timestamp::now();
        let mut sending = Vec::with_capacity(queues.len());
        for (address, places) in &queues {
            let mut sent = Vec::with_capacity(places.len());
            for place in places {
                if let Some(parcel) = parcels[*place].clone() {
                    sent.push(broker.sent(address, &outgoing[*place].envelope, parcel, now));
                }
            }
            sending.push(broker.publish_all(address, sent));
        }
        for ((_, places), sent) in queues.iter().zip(join_all(sending).await) {
            for (place, sent) in places.iter().zip(sent) {
                // Of one that goes to several, all must have it.
                if let (Err(e), Ok(())) = (sent, &results[*place]) {
                    results[*place] = Err(judged(e));
                }
            }
        }
        results
    }
}

/// For good, if the queue takes none of its size.
fn judged(error: TransportError) -> DispatchError {
    match error.kind() {
        ErrorKind::TooLarge => DispatchError::Permanent(error),
        _ => DispatchError::Transient(error),
    }
}

/// Each queue once, with the places of what goes there, in order; and what cannot be addressed now.
type Queues = (Vec<(Arc<Address>, Vec<usize>)>, Vec<(usize, TransportError)>);

impl Broker {
    /// A message that these queues take, with all that may be said beside it later.
    fn checked(&self, envelope: &Envelope) -> Result<Parcel, Refused> {
        let (bytes, bytes_max) = (envelope.size(), self.options.message_bytes_max);
        if bytes > bytes_max {
            return Err(Refused(format!("the message has {bytes} bytes; these queues take {bytes_max}")));
        }
        let parcel = Parcel::of(envelope, &self.options.written_as, &[]);
        let (bytes, bytes_max) = (parcel.size(), self.options.queue_bytes_max().saturating_sub(LETTER_BYTES));
        if bytes > bytes_max {
            return Err(Refused(format!(
                "the message has {bytes} bytes as it is sent, with its attributes and as text; a queue takes {bytes_max}, and something for the reason if it is set aside"
            )));
        }
        Ok(parcel)
    }

    async fn queues(&self, going: &[usize], outgoing: &[Outgoing]) -> Queues {
        let mut places: Vec<(&Destination, Vec<usize>)> = Vec::new();
        let mut known: HashMap<&Destination, usize> = HashMap::new();
        for place in going {
            let destination = &outgoing[*place].destination;
            let at = *known.entry(destination).or_insert_with(|| {
                places.push((destination, Vec::new()));
                places.len() - 1
            });
            places[at].1.push(*place);
        }
        let mut looking = Vec::with_capacity(places.len());
        for (destination, _) in &places {
            looking.push(self.addresses_of(DISPATCHING, destination));
        }
        let found = join_all(looking).await;
        let (mut queues, mut lost): Queues = (Vec::new(), Vec::new());
        for ((_, places), found) in places.into_iter().zip(found) {
            match found {
                Ok(addresses) => {
                    for address in addresses {
                        match queues.iter_mut().find(|(known, _)| known.name == address.name) {
                            Some((_, its)) => its.extend(&places),
                            None => queues.push((address, places.clone())),
                        }
                    }
                }
                Err(e) => lost.extend(places.iter().map(|place| (*place, again(&e, DISPATCHING)))),
            }
        }
        for (_, places) in &mut queues {
            places.sort_unstable();
        }
        (queues, lost)
    }

    async fn publish_all(&self, address: &Arc<Address>, sent: Vec<Sent>) -> Vec<Result<(), TransportError>> {
        self.publish(DISPATCHING, address, &sent.iter().collect::<Vec<_>>()).await
    }

    pub(super) fn sent(&self, address: &Address, envelope: &Envelope, parcel: Parcel, now: Timestamp) -> Sent {
        let delay = envelope.due.map_or(Duration::ZERO, |due| due.since(now));
        let order = address.is_fifo().then(|| {
            let dedup_id = dedup_id(&envelope.message_id);
            // What waits for its due time would hold up what comes behind it.
            let key = envelope.partition_key.as_ref().filter(|_| delay.is_zero());
            (key.map_or_else(|| dedup_id.clone(), group_of), dedup_id)
        });
        Sent { parcel, delay, order }
    }
}
