//! Numbers that a sender gives its messages, so that a receiver can remember very many of them by the first and the last.

use std::{fmt, str::FromStr};

use uuid::Uuid;

use super::{
    InvalidId, TypeName,
    hashed::{Preimage, hex, unhex},
};
use crate::envelope::Destination;

/// A sender's row of numbers: one for each process, destination and message type, and never used again.
///
/// Two messages of one sequence have two numbers, so whoever remembers which numbers are over knows every copy, however late
/// it comes, in a few bytes for very many messages. Gaps are harmless: a number that was drawn for a save that lost is never
/// sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceId([u8; Self::BYTES]);

impl SequenceId {
    /// Length of every sequence id, in bytes.
    pub const BYTES: usize = 12;

    /// The sequence of what `process` sends of one type to one destination. `process` is drawn once, at random, when a process
    /// starts: a number that was given before must never be given to another message.
    pub(crate) fn of(process: Uuid, destination: &Destination, message_type: &TypeName) -> Self {
        let mut preimage = Preimage::new(b"hapax sequence\0");
        preimage.push(process.as_bytes());
        match destination {
            Destination::Endpoint(name) => {
                preimage.prefixed("endpoint");
                preimage.prefixed(name.as_str());
            }
            Destination::Topic(name) => {
                preimage.prefixed("topic");
                preimage.prefixed(name.as_str());
            }
        }
        preimage.prefixed(message_type.as_str());
        let mut bytes = [0; Self::BYTES];
        bytes.copy_from_slice(&preimage.hash()[..Self::BYTES]);
        Self(bytes)
    }

    /// A sequence id from its bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }
}

impl fmt::Display for SequenceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for SequenceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Which message of its sender's [sequence](SequenceId) this is. Fixed by the save that decided to send it, like its id and its body;
/// every copy has the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceNumber {
    /// Whose numbers.
    pub sequence: SequenceId,
    /// Which of them.
    pub number: u64,
}

impl fmt::Display for SequenceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.sequence, self.number)
    }
}

impl fmt::Debug for SequenceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for SequenceNumber {
    type Err = InvalidId;

    /// What [`Display`](fmt::Display) writes, and nothing else: two texts must not mean one number.
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let parsed = text.split_once('.').and_then(|(sequence, number)| {
            let read = Self { sequence: SequenceId(unhex(sequence)?), number: number.parse().ok()? };
            (read.to_string() == text).then_some(read)
        });
        parsed.ok_or_else(|| InvalidId::new("sequence number", format!("`{}` is none", text.escape_debug())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_read_from_what_it_is_written_as_and_from_nothing_else() {
        let number = SequenceNumber { sequence: SequenceId([0xab; SequenceId::BYTES]), number: u64::MAX };
        let text = number.to_string();
        assert_eq!(text, "abababababababababababab.18446744073709551615");
        assert_eq!(text.parse(), Ok(number));
        for other in ["", "abababababababababababab", "abababababababababababab.", "abababababababababababab.-1"] {
            assert!(other.parse::<SequenceNumber>().is_err(), "{other}");
        }
        for other in [text.to_uppercase(), format!("{text}0"), text.replace('.', ".0"), text.replace('.', ".+")] {
            assert!(other.parse::<SequenceNumber>().is_err(), "{other}");
        }
    }

    #[test]
    fn processes_destinations_and_types_have_sequences_of_their_own() {
        let (shop, kind): (Destination, TypeName) =
            (Destination::Endpoint("shop".parse().expect("a name")), "shop.placed".parse().expect("a type"));
        let of = |process, destination: &Destination, kind| SequenceId::of(Uuid::from_u128(process), destination, kind);
        let topic = Destination::Topic("shop".parse().expect("a type"));
        let first = of(1, &shop, &kind);
        assert_eq!(first, of(1, &shop, &kind));
        for other in [of(2, &shop, &kind), of(1, &topic, &kind), of(1, &shop, &"shop.paid".parse().expect("a type"))] {
            assert_ne!(first, other);
        }
    }
}
