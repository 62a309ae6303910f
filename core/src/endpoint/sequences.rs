//! The numbers of what a process sends.

use std::{collections::HashMap, sync::PoisonError};

use uuid::Uuid;

use crate::{
    envelope::Destination,
    ids::{SequenceId, SequenceNumber, TypeName},
    sync::Mutex,
};

/// Sequences of one process at most: destinations are few, but those of replies are whoever asks. What comes beyond is sent without a
/// number. Some megabytes.
const SEQUENCES_MAX: usize = 10_000;

/// One sequence for each destination and message type. The process's part of their names is drawn anew at each start, so that no number
/// is given twice, whatever was lost with the process before.
#[derive(Debug)]
pub(super) struct Sequences {
    process: Uuid,
    all: Mutex<All>,
}

#[derive(Debug, Default)]
struct All {
    sequences: HashMap<Destination, HashMap<TypeName, (SequenceId, u64)>>,
    count: usize,
}

impl Default for Sequences {
    fn default() -> Self {
        Self { process: Uuid::new_v4(), all: Mutex::default() }
    }
}

impl Sequences {
    /// The next number; `None` beyond the limit.
    pub(super) fn next(&self, destination: &Destination, message_type: &TypeName) -> Option<SequenceNumber> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((sequence, next)) = all.sequences.get_mut(destination).and_then(|types| types.get_mut(message_type))
        {
            *next += 1;
            return Some(SequenceNumber { sequence: *sequence, number: *next });
        }
        if all.count >= SEQUENCES_MAX {
            return None;
        }
        all.count += 1;
        let sequence = SequenceId::of(self.process, destination, message_type);
        all.sequences.entry(destination.clone()).or_default().insert(message_type.clone(), (sequence, 1));
        Some(SequenceNumber { sequence, number: 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_one_another_in_each_sequence_and_there_are_not_too_many_of_these() {
        let sequences = Sequences::default();
        let kind: TypeName = "shop.placed".parse().expect("a type");
        let to = |name: &str| Destination::Endpoint(name.parse().expect("a name"));
        let next = |name: &str| sequences.next(&to(name), &kind);
        let numbers = |name: &str| next(name).map(|number| number.number);
        assert_eq!([numbers("a"), numbers("b"), numbers("a"), numbers("b"), numbers("a")], [1, 1, 2, 2, 3].map(Some));
        for other in 2..SEQUENCES_MAX {
            assert_eq!(numbers(&format!("of-{other}")), Some(1));
        }
        assert_eq!(next("one-too-many"), None);
        assert_eq!(numbers("a"), Some(4));
        let other = Sequences::default().next(&to("a"), &kind).expect("a number");
        assert_ne!(Some(other.sequence), next("a").map(|number| number.sequence));
    }
}

#[cfg(all(test, shuttle))]
#[path = "interleaved/sequences.rs"]
mod interleaved;
