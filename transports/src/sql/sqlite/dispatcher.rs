//! Sending: many messages, one statement.

use std::sync::atomic::Ordering;

use async_trait::async_trait;
use hapax_core::{
    codec::record,
    envelope::{Destination, Outgoing},
    ids::{PartitionKey, TypeName},
    ports::{DispatchError, Dispatcher, ErrorKind, Refused, TransportError},
    time::Timestamp,
};
use hapax_stores::sql::sqlite::ride::Rows;

use super::{
    super::errors::{not_sent, transport_error},
    SqliteQueue,
    statements::{FAMILY, kind},
};

/// Messages of one call that go into one statement, and their bytes: beyond it the first would wait for the last.
const BATCH_MAX: usize = 1024;
const BATCH_BYTES_MAX: usize = 4 << 20;

const DISPATCHING: &str = "dispatching";

/// Messages of one statement, and where they go.
#[derive(Default)]
struct Batch<'o> {
    rows: Rows,
    /// Their places in the call.
    places: Vec<usize>,
    queues: Vec<i64>,
    topics: Vec<&'o TypeName>,
}

impl SqliteQueue {
    async fn check_room(&self) -> Result<(), TransportError> {
        let (room, most) = (&self.0.room, self.0.options.messages_max);
        if room.wants_count(most) {
            let messages = self.messages().await.map_err(|e| transport_error("counting messages", e))?;
            room.full.store(messages >= most, Ordering::Relaxed);
        }
        if room.full.load(Ordering::Relaxed) {
            let why = format!("{} holds {most} messages; let its endpoints catch up", self.0.file.file_name());
            return Err(TransportError::new(ErrorKind::Unavailable, DISPATCHING, why));
        }
        Ok(())
    }

    /// Adds a message to `batch`.
    async fn add<'o>(&self, batch: &mut Batch<'o>, place: usize, outgoing: &'o Outgoing) -> Result<(), DispatchError> {
        self.check(outgoing).map_err(|Refused(why)| {
            DispatchError::Permanent(TransportError::new(ErrorKind::TooLarge, DISPATCHING, why))
        })?;
        let envelope = &outgoing.envelope;
        let bytes = record::encode_envelope(envelope).map_err(|e| {
            let why = "its envelope cannot be encoded";
            DispatchError::Permanent(TransportError::new(ErrorKind::TooLarge, DISPATCHING, why).caused_by(e))
        })?;
        let (queue, topic) = match &outgoing.destination {
            Destination::Endpoint(endpoint) => {
                let queue = self.queue_of(endpoint).await;
                let queue = queue.map_err(|e| DispatchError::Transient(transport_error(DISPATCHING, e)))?;
                batch.queues.push(queue);
                (Some(queue), None)
            }
            Destination::Topic(topic) => {
                batch.topics.push(topic);
                (None, Some(topic.as_str()))
            }
        };
        let due = envelope.due.map_or(0, Timestamp::as_millis);
        let key = envelope.partition_key.as_ref().filter(|_| self.0.options.ordered_keys).map(PartitionKey::as_str);
        batch.rows.push(None, &(queue, topic, due, key, envelope.message_id.to_string()), &bytes);
        batch.places.push(place);
        Ok(())
    }

    /// Writes a batch. What may have been written is looked for at once, also after an unknown outcome; who looks in vain
    /// because it is not due looks when it will be.
    async fn send(&self, batch: Batch<'_>) -> Result<(), TransportError> {
        let Batch { rows, queues, topics, .. } = batch;
        self.0.room.sent.fetch_add(rows.len() as u64, Ordering::Relaxed);
        let sent = self.0.file.ride(DISPATCHING, &FAMILY, kind::SEND, rows).await;
        let mut last = None;
        for queue in queues {
            if last.replace(queue) != Some(queue) {
                self.0.signals.give(queue);
            }
        }
        topics.into_iter().for_each(|topic| self.0.signals.give_subscribers(topic));
        sent.map(drop).map_err(|e| transport_error(DISPATCHING, e))
    }
}

#[async_trait]
impl Dispatcher for SqliteQueue {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        let (bytes, most) = (outgoing.envelope.size(), self.0.options.message_bytes_max);
        if bytes > most {
            return Err(Refused(format!("it has {bytes} bytes, more than the {most} allowed")));
        }
        Ok(())
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        let mut results: Vec<Result<(), DispatchError>> = Vec::with_capacity(outgoing.len());
        // Once something has failed, what comes after it is not sent: it would come before it.
        let mut failed = self.check_room().await.err();
        let mut batch = Batch::default();
        for (place, message) in outgoing.iter().enumerate() {
            if let Some(failed) = &failed {
                results.push(Err(not_sent(DISPATCHING, failed)));
                continue;
            }
            match self.add(&mut batch, place, message).await {
                Err(DispatchError::Transient(e)) => {
                    results.push(Err(not_sent(DISPATCHING, &e)));
                    failed = Some(e);
                }
                added => results.push(added),
            }
            if batch.rows.len() >= BATCH_MAX || batch.rows.size() >= BATCH_BYTES_MAX {
                failed = self.flush(std::mem::take(&mut batch), &mut results).await;
            }
        }
        if !batch.rows.is_empty() {
            self.flush(batch, &mut results).await;
        }
        results
    }
}

impl SqliteQueue {
    /// Sends a batch, and gives the error to each of its messages.
    async fn flush(&self, mut batch: Batch<'_>, results: &mut [Result<(), DispatchError>]) -> Option<TransportError> {
        let places = std::mem::take(&mut batch.places);
        let error = self.send(batch).await.err()?;
        for place in places {
            results[place] = Err(not_sent(DISPATCHING, &error));
        }
        Some(error)
    }
}
