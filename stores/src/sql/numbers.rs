//! The numbers that the server has given to names. They are never changed and never removed there, so they may be remembered:
//! for as long as it is one server. One that has taken its place after a fail-over may lack the last of them, and give the
//! same number to another name. So they are forgotten when a connection is lost, and again when one is made in its place; only
//! what is on its way at that moment goes on with the number that it has.

use std::{
    borrow::Borrow,
    collections::HashMap,
    hash::Hash,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// What is remembered of names, until a connection is lost.
#[derive(Debug)]
pub struct Numbers<K> {
    /// How often a connection has been lost, or made in place of another.
    lost: Arc<AtomicU64>,
    known: RwLock<(u64, HashMap<K, i64>)>,
}

impl<K: Eq + Hash> Numbers<K> {
    pub(super) fn new(lost: Arc<AtomicU64>) -> Self {
        Self { lost, known: RwLock::default() }
    }

    /// The number of `name`, if it is known.
    pub fn get<Q: Eq + Hash + ?Sized>(&self, name: &Q) -> Option<i64>
    where
        K: Borrow<Q>,
    {
        let (since, known) = &*self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(name).copied().filter(|_| *since == self.since())
    }

    /// Which connections there are, to be told to [`Numbers::add`]: as they were before the server was asked.
    pub fn since(&self) -> u64 {
        self.lost.load(Ordering::Acquire)
    }

    /// Remembers the number of `name`, unless a connection has been lost since the server was asked.
    pub fn add(&self, since: u64, name: K, number: i64) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if since != self.since() {
            return;
        }
        if known.0 != since {
            *known = (since, HashMap::new());
        }
        known.1.insert(name, number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_forgotten_when_a_connection_is_lost_and_none_of_before_comes_in() {
        let lost = Arc::new(AtomicU64::new(0));
        let numbers = Numbers::<String>::new(lost.clone());
        let before = numbers.since();
        numbers.add(before, "a".to_owned(), 1);
        assert_eq!((numbers.get("a"), numbers.get("b")), (Some(1), None));
        lost.fetch_add(1, Ordering::Release);
        assert_eq!(numbers.get("a"), None);
        numbers.add(before, "b".to_owned(), 2);
        assert_eq!(numbers.get("b"), None);
        numbers.add(numbers.since(), "b".to_owned(), 3);
        assert_eq!((numbers.get("a"), numbers.get("b")), (None, Some(3)));
    }
}
