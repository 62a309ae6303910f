//! What a worker has met, by what its endpoints say; told its parent a line at a time, since it may be killed at any moment.

use std::{
    ops::AddAssign,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use hapax::{
    metrics::{Event, Metrics},
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
    conflicts: "races lost, or outcomes unknown",
    unsent: "passes that could not send or mark",
    unavailable: "passes whose store was away",
    swept: "entries finished by the sweeper",
    dead_lettered: "messages set aside",
    given_back: "messages given back",
}

/// Counts for this process.
#[derive(Debug, Default, Clone)]
pub(crate) struct Counter(Arc<Counting>);

impl Counter {
    pub(crate) fn counts(&self) -> Counts {
        self.0.counts()
    }
}

impl Metrics for Counter {
    fn observe(&self, event: Event<'_>) {
        let Counting { handled, duplicates, conflicts, unsent, unavailable, swept, dead_lettered, given_back } =
            &*self.0;
        let (count, many) = match event {
            Event::Handled(_) => (handled, 1),
            Event::Duplicate(_) => (duplicates, 1),
            Event::Retried(_, Cause::Conflict) => (conflicts, 1),
            Event::Retried(_, Cause::Unsent) => (unsent, 1),
            Event::Retried(_, Cause::Unavailable) => (unavailable, 1),
            Event::Swept(_, entries) => (swept, entries),
            Event::DeadLettered(_) => (dead_lettered, 1),
            Event::Ended(_, _, hapax::metrics::Ending::Retried) => (given_back, 1),
            _ => return,
        };
        count.fetch_add(many as u64, Ordering::Relaxed);
    }
}
