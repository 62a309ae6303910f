//! Reading as one of a group, and what shows that messages are gone.

use std::{collections::HashMap, fmt, sync::Arc};

use async_trait::async_trait;
use hapax_core::{
    envelope::Destination,
    ids::EndpointName,
    ports::{Delivery, ErrorKind, Mark, Marks, Receipt, Receiver, Settled, Settlement, TransportError},
};
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use super::{
    Broker, State,
    partition::{Partition, Turn, until},
};

/// The receivers of one endpoint.
pub(super) struct Group {
    /// What it reads, its own log first. Only ever longer: the places of a mark are those of the partitions of these, in this order.
    pub(super) logs: Vec<Destination>,
    /// What is given, by receipt.
    given: HashMap<u64, Given>,
    /// Where the next receive begins, so that no partition waits for another.
    turn: usize,
    /// There may be something to receive.
    pub(super) arrived: Arc<Notify>,
}

impl Group {
    pub(super) fn new(own: Destination) -> Self {
        Self { logs: vec![own], given: HashMap::new(), turn: 0, arrived: Arc::default() }
    }
}

/// A message that a receiver has.
struct Given {
    member: u64,
    log: Destination,
    partition: usize,
    offset: u64,
}

/// One receiver of a group. What it has is given to others when it is dropped.
pub(super) struct GroupMember {
    pub(super) broker: Arc<Broker>,
    pub(super) endpoint: EndpointName,
    pub(super) member: u64,
    pub(super) arrived: Arc<Notify>,
}

/// All partitions that a group reads, in the order of [`Group::logs`].
fn partitions<'s>(state: &'s State, endpoint: &EndpointName) -> impl Iterator<Item = &'s Partition> {
    let logs = state.groups.get(endpoint).into_iter().flat_map(|group| &group.logs);
    logs.filter_map(|log| state.logs.get(log)).flat_map(|log| &log.partitions)
}

impl GroupMember {
    /// Takes what can be given now, or says when to look again.
    fn take(&self, max: usize) -> Result<Vec<Delivery>, Option<Instant>> {
        let now = Instant::now();
        let mut state = self.broker.state();
        let State { logs, groups, next, .. } = &mut *state;
        let Some(group) = groups.get_mut(&self.endpoint) else { return Err(None) };
        let count = self.broker.partitions.get();
        let places: Vec<(&Destination, usize)> =
            group.logs.iter().flat_map(|log| (0..count).map(move |partition| (log, partition))).collect();
        group.turn += 1;
        let (mut deliveries, mut later) = (Vec::new(), None::<Instant>);
        for place in 0..places.len() {
            let (log, partition) = places[(group.turn + place) % places.len()];
            let of_log = logs.get_mut(log).and_then(|log| log.partitions.get_mut(partition));
            let Some(of_log) = of_log else { continue };
            while deliveries.len() < max {
                match of_log.take(&self.endpoint, self.member, now) {
                    Turn::Given(envelope, offset, attempts) => {
                        *next += 1;
                        let given = Given { member: self.member, log: log.clone(), partition, offset };
                        group.given.insert(*next, given);
                        deliveries.push(Delivery { envelope, receipt: Receipt::number(*next), attempts });
                    }
                    Turn::Later(until) => {
                        later = later.into_iter().chain([until]).min();
                        break;
                    }
                    Turn::Nothing => break,
                }
            }
        }
        if deliveries.is_empty() { Err(later) } else { Ok(deliveries) }
    }
}

#[async_trait]
impl Receiver for GroupMember {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, TransportError> {
        loop {
            let arrived = self.arrived.notified(); // Before the look, so that nothing told in between is missed.
            match self.take(max.max(1)) {
                Ok(deliveries) => return Ok(deliveries),
                Err(None) => arrived.await,
                // Whether something arrived or the time came, the next look tells.
                Err(Some(turn)) => drop(timeout_at(turn, arrived).await),
            }
        }
    }

    /// There is nothing that runs out.
    async fn extend(&self, _receipts: &[Receipt]) -> Result<(), TransportError> {
        Ok(())
    }

    async fn settle(&self, receipt: &Receipt, settlement: Settlement) -> Result<Settled, TransportError> {
        let now = Instant::now();
        let mut state = self.broker.state();
        let State { logs, groups, messages, .. } = &mut *state;
        let Some((receipt, group)) = receipt.as_number().zip(groups.get_mut(&self.endpoint)) else {
            return Ok(Settled::LeaseLost);
        };
        if group.given.get(&receipt).is_none_or(|given| given.member != self.member) {
            return Ok(Settled::LeaseLost);
        }
        let Some(Given { log, partition, offset, .. }) = group.given.remove(&receipt) else {
            return Ok(Settled::LeaseLost);
        };
        let partition = logs.get_mut(&log).and_then(|log| log.partitions.get_mut(partition));
        let Some(partition) = partition else { return Ok(Settled::LeaseLost) };
        match settlement {
            Settlement::Retry { delay, counts } => partition.retry(&self.endpoint, offset, until(now, delay), counts),
            Settlement::Ack | Settlement::DeadLetter { .. } => {
                *messages -= partition.settle(&self.endpoint, offset);
                if *messages == 0 {
                    self.broker.settled.notify_waiters();
                }
            }
        }
        group.arrived.notify_waiters();
        Ok(Settled::Done)
    }
}

impl Drop for GroupMember {
    fn drop(&mut self) {
        let mut state = self.broker.state();
        let State { logs, groups, .. } = &mut *state;
        let Some(group) = groups.get_mut(&self.endpoint) else { return };
        group.given.retain(|_, given| given.member != self.member);
        for log in &group.logs {
            let partitions = logs.get_mut(log).into_iter().flat_map(|log| &mut log.partitions);
            partitions.for_each(|partition| partition.leave(&self.endpoint, self.member));
        }
        group.arrived.notify_waiters();
    }
}

#[async_trait]
impl Marks for GroupMember {
    async fn end(&self) -> Result<Mark, TransportError> {
        let state = self.broker.state();
        Ok(Mark::new(partitions(&state, &self.endpoint).map(Partition::end).collect::<Vec<u64>>()))
    }

    async fn passed(&self, mark: &Mark) -> Result<bool, TransportError> {
        let state = self.broker.state();
        let committed: Vec<u64> =
            partitions(&state, &self.endpoint).map(|partition| partition.committed(&self.endpoint)).collect();
        // What it has subscribed to since has nothing in front of the mark.
        if mark.places().is_empty() || mark.places().len() > committed.len() {
            let (name, endpoint) = (&self.broker.name, &self.endpoint);
            let why = format!("{mark:?} is no mark of what {endpoint} reads of log {name}: ask the log that gave it");
            return Err(TransportError::new(ErrorKind::Malformed, "asking whether messages are gone", why));
        }
        Ok(mark.places().iter().zip(committed).all(|(end, committed)| committed >= *end))
    }
}

impl fmt::Debug for GroupMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupMember").field("log", &self.broker.name).field("endpoint", &self.endpoint).finish()
    }
}
