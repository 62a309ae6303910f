//! What a version of an entity says.
//!
//! The whole of it is the condition of every write, so it is text that changes with each; and whoever saves hands back what
//! the store needs to know of the version before: since when entries wait, and which chunks there are.

use std::fmt::{self, Write};

use hapax_core::ids::AttemptId;
use uuid::Uuid;

/// Chunks of a part, or of a letter, at most: they are written in one transaction, which has 100 actions.
pub(super) const CHUNKS_MAX: u32 = 99;

/// A version: `NUMBER.WRITE|waiting|parts`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    /// Grows with each save of an entity, and begins with the service's time in microseconds, so that it grows over a purge
    /// too: for people.
    pub(super) number: u64,
    /// Drawn anew for each save. It alone makes versions differ for ever (promise 3), and tells one's own write.
    pub(super) write: Uuid,
    /// The entries, and since when they wait by the service's clock, in milliseconds since 1970.
    pub(super) waiting: Vec<(AttemptId, u64)>,
    /// What is kept beside the item.
    pub(super) parts: Vec<Part>,
}

/// A piece of an entity that is kept in chunks of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) kind: Kind,
    /// Under what the chunks are found: an attempt and how much is left of it for an entry, else the write that made them.
    pub(super) id: Uuid,
    /// How many chunks.
    pub(super) chunks: u32,
    /// Which entry of the outbox.
    pub(super) index: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The state.
    State,
    /// The outbox but for what has a part of its own.
    Outbox,
    /// One entry.
    Entry,
}

impl Part {
    /// Its name within the entity.
    pub(super) fn name(&self) -> String {
        format!("{}#{}", self.kind.letter(), self.id.simple())
    }

    /// Whether both are the same chunks.
    pub(super) fn is(&self, other: &Self) -> bool {
        (self.kind, self.id, self.chunks) == (other.kind, other.id, other.chunks)
    }
}

impl Kind {
    const fn letter(self) -> char {
        match self {
            Self::State => 's',
            Self::Outbox => 'o',
            Self::Entry => 'e',
        }
    }
}

impl Token {
    /// What `text` says; `None` for what this store has not written.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut sections = text.split('|');
        let (number, write) = sections.next()?.split_once('.')?;
        let waiting = sections.next()?.split_terminator(',').map(|entry| {
            let (attempt, since) = entry.split_once(':')?;
            Some((AttemptId::from_bytes(*Uuid::try_parse(attempt).ok()?.as_bytes()), since.parse().ok()?))
        });
        let waiting = waiting.collect::<Option<_>>()?;
        let parts = sections.next()?.split_terminator(',').map(Part::parse).collect::<Option<_>>()?;
        let token = Self { number: number.parse().ok()?, write: Uuid::try_parse(write).ok()?, waiting, parts };
        sections.next().is_none().then_some(token)
    }

    /// Since when the entry of `attempt` waits.
    pub(super) fn since(&self, attempt: &AttemptId) -> Option<u64> {
        self.waiting.iter().find(|(waits, _)| waits == attempt).map(|(_, since)| *since)
    }
}

impl Part {
    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split(':');
        let kind = match fields.next()? {
            "s" => Kind::State,
            "o" => Kind::Outbox,
            "e" => Kind::Entry,
            _ => return None,
        };
        let id = Uuid::try_parse(fields.next()?).ok()?;
        let (chunks, index) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        // Each is to be read: what says so many is damaged.
        if chunks > CHUNKS_MAX {
            return None;
        }
        Some(Self { kind, id, chunks, index })
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}|", self.number, self.write.simple())?;
        for (attempt, since) in &self.waiting {
            write!(f, "{attempt}:{since},")?;
        }
        f.write_char('|')?;
        for Part { kind, id, chunks, index } in &self.parts {
            write!(f, "{}:{}:{chunks}:{index},", kind.letter(), id.simple())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn token() -> Token {
        let part = |kind, index| Part { kind, id: Uuid::from_u128(9), chunks: 2, index };
        Token {
            number: 1_700_000_000_000_001,
            write: Uuid::from_u128(7),
            waiting: vec![(AttemptId::from_bytes([3; 16]), 5), (AttemptId::from_bytes([4; 16]), u64::MAX)],
            parts: vec![part(Kind::State, 0), part(Kind::Entry, 1), part(Kind::Outbox, 0)],
        }
    }

    #[test]
    fn versions_of_dynamodb_come_back_as_they_were_written() {
        let plain = Token { waiting: Vec::new(), parts: Vec::new(), ..token() };
        assert_eq!(plain.to_string(), "1700000000000001.00000000000000000000000000000007||");
        for token in [plain, token()] {
            assert_eq!(Token::parse(&token.to_string()), Some(token));
        }
    }

    #[test]
    fn what_is_no_version_of_dynamodb_is_refused() {
        let whole = token().to_string();
        for text in ["", "7", "7.x||", "7.00000000000000000000000000000007|", "é|é|é"] {
            assert_eq!(Token::parse(text), None, "{text}");
        }
        assert_eq!(Token::parse(&format!("{whole}|")), None);
        assert_eq!(Token::parse(&whole.replace("s:", "q:")), None);
        assert_eq!(Token::parse(&whole.replace(":2:", ":4294967295:")), None, "so many chunks are never read");
    }
}
