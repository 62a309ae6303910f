//! Port calls and their answers as data, so that what a task has seen can be remembered, compared and told.

use std::{fmt, hash::Hash};

use hapax_core::{
    entity::{DedupEntry, Entity, Expected, Version},
    envelope::Outgoing,
    ids::{AttemptId, DedupKey, EntityKey},
    ports::{Cause, DeadLetter, Finished, Granted, Known, Saved, Settled, Settlement, Stored},
};

/// What a task asks of the world.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Op {
    /// What time is it?
    Now,
    /// Is there still time?
    Monotonic,
    /// A new attempt id.
    Attempt,
    /// May there be another try?
    Pause {
        /// Why it is needed.
        cause: Cause,
        /// How many there have been in a row.
        tries: u32,
    },
    /// Reads an entity and, where one store keeps both, what is known.
    Load {
        /// Which entity.
        key: EntityKey,
        /// Which messages.
        ids: Vec<DedupKey>,
    },
    /// Asks the dedup store.
    Contains(Vec<DedupKey>),
    /// Asks what was folded.
    Recall(Vec<DedupKey>),
    /// Saves by compare-and-set.
    Save(Save),
    /// Marks, and cleans up if the version still is what it was.
    Finish {
        /// Which entity.
        key: EntityKey,
        /// The marks.
        done: Vec<DedupEntry>,
        /// The version and the entity without its entries.
        clean_up: Option<(Version, Entity)>,
    },
    /// The version that the primary has.
    Version(EntityKey),
    /// Adds marks.
    Insert(Vec<DedupEntry>),
    /// Sends, one after the other.
    Dispatch(Vec<Outgoing>),
    /// Sets a message aside.
    SetAside(Box<DeadLetter>),
    /// Ends the delivery of the message at this place of the pass.
    Settle(u8, Settlement),
}

/// A save.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Save {
    /// Which entity.
    pub key: EntityKey,
    /// What must still be stored.
    pub expected: Expected,
    /// What is to be stored.
    pub entity: Entity,
    /// Marks that go with it.
    pub processed: Vec<DedupEntry>,
}

/// How a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Failure {
    /// Nothing was done.
    Refused,
    /// It was done, will be done, or never: the caller cannot tell.
    Unknown,
    /// Nothing was done, and nothing ever can be.
    Never,
    /// Nothing was done: it is over a limit.
    TooLarge,
    /// Nothing could be read: another version of the program wrote it.
    Malformed,
}

/// What the world answers, as the ports give it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Reply {
    /// The time is always the same; what matters is what is late.
    Now,
    /// An hour after it: when the sweeper passes.
    Later,
    /// Whether the deadline is still ahead.
    InTime(bool),
    /// An attempt.
    Attempt(AttemptId),
    /// Another try or not.
    Granted(Granted),
    /// What is stored, and what is known where one store keeps both.
    Loaded(Option<Stored>, Option<Known>),
    /// What is known.
    Known(Known),
    /// How a save ended.
    Saved(Saved),
    /// How a finish ended; `None`: this store keeps no marks.
    Finished(Option<Finished>),
    /// A version.
    Version(Option<Version>),
    /// Done.
    Done,
    /// What became of each message.
    Dispatched(Vec<Result<(), Failure>>),
    /// How a settlement ended.
    Settled(Settled),
    /// The call failed.
    Failed(Failure),
}

/// Gives equal things the same number.
#[derive(Debug)]
pub(super) struct Names<T> {
    things: Vec<T>,
    numbers: std::collections::HashMap<Box<str>, u32>,
}

impl<T> Default for Names<T> {
    fn default() -> Self {
        Self { things: Vec::new(), numbers: std::collections::HashMap::new() }
    }
}

impl<T: fmt::Debug + PartialEq> Names<T> {
    /// The number of `thing`.
    ///
    /// # Panics
    /// When two different things look the same: their `Debug` must show all that is in them, as that of a message does with `+`.
    pub(super) fn of(&mut self, thing: T) -> u32 {
        let text = format!("{thing:+?}").into_boxed_str();
        let next = u32::try_from(self.things.len()).expect("fewer than four billion things");
        let number = *self.numbers.entry(text).or_insert(next);
        if number == next {
            self.things.push(thing);
        } else {
            assert!(self.things[number as usize] == thing, "two things that look the same: {thing:?}");
        }
        number
    }

    /// The thing with `number`.
    pub(super) fn get(&self, number: u32) -> &T {
        &self.things[number as usize]
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.things.len()
    }
}

#[cfg(test)]
mod tests {
    use hapax_core::{
        envelope::{Destination, Envelope},
        ids::MessageId,
    };

    use super::*;

    /// As what a handler sends that asks a clock, or a state that was not kept.
    #[test]
    fn messages_that_differ_in_what_they_say_alone_are_two() {
        let outgoing = |body: &'static str, cups: &str| {
            let kind = "shop.placed".parse().expect("a type");
            let mut envelope = Envelope::new(MessageId::parse("order-1").expect("an id"), kind, body);
            envelope.headers.set("cups", cups).expect("a header");
            let destination = Destination::parse("endpoint:shop").expect("an address");
            Op::Dispatch(vec![Outgoing { destination, envelope: envelope.into() }])
        };
        let mut names = Names::default();
        let numbers =
            [("one", "1"), ("two", "1"), ("two", "2"), ("one", "1")].map(|(body, cups)| names.of(outgoing(body, cups)));
        assert_eq!(numbers, [0, 1, 2, 0]);
    }
}
