//! Numbers that the server has given to names. They are never changed and never removed there, so they may be remembered; but
//! a standby that was promoted may lack the last of them, and give the same number to another name. So they are asked for
//! anew once a connection was lost.

use std::{
    borrow::Borrow,
    collections::HashMap,
    fmt,
    hash::Hash,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// What is known, and how many connections had been lost by then.
type Known<K> = (u64, HashMap<K, i64>);

/// Numbers by name, as long as no connection is lost.
pub struct Numbers<K> {
    lost: Arc<AtomicU64>,
    known: RwLock<Known<K>>,
}

impl<K: Eq + Hash> Numbers<K> {
    /// `lost` counts the connections that were.
    pub(super) fn new(lost: Arc<AtomicU64>) -> Self {
        Self { lost, known: RwLock::new((0, HashMap::new())) }
    }

    /// The number of `name`, if it is known.
    pub fn get<Q: Eq + Hash + ?Sized>(&self, name: &Q) -> Option<i64>
    where
        K: Borrow<Q>,
    {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        (known.0 == self.now()).then(|| known.1.get(name).copied()).flatten()
    }

    /// The moment before a number is asked for.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Remembers the number of `name` that was asked for after the moment `asked`.
    pub fn add(&self, name: K, number: i64, asked: u64) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let now = self.now();
        if known.0 != now {
            *known = (now, HashMap::new());
        }
        if asked == now {
            known.1.insert(name, number);
        }
    }
}

impl<K> fmt::Debug for Numbers<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Numbers").finish_non_exhaustive()
    }
}
