//! Kafka by hand: a consumer group; what a poll has brought is sent by an idempotent producer that waits for all replicas, and once that is
//! confirmed everything in front of the first that is not is committed, and the commit is waited for.
//!
//! The client library waits in its own calls, so that two threads make them: one polls, one commits.

use std::{
    collections::{BTreeSet, HashMap},
    convert::Infallible,
    sync::{Arc, mpsc as std_mpsc},
    time::Duration,
};

use hapax::Kafka;
use rdkafka::{
    ClientConfig, ClientContext, Message, Offset, TopicPartitionList,
    consumer::{BaseConsumer, CommitMode, Consumer},
    error::KafkaResult,
    message::{Header, Headers, OwnedHeaders, OwnedMessage},
    producer::{BaseRecord, DeliveryResult, ProducerContext, ThreadedProducer},
};
use tokio::sync::mpsc;

use super::{
    desk::{Desk, Outgoing},
    options::Options,
    place::{Named, Place, Queues},
    progress::Progress,
};
use crate::AnyError;

const MESSAGE_ID: &str = "hapax-message-id";
/// The shortest that brokers take unless configured: each side joins a group anew in each run, and Tansu lets it wait for half of this.
const SESSION: Duration = Duration::from_secs(6);
/// How long a poll waits, and with it a thread that nobody needs any more.
const POLL: Duration = Duration::from_millis(100);

pub(super) struct Topics {
    url: String,
    batch: u32,
    named: Named,
}

impl Place for Topics {
    type Transport = Kafka;

    const DROPS_REPEATS: bool = false;

    async fn open(options: &Options) -> Result<Self, AnyError> {
        Ok(Self { url: options.server.clone(), batch: options.batch, named: Named::new() })
    }

    fn named(&self) -> &Named {
        &self.named
    }

    async fn transport(&self) -> Result<Kafka, AnyError> {
        let options = Kafka::options().prefix(&self.named.prefix).session(SESSION).batch(self.batch);
        Ok(options.open(&self.url).await?)
    }

    async fn by_hand(
        &self,
        queues: &Queues,
        in_flight: usize,
        desk: &mut Desk,
        progress: &Progress,
    ) -> Result<Infallible, AnyError> {
        let [first, last] = [&queues.first, &queues.last].map(|name| format!("{}.queue.{name}", self.named.prefix));
        let (confirm, mut confirmed) = mpsc::unbounded_channel();
        let producer = self.producer(confirm)?;
        // As one of hapax' own group, so that it is removed with that.
        let consumer = Arc::new(self.consumer(&format!("{}.{}", self.named.prefix, queues.first), in_flight)?);
        consumer.subscribe(&[&first])?;
        let (give, mut messages) = mpsc::channel(in_flight);
        let (commit, wanted) = std_mpsc::channel();
        let (tell, mut committed) = mpsc::unbounded_channel();
        let reading = consumer.clone();
        std::thread::spawn(move || reads(&reading, &give));
        std::thread::spawn(move || commits(&consumer, &first, &wanted, &tell));
        let (mut lanes, mut under_way) = (HashMap::<i32, Lane>::new(), 0);
        loop {
            tokio::select! {
                biased;
                Some(done) = committed.recv() => {
                    for (partition, at) in done? {
                        let messages = lanes.entry(partition).or_default().committed(at);
                        under_way -= messages;
                        progress.settled(messages as u64);
                    }
                }
                Some(put) = confirmed.recv() => {
                    let place: Spot = put?;
                    commit.send((place.0, lanes.entry(place.0).or_default().settled(place.1)))?;
                }
                message = messages.recv(), if under_way < in_flight => {
                    let message: OwnedMessage = message.ok_or("Kafka gives nothing any more")??;
                    progress.received();
                    under_way += 1;
                    let place = (message.partition(), message.offset());
                    lanes.entry(place.0).or_default().came(place.1);
                    let id = message.headers().and_then(|all| all.iter().find(|header| header.key == MESSAGE_ID));
                    let id = id.and_then(|header| header.value).ok_or("a message has no id")?;
                    let id = std::str::from_utf8(id)?;
                    let body = message.payload().ok_or("a message has no body")?;
                    match desk.handle(id, body)? {
                        Some(outgoing) => send(&producer, &last, &outgoing, id, place)?,
                        None => commit.send((place.0, lanes.entry(place.0).or_default().settled(place.1)))?,
                    }
                }
            }
        }
    }

    async fn remove(self) -> Result<(), AnyError> {
        Ok(self.transport().await?.remove(&self.named.all()?).await?)
    }
}

/// A partition, and an offset in it.
type Spot = (i32, i64);

impl Topics {
    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.url.trim_start_matches("kafka://"));
        config
    }

    fn producer(&self, confirm: mpsc::UnboundedSender<KafkaResult<Spot>>) -> KafkaResult<ThreadedProducer<Confirms>> {
        let mut config = self.config();
        config.set("acks", "all").set("enable.idempotence", "true").set("linger.ms", "0");
        config.set("batch.num.messages", self.batch.to_string()).create_with_context(Confirms(confirm))
    }

    fn consumer(&self, group: &str, in_flight: usize) -> KafkaResult<BaseConsumer> {
        let mut config = self.config();
        config.set("group.id", group).set("enable.auto.commit", "false").set("auto.offset.reset", "earliest");
        config.set("session.timeout.ms", SESSION.as_millis().to_string()).set("heartbeat.interval.ms", "600");
        config.set("queued.min.messages", in_flight.to_string()).create()
    }
}

/// Of one partition: what is not settled, and how far it is committed.
#[derive(Debug, Default)]
struct Lane {
    open: BTreeSet<i64>,
    next: i64,
    committed: i64,
}

impl Lane {
    fn came(&mut self, offset: i64) {
        if self.next == 0 {
            self.committed = offset;
        }
        self.open.insert(offset);
        self.next = offset + 1;
    }

    /// What may be committed then.
    fn settled(&mut self, offset: i64) -> i64 {
        self.open.remove(&offset);
        self.open.first().copied().unwrap_or(self.next)
    }

    /// How many messages are over by it. Nothing but messages is in these topics, so that offsets count them.
    fn committed(&mut self, at: i64) -> usize {
        let next = at.max(self.committed);
        let before = std::mem::replace(&mut self.committed, next);
        usize::try_from(self.committed - before).unwrap_or_default()
    }
}

/// What is confirmed, by the place of the message for which it was sent.
struct Confirms(mpsc::UnboundedSender<KafkaResult<Spot>>);

impl ClientContext for Confirms {}

impl ProducerContext for Confirms {
    type DeliveryOpaque = Box<Spot>;

    fn delivery(&self, result: &DeliveryResult<'_>, place: Box<Spot>) {
        let put = result.as_ref().map(|_| *place).map_err(|(error, _)| error.clone());
        drop(self.0.send(put)); // At the end of a run nobody listens.
    }
}

fn send(
    producer: &ThreadedProducer<Confirms>,
    topic: &str,
    outgoing: &Outgoing,
    cause: &str,
    place: Spot,
) -> KafkaResult<()> {
    let mut headers = OwnedHeaders::new_with_capacity(4);
    for (key, value) in [
        ("content-type", "application/json"),
        (MESSAGE_ID, outgoing.id.as_str()),
        ("hapax-type", "bench.changed"),
        ("hapax-causation-id", cause),
    ] {
        headers = headers.insert(Header { key, value: Some(value) });
    }
    let record: BaseRecord<'_, (), [u8], _> = BaseRecord::with_opaque_to(topic, Box::new(place));
    producer.send(record.headers(headers).payload(&outgoing.body)).map_err(|(error, _)| error)
}

/// Until nobody takes what comes.
fn reads(consumer: &BaseConsumer, give: &mpsc::Sender<KafkaResult<OwnedMessage>>) {
    while !give.is_closed() {
        let Some(polled) = consumer.poll(POLL) else { continue };
        if give.blocking_send(polled.map(|message| message.detach())).is_err() {
            return;
        }
    }
}

/// Commits what is wanted, all that came meanwhile at once, until nothing more can be wanted.
fn commits(
    consumer: &BaseConsumer,
    topic: &str,
    wanted: &std_mpsc::Receiver<Spot>,
    tell: &mpsc::UnboundedSender<KafkaResult<HashMap<i32, i64>>>,
) {
    while let Ok(first) = wanted.recv() {
        let mut places = HashMap::from([first]);
        for (partition, at) in wanted.try_iter() {
            places.insert(partition, at); // Later ones are further.
        }
        let mut list = TopicPartitionList::with_capacity(places.len());
        let listed: KafkaResult<()> = places
            .iter()
            .try_for_each(|(partition, at)| list.add_partition_offset(topic, *partition, Offset::Offset(*at)));
        let done = listed.and_then(|()| consumer.commit(&list, CommitMode::Sync)).map(|()| places);
        if tell.send(done).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_committed_over_what_is_not_confirmed_and_each_message_counts_once() {
        let mut lane = Lane::default();
        (0..3).for_each(|offset| lane.came(offset));
        assert_eq!(lane.settled(1), 0);
        assert_eq!(lane.settled(0), 2);
        assert_eq!((lane.committed(2), lane.committed(2)), (2, 0));
        assert_eq!(lane.settled(2), 3);
        assert_eq!((lane.committed(3), lane.committed(2)), (1, 0));
    }
}
