//! What a store holds, as plain data: small numbers in place of names, and a save's number in place of its version.

use std::collections::BTreeMap;

/// A message, by the number under which it is remembered.
pub(crate) type Message = u8;
/// A version, by the number of the save that made it.
pub(crate) type Number = u32;

/// Which entity, in the order of real keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) scope: u8,
    pub(crate) name: u8,
}

/// An attempt at a message: stands for its outbox entry and for its dedup entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Mark {
    pub(crate) message: Message,
    pub(crate) attempt: u8,
}

/// What is in an entity. No two saves say the same, so that what is loaded tells which of them it was.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Content {
    pub(crate) tag: Number,
    pub(crate) completed: bool,
    /// In order, and of each message one.
    pub(crate) outbox: Vec<Mark>,
}

/// A stored entity.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Row {
    /// `None`: the save was never answered, and nobody has been told of the version yet.
    pub(crate) version: Option<Number>,
    pub(crate) content: Content,
}

/// All of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Reference {
    pub(crate) rows: BTreeMap<Key, Row>,
    /// The attempt that was marked first.
    pub(crate) marks: BTreeMap<Message, u8>,
}

impl Reference {
    /// Whether a save that expects `expected` wins; then it is stored.
    pub(crate) fn save(&mut self, key: Key, expected: Option<Number>, row: Row, processed: &[Mark]) -> bool {
        let wins = match (self.rows.get(&key), expected) {
            (None, None) => true,
            (Some(stored), Some(expected)) => stored.version == Some(expected),
            _ => false,
        };
        if wins {
            self.rows.insert(key, row);
            self.insert(processed);
        }
        wins
    }

    /// Marks what is not marked yet.
    pub(crate) fn insert(&mut self, marks: &[Mark]) {
        for mark in marks {
            self.marks.entry(mark.message).or_insert(mark.attempt);
        }
    }

    /// Removes what is complete and has nothing to send.
    #[allow(dead_code, reason = "of the two programs with this file, one purges")]
    pub(crate) fn purge(&mut self, scope: u8) -> usize {
        let before = self.rows.len();
        self.rows.retain(|key, row| key.scope != scope || !row.content.completed || !row.content.outbox.is_empty());
        before - self.rows.len()
    }
}
