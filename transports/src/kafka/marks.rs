//! What shows that copies are gone: what the group has committed, of its own topic and of all that it subscribes to.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use hapax_core::{
    ids::EndpointName,
    ports::{ErrorKind, Mark, Marks, TransportError},
};
use rdkafka::error::KafkaError;

use super::{
    Kafka,
    asker::{Asker, Bounds, NOT_LISTED, Place},
    names::number_of,
    notes::Notes,
};

const MARKING: &str = "asking for the end of a queue";
const ASKING: &str = "asking whether messages are gone";
/// Numbers of a mark for each partition: which topic, which partition, and which offset.
const NUMBERS: usize = 3;

/// What an endpoint has in front of it.
pub(super) struct Offsets {
    pub(super) kafka: Kafka,
    pub(super) endpoint: EndpointName,
    pub(super) asker: Arc<Mutex<Asker>>,
}

/// A partition, and where the endpoint is in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Read {
    /// All in front of it is settled, and that is known to the broker.
    pub(super) at: i64,
    pub(super) bounds: Bounds,
}

#[async_trait]
impl Marks for Offsets {
    async fn end(&self) -> Result<Mark, TransportError> {
        let mut places: Vec<u64> = Vec::new();
        for ((topic, partition), read) in self.kafka.0.read(MARKING, &self.endpoint, &self.asker).await? {
            if read.at > read.bounds.high {
                return Err(self.went_back(MARKING, &topic, partition, read));
            }
            if read.at < read.bounds.high {
                places.extend([number_of(&topic), partition.unsigned_abs().into(), read.bounds.high.unsigned_abs()]);
            }
        }
        Ok(Mark::new(places))
    }

    /// A partition that is not listed at the moment is not gone: it holds the mark. What is not subscribed to any more does not.
    async fn passed(&self, mark: &Mark) -> Result<bool, TransportError> {
        if !mark.places().len().is_multiple_of(NUMBERS) {
            let why = format!("{mark:?} is no mark of the queue of {}: ask the transport that gave it", self.endpoint);
            return Err(TransportError::new(ErrorKind::Malformed, ASKING, why));
        }
        if mark.places().is_empty() {
            return Ok(true);
        }
        let (topics, read) = self.kafka.0.topics_and_read(ASKING, &self.endpoint, &self.asker).await?;
        for place in mark.places().chunks_exact(NUMBERS) {
            let &[topic, partition, end] = place else { continue };
            let Some(topic) = topics.iter().find(|known| number_of(known) == topic) else { continue };
            let partition = i32::try_from(partition).unwrap_or(i32::MAX);
            let Some(read) = read.get(&(topic.clone(), partition)) else { return Ok(false) };
            if read.at > read.bounds.high {
                return Err(self.went_back(ASKING, topic, partition, *read));
            }
            if read.at.unsigned_abs() < end {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Offsets {
    fn went_back(&self, operation: &'static str, topic: &str, partition: i32, read: Read) -> TransportError {
        let place = self.kafka.0.link.place();
        let why = format!(
            "{place}: the log of topic `{topic}`, partition {partition}, went back: {} has committed offset {}, and it ends at {}; nothing can be shown until the endpoint has begun with it anew",
            self.endpoint, read.at, read.bounds.high
        );
        TransportError::new(ErrorKind::Misconfigured, operation, why)
    }
}

type Reads = HashMap<Place, Read>;

impl super::Broker {
    /// Where `endpoint` is in every partition that it reads, by whatever process.
    pub(super) async fn read(
        &self,
        operation: &'static str,
        endpoint: &EndpointName,
        asker: &Arc<Mutex<Asker>>,
    ) -> Result<Reads, TransportError> {
        Ok(self.topics_and_read(operation, endpoint, asker).await?.1)
    }

    async fn topics_and_read(
        &self,
        operation: &'static str,
        endpoint: &EndpointName,
        asker: &Arc<Mutex<Asker>>,
    ) -> Result<(Vec<Arc<str>>, Reads), TransportError> {
        let (noted, own): (String, Arc<str>) = (self.names.notes(endpoint), self.names.queue(endpoint).into());
        let asked = move |asker: &Asker| -> Result<_, KafkaError> {
            let notes = Notes::read(asker, &noted)?;
            let mut topics: Vec<Arc<str>> = notes.subscribed().cloned().collect();
            topics.push(own);
            topics.sort();
            topics.dedup();
            let places = asker.places(&topics)?;
            // A broker that lists fewer than were read has not heard of them yet: what is left out would be taken for read.
            if notes.has_more(&topics, &places) {
                return Err(NOT_LISTED);
            }
            let committed = asker.committed(&places)?;
            let mut reads = Reads::new();
            for place in places {
                let bounds = asker.bounds(&place)?;
                let at = notes.begin(&place, committed.get(&place).copied(), bounds);
                reads.insert(place, Read { at, bounds });
            }
            Ok((topics, reads))
        };
        self.link.ask_as(operation, asker, asked).await
    }
}

impl fmt::Debug for Offsets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offsets").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}
