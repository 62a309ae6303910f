//! Calls and answers in short: by names instead of things, so that a world is answered without copying or comparing
//! entities. Each call is translated once, when a task first asks it; each answer when a task is run with it.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hash, Hasher},
};

use hapax_core::{
    entity::{Expected, Version},
    envelope::Outgoing,
    ports::{Cause, Finished, Granted, Known, Saved, Settled, Settlement, Stored},
};
use smallvec::SmallVec;

use super::{
    calls::{Failure, Op, Reply},
    tables::{Tables, attempt},
};

/// Names of dedup entries.
pub(super) type Marks = SmallVec<[u32; 4]>;

/// A call.
#[derive(Debug, Clone)]
pub(super) enum Ask {
    Now,
    Monotonic,
    Attempt,
    /// Which of the four causes, and how many tries there have been.
    Pause(usize, u32),
    /// Which row, and about which keys.
    Load {
        row: u8,
        keys: u64,
    },
    Contains(u64),
    Recall(u64),
    Version(u8),
    Save(SaveAsk),
    Finish {
        row: u8,
        done: Marks,
        /// Expected version, and the entity without its entries.
        clean_up: Option<(u8, u32)>,
    },
    Insert(Marks),
    Dispatch(SmallVec<[u32; 4]>),
    /// A message is set aside.
    SetAside(Option<u8>),
    /// An outgoing message is set aside.
    Park(u32),
    /// Which message of the pass, and how.
    Settle(u8, Settling),
}

#[derive(Debug, Clone)]
pub(super) struct SaveAsk {
    pub(super) row: u8,
    /// 0: there must be none.
    pub(super) expected: u8,
    pub(super) entity: u32,
    pub(super) processed: Marks,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settling {
    Ack,
    Retry { counts: bool },
    DeadLetter,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Short {
    Now,
    Later,
    InTime(bool),
    /// Message and number.
    Attempt(u8, u8),
    Granted(bool),
    /// No other try is granted, though there might have been one.
    StopsEarly,
    /// Version (0: there is none), entity, and what is known where one store keeps both.
    Loaded(u8, u32, Option<Marks>),
    Known(Marks),
    /// Which keys were folded, as bits.
    Recalled(u64),
    /// 0: conflict.
    Saved(u8),
    /// `None`: left. 0: nothing was to be cleaned up.
    Finished(Option<u8>),
    Version(u8),
    Done,
    Dispatched(SmallVec<[Option<Failure>; 4]>),
    Settled(bool),
    Failed(Failure),
}

fn version_number(version: &Version) -> u8 {
    version.as_number().and_then(|number| u8::try_from(number).ok()).unwrap_or(u8::MAX)
}

fn version(number: u8) -> Option<Version> {
    (number > 0).then(|| Version::number(number.into()))
}

/// The versions that are in `ask`, as bits.
pub(super) const fn versions_of(ask: &Ask) -> u64 {
    match ask {
        Ask::Save(SaveAsk { expected, .. }) => version_bit(*expected),
        Ask::Finish { clean_up: Some((version, _)), .. } => version_bit(*version),
        _ => 0,
    }
}

pub(super) const fn version_bit(version: u8) -> u64 {
    if version < u64::BITS as u8 { 1 << version } else { 0 }
}

/// The attempts that are in `ask`, as bits.
pub(super) fn attempts_of(ask: &Ask, tables: &Tables) -> u128 {
    let marks = |marks: &Marks| marks.iter().fold(0, |bits, mark| bits | tables.mark_facts(*mark).attempts);
    match ask {
        Ask::Save(save) => marks(&save.processed) | tables.facts(save.entity).attempts,
        Ask::Finish { done, clean_up, .. } => {
            marks(done) | clean_up.map_or(0, |(_, entity)| tables.facts(entity).attempts)
        }
        Ask::Insert(done) => marks(done),
        _ => 0,
    }
}

impl Short {
    /// The versions and the attempts that one who was given this answer may remember, as bits.
    pub(super) fn remembered(&self, tables: &Tables) -> (u64, u128) {
        let marks = |marks: &Marks| marks.iter().fold(0, |bits, mark| bits | tables.mark_facts(*mark).attempts);
        match self {
            Self::Loaded(version, entity, known) => {
                let entity = if *version > 0 { tables.facts(*entity).attempts } else { 0 };
                (version_bit(*version), entity | known.as_ref().map_or(0, marks))
            }
            Self::Known(known) => (0, marks(known)),
            Self::Saved(version) | Self::Version(version) | Self::Finished(Some(version)) => (version_bit(*version), 0),
            Self::Attempt(message, number) => (0, super::tables::attempt_bit(attempt(*message, *number))),
            _ => (0, 0),
        }
    }

    /// The answer as the ports give it.
    pub(super) fn expand(&self, tables: &Tables) -> Reply {
        let known = |marks: &Marks| Known::new(marks.iter().map(|mark| tables.marks.get(*mark).clone()).collect());
        match self {
            Self::Now => Reply::Now,
            Self::Later => Reply::Later,
            Self::InTime(in_time) => Reply::InTime(*in_time),
            Self::Attempt(message, number) => Reply::Attempt(attempt(*message, *number)),
            Self::Granted(granted) => Reply::Granted(if *granted { Granted::Try } else { Granted::Stop }),
            Self::StopsEarly => Reply::Granted(Granted::Stop),
            Self::Loaded(number, entity, marks) => {
                let stored =
                    version(*number).map(|version| Stored { version, entity: tables.entities.get(*entity).clone() });
                Reply::Loaded(stored, marks.as_ref().map(known))
            }
            Self::Known(marks) => Reply::Known(known(marks)),
            Self::Recalled(keys) => Reply::Known(Known::default().and_folded(tables.keys_of(*keys))),
            Self::Saved(number) => Reply::Saved(version(*number).map_or(Saved::Conflict, Saved::At)),
            Self::Finished(Some(number)) => Reply::Finished(Some(Finished::Cleaned(version(*number)))),
            Self::Finished(None) => Reply::Finished(Some(Finished::Left)),
            Self::Version(number) => Reply::Version(version(*number)),
            Self::Done => Reply::Done,
            Self::Dispatched(results) => {
                Reply::Dispatched(results.iter().map(|failed| failed.map_or(Ok(()), Err)).collect())
            }
            Self::Settled(done) => Reply::Settled(if *done { Settled::Done } else { Settled::LeaseLost }),
            Self::Failed(failure) => Reply::Failed(*failure),
        }
    }
}

/// `op` in short; `manager` is the number of the manager that asks, for the entity `row`.
pub(super) fn ask(tables: &mut Tables, manager: u8, row: u8, op: &Op) -> Ask {
    let bits = |tables: &mut Tables, keys: &[_]| keys.iter().fold(0, |bits, key| bits | 1 << tables.key(key));
    let expected = |expected: &Expected| match expected {
        Expected::Absent => 0,
        Expected::Version(version) => version_number(version),
    };
    match op {
        Op::Now => Ask::Now,
        Op::Monotonic => Ask::Monotonic,
        Op::Attempt => Ask::Attempt,
        Op::Pause { cause, tries } => Ask::Pause(
            match cause {
                Cause::Conflict => 0,
                Cause::Failure => 1,
                Cause::Unsent => 2,
                Cause::Unavailable => 3,
            },
            *tries,
        ),
        Op::Load { key, ids } => Ask::Load { row: tables.row(key, manager), keys: bits(tables, ids) },
        Op::Contains(keys) => Ask::Contains(bits(tables, keys)),
        Op::Recall(keys) => Ask::Recall(bits(tables, keys)),
        Op::Version(key) => Ask::Version(tables.row(key, manager)),
        Op::Save(save) => Ask::Save(SaveAsk {
            row: tables.row(&save.key, manager),
            expected: expected(&save.expected),
            entity: tables.entity(row, &save.entity),
            processed: save.processed.iter().map(|mark| tables.mark(row, mark)).collect(),
        }),
        Op::Finish { key, done, clean_up } => Ask::Finish {
            row: tables.row(key, manager),
            done: done.iter().map(|mark| tables.mark(row, mark)).collect(),
            clean_up: clean_up.as_ref().map(|(version, entity)| (version_number(version), tables.entity(row, entity))),
        },
        Op::Insert(done) => Ask::Insert(done.iter().map(|mark| tables.mark(row, mark)).collect()),
        Op::Dispatch(outgoing) => Ask::Dispatch(outgoing.iter().map(|one| tables.outgoing(one)).collect()),
        Op::SetAside(letter) => match &letter.destination {
            Some(destination) => {
                let (destination, envelope) = (destination.clone(), letter.envelope.clone());
                Ask::Park(tables.outgoing(&Outgoing { destination, envelope }))
            }
            None => Ask::SetAside(tables.message_of(manager, &letter.envelope)),
        },
        Op::Settle(place, settlement) => Ask::Settle(
            *place,
            match settlement {
                Settlement::Ack => Settling::Ack,
                Settlement::Retry { counts, .. } => Settling::Retry { counts: *counts },
                Settlement::DeadLetter { .. } => Settling::DeadLetter,
            },
        ),
    }
}

/// A quick hash for keys of our own making.
#[derive(Default)]
pub(super) struct Quick(u64);

impl Hasher for Quick {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(u64::from(number));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15; // 2^64 over the golden ratio: spreads neighbours.
        self.0 = (self.0.rotate_left(23) ^ number).wrapping_mul(ODD);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn write_u128(&mut self, number: u128) {
        self.write_u64(number as u64); // Half of a fingerprint is enough.
    }
}

/// A map with quick hashes.
pub(super) type QuickMap<K, V> = HashMap<K, V, BuildHasherDefault<Quick>>;

/// Gives equal answers the same number.
#[derive(Debug, Default)]
pub(super) struct Replies {
    all: Vec<Short>,
    numbers: QuickMap<Short, u32>,
}

impl Replies {
    pub(super) fn of(&mut self, reply: Short) -> u32 {
        if let Some(number) = self.numbers.get(&reply) {
            return *number;
        }
        let number = u32::try_from(self.all.len()).expect("fewer than four billion answers");
        self.all.push(reply.clone());
        self.numbers.insert(reply, number);
        number
    }

    pub(super) fn get(&self, number: u32) -> &Short {
        &self.all[number as usize]
    }
}
