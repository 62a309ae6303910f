//! Partitions come and go: where each is read from, and what is done before it is another's.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, channel},
    },
    time::Instant,
};

use hapax_core::ports::{ErrorKind, TransportError};
use rdkafka::{
    ClientContext, Offset, TopicPartitionList,
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, Consumer, ConsumerContext},
    error::{KafkaError, KafkaResult},
    types::RDKafkaRespErr,
};

use super::{
    asker::{Bounds, Place, committed},
    commits::commit_all,
    errors::failure,
    lane::Lane,
    link::Heard,
    member::SILENCE,
    notes::{Given, Notes},
    receiver::{End, RECEIVING},
};

/// What the client library tells of the group.
pub(super) struct Membership {
    end: Arc<End>,
    heard: Heard,
    trouble: Mutex<Option<TransportError>>,
    /// It has been told which partitions are its own, if any, and they are not dealt anew at the moment.
    is_in: AtomicBool,
}

pub(super) type Client = BaseConsumer<Membership>;

/// Where a partition is read from, and what is known of it.
struct Begun {
    at: i64,
    committed: Option<i64>,
    given: Given,
}

impl Membership {
    pub(super) fn new(end: &Arc<End>) -> Self {
        let heard = Heard::new(end.broker().link.place().clone());
        Self { end: end.clone(), heard, trouble: Mutex::default(), is_in: AtomicBool::new(false) }
    }

    pub(super) fn is_in(&self) -> bool {
        self.is_in.load(Ordering::Acquire)
    }

    /// Why it cannot connect, where that is for a person to mend.
    pub(super) fn cause(&self) -> Option<KafkaError> {
        self.heard.cause()
    }

    /// Why the last partitions could not be taken.
    pub(super) fn trouble(&self) -> Option<TransportError> {
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
        flow(consumer, &places).map_err(failed)?;
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
                // What was committed of the log before says nothing of what is settled in this one.
                Begun { at: low, committed: None, given: Given::default() }
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
            let notes = state.lanes.iter().map(|(place, lane)| (place.clone(), lane.epoch, lane.last_notes()));
            (state.uncommitted(), notes.collect::<Vec<_>>())
        };
        let written = written(end, notes);
        if !settled.is_empty() && !consumer.assignment_lost() {
            // What is not committed comes again to whoever has the partition next.
            let ended = commit_all(end, consumer, settled);
            end.state().handed_over(ended);
        }
        let paused = end.state().paused();
        if let Err(e) = flow(consumer, &paused) {
            tracing::warn!(error = %e, "what is held back could not be let go before it is handed over; that is tried when it comes back");
        }
        let until = Instant::now() + end.broker().link.patience.min(SILENCE);
        while written.recv_timeout(until.saturating_duration_since(Instant::now())).is_ok() {}
        end.state().let_go();
        end.arrived.notify_one();
    }
}

/// Ends what holds partitions back. The client library does not forget that when a partition is another's: in whoever has it again nothing
/// would ever come.
fn flow(consumer: &Client, places: &[Place]) -> KafkaResult<()> {
    if places.is_empty() {
        return Ok(());
    }
    let mut list = TopicPartitionList::with_capacity(places.len());
    for (topic, partition) in places {
        list.add_partition(topic, *partition);
    }
    consumer.resume(&list)
}

/// Notes how often messages were given. It ends when all of it is confirmed or has failed.
fn written(end: &End, notes: Vec<(Place, u64, Given)>) -> Receiver<()> {
    let (tell, told) = channel();
    for (place, epoch, given) in notes {
        let tell = Mutex::new(tell.clone());
        end.broker().link.producing.put(&end.pen.given(&place, &end.giver(epoch), &given), move |put| {
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
