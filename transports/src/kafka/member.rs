//! One process of an endpoint in its consumer group: a thread that asks the client library for messages, and does all that has to be one after
//! the other. What is committed and what is handed over never cross: both are done here.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, channel},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use hapax_core::ports::{ErrorKind, TransportError};
use rdkafka::{
    ClientConfig, ClientContext, Message, Offset, TopicPartitionList,
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext},
    error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code},
    message::BorrowedMessage,
    types::RDKafkaRespErr,
};

use super::{
    asker::{Bounds, Place, committed, is_passing},
    errors::failure,
    lane::{Lane, Unreadable},
    link::{Heard, millis},
    message::{envelope_of, headers_in, reason_of},
    notes::{Given, Notes},
    receiver::{End, RECEIVING},
};

/// How long the client library is waited for while there is something to settle, which nothing but the next look sees; and while
/// there is nothing.
const BUSY: Duration = Duration::from_millis(2);
const IDLE: Duration = Duration::from_millis(50);
/// Messages taken between two looks at what is settled.
const TAKEN_MAX: usize = 500;
/// Without a word from the broker for so long, it is asked whether it is there.
const SILENCE: Duration = Duration::from_secs(5);
/// Before something that failed is tried again.
const REST: Duration = Duration::from_millis(500);
/// What the client library has ahead, in KiB.
const AHEAD_KIB: &str = "16384";
/// A process whose thread is busy for longer is taken for dead by its group.
const POLL_INTERVAL: Duration = Duration::from_secs(300);
/// Between two signs of life, at most: how soon a process hears that partitions are dealt anew. Several are sent within a session.
const HEARTBEAT: Duration = Duration::from_secs(1);
const HEARTBEATS: u32 = 10;

/// What the client library tells of the group.
struct Membership {
    end: Arc<End>,
    heard: Heard,
    trouble: Mutex<Option<TransportError>>,
    /// It has been told which partitions are its own, if any, and they are not dealt anew at the moment.
    is_in: AtomicBool,
}

type Client = BaseConsumer<Membership>;

/// Where a partition is read from, and what is known of it.
struct Begun {
    at: i64,
    committed: Option<i64>,
    given: Given,
}

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
    let context = Membership {
        end: end.clone(),
        heard: Heard::new(link.place().clone()),
        trouble: Mutex::default(),
        is_in: AtomicBool::new(false),
    };
    let consumer = link.consumer(&config(end), context)?;
    let failed = |e: KafkaError| failure(RECEIVING, link.place(), &e, false);
    let topics: Vec<&str> = end.topics.iter().map(|topic| &**topic).collect();
    consumer.subscribe(&topics).map_err(failed)?;
    let (mut heard_at, mut active_at, mut commits_at) = (Instant::now(), Instant::now(), Instant::now());
    while !end.stops.load(Ordering::Acquire) {
        let wait = if end.state().is_busy() || active_at.elapsed() < REST { BUSY } else { IDLE };
        let mut polled = consumer.poll(wait);
        for _ in 0..TAKEN_MAX {
            match polled {
                Some(Ok(message)) => {
                    (heard_at, active_at) = (Instant::now(), Instant::now());
                    end.came(&message);
                }
                Some(Err(e)) => told(end, &consumer, e)?,
                None => break,
            }
            polled = consumer.poll(Duration::ZERO);
        }
        if let Some(trouble) = consumer.context().trouble() {
            return Err(trouble);
        }
        end.note();
        end.set_aside();
        if commits_at <= Instant::now() && commit(end, &consumer) {
            commits_at = Instant::now() + REST;
        }
        pause(end, &consumer).map_err(failed)?;
        if heard_at.elapsed() > SILENCE {
            heard_at = Instant::now();
            ask(end, &consumer);
        }
    }
    // Who leaves while a group is formed leaves it half formed with some brokers, Tansu 0.6 among them.
    let until = Instant::now() + SILENCE.min(end.broker().options.session);
    while !consumer.context().is_in.load(Ordering::Acquire) && Instant::now() < until {
        drop(consumer.poll(IDLE));
    }
    Ok(()) // What it has is handed over when the consumer goes.
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
    config
}

/// What the client library says instead of a message.
fn told(end: &End, consumer: &Client, error: KafkaError) -> Result<(), TransportError> {
    let place = end.broker().link.place();
    let error = consumer.context().heard.cause().unwrap_or(error);
    if error.rdkafka_error_code() == Some(Code::AllBrokersDown) {
        end.failed(failure(RECEIVING, place, &error, false));
    }
    if is_passing(&error) {
        tracing::debug!("{place}: {error}");
        return Ok(());
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

/// Commits what is settled, if something is, and waits until the broker has it: the client library tells of no other commit how it ended.
/// Whether it is to be waited for a while before the next.
fn commit(end: &End, consumer: &Client) -> bool {
    let places = end.state().commits();
    if places.is_empty() {
        return false;
    }
    let sent = list(&places).and_then(|list| consumer.commit(&list, CommitMode::Sync).map(|()| list));
    let mut has_failed = false;
    for (place, offset) in places {
        let of_place = sent.as_ref().ok().and_then(|list| list.find_partition(&place.0, place.1));
        let done = of_place.is_some_and(|element| element.error().is_ok());
        has_failed |= !done;
        end.state().commit_ended(&place, offset, done);
    }
    if has_failed {
        let why = sent.err().map_or_else(|| "of some partitions".to_owned(), |e| e.to_string());
        tracing::warn!("{}: a commit failed, {why}; tried again", end.broker().link.place());
    }
    has_failed
}

/// Has the client library hold back what there is no room for.
fn pause(end: &End, consumer: &Client) -> KafkaResult<()> {
    let changed = end.state().pauses(usize::from(end.broker().options.prefetch));
    for (places, is_paused) in changed.into_iter().filter(|(places, _)| !places.is_empty()) {
        let mut list = TopicPartitionList::new();
        for (topic, partition) in &places {
            list.add_partition(topic, *partition);
        }
        if is_paused { consumer.pause(&list)? } else { consumer.resume(&list)? }
    }
    Ok(())
}

fn list(places: &[(Place, i64)]) -> KafkaResult<TopicPartitionList> {
    let mut list = TopicPartitionList::with_capacity(places.len());
    for ((topic, partition), offset) in places {
        list.add_partition_offset(topic, *partition, Offset::Offset(*offset))?;
    }
    Ok(list)
}

impl End {
    fn came(&self, message: &BorrowedMessage<'_>) {
        let place: Place = (message.topic().into(), message.partition());
        let body = Bytes::copy_from_slice(message.payload().unwrap_or_default());
        let headers = headers_in(message);
        let read = match &headers {
            Ok(headers) => {
                envelope_of(message.topic(), headers, body.clone(), &self.broker().names).map_err(|e| reason_of(&e))
            }
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

    /// Notes what is about to be given. It is given once that is confirmed.
    fn note(self: &Arc<Self>) {
        let now = Instant::now();
        let mut notes = Vec::new();
        for (place, lane) in &mut self.state().lanes {
            notes.extend(lane.notes(now).map(|given| (place.clone(), lane.epoch, given)));
        }
        for (place, epoch, given) in notes {
            let (end, parcel) = (self.clone(), self.pen.given(&place, &given));
            self.broker().link.producing.put(&parcel, move |put| {
                if let Err(e) = &put {
                    tracing::warn!(error = %e, "what is about to be given could not be noted; tried again");
                }
                if let Some(lane) = end.state().lane(&place, epoch) {
                    lane.noted(put.is_ok(), Instant::now(), REST);
                }
                end.arrived.notify_one();
            });
        }
    }
}

impl Membership {
    fn trouble(&self) -> Option<TransportError> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Partitions are this process' now. Each is read from where the endpoint is in it, and never from anywhere else.
    fn taken(&self, consumer: &Client, list: &TopicPartitionList) -> Result<(), TransportError> {
        let link = &self.end.broker().link;
        let failed = |e: KafkaError| failure(RECEIVING, link.place(), &e, false);
        let places: Vec<Place> =
            list.elements().iter().map(|element| (element.topic().into(), element.partition())).collect();
        let begun = self.begin(consumer, &places).map_err(failed)?;
        let mut list = TopicPartitionList::with_capacity(begun.len());
        for ((topic, partition), begun) in &begun {
            list.add_partition_offset(topic, *partition, Offset::Offset(begun.at)).map_err(failed)?;
        }
        let mut state = self.end.state();
        state.let_go();
        for (place, begun) in begun {
            state.epochs += 1;
            let lane = Lane::new(state.epochs, begun.at, begun.committed, begun.given);
            state.lanes.insert(place, lane);
        }
        drop(state);
        consumer.assign(&list).map_err(failed)
    }

    fn begin(&self, consumer: &Client, places: &[Place]) -> KafkaResult<Vec<(Place, Begun)>> {
        let (end, patience) = (&self.end, self.end.broker().link.patience);
        let notes = {
            let asker = end.asker.lock().unwrap_or_else(PoisonError::into_inner);
            Notes::read(&asker, &end.pen.topic)?
        };
        let committed: HashMap<Place, i64> = committed(consumer, places, patience)?;
        let mut begun = Vec::with_capacity(places.len());
        for place in places {
            let (low, high) = consumer.fetch_watermarks(&place.0, place.1, patience)?;
            let (bounds, committed) = (Bounds { low, high }, committed.get(place).copied());
            let at = notes.begin(place, committed, bounds);
            let it = if (low..=high).contains(&at) {
                Begun { at, committed, given: notes.given(place) }
            } else {
                end.failed(went_back(end, place, at, bounds));
                Begun { at: low, committed, given: Given::default() }
            };
            begun.push((place.clone(), it));
        }
        Ok(begun)
    }

    /// Partitions go to others, or nobody knows to whom: what is settled is committed, how often the rest was given is noted, and then
    /// none of it is ours any more.
    fn handed_over(&self, consumer: &Client) {
        let end = &self.end;
        let (settled, notes) = {
            let state = end.state();
            let notes = state.lanes.iter().map(|(place, lane)| (place.clone(), lane.last_notes()));
            (state.uncommitted(), notes.collect::<Vec<_>>())
        };
        let written = written(end, notes);
        if !settled.is_empty() && !consumer.assignment_lost() {
            let done = list(&settled).and_then(|list| consumer.commit(&list, CommitMode::Sync));
            if let Err(e) = &done {
                tracing::warn!(error = %e, "{}: what was settled last could not be committed; it comes again", end.broker().link.place());
            }
            end.state().handed_over(settled, done.is_ok());
        }
        let until = Instant::now() + end.broker().link.patience.min(SILENCE);
        while written.recv_timeout(until.saturating_duration_since(Instant::now())).is_ok() {}
        end.state().let_go();
        end.arrived.notify_one();
    }
}

/// Notes how often messages were given. It ends when all of it is confirmed or has failed.
fn written(end: &End, notes: Vec<(Place, Given)>) -> Receiver<()> {
    let (tell, told) = channel();
    for (place, given) in notes {
        let tell = Mutex::new(tell.clone());
        end.broker().link.producing.put(&end.pen.given(&place, &given), move |put| {
            if put.is_err() {
                tracing::warn!("how often messages were given could not be noted; they count as given once more");
            }
            drop(tell);
        });
    }
    told
}

/// A place that is no more. It is told, and what is there is read from its beginning.
fn went_back(end: &End, (topic, partition): &Place, at: i64, bounds: Bounds) -> TransportError {
    let Bounds { low, high } = bounds;
    let place = end.broker().link.place();
    let why = if at > high {
        format!(
            "the log of topic `{topic}`, partition {partition}, went back: this endpoint was at offset {at}, and it ends at {high}. It was deleted and made anew, or its replicas lost what they had confirmed; what it has is read from its beginning"
        )
    } else {
        format!(
            "topic `{topic}`, partition {partition}, has lost messages that were not read: this endpoint was at offset {at}, and it begins at {low}. Keep messages for longer (`retention.ms`), or let the endpoint catch up; it goes on from there"
        )
    };
    tracing::error!(endpoint = %end.endpoint, "{place}: {why}");
    TransportError::new(ErrorKind::Misconfigured, RECEIVING, format!("{place}: {why}"))
}

impl ClientContext for Membership {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.heard.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.heard.error(error, reason);
    }
}

impl ConsumerContext for Membership {
    fn rebalance(&self, consumer: &Client, event: RDKafkaRespErr, list: &mut TopicPartitionList) {
        let is_taken = event == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
        self.is_in.store(is_taken, Ordering::Release);
        let done = if is_taken {
            self.taken(consumer, list)
        } else {
            self.handed_over(consumer);
            Ok(())
        };
        if let Err(e) = done {
            *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(e);
        } else if is_taken {
            return;
        }
        if let Err(e) = consumer.unassign() {
            tracing::warn!(error = %e, "handing partitions over failed");
        }
    }
}
