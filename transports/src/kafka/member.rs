//! One process of an endpoint in its consumer group: a thread that asks the client library for messages, and does all that has to be one after
//! the other. What is committed and what is handed over never cross: both are done here.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

use bytes::Bytes;
use hapax_core::ports::TransportError;
use rdkafka::{
    ClientConfig, Message, TopicPartitionList,
    consumer::Consumer,
    error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code},
    message::BorrowedMessage,
};

use super::{
    asker::{Place, is_passing},
    commits::commit,
    dealt::{Client, Membership},
    errors::{failure, is_unknown_topic},
    lane::Unreadable,
    link::millis,
    message::{headers_in, message_of},
    passing::pass_over,
    receiver::{End, RECEIVING},
    undecodable::is_undecodable,
};
use crate::reason::reason_of;

/// How long the client library is waited for while there is something to settle, which nothing but the next look sees; and while
/// there is nothing.
const BUSY: Duration = Duration::from_millis(2);
const IDLE: Duration = Duration::from_millis(50);
/// Messages taken between two looks at what is settled.
const TAKEN_MAX: usize = 500;
/// Without a word from the broker for so long, it is asked whether it is there.
pub(super) const SILENCE: Duration = Duration::from_secs(5);
/// Who is stopped takes part in a group that is being formed until it is let in, for no longer than this: several rounds of a broker that
/// gives those who join a second or two each.
const LET_IN: Duration = Duration::from_secs(15);
/// Before something that failed is tried again.
const REST: Duration = Duration::from_millis(500);
/// What the client library has ahead, in KiB.
const AHEAD_KIB: &str = "16384";
/// A process whose thread is busy for longer is taken for dead by its group.
const POLL_INTERVAL: Duration = Duration::from_secs(300);
/// Between two signs of life, at most: how soon a process hears that partitions are dealt anew. Several are sent within a session.
const HEARTBEAT: Duration = Duration::from_secs(1);
const HEARTBEATS: u32 = 10;

/// The thread, until it is told to stop or cannot go on.
pub(super) fn run(end: &Arc<End>) {
    let ended = catch_unwind(AssertUnwindSafe(|| member(end)));
    let mut state = end.state();
    state.let_go();
    state.runs = false;
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(e)) => state.failed = Some(e),
        // The place from which it would go on is not to be trusted: whoever asks is told, each time.
        Err(_) => state.is_dead = true,
    }
    drop(state);
    end.arrived.notify_one();
}

fn member(end: &Arc<End>) -> Result<(), TransportError> {
    let link = &end.broker().link;
    let consumer = link.consumer(&config(end), Membership::new(end))?;
    let failed = |e: KafkaError| failure(RECEIVING, link.place(), &e, false);
    let topics: Vec<&str> = end.topics.iter().map(|topic| &**topic).collect();
    consumer.subscribe(&topics).map_err(failed)?;
    let worked = work(end, &consumer);
    // Who leaves while a group is formed leaves it half formed with some brokers, Tansu 0.6 among them: if it was to deal the partitions,
    // nobody else ever does. So does who cannot go on.
    let until = Instant::now() + LET_IN;
    while !consumer.context().is_in() && Instant::now() < until {
        drop(consumer.poll(IDLE));
    }
    worked // What it has is handed over when the consumer goes.
}

/// Until it is told to stop or cannot go on.
fn work(end: &Arc<End>, consumer: &Client) -> Result<(), TransportError> {
    let link = &end.broker().link;
    let failed = |e: KafkaError| failure(RECEIVING, link.place(), &e, false);
    let (mut heard_at, mut active_at) = (Instant::now(), Instant::now());
    let prefetch = usize::from(end.broker().options.prefetch);
    let (mut commits_at, mut looks_at, mut missing_at) = (Instant::now(), Instant::now(), None);
    let mut passes_at = Instant::now();
    while !end.stops.load(Ordering::Acquire) {
        let wait = if end.state().is_busy() || active_at.elapsed() < REST { BUSY } else { IDLE };
        let mut undecodable = None;
        let (mut polled, mut taken) = (consumer.poll(wait), 0);
        while let Some(one) = polled {
            match one {
                Ok(message) => {
                    (heard_at, active_at) = (Instant::now(), Instant::now());
                    end.came(&message);
                }
                Err(e) => match told(end, consumer, e)? {
                    Told::Passes => {}
                    Told::Undecodable(e) => undecodable = Some(e),
                    Told::Missing => missing_at = missing_at.or_else(|| Some(Instant::now())),
                },
            }
            taken += 1;
            // What is full is held back first. Nothing is asked for that is not taken: the client library has given it then, and gives it to
            // nobody again.
            if taken == TAKEN_MAX || end.state().is_full(prefetch) {
                break;
            }
            polled = consumer.poll(Duration::ZERO);
        }
        if let Some(trouble) = consumer.context().trouble() {
            return Err(trouble);
        }
        let doubts = std::mem::take(&mut end.state().doubts);
        if doubts || missing_at.is_some_and(|at| at.elapsed() > SILENCE) {
            missing_at = None;
            end.topics_are_there()?;
        }
        if let Some(e) = undecodable.filter(|_| looks_at <= Instant::now()) {
            if !end.hold_undecodable() {
                end.failed(failed(e)); // Nowhere, as far as is seen: it is told as it is.
            }
            looks_at = Instant::now() + SILENCE;
        }
        if passes_at <= Instant::now() {
            pass_over(end, consumer);
            passes_at = Instant::now() + REST;
        }
        end.note();
        end.set_aside();
        if commits_at <= Instant::now() && commit(end, consumer) {
            commits_at = Instant::now() + REST;
        }
        pause(end, consumer, prefetch).map_err(failed)?;
        if heard_at.elapsed() > SILENCE {
            heard_at = Instant::now();
            ask(end, consumer);
        }
    }
    Ok(())
}

fn config(end: &End) -> ClientConfig {
    let (broker, options) = (end.broker(), &end.broker().options);
    let mut config = broker.link.reader(Some(&broker.names.group(&end.endpoint)));
    config
        .set("partition.assignment.strategy", "roundrobin")
        .set("session.timeout.ms", millis(options.session))
        .set("heartbeat.interval.ms", millis(HEARTBEAT.min(options.session / HEARTBEATS)))
        .set("max.poll.interval.ms", millis(POLL_INTERVAL.max(options.session)))
        .set("queued.min.messages", options.prefetch.to_string())
        .set("queued.max.messages.kbytes", AHEAD_KIB);
    #[cfg(feature = "preview-kafka-transactions")]
    if options.reads_committed() {
        config.set("isolation.level", "read_committed");
    }
    config
}

/// What comes of what the client library says instead of a message.
enum Told {
    Passes,
    /// Somewhere.
    Undecodable(KafkaError),
    /// A broker does not know a topic; it may have heard of it too late.
    Missing,
}

/// What the client library says instead of a message, if it goes on.
fn told(end: &End, consumer: &Client, error: KafkaError) -> Result<Told, TransportError> {
    let place = end.broker().link.place();
    let error = consumer.context().cause().unwrap_or(error);
    if error.rdkafka_error_code() == Some(Code::AllBrokersDown) {
        end.failed(failure(RECEIVING, place, &error, false));
    }
    if is_undecodable(&error) {
        return Ok(Told::Undecodable(error));
    }
    if is_passing(&error) {
        tracing::debug!("{place}: {error}");
        return Ok(if is_unknown_topic(&error) { Told::Missing } else { Told::Passes });
    }
    Err(failure(RECEIVING, place, &error, false))
}

/// Whether the broker is there, when nothing has come for a while: else nobody tells that from an empty queue.
fn ask(end: &End, consumer: &Client) {
    let link = &end.broker().link;
    let asked = consumer.fetch_metadata(end.topics.first().map(|topic| &**topic), link.patience.min(SILENCE));
    if let Err(e) = asked {
        end.failed(failure(RECEIVING, link.place(), &e, false));
    }
}

/// Has the client library hold back what there is no room for.
fn pause(end: &End, consumer: &Client, prefetch: usize) -> KafkaResult<()> {
    let changed = end.state().pauses(prefetch, Instant::now());
    for (places, is_paused) in changed.into_iter().filter(|(places, _)| !places.is_empty()) {
        let mut list = TopicPartitionList::new();
        for (topic, partition) in &places {
            list.add_partition(topic, *partition);
        }
        if is_paused { consumer.pause(&list)? } else { consumer.resume(&list)? }
    }
    Ok(())
}

impl End {
    fn came(&self, message: &BorrowedMessage<'_>) {
        let place: Place = (message.topic().into(), message.partition());
        let body = Bytes::copy_from_slice(message.payload().unwrap_or_default());
        let headers = headers_in(message);
        let read = match &headers {
            Ok(headers) => message_of(message.topic(), message.key(), headers, body.clone(), &self.broker().names)
                .map_err(|e| reason_of(&e)),
            Err(e) => Err(reason_of(e)),
        };
        let read = read.map_err(|reason| {
            tracing::error!(
                endpoint = %self.endpoint, topic = %place.0, partition = place.1, offset = message.offset(), reason,
                "a message that cannot be read is set aside among the dead letters"
            );
            Unreadable { headers: headers.unwrap_or_default(), body, reason }
        });
        if let Some(lane) = self.state().lanes.get_mut(&place) {
            lane.came(message.offset(), read);
        }
    }

    /// That no topic is gone: the client library says once that a broker does not know one, and never again.
    fn topics_are_there(&self) -> Result<(), TransportError> {
        let place = self.broker().link.place();
        for topic in self.topics.iter().map(|topic| &**topic).chain([self.pen.topic.as_str()]) {
            let found = self.asker.lock().unwrap_or_else(PoisonError::into_inner).partitions(topic);
            match found {
                Ok(Some(_)) => {}
                Ok(None) => {
                    self.broker().link.forget(topic);
                    let gone = KafkaError::MessageConsumption(Code::UnknownTopicOrPartition);
                    return Err(failure(RECEIVING, place, &gone, false)); // It is declared anew.
                }
                Err(e) => self.failed(failure(RECEIVING, place, &e, false)),
            }
        }
        Ok(())
    }

    /// Nothing is given before it is noted: whoever receives is told why. The client library may say of a topic that is gone that it did not
    /// answer in time: so it is looked for.
    fn not_noted(&self, error: &KafkaError) {
        self.failed(failure(RECEIVING, self.broker().link.place(), error, false));
        self.state().doubts = true;
    }

    /// Notes what is about to be given. It is given once that is confirmed.
    fn note(self: &Arc<Self>) {
        let now = Instant::now();
        let mut notes = Vec::new();
        for (place, lane) in &mut self.state().lanes {
            notes.extend(lane.notes(now).map(|given| (place.clone(), lane.epoch, given)));
        }
        for (place, epoch, given) in notes {
            let (end, parcel) = (self.clone(), self.pen.given(&place, &self.giver(epoch), &given));
            self.broker().link.producing.put(&parcel, move |put| {
                if let Err(e) = &put {
                    tracing::warn!(error = %e, "what is about to be given could not be noted; tried again");
                    end.not_noted(e);
                }
                if let Some(lane) = end.state().lane(&place, epoch) {
                    lane.noted(put.is_ok(), Instant::now(), REST);
                }
                end.arrived.notify_one();
            });
        }
    }
}
