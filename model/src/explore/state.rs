//! The world between two steps, as plain data.

use sha2::{Digest, Sha256};

/// What may go wrong, and how often in one run. What is not counted here may happen any number of times: conflicts,
/// refused settlements' redeliveries, the sweeper at rest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Budgets {
    /// A worker stops for good, between any two calls or within one.
    pub crashes: u8,
    /// A process stops, with all workers in it.
    pub process_crashes: u8,
    /// A call is done and fails with an unknown outcome.
    pub unknown: u8,
    /// A call is not done and fails.
    pub refused: u8,
    /// A producer sends a message again.
    pub duplicates: u8,
    /// A write fails with an unknown outcome, and is done at any later moment or never.
    pub delayed: u8,
    /// A lease runs out while its holder works on.
    pub expiries: u8,
    /// A dedup entry is forgotten.
    pub evictions: u8,
    /// A save wins and is told that it lost, as when a client library repeats a request.
    pub own_conflicts: u8,
    /// The sweeper passes while others work.
    pub sweeps: u8,
    /// A pass takes longer than its deadline.
    pub late: u8,
    /// An entity is read as it was before its last save.
    pub stale_loads: u8,
}

impl Budgets {
    /// Nothing goes wrong.
    pub const NONE: Self = Self {
        crashes: 0,
        process_crashes: 0,
        unknown: 0,
        refused: 0,
        duplicates: 0,
        delayed: 0,
        expiries: 0,
        evictions: 0,
        own_conflicts: 0,
        sweeps: 0,
        late: 0,
        stale_loads: 0,
    };
}

/// An entity's row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Row {
    /// 0: there is none.
    pub(super) version: u8,
    pub(super) entity: u32,
    /// The row before the last save, for stale reads.
    pub(super) before: (u8, u32),
}

/// A running task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Task {
    pub(super) node: u32,
    /// Which of its messages are still under its lease, as bits.
    pub(super) holds: u8,
}

/// Everything there is between two steps. Lists that have no order are sorted, and tasks have no identity, so that worlds
/// that differ in names alone are one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) rows: Vec<Row>,
    /// Dedup entries, by name; in the order of their insertion if reads may lag, else sorted.
    pub(super) marks: Vec<u32>,
    /// Outgoing messages that have left, by name.
    pub(super) sent: Vec<u32>,
    /// Outgoing messages that ever stood in a committed outbox, by name.
    pub(super) stored: Vec<u32>,
    /// Copies in the queue: which message, and how often it has been given once it is given.
    pub(super) ready: Vec<(u8, u8)>,
    pub(super) tasks: Vec<Task>,
    /// Writes under way, by name.
    pub(super) limbo: Vec<u32>,
    /// Messages that were set aside.
    pub(super) letters: Vec<u8>,
    /// Effects of each message that were ever committed.
    pub(super) effects: Vec<u8>,
    /// Attempt ids that were given for each message.
    pub(super) attempts: Vec<u8>,
    pub(super) left: Budgets,
}

impl State {
    /// A fingerprint: two worlds with the same one are taken for the same.
    pub(super) fn fingerprint(&self, buffer: &mut Vec<u8>) -> u128 {
        buffer.clear();
        let mut long = |list: &[u32]| {
            buffer.push(u8::try_from(list.len()).expect("short lists"));
            list.iter().for_each(|name| buffer.extend_from_slice(&name.to_le_bytes()));
        };
        long(&self.marks);
        long(&self.sent);
        long(&self.stored);
        long(&self.limbo);
        for row in &self.rows {
            buffer.extend([row.version, row.before.0]);
            buffer.extend_from_slice(&row.entity.to_le_bytes());
            buffer.extend_from_slice(&row.before.1.to_le_bytes());
        }
        buffer.push(u8::try_from(self.ready.len()).expect("short lists"));
        self.ready.iter().for_each(|(message, attempts)| buffer.extend([message, attempts]));
        buffer.push(u8::try_from(self.tasks.len()).expect("short lists"));
        for task in &self.tasks {
            buffer.extend_from_slice(&task.node.to_le_bytes());
            buffer.push(task.holds);
        }
        buffer.push(u8::try_from(self.letters.len()).expect("short lists"));
        buffer.extend_from_slice(&self.letters);
        buffer.extend_from_slice(&self.effects);
        buffer.extend_from_slice(&self.attempts);
        let Budgets {
            crashes,
            process_crashes,
            unknown,
            refused,
            duplicates,
            delayed,
            expiries,
            evictions,
            own_conflicts,
            sweeps,
            late,
            stale_loads,
        } = self.left;
        buffer.extend([crashes, process_crashes, unknown, refused, duplicates, delayed, expiries, evictions]);
        buffer.extend([own_conflicts, sweeps, late, stale_loads]);
        let hash: [u8; 32] = Sha256::digest(&buffer[..]).into();
        u128::from_le_bytes(hash[..16].try_into().expect("16 of 32 bytes"))
    }

    /// Nobody works, nothing waits, nothing is under way.
    pub(super) fn is_quiet(&self) -> bool {
        self.tasks.is_empty() && self.ready.is_empty() && self.limbo.is_empty()
    }
}

/// Adds `name` where it belongs, if it is not there.
pub(super) fn insert_sorted<T: Ord + Copy>(list: &mut Vec<T>, name: T) {
    if let Err(at) = list.binary_search(&name) {
        list.insert(at, name);
    }
}

/// Adds `name` where it belongs, once more if it is there.
pub(super) fn push_sorted<T: Ord + Copy>(list: &mut Vec<T>, name: T) {
    let at = list.partition_point(|other| *other <= name);
    list.insert(at, name);
}
