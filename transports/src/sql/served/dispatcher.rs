//! Sending: many messages, one group.

use std::sync::atomic::Ordering;

use hapax_core::{
    codec::record,
    envelope::{Destination, Outgoing},
    ids::PartitionKey,
    ports::{DispatchError, ErrorKind, Refused, TransportError},
    time::Timestamp,
};
use tokio::sync::oneshot;

use super::{
    super::errors::{not_sent, transport_error},
    Queues,
    asks::{Ask, Message, Send},
    rare::queue_of,
};

/// Messages of one call that go into one group, and their bytes as it counts them: beyond it the first would wait for the last.
const BATCH_MAX: usize = 1024;
const BATCH_BYTES_MAX: usize = 8 << 20;

const DISPATCHING: &str = "dispatching";

/// Messages of one group.
#[derive(Default)]
struct Batch {
    messages: Vec<Message>,
    bytes: usize,
    /// Their places in the call.
    places: Vec<usize>,
}

impl Batch {
    fn has_room_for(&self, message: &Message, text_max: usize) -> bool {
        let fits = self.bytes + message.size() <= BATCH_BYTES_MAX.min(text_max);
        self.messages.is_empty() || self.messages.len() < BATCH_MAX && fits
    }

    fn add(&mut self, place: usize, message: Message) {
        self.bytes += message.size();
        self.messages.push(message);
        self.places.push(place);
    }
}

/// Sends with one handle.
struct Sending<'q, Q: Queues>(&'q Q);

impl<Q: Queues> Sending<'_, Q> {
    async fn check_room(&self) -> Result<(), TransportError> {
        let (room, most) = (&self.0.hub().room, self.0.hub().rules.messages_max);
        if room.wants_count(most) {
            let messages = self.0.count_up_to(most).await.map_err(|e| transport_error("counting messages", e))?;
            room.full.store(messages >= most, Ordering::Relaxed);
        }
        if room.full.load(Ordering::Relaxed) {
            let why = format!("{} holds {most} messages; let its endpoints catch up", self.0.hub().place);
            return Err(TransportError::new(ErrorKind::Unavailable, DISPATCHING, why));
        }
        Ok(())
    }

    /// A message as it is written.
    async fn message(&self, outgoing: &Outgoing) -> Result<Message, DispatchError> {
        check(self.0, outgoing).map_err(|Refused(why)| {
            DispatchError::Permanent(TransportError::new(ErrorKind::TooLarge, DISPATCHING, why))
        })?;
        let envelope = &outgoing.envelope;
        let bytes = record::encode_envelope(envelope).map_err(|e| {
            let why = "its envelope cannot be encoded";
            DispatchError::Permanent(TransportError::new(ErrorKind::TooLarge, DISPATCHING, why).caused_by(e))
        })?;
        let (queue, topic) = match &outgoing.destination {
            Destination::Endpoint(endpoint) => {
                let queue = queue_of(self.0, endpoint).await;
                (Some(queue.map_err(|e| DispatchError::Transient(transport_error(DISPATCHING, e)))?), None)
            }
            Destination::Topic(topic) => (None, Some(topic.as_str().to_owned())),
        };
        let due = envelope.due.map_or(0, |due| i64::try_from(Timestamp::as_millis(due)).unwrap_or(i64::MAX));
        let key = envelope.partition_key.as_ref().filter(|_| self.0.hub().rules.ordered_keys).map(PartitionKey::as_str);
        let id = envelope.message_id.to_string();
        Ok(Message { queue, topic, due, key: key.map(str::to_owned), id, envelope: bytes })
    }

    /// Writes a batch. What has been written is looked for at once here, and others are told where they can be.
    async fn send(&self, messages: Vec<Message>) -> Result<(), TransportError> {
        self.0.hub().room.sent.fetch_add(messages.len() as u64, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        let send = Send { operation: DISPATCHING, messages, answer };
        let queues = self.0.hub().ask(DISPATCHING, Ask::Send(send), answered).await?;
        for queue in &queues {
            self.0.hub().signals.give(*queue);
        }
        self.0.sent(&queues);
        Ok(())
    }

    /// Sends a batch, and gives the error to each of its messages.
    async fn flush(&self, batch: Batch, results: &mut [Result<(), DispatchError>]) -> Option<TransportError> {
        let error = self.send(batch.messages).await.err()?;
        for place in batch.places {
            results[place] = Err(not_sent(DISPATCHING, &error));
        }
        Some(error)
    }
}

/// See [`Dispatcher::check`](hapax_core::ports::Dispatcher::check).
pub(crate) fn check<Q: Queues>(queue: &Q, outgoing: &Outgoing) -> Result<(), Refused> {
    let (bytes, most) = (outgoing.envelope.size(), queue.hub().rules.message_bytes_max);
    if bytes > most {
        return Err(Refused(format!("it has {bytes} bytes, more than the {most} allowed")));
    }
    Ok(())
}

/// See [`Dispatcher::dispatch`](hapax_core::ports::Dispatcher::dispatch).
pub(crate) async fn dispatch<Q: Queues>(queue: &Q, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
    let sending = Sending(queue);
    let mut results: Vec<Result<(), DispatchError>> = Vec::with_capacity(outgoing.len());
    // Once something has failed, what comes after it is not sent: it would come before it.
    let mut failed = sending.check_room().await.err();
    let mut batch = Batch::default();
    for (place, message) in outgoing.iter().enumerate() {
        if let Some(failed) = &failed {
            results.push(Err(not_sent(DISPATCHING, failed)));
            continue;
        }
        let message = match sending.message(message).await {
            Ok(message) => message,
            Err(DispatchError::Transient(e)) => {
                results.push(Err(not_sent(DISPATCHING, &e)));
                failed = Some(e);
                continue;
            }
            Err(refused) => {
                results.push(Err(refused));
                continue;
            }
        };
        if !batch.has_room_for(&message, queue.hub().rules.group_bytes_max) {
            failed = sending.flush(std::mem::take(&mut batch), &mut results).await;
        }
        results.push(failed.as_ref().map_or(Ok(()), |failed| Err(not_sent(DISPATCHING, failed))));
        if failed.is_none() {
            batch.add(place, message);
        }
    }
    if !batch.messages.is_empty() {
        sending.flush(batch, &mut results).await;
    }
    results
}
