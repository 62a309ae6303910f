//! Logs with partitions inside one process: what an endpoint sees of Kafka, without a service.
//!
//! A destination is a log of some partitions; what is sent is appended to one of them and has an offset there. An endpoint is a
//! consumer group: it reads the log of its own name and those of the types that it subscribes to, and keeps nothing but an offset for each
//! partition, which it **commits** once everything in front of it is settled. All of the log is the same for all groups; what
//! every group has behind it is dropped.
//!
//! - *Who reads:* a partition that a receiver has taken something from is its own until all of that is settled or the receiver is gone.
//!   There are no leases that run out.
//! - *A gap holds the commit back:* what is settled behind a message that is not, is not committed. When the receiver is gone, the next
//!   one begins at the committed offset, and gives **what was settled behind a gap again**
//!   ([`TransportCapabilities::offsets`]).
//! - *Order* of the messages of one partition key: they are in one partition. What has no key goes to each in turn.
//! - *Retries* are in place: until a message that is put off has been given again, its partition gives nothing that comes behind it.
//! - *Delays:* none, see [`Delays::Never`]; give the endpoint a [`Schedule`](hapax_core::ports::Schedule).
//! - *Attempts* are counted beside the committed offset, for each message behind it. That is more than Kafka keeps.
//! - *Dead letters* are the store's: a message that is set aside is behind the offset like one that is acknowledged.
//! - *Marks* are the ends of all partitions; one has passed when the committed offsets are there.
//! - *Published* messages go to groups that have subscribed by then. A subscription stays while its endpoint is away.
//!
//! Nothing survives the process. The log is kept by its handles: an endpoint that stops and is started again on the same log goes on from
//! its committed offsets. For tests, and for whoever writes a transport for such a broker and wants something to compare with.

mod partition;
mod receiver;

use std::{
    collections::HashMap,
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use hapax_core::{
    Sender,
    envelope::{Destination, Envelope, Outgoing},
    ids::{EndpointName, TypeName},
    ports::{
        Connected, Delays, DispatchError, Dispatcher, ErrorKind, Refused, Transport, TransportCapabilities,
        TransportError,
    },
};
use partition::Partition;
use receiver::{Group, GroupMember};
use tokio::sync::Notify;

/// Partitions of each log unless [told otherwise](PartitionedLog::with_partitions): several, so that what rests on there being one shows.
pub const PARTITIONS: NonZeroUsize = NonZeroUsize::new(4).expect("it is not zero");
/// Largest message, in bytes as [`Envelope::size`] counts: what Kafka's and NATS's servers take unless told otherwise.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Most messages in all logs unless [told otherwise](PartitionedLog::messages_max): half a gigabyte of usual ones. Beyond it, sending fails
/// for now.
pub const MESSAGES_MAX: usize = 1_000_000;
/// A receiver may be away for as long as the process lives; an hour is said so that tests need not wait for long, as the hub in
/// [`in_process`](crate::in_process) says.
const REDELIVERY_MAX: std::time::Duration = std::time::Duration::from_secs(3600);

const DISPATCHING: &str = "dispatching";

/// Logs with partitions, one for each destination. Cloning gives another handle to the same logs.
#[derive(Clone)]
pub struct PartitionedLog(Arc<Broker>);

struct Broker {
    name: String,
    partitions: NonZeroUsize,
    state: Mutex<State>,
    /// Something was settled: for [`PartitionedLog::idle`].
    settled: Notify,
}

#[derive(Default)]
struct State {
    logs: HashMap<Destination, Log>,
    groups: HashMap<EndpointName, Group>,
    /// Messages in all logs.
    messages: usize,
    messages_max: usize,
    /// The next receipt, and the next receiver.
    next: u64,
}

struct Log {
    partitions: Vec<Partition>,
    /// Where the next message without a key goes.
    turn: usize,
}

impl Log {
    fn new(partitions: NonZeroUsize) -> Self {
        Self { partitions: (0..partitions.get()).map(|_| Partition::default()).collect(), turn: 0 }
    }

    fn append(&mut self, envelope: Arc<Envelope>) {
        let place = match &envelope.partition_key {
            Some(key) => {
                let mut hasher = DefaultHasher::new();
                key.as_str().hash(&mut hasher);
                usize::try_from(hasher.finish() % self.partitions.len() as u64).unwrap_or_default()
            }
            None => {
                self.turn += 1;
                self.turn % self.partitions.len()
            }
        };
        if let Some(partition) = self.partitions.get_mut(place) {
            partition.append(envelope);
        }
    }
}

impl State {
    /// The group of an endpoint that has connected or has been sent to, which reads its own log from the beginning.
    fn group(&mut self, endpoint: &EndpointName, partitions: NonZeroUsize) -> &mut Group {
        let own = Destination::Endpoint(endpoint.clone());
        let log = self.logs.entry(own.clone()).or_insert_with(|| Log::new(partitions));
        self.groups.entry(endpoint.clone()).or_insert_with(|| {
            log.partitions.iter_mut().for_each(|partition| partition.join(endpoint));
            Group::new(own)
        })
    }

    /// Lets a group read a topic from now on.
    fn subscribe(&mut self, endpoint: &EndpointName, topic: &TypeName, partitions: NonZeroUsize) {
        let topic = Destination::Topic(topic.clone());
        let group = self.group(endpoint, partitions);
        if group.logs.contains(&topic) {
            return;
        }
        group.logs.push(topic.clone());
        let log = self.logs.entry(topic).or_insert_with(|| Log::new(partitions));
        log.partitions.iter_mut().for_each(|partition| partition.join(endpoint));
    }
}

impl PartitionedLog {
    /// Logs of [`PARTITIONS`] each; `name` is for messages.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self::with_partitions(name, PARTITIONS)
    }

    /// Logs of so many partitions each.
    #[must_use]
    pub fn with_partitions(name: impl Into<String>, partitions: NonZeroUsize) -> Self {
        let state = Mutex::new(State { messages_max: MESSAGES_MAX, ..State::default() });
        Self(Arc::new(Broker { name: name.into(), partitions, state, settled: Notify::new() }))
    }

    /// Most messages in all logs, for all handles from now on. Default [`MESSAGES_MAX`].
    #[must_use]
    pub fn messages_max(self, messages: usize) -> Self {
        self.0.state().messages_max = messages;
        self
    }

    /// Sends messages from outside any handler. What is sent to a name under which no endpoint has connected yet waits until one does; what
    /// is published while nobody subscribes goes nowhere.
    #[must_use]
    pub fn sender(&self) -> Sender {
        Sender::new(Arc::new(self.clone()))
    }

    /// Waits until every group has committed the end of all that it reads. It waits for ever when something was sent to an endpoint that
    /// nobody runs.
    pub async fn idle(&self) {
        loop {
            let settled = self.0.settled.notified(); // Before the look, so that nothing settled in between is missed.
            if self.0.state().messages == 0 {
                return;
            }
            settled.await;
        }
    }

    /// How many messages are behind what `endpoint` has committed.
    #[must_use]
    pub fn backlog(&self, endpoint: &EndpointName) -> u64 {
        let state = self.0.state();
        let logs = state.groups.get(endpoint).into_iter().flat_map(|group| &group.logs);
        let partitions = logs.filter_map(|log| state.logs.get(log)).flat_map(|log| &log.partitions);
        partitions.map(|partition| partition.end().saturating_sub(partition.committed(endpoint))).sum()
    }
}

impl Broker {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn append(&self, state: &mut State, outgoing: &Outgoing) -> Result<(), DispatchError> {
        if let Err(Refused(why)) = check(outgoing) {
            return Err(DispatchError::Permanent(TransportError::new(ErrorKind::TooLarge, DISPATCHING, why)));
        }
        if state.messages >= state.messages_max {
            let most = state.messages_max;
            let why = format!("log {} holds {most} messages; let its endpoints catch up, or allow more", self.name);
            return Err(DispatchError::Transient(TransportError::new(ErrorKind::Unavailable, DISPATCHING, why)));
        }
        if let Destination::Endpoint(endpoint) = &outgoing.destination {
            state.group(endpoint, self.partitions);
        }
        let Some(log) = state.logs.get_mut(&outgoing.destination) else { return Ok(()) }; // Nobody subscribes.
        log.append(outgoing.envelope.clone());
        state.messages += 1;
        for group in state.groups.values().filter(|group| group.logs.contains(&outgoing.destination)) {
            group.arrived.notify_waiters();
        }
        Ok(())
    }
}

fn check(outgoing: &Outgoing) -> Result<(), Refused> {
    let bytes = outgoing.envelope.size();
    if bytes > MESSAGE_BYTES_MAX {
        return Err(Refused(format!("it has {bytes} bytes, more than the {MESSAGE_BYTES_MAX} allowed")));
    }
    Ok(())
}

#[async_trait]
impl Transport for PartitionedLog {
    fn capabilities(&self) -> TransportCapabilities {
        TransportCapabilities {
            name: "partitioned-log",
            lease: None,
            counts_deliveries: true,
            delays: Delays::Never,
            ordered_keys: true,
            message_bytes_max: MESSAGE_BYTES_MAX,
            durable: false,
            redelivery_max: REDELIVERY_MAX,
            offsets: true,
            marks: true,
        }
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        let mut state = self.0.state();
        let arrived = state.group(endpoint, self.0.partitions).arrived.clone();
        for topic in types {
            state.subscribe(endpoint, topic, self.0.partitions);
        }
        state.next += 1;
        let receiver =
            Arc::new(GroupMember { broker: self.0.clone(), endpoint: endpoint.clone(), member: state.next, arrived });
        drop(state);
        let marks = receiver.clone();
        Ok(Connected { receiver, dispatcher: Arc::new(self.clone()), dead_letters: None, marks: Some(marks) })
    }
}

#[async_trait]
impl Dispatcher for PartitionedLog {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        check(outgoing)
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        let mut state = self.0.state();
        outgoing.iter().map(|outgoing| self.0.append(&mut state, outgoing)).collect()
    }
}

impl fmt::Debug for PartitionedLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let messages = self.0.state().messages;
        f.debug_struct("PartitionedLog").field("name", &self.0.name).field("messages", &messages).finish()
    }
}
