//! What an entity store keeps: the saga's state, the outbox inside it, and what makes both safe to change.

use std::{fmt, sync::Arc};

use bytes::Bytes;

use crate::{
    envelope::Outgoing,
    ids::{AttemptId, DedupKey, Fingerprint, MessageId},
    time::Timestamp,
};

/// A store's token for one saved state of one entity: changes at every save, never used again for the same key.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Version(Token);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Token {
    Number(i64),
    Text(Arc<str>),
}

impl Version {
    /// A version that is a number in the store.
    #[must_use]
    pub const fn number(number: i64) -> Self {
        Self(Token::Number(number))
    }

    /// A version that is text in the store, such as an etag.
    #[must_use]
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self(Token::Text(text.into()))
    }

    /// The number, if this version is one.
    #[must_use]
    pub const fn as_number(&self) -> Option<i64> {
        match self.0 {
            Token::Number(number) => Some(number),
            Token::Text(_) => None,
        }
    }

    /// The text, if this version is text.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match &self.0 {
            Token::Number(_) => None,
            Token::Text(text) => Some(text),
        }
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Token::Number(number) => number.fmt(f),
            Token::Text(text) => f.write_str(text),
        }
    }
}

/// What a save demands of the stored entity. Complete: there is no other.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Expected {
    /// That there is none.
    Absent,
    /// That it still has this version.
    Version(Version),
}

/// One saga instance as stored. Saved whole or not at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entity {
    /// The user's state, framed (see [`codec`](crate::codec)); empty once the saga is complete.
    pub state: Bytes,
    /// The saga is over. What is left is a tombstone: it keeps the version, so that a late twin conflicts (S49).
    pub completed: bool,
    /// How many messages have been handled; the commit number of the newest entry.
    pub commits: u64,
    /// Timeouts that the saga still waits for.
    pub timeouts: Vec<LiveTimeout>,
    /// Handled messages that may not have been dispatched yet, in commit order.
    pub outbox: Vec<Arc<OutboxEntry>>,
}

impl Entity {
    /// The entry of the message with `key`, if it has one.
    #[must_use]
    pub fn entry(&self, key: &DedupKey) -> Option<&Arc<OutboxEntry>> {
        self.outbox.iter().find(|entry| entry.key == *key)
    }

    /// Rough stored size, in bytes; stores check their own limit before they write.
    #[must_use]
    pub fn size(&self) -> usize {
        const FIXED_BYTES: usize = 64;
        const PER_TIMEOUT_BYTES: usize = 48;
        let outbox: usize = self.outbox.iter().map(|entry| entry.size()).sum();
        self.state.len() + outbox + self.timeouts.len() * PER_TIMEOUT_BYTES + FIXED_BYTES
    }
}

/// A timeout that its saga still waits for. One that is not listed is not handled, so cancelling is exact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveTimeout {
    /// Message id of the timeout.
    pub message_id: MessageId,
    /// When it is due.
    pub due: Timestamp,
}

/// One handled message whose outgoing messages may not have left yet: all that whoever finishes it needs, since a
/// sweeper has no message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxEntry {
    /// Under what the message is remembered.
    pub key: DedupKey,
    /// Which attempt at it was saved.
    pub attempt: AttemptId,
    /// What the message said.
    pub fingerprint: Fingerprint,
    /// Commit number within the entity; entries of one entity are in this order.
    pub commit: u64,
    /// When it was saved, by the saver's clock: for people, and for stores that have no clock of their own.
    pub saved_at: Timestamp,
    /// What is to be sent, with ids, bodies and due times fixed.
    pub outgoing: Vec<Outgoing>,
    /// Which of `outgoing` answers the message, if one does; duplicates get it again.
    pub reply: Option<u32>,
    /// That answer has been sent, and stays only for duplicates: the entry waits for others of `outgoing`.
    pub reply_sent: bool,
}

impl OutboxEntry {
    /// What answers the message, sent or not.
    pub(crate) fn answer(&self) -> Option<&Outgoing> {
        self.reply.and_then(|index| self.outgoing.get(index as usize))
    }

    /// What the dedup store is told when everything of this entry has been dispatched.
    #[must_use]
    pub fn to_dedup_entry(&self) -> DedupEntry {
        DedupEntry {
            key: self.key,
            attempt: self.attempt,
            fingerprint: self.fingerprint,
            reply: self.answer().cloned(),
            time: self.saved_at,
        }
    }

    /// What is still to be sent, by its place in `outgoing`.
    pub fn unsent(&self) -> impl Iterator<Item = usize> {
        let sent = self.reply.filter(|_| self.reply_sent).map(|index| index as usize);
        (0..self.outgoing.len()).filter(move |index| Some(*index) != sent)
    }

    /// The same attempt without what has been sent of it, by its places in `outgoing`. An answer stays, since duplicates get it again.
    #[must_use]
    pub fn without(&self, sent: &[usize]) -> Self {
        let reply = self.reply.map(|index| index as usize);
        let stays = |index: &usize| Some(*index) == reply || !sent.contains(index);
        let left: Vec<usize> = (0..self.outgoing.len()).filter(stays).collect();
        let place = |of: usize| left.iter().position(|index| *index == of).and_then(|place| u32::try_from(place).ok());
        Self {
            outgoing: left.iter().filter_map(|index| self.outgoing.get(*index)).cloned().collect(),
            reply: reply.and_then(place),
            reply_sent: self.reply_sent || reply.is_some_and(|reply| sent.contains(&reply)),
            ..*self
        }
    }

    /// The same attempt when all of it has been sent and only its mark is missing.
    #[must_use]
    pub fn without_all(&self) -> Self {
        let all: Vec<usize> = (0..self.outgoing.len()).collect();
        self.without(&all)
    }

    /// Rough stored size, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        const FIXED_BYTES: usize = 96;
        FIXED_BYTES + self.outgoing.iter().map(|outgoing| outgoing.envelope.size()).sum::<usize>()
    }
}

/// The memory that a message has been handled and everything it caused has been dispatched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DedupEntry {
    /// Under what the message is remembered.
    pub key: DedupKey,
    /// Which attempt at it was saved.
    pub attempt: AttemptId,
    /// What it said.
    pub fingerprint: Fingerprint,
    /// The reply it got, for duplicates that ask again.
    pub reply: Option<Outgoing>,
    /// When it was saved, by the saver's clock. For people: eviction uses the store's own time.
    pub time: Timestamp,
}
