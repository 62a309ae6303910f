//! Questions to a cluster, one at a time and each within a time.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::{KafkaError, RDKafkaErrorCode as Code},
    types::RDKafkaRespErr,
};

use super::{errors::is_unknown_topic, link::Heard, undecodable::is_undecodable};

/// A partition of a topic.
pub(super) type Place = (Arc<str>, i32);

/// A broker answers as soon as it has something; where it has nothing, this is how long it waits.
const FETCH_WAIT: &str = "20";
/// What is waited for at a time while a topic is read.
const POLL: Duration = Duration::from_millis(100);

/// Between two looks for a topic that was made just now.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Of a topic that is to be there, when a broker does not list it.
pub(super) const NOT_LISTED: KafkaError = KafkaError::MetadataFetch(Code::LeaderNotAvailable);

/// How many times the patience a topic is read for, at most, whatever comes of it.
const READING: u32 = 4;

/// What the client library has to tell once a question has failed, at most: a few lines each time it has tried to connect.
const TOLD_MAX: usize = 1000;

/// Where a partition begins and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    /// The first that is kept.
    pub(super) low: i64,
    /// Behind the last.
    pub(super) high: i64,
}

/// A record as it is kept.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) offset: i64,
    pub(super) key: String,
    /// None where what had the key was taken away.
    pub(super) body: Option<Bytes>,
    pub(super) headers: super::message::Headers,
}

pub(super) struct Asker {
    consumer: BaseConsumer<Heard>,
    patience: Duration,
}

impl Asker {
    pub(super) fn new(config: &ClientConfig, place: &Arc<str>, patience: Duration) -> Result<Self, KafkaError> {
        let mut config = config.clone();
        config.set("fetch.wait.max.ms", FETCH_WAIT).set("enable.partition.eof", "true");
        Ok(Self { consumer: config.create_with_context(Heard::new(place.clone()))?, patience })
    }

    pub(super) fn heard(&self) -> &Heard {
        // Where it is told why. A line for the log ends a poll as if there were nothing, so an empty answer says nothing.
        for _ in 0..TOLD_MAX {
            drop(self.consumer.poll(Duration::ZERO));
        }
        self.consumer.context()
    }

    /// How many partitions a topic has; none if a broker says that there is no such topic, which it may say of one that was made just now.
    pub(super) fn partitions(&self, topic: &str) -> Result<Option<usize>, KafkaError> {
        let metadata = self.consumer.fetch_metadata(Some(topic), self.patience)?;
        let Some(found) = metadata.topics().iter().find(|found| found.name() == topic) else {
            return Err(NOT_LISTED);
        };
        match found.error() {
            None if found.partitions().is_empty() => Err(NOT_LISTED),
            None => Ok(Some(found.partitions().len())),
            Some(
                RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART
                | RDKafkaRespErr::RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC,
            ) => Ok(None),
            Some(error) => Err(KafkaError::MetadataFetch(error.into())),
        }
    }

    /// On how many brokers a topic is kept, where that is the fewest; none if it is not listed.
    pub(super) fn replicas(&self, topic: &str) -> Result<Option<usize>, KafkaError> {
        let metadata = self.consumer.fetch_metadata(Some(topic), self.patience)?;
        let found = metadata.topics().iter().find(|found| found.name() == topic);
        Ok(found.and_then(|found| found.partitions().iter().map(|partition| partition.replicas().len()).min()))
    }

    /// All topics whose names begin so.
    pub(super) fn topics(&self, beginning: &str) -> Result<Vec<String>, KafkaError> {
        let metadata = self.consumer.fetch_metadata(None, self.patience)?;
        let names = metadata.topics().iter().map(|topic| topic.name().to_owned());
        Ok(names.filter(|name| name.starts_with(beginning)).collect())
    }

    /// All partitions of topics. One that the broker does not list is an error: it may not have heard of it yet, and what is left out is taken
    /// for read.
    pub(super) fn places<'t>(&self, topics: impl IntoIterator<Item = &'t Arc<str>>) -> Result<Vec<Place>, KafkaError> {
        let mut places = Vec::new();
        for topic in topics {
            let count = self.partitions(topic)?.ok_or(NOT_LISTED)?;
            places.extend((0..i32::try_from(count).unwrap_or(i32::MAX)).map(|partition| (topic.clone(), partition)));
        }
        Ok(places)
    }

    /// The same of topics that were made just now: every broker hears of them within the time.
    pub(super) fn places_soon(&self, topics: &[&Arc<str>]) -> Result<Vec<Place>, KafkaError> {
        let until = Instant::now() + self.patience;
        loop {
            match self.places(topics.iter().copied()) {
                Err(e) if e.rdkafka_error_code() == NOT_LISTED.rdkafka_error_code() && Instant::now() < until => {
                    std::thread::sleep(LOOK_AGAIN);
                }
                found => return found,
            }
        }
    }

    pub(super) fn bounds(&self, (topic, partition): &Place) -> Result<Bounds, KafkaError> {
        let (low, high) = self.watermarks(topic, *partition)?;
        Ok(Bounds { low, high })
    }

    /// Of a topic that was not there when it was asked for, the client library goes on saying so, though it was made since: until it is asked
    /// for again.
    fn watermarks(&self, topic: &str, partition: i32) -> Result<(i64, i64), KafkaError> {
        match self.consumer.fetch_watermarks(topic, partition, self.patience) {
            Err(e) if is_unknown_topic(&e) && self.partitions(topic)?.is_some() => {
                self.consumer.fetch_watermarks(topic, partition, self.patience)
            }
            found => found,
        }
    }

    /// What the group has committed. Nothing for a place of which the broker knows nothing.
    pub(super) fn committed(&self, places: &[Place]) -> Result<HashMap<Place, i64>, KafkaError> {
        committed(&self.consumer, places, self.patience)
    }

    /// Gives every record of the only partition of `topic`, up to its end of now.
    pub(super) fn read(&self, topic: &str, each: impl FnMut(Kept)) -> Result<(), KafkaError> {
        self.read_from(topic, 0, each)
    }

    /// The same from `offset` on.
    pub(super) fn read_from(&self, topic: &str, offset: i64, mut each: impl FnMut(Kept)) -> Result<(), KafkaError> {
        let (low, high) = self.watermarks(topic, 0)?;
        let low = low.max(offset);
        if low >= high {
            return Ok(());
        }
        let mut only = TopicPartitionList::new();
        only.add_partition_offset(topic, 0, Offset::Offset(low))?;
        self.consumer.assign(&only)?;
        let read = self.read_all(topic, high, &mut each);
        self.consumer.unassign()?;
        read
    }

    /// Whether what is next in a partition, from `offset` on, can be decoded.
    pub(super) fn decodes(&self, (topic, partition): &Place, offset: i64) -> Result<bool, KafkaError> {
        let (low, high) = self.watermarks(topic, *partition)?;
        if offset >= high {
            return Ok(true);
        }
        let mut only = TopicPartitionList::new();
        only.add_partition_offset(topic, *partition, Offset::Offset(offset.max(low)))?;
        self.consumer.assign(&only)?;
        let decodes = self.decodes_next(topic);
        self.consumer.unassign()?;
        decodes
    }

    fn decodes_next(&self, topic: &str) -> Result<bool, KafkaError> {
        let begun = Instant::now();
        while begun.elapsed() < self.patience {
            match self.consumer.poll(POLL) {
                Some(Ok(message)) if message.topic() != topic => {}
                Some(Ok(_) | Err(KafkaError::PartitionEOF(_))) => return Ok(true),
                Some(Err(e)) if is_undecodable(&e) => return Ok(false),
                Some(Err(e)) if !is_passing(&e) => return Err(e),
                Some(Err(_)) | None => {}
            }
        }
        Err(KafkaError::MessageConsumption(Code::OperationTimedOut))
    }

    /// Up to `high`, where the log ended when this began: others write meanwhile, so its end need never come. A broker that is busy may tell of
    /// an end too early.
    fn read_all(&self, topic: &str, high: i64, each: &mut impl FnMut(Kept)) -> Result<(), KafkaError> {
        let begun = Instant::now();
        let mut last = begun;
        let late = || Err(KafkaError::MessageConsumption(Code::OperationTimedOut));
        loop {
            if begun.elapsed() > self.patience.saturating_mul(READING) {
                return late();
            }
            match self.consumer.poll(POLL) {
                // Of what was read before, something may have been on its way.
                Some(Ok(message)) if message.topic() != topic => {}
                Some(Ok(message)) => {
                    let key = String::from_utf8_lossy(message.key().unwrap_or_default()).into_owned();
                    let body = message.payload().map(Bytes::copy_from_slice);
                    // What nobody can read was not written by us.
                    let headers = super::message::headers_in(&message).unwrap_or_default();
                    let offset = message.offset();
                    each(Kept { offset, key, body, headers });
                    if offset + 1 >= high {
                        return Ok(());
                    }
                    last = Instant::now();
                }
                // Nothing may be at the last offsets.
                Some(Err(KafkaError::PartitionEOF(_))) if self.position(topic) >= high => return Ok(()),
                Some(Err(KafkaError::PartitionEOF(_))) => {}
                Some(Err(e)) if last.elapsed() > self.patience || !is_passing(&e) => return Err(e),
                Some(Err(_)) => {}
                None if last.elapsed() > self.patience => return late(),
                None => {}
            }
        }
    }

    /// Behind what was read of a topic's only partition.
    fn position(&self, topic: &str) -> i64 {
        let found = self.consumer.position().ok();
        let offset = found.and_then(|list| list.find_partition(topic, 0).map(|element| element.offset()));
        if let Some(Offset::Offset(offset)) = offset { offset } else { -1 }
    }
}

/// The same, of any consumer.
pub(super) fn committed<C: rdkafka::consumer::ConsumerContext>(
    consumer: &BaseConsumer<C>,
    places: &[Place],
    patience: Duration,
) -> Result<HashMap<Place, i64>, KafkaError> {
    if places.is_empty() {
        return Ok(HashMap::new());
    }
    let mut list = TopicPartitionList::with_capacity(places.len());
    for (topic, partition) in places {
        list.add_partition(topic, *partition);
    }
    let list = match consumer.committed_offsets(list, patience) {
        // Some brokers say of a group that nobody has joined that nothing is committed, others that there is none.
        Err(error) if error.rdkafka_error_code() == Some(Code::GroupIdNotFound) => return Ok(HashMap::new()),
        answered => answered?,
    };
    let mut found = HashMap::new();
    for place in places {
        let Some(element) = list.find_partition(&place.0, place.1) else { continue };
        element.error()?;
        if let Offset::Offset(offset) = element.offset() {
            found.insert(place.clone(), offset);
        }
    }
    Ok(found)
}

/// Whether the client library goes on by itself.
pub(super) fn is_passing(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            Code::BrokerTransportFailure
                | Code::AllBrokersDown
                | Code::Resolve
                | Code::LeaderNotAvailable
                | Code::NotLeaderForPartition
                | Code::RequestTimedOut
                | Code::OperationTimedOut
                | Code::CoordinatorNotAvailable
                | Code::CoordinatorLoadInProgress
                | Code::NotCoordinator
                | Code::PollExceeded
                | Code::NetworkException
                | Code::RebalanceInProgress
                | Code::UnknownTopicOrPartition
        )
    )
}
