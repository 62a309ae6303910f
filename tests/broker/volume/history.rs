//! What is sent, and what became of it by the ids: nothing lost, nothing twice, and of each key in the order in which it was sent.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Keys of a large volume; a small one has fewer, so that each has some messages to be in order.
const KEYS_MAX: u32 = 1000;
const NUMBERS_MIN: u32 = 20;
/// Ids that are named of each kind of fault: enough to look for them in a log.
const NAMED_MAX: usize = 5;

/// Messages over keys, numbered within each key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Volume {
    pub(crate) keys: u32,
    pub(crate) numbers: u32,
}

/// One message: its id and its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Step {
    pub(crate) key: u32,
    pub(crate) number: u32,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key {} number {}", self.key, self.number)
    }
}

impl Step {
    /// One in twenty is sent twice, of each round others.
    pub(crate) const fn is_doubled(self) -> bool {
        (self.key + self.number) % 20 == 7
    }
}

impl Volume {
    /// About so many messages.
    pub(crate) fn of(messages: u32) -> Self {
        let keys = (messages / NUMBERS_MIN).clamp(1, KEYS_MAX);
        Self { keys, numbers: messages / keys }
    }

    pub(crate) const fn messages(self) -> u64 {
        self.keys as u64 * self.numbers as u64
    }

    /// The messages that are sent in one call: one of each key.
    pub(crate) fn round(self, number: u32) -> impl Iterator<Item = Step> {
        (0..self.keys).map(move |key| Step { key, number })
    }
}

/// The numbers that an entity was told, in this order: runs of consecutive ones by their first and last, so that a state stays small.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Numbers(Vec<(u32, u32)>);

impl Numbers {
    pub(crate) fn push(&mut self, number: u32) {
        match self.0.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => self.0.push((number, number)),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().flat_map(|(first, last)| *first..=*last)
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.iter().map(|(first, last)| u64::from(last - first) + 1).sum()
    }
}

/// Ids of one kind of fault: how many, and the first ones.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) count: u64,
    named: Vec<String>,
}

impl Found {
    fn add(&mut self, what: String) {
        self.count += 1;
        if self.named.len() < NAMED_MAX {
            self.named.push(what);
        }
    }
}

/// What is not as it has to be in the history of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) lost: Found,
    pub(crate) twice: Found,
    pub(crate) strange: Found,
    /// What came behind a later one of its key. No fault where no order is declared.
    pub(crate) overtaken: Found,
}

impl Faults {
    /// Of the keys' histories in their order.
    pub(crate) fn of(volume: Volume, told: &[Numbers]) -> Self {
        let mut faults = Self::default();
        let nothing = Numbers::default();
        for key in 0..volume.keys {
            faults.look_at(volume, key, told.get(key as usize).unwrap_or(&nothing));
        }
        faults
    }

    fn look_at(&mut self, volume: Volume, key: u32, numbers: &Numbers) {
        let (mut seen, mut largest) = (vec![false; volume.numbers as usize], None);
        for number in numbers.iter() {
            let step = Step { key, number };
            match seen.get_mut(number as usize) {
                None => self.strange.add(step.to_string()),
                Some(true) => self.twice.add(step.to_string()),
                Some(first) => {
                    *first = true;
                    if let Some(later) = largest.filter(|largest| *largest > number) {
                        self.overtaken.add(format!("{step} after {later}"));
                    }
                    largest = largest.max(Some(number));
                }
            }
        }
        for (number, _) in (0..).zip(seen).filter(|(_, seen)| !seen) {
            self.lost.add(Step { key, number }.to_string());
        }
    }

    /// In words; none where all is as it has to be.
    pub(crate) fn problem(&self, ordered: bool) -> Option<String> {
        let Self { lost, twice, strange, overtaken } = self;
        let mut kinds = vec![("lost", lost), ("with two effects", twice), ("sent by nobody", strange)];
        if ordered {
            kinds.push(("out of order", overtaken));
        }
        let found = kinds.iter().filter(|(_, found)| found.count > 0);
        let told: Vec<String> = found.map(|(kind, f)| format!("{} {kind}: {}", f.count, f.named.join(", "))).collect();
        (!told.is_empty()).then(|| told.join("; "))
    }
}

mod tests {
    use super::*;

    const SMALL: Volume = Volume { keys: 3, numbers: 4 };

    fn told(of_last: &[u32]) -> Vec<Numbers> {
        [&[0, 1, 2, 3], &[0, 1, 2, 3], of_last]
            .map(|numbers| {
                let mut told = Numbers::default();
                numbers.iter().for_each(|number| told.push(*number));
                told
            })
            .into()
    }

    fn problem(of_last: &[u32], ordered: bool) -> Option<String> {
        Faults::of(SMALL, &told(of_last)).problem(ordered)
    }

    #[test]
    fn a_history_that_is_as_it_has_to_be_has_no_fault() {
        assert_eq!(problem(&[0, 1, 2, 3], true), None);
    }

    #[test]
    fn one_that_is_lost_is_named() {
        assert_eq!(problem(&[0, 1, 3], true).unwrap(), "1 lost: key 2 number 2");
        assert_eq!(Faults::of(SMALL, &told(&[])[..2]).problem(false).unwrap().split(':').next(), Some("4 lost"));
    }

    #[test]
    fn one_that_had_two_effects_is_named() {
        assert_eq!(problem(&[0, 1, 2, 3, 1], false).unwrap(), "1 with two effects: key 2 number 1");
        assert_eq!(problem(&[0, 1, 1, 2, 3], true).unwrap(), "1 with two effects: key 2 number 1");
    }

    #[test]
    fn two_that_are_swapped_are_named_where_order_is_declared_and_counted_elsewhere() {
        assert_eq!(problem(&[0, 2, 1, 3], true).unwrap(), "1 out of order: key 2 number 1 after 2");
        assert_eq!(problem(&[0, 2, 1, 3], false), None);
        assert_eq!(Faults::of(SMALL, &told(&[0, 2, 1, 3])).overtaken.count, 1);
    }

    #[test]
    fn what_nobody_has_sent_is_named() {
        assert_eq!(problem(&[0, 1, 2, 3, 4], true).unwrap(), "1 sent by nobody: key 2 number 4");
    }
}
