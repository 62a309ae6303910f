//! Which writes share a commit.

use std::collections::{HashMap, VecDeque, hash_map::Entry};
#[cfg(any(feature = "postgres", feature = "mysql"))]
use std::hash::{DefaultHasher, Hash, Hasher};

use hapax_core::{ids::SagaKey, ports::StoreError};
use tokio::sync::oneshot;

#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) use super::races::LOCKS_MAX;
use super::rows::{DedupRow, EntityRow};

/// A save, a finish or an insert of dedup entries. `P` as in [`EntityRow`].
#[derive(Debug)]
pub(super) struct Change<P> {
    pub(super) operation: &'static str,
    pub(super) entity: Option<EntityRow<P>>,
    /// The entity part is a clean-up: it gives way to another write of the same entity.
    pub(super) gives_way: bool,
    pub(super) done: Vec<DedupRow>,
    /// The dedup entries are stored only if the entity part wins.
    pub(super) only_if_won: bool,
    pub(super) answer: oneshot::Sender<Answer>,
}

/// What a [`Change`] is told.
pub(super) type Answer = Result<Changed, StoreError>;

/// What became of the entity part of a [`Change`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Changed {
    /// It won; the entity has this version now.
    At(i64),
    /// The entity is not what was expected; or another write of it was in the group.
    Lost,
    /// There was none.
    NoEntity,
}

impl<P: AsRef<[u8]>> Change<P> {
    fn size(&self) -> usize {
        self.entity.as_ref().map_or(0, EntityRow::size) + self.done.iter().map(DedupRow::size).sum::<usize>()
    }

    /// What becomes of it where its entity part is not written, or lost.
    pub(super) fn unless_won(&self) -> Changed {
        match &self.entity {
            None if !self.gives_way => Changed::NoEntity,
            _ => Changed::Lost,
        }
    }
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
/// All writes of one entity go to one of `writers`, so that they do not meet in the database.
pub(super) fn writer_of<P>(writers: usize, entity: Option<&EntityRow<P>>, done: &[DedupRow]) -> usize {
    let mut hasher = DefaultHasher::new();
    match entity {
        Some(row) => row.key.hash(&mut hasher),
        None => done.first().map(|row| row.key).hash(&mut hasher),
    }
    // The remainder is below the number of writers, which is a usize.
    (hasher.finish() % writers.max(1) as u64) as usize
}

pub(super) fn answer_all<P>(group: impl IntoIterator<Item = Change<P>>, changed: Vec<Changed>) {
    for (change, changed) in group.into_iter().zip(changed) {
        let _ = change.answer.send(Ok(changed));
    }
}

/// Takes the next group out of `waiting`: in order, at most `max` members of `bytes_max` bytes, at most one write of each
/// entity. A second save of an entity waits for the next group, and so does every later one. A clean-up never waits:
/// beside another write of its entity it is left out, since the save carries the outbox along, and its dedup entries go in
/// all the same.
pub(super) fn take<P: AsRef<[u8]>>(waiting: &mut VecDeque<Change<P>>, max: usize, bytes_max: usize) -> Vec<Change<P>> {
    let mut group: Vec<Change<P>> = Vec::with_capacity(waiting.len().min(max));
    let mut writes: HashMap<(i64, SagaKey), usize> = HashMap::with_capacity(waiting.len().min(max));
    let mut held = VecDeque::new();
    let mut bytes = 0;
    while group.len() < max
        && let Some(mut change) = waiting.pop_front()
    {
        if change.answer.is_closed() {
            continue; // Nobody waits for it any more, and nothing of it has been written.
        }
        if bytes > 0 && bytes + change.size() > bytes_max {
            waiting.push_front(change);
            break;
        }
        if let Some(row) = &change.entity {
            match writes.entry((row.scope, row.key.clone())) {
                Entry::Vacant(entry) => {
                    entry.insert(group.len());
                }
                Entry::Occupied(mut entry) => {
                    let other = &mut group[*entry.get()];
                    if change.gives_way && !(other.gives_way && is_newer(&change, other)) {
                        change.entity = None;
                    } else if other.gives_way {
                        other.entity = None;
                        entry.insert(group.len());
                    } else {
                        held.push_back(change);
                        continue;
                    }
                }
            }
        }
        bytes += change.size();
        group.push(change);
    }
    while let Some(change) = held.pop_back() {
        waiting.push_front(change);
    }
    group
}

/// Of two clean-ups the one that has seen more; the other would meet a conflict.
fn is_newer<P>(change: &Change<P>, other: &Change<P>) -> bool {
    let expected = |change: &Change<P>| change.entity.as_ref().and_then(|row| row.expected);
    expected(change) > expected(other)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const BYTES_MAX: usize = 8 << 20;

    fn change(key: &str, expected: Option<i64>, gives_way: bool) -> (Change<String>, oneshot::Receiver<Answer>) {
        let (answer, answered) = oneshot::channel();
        let entity = EntityRow {
            scope: 1,
            key: key.parse().unwrap(),
            expected,
            completed: false,
            pending: None,
            outbox: Vec::new(),
            state: vec![0; 100].into(),
        };
        let change =
            Change { operation: "test", entity: Some(entity), gives_way, done: Vec::new(), only_if_won: false, answer };
        (change, answered)
    }

    fn names(changes: &[Change<String>]) -> Vec<String> {
        let name = |change: &Change<String>| match &change.entity {
            Some(row) => format!("{}@{}", row.key, row.expected.unwrap_or(0)),
            None => "-".to_owned(),
        };
        changes.iter().map(name).collect()
    }

    #[test]
    fn a_group_holds_one_write_of_each_entity_and_the_next_ones_wait_in_order() {
        let (changes, _answers): (VecDeque<_>, Vec<_>) = [("a", 1), ("b", 1), ("a", 2), ("c", 1), ("a", 3)]
            .map(|(key, at)| change(key, Some(at), false))
            .into_iter()
            .unzip();
        let mut waiting = changes;
        assert_eq!(names(&take(&mut waiting, 10, BYTES_MAX)), ["a@1", "b@1", "c@1"]);
        assert_eq!(names(&take(&mut waiting, 10, BYTES_MAX)), ["a@2"]);
        assert_eq!(names(&take(&mut waiting, 10, BYTES_MAX)), ["a@3"]);
        assert!(waiting.is_empty());
    }

    #[test]
    fn a_clean_up_gives_way_to_a_save_whichever_comes_first_and_to_a_newer_clean_up() {
        let (changes, _answers): (VecDeque<_>, Vec<_>) = [
            change("a", Some(1), true),
            change("a", Some(1), false),
            change("b", Some(1), false),
            change("b", Some(1), true),
            change("c", Some(1), true),
            change("c", Some(2), true),
            change("c", Some(1), true),
        ]
        .into_iter()
        .unzip();
        let mut waiting = changes;
        assert_eq!(names(&take(&mut waiting, 10, BYTES_MAX)), ["-", "a@1", "b@1", "-", "-", "c@2", "-"]);
        assert!(waiting.is_empty());
    }

    #[test]
    fn a_group_has_at_most_the_members_asked_for_and_none_that_nobody_waits_for() {
        let (changes, mut answers): (VecDeque<_>, Vec<_>) =
            ["a", "b", "c", "d"].map(|key| change(key, None, false)).into_iter().unzip();
        let mut waiting = changes;
        answers.remove(1);
        assert_eq!(names(&take(&mut waiting, 2, BYTES_MAX)), ["a@0", "c@0"]);
        assert_eq!(names(&take(&mut waiting, 2, BYTES_MAX)), ["d@0"]);
    }
}
