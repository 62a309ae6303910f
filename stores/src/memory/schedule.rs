//! What is not due yet.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use async_trait::async_trait;
use hapax_core::{
    envelope::{Destination, Outgoing},
    ids::{EndpointName, MessageId},
    ports::{Due, ErrorKind, Next, Receipt, Schedule, ScheduleCapabilities, StoreError, Take},
    time::Timestamp,
};
// Beside queues that are inside the process too, whose time a test may let pass.
use tokio::time::Instant;

use super::Memory;

/// Largest message, in bytes: as an entity may hold it.
const MESSAGE_BYTES_MAX: usize = super::ENTITY_BYTES_MAX;
/// Most messages: a hundred megabytes as messages usually are. Who needs more wants them to outlive the process, too.
const MESSAGES_MAX: usize = 100_000;
const PUT: &str = "putting a message into the schedule";

/// What waits, by when it is due.
#[derive(Default)]
pub(super) struct Waiting {
    all: BTreeMap<Place, Row>,
    places: HashMap<Identity, Place>,
    /// Where the messages are that somebody has been given, by receipt.
    given: HashMap<u64, Place>,
    /// The last number given, to a message or to a receipt.
    last: u64,
}

/// In the order of due times, then as they were put.
type Place = (EndpointName, Instant, u64);
/// What makes a message the same one.
type Identity = (EndpointName, MessageId, Destination);

struct Row {
    outgoing: Outgoing,
    lease: Option<(u64, Instant)>,
}

fn identity(endpoint: &EndpointName, outgoing: &Outgoing) -> Identity {
    (endpoint.clone(), outgoing.envelope.message_id.clone(), outgoing.destination.clone())
}

/// When it is due by the clock that leases end by.
fn due(outgoing: &Outgoing, now: Instant) -> Instant {
    let (Some(due), wall) = (outgoing.envelope.due, Timestamp::now()) else { return now };
    let early = due.since(wall);
    if early.is_zero() { now.checked_sub(wall.since(due)).unwrap_or(now) } else { later(now, early) }
}

/// So long after `now`, or as long as that can be told.
fn later(now: Instant, wait: Duration) -> Instant {
    const LONGEST: Duration = Duration::from_secs(u32::MAX as u64);
    now + wait.min(LONGEST)
}

impl Waiting {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// What `endpoint` has put, with when it is due.
    pub(super) fn messages_of<'w>(
        &'w self,
        endpoint: &'w EndpointName,
    ) -> impl Iterator<Item = (Instant, &'w Outgoing)> {
        let own = self.all.iter().filter(move |((of, ..), _)| of == endpoint);
        own.map(|((_, due, _), row)| (*due, &row.outgoing))
    }

    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn put(&mut self, endpoint: &EndpointName, messages: &[Outgoing], now: Instant) -> Result<(), StoreError> {
        if let Some(bytes) =
            messages.iter().map(|message| message.envelope.size()).find(|size| *size > MESSAGE_BYTES_MAX)
        {
            let why = format!("it has {bytes} bytes, more than the {MESSAGE_BYTES_MAX} that memory takes");
            return Err(StoreError::new(ErrorKind::TooLarge, PUT, why));
        }
        for message in messages {
            let identity = identity(endpoint, message);
            if self.places.contains_key(&identity) {
                continue;
            }
            if self.all.len() >= MESSAGES_MAX {
                let why =
                    format!("{MESSAGES_MAX} messages wait in memory and no more are taken: use a schedule on disk");
                return Err(StoreError::new(ErrorKind::Unavailable, PUT, why));
            }
            let place = (endpoint.clone(), due(message, now), self.number());
            self.places.insert(identity, place.clone());
            self.all.insert(place, Row { outgoing: message.clone(), lease: None });
        }
        Ok(())
    }

    fn remove(&mut self, place: &Place) -> bool {
        let Some(row) = self.all.remove(place) else { return false };
        self.places.remove(&identity(&place.0, &row.outgoing));
        if let Some((receipt, _)) = row.lease {
            self.given.remove(&receipt);
        }
        true
    }

    fn cancel(&mut self, endpoint: &EndpointName, id: &MessageId) -> usize {
        let of_id = |(place, row): (&Place, &Row)| (row.outgoing.envelope.message_id == *id).then(|| place.clone());
        let places: Vec<Place> = self.of(endpoint).filter_map(of_id).collect();
        places.iter().filter(|place| self.remove(place)).count()
    }

    /// In the order in which they are due.
    fn of<'a>(&'a self, endpoint: &'a EndpointName) -> impl Iterator<Item = (&'a Place, &'a Row)> {
        let begin = self.all.keys().find(|place| place.0 == *endpoint);
        begin.into_iter().flat_map(|begin| self.all.range(begin..)).take_while(|(place, _)| place.0 == *endpoint)
    }

    fn take(&mut self, endpoint: &EndpointName, take: Take, now: Instant) -> Vec<Due> {
        let until = later(now, take.within);
        let is_free = |row: &Row| row.lease.is_none_or(|(_, end)| end <= now);
        let due = self.of(endpoint).take_while(|(place, _)| place.1 <= until).filter(|(_, row)| is_free(row));
        let mut bytes = 0_usize;
        let has_room = |(at, (_, row)): &(usize, (&Place, &Row))| {
            bytes = bytes.saturating_add(row.outgoing.envelope.size());
            *at == 0 || bytes <= take.bytes_max
        };
        let due = due.take(take.max).enumerate().take_while(has_room);
        let places: Vec<Place> = due.map(|(_, (place, _))| place.clone()).collect();
        let mut taken = Vec::with_capacity(places.len());
        for place in places {
            let receipt = self.number();
            let Some(row) = self.all.get_mut(&place) else { continue };
            if let Some((lost, _)) = row.lease.replace((receipt, later(now, take.lease))) {
                self.given.remove(&lost);
            }
            taken.push(Due { outgoing: row.outgoing.clone(), receipt: Receipt::number(receipt) });
            self.given.insert(receipt, place);
        }
        taken
    }

    fn next(&self, endpoint: &EndpointName, now: Instant) -> Option<Next> {
        let ((_, due, _), _) = self.of(endpoint).next()?;
        Some(if *due > now { Next::In(*due - now) } else { Next::Overdue(now - *due) })
    }
}

#[async_trait]
impl Schedule for Memory {
    fn schedule_capabilities(&self) -> ScheduleCapabilities {
        ScheduleCapabilities { name: "memory", message_bytes_max: MESSAGE_BYTES_MAX, durable: false }
    }

    async fn put(&self, endpoint: &EndpointName, messages: &[Outgoing]) -> Result<(), StoreError> {
        self.state().waiting.put(endpoint, messages, Instant::now())
    }

    async fn cancel(&self, endpoint: &EndpointName, ids: &[MessageId]) -> Result<usize, StoreError> {
        let waiting = &mut self.state().waiting;
        Ok(ids.iter().map(|id| waiting.cancel(endpoint, id)).sum())
    }

    async fn take_due(&self, endpoint: &EndpointName, take: Take) -> Result<Vec<Due>, StoreError> {
        Ok(self.state().waiting.take(endpoint, take, Instant::now()))
    }

    async fn done(&self, endpoint: &EndpointName, receipts: &[Receipt]) -> Result<(), StoreError> {
        let waiting = &mut self.state().waiting;
        for receipt in receipts {
            let place = receipt.as_number().and_then(|number| waiting.given.get(&number)).cloned();
            if let Some(place) = place.filter(|place| place.0 == *endpoint) {
                waiting.remove(&place);
            }
        }
        Ok(())
    }

    async fn next(&self, endpoint: &EndpointName) -> Result<Option<Next>, StoreError> {
        Ok(self.state().waiting.next(endpoint, Instant::now()))
    }
}
