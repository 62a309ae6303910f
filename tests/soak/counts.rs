//! What a worker has met, by what its endpoints say; told its parent a line at a time, since it may be killed at any moment.

use std::{
    collections::{HashMap, HashSet},
    ops::AddAssign,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use hapax::{
    ids::EntityKey,
    metrics::{Ending, Event, Metrics},
    ports::Cause,
};
use serde::{Deserialize, Serialize};

macro_rules! counts {
    ($($name:ident: $what:literal,)*) => {
        /// How often what was met.
        #[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        pub(crate) struct Counts {
            $(#[doc = $what] pub(crate) $name: u64,)*
        }

        impl Counts {
            /// With a name each.
            pub(crate) fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$(($what, self.$name),)*]
            }
        }

        impl AddAssign for Counts {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
            }
        }

        /// The same, while it is counted.
        #[derive(Debug, Default)]
        struct Counting {
            $($name: AtomicU64,)*
        }

        impl Counting {
            fn counts(&self) -> Counts {
                Counts { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counts! {
    handled: "messages handled, or found handled and finished",
    duplicates: "messages that came again and were dropped",
    resumed: "entries resumed by redelivery",
    conflicts: "races lost",
    unknown: "outcomes unknown",
    unsent: "passes that could not send or mark",
    unavailable: "passes whose store was away",
    swept: "entries finished by the sweeper",
    dead_lettered: "messages set aside",
    given_back: "messages given back",
    leases_lost: "leases lost",
}

/// Counts for this process.
#[derive(Debug, Default, Clone)]
pub(crate) struct Counter(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    counting: Counting,
    entities: Mutex<Entities>,
}

/// What tells apart what is one event.
#[derive(Debug, Default)]
struct Entities {
    /// When this process has last saved them, or may have.
    saved: HashMap<EntityKey, Instant>,
    /// Those of which a write was not confirmed, until the pass is made again for it.
    unconfirmed: HashSet<EntityKey>,
}

impl Entities {
    fn is_saved(&mut self, key: &EntityKey) {
        self.saved.insert(key.clone(), Instant::now());
        self.unconfirmed.remove(key);
    }

    fn may_be_saved(&mut self, key: &EntityKey) {
        self.saved.insert(key.clone(), Instant::now());
        self.unconfirmed.insert(key.clone());
    }

    fn is_unmarked(&mut self, key: &EntityKey) {
        self.unconfirmed.insert(key.clone());
    }

    /// Whether a message that was given `attempts` times and is handled now was saved before it was given: by somebody who has died, stood still, or
    /// lost his connection.
    fn had_saved_before(&self, key: &EntityKey, attempts: u32, began: Option<Instant>) -> bool {
        attempts > 1 && self.saved.get(key).is_none_or(|saved| Some(*saved) < began)
    }
}

impl Counter {
    pub(crate) fn counts(&self) -> Counts {
        self.0.counting.counts()
    }

    /// No event tells of it.
    pub(crate) fn lost_lease(&self) {
        self.0.counting.leases_lost.fetch_add(1, Ordering::Relaxed);
    }

    fn entities(&self) -> MutexGuard<'_, Entities> {
        self.0.entities.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Metrics for Counter {
    fn observe(&self, event: Event<'_>) {
        let its = &self.0.counting;
        let (count, many) = match event {
            Event::Saved(key) => return self.entities().is_saved(key),
            Event::Unsaved(key) => return self.entities().may_be_saved(key),
            Event::Unmarked(key) => return self.entities().is_unmarked(key),
            Event::SweepFailed(key, _) => {
                self.entities().unconfirmed.remove(key);
                return;
            }
            Event::Retried(key, cause) => {
                let unconfirmed = self.entities().unconfirmed.remove(key);
                match cause {
                    Cause::Conflict if unconfirmed => (&its.unknown, 1),
                    Cause::Conflict => (&its.conflicts, 1),
                    Cause::Unsent => (&its.unsent, 1),
                    Cause::Unavailable => (&its.unavailable, 1),
                    Cause::Failure => return,
                }
            }
            Event::Handled(_) => (&its.handled, 1),
            Event::Duplicate(_) => (&its.duplicates, 1),
            Event::Ended(key, message, Ending::Handled) => {
                let is_resumed = self.entities().had_saved_before(key, message.attempts, message.began());
                (&its.resumed, usize::from(is_resumed))
            }
            Event::Swept(_, entries) => (&its.swept, entries),
            Event::DeadLettered(_) => (&its.dead_lettered, 1),
            Event::Ended(_, _, Ending::Retried) => (&its.given_back, 1),
            _ => return,
        };
        count.fetch_add(many as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use hapax::ids::Scope;

    use super::*;

    fn key() -> EntityKey {
        let scope = Scope { endpoint: "front".parse().unwrap(), saga: "ledger".parse().unwrap() };
        EntityKey::new(Arc::new(scope), "1".parse().unwrap())
    }

    #[test]
    fn a_lost_race_is_told_from_an_unknown_outcome() {
        let (counter, key) = (Counter::default(), key());
        let again = Event::Retried(&key, Cause::Conflict);
        for event in [Event::Unsaved(&key), again, again, Event::Unsaved(&key), Event::Saved(&key), again] {
            counter.observe(event);
        }
        assert_eq!((counter.counts().unknown, counter.counts().conflicts), (1, 2));
    }

    #[test]
    fn what_this_process_has_saved_itself_since_it_was_given_is_not_resumed() {
        let (counter, key, before) = (Counter::default(), key(), Instant::now());
        assert!(counter.entities().had_saved_before(&key, 2, Some(before)));
        assert!(!counter.entities().had_saved_before(&key, 1, Some(before)), "it was not given again");
        counter.observe(Event::Saved(&key));
        assert!(!counter.entities().had_saved_before(&key, 2, Some(before)));
    }
}
