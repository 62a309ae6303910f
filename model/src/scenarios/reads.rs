//! How fresh a dedup store must be: only one that shows an entry to everybody will do.

use super::{
    Named,
    book::{note, scenario},
};
use crate::explore::{Budgets, Reads, Scenario};

const BROKEN: &str = "effect_at_most_once";

fn copied(reads: Reads, together: bool) -> Scenario {
    Scenario {
        budgets: Budgets { duplicates: 1, ..Budgets::NONE },
        reads,
        together,
        ..scenario(vec![note("b", 0, 1)], 1)
    }
}

/// Without faults: the copies are those that a lost race makes.
fn racing(reads: Reads) -> Scenario {
    Scenario { reads, ..scenario(vec![note("b", 0, 1), note("b", 1, 1)], 2) }
}

pub(super) const ALL: &[Named] = &[
    Named::holds("fresh-reads", "a dedup store that shows an entry to everybody at once", || {
        copied(Reads::Linearizable, false)
    }),
    Named::breaks("lagging-reads", BROKEN, "a dedup store whose newest entry may not be seen yet", || {
        copied(Reads::Lagging(1), true)
    }),
    Named::breaks("lagging-reads-two-stores", BROKEN, "the same, with the entities in another store", || {
        copied(Reads::Lagging(1), false)
    }),
    Named::breaks("session-reads", BROKEN, "each worker sees what it has written; others may not yet", || {
        copied(Reads::Session, true)
    }),
    Named::breaks("session-reads-two-stores", BROKEN, "the same, with the entities in another store", || {
        copied(Reads::Session, false)
    }),
    Named::breaks("eventual-reads", BROKEN, "any entry may not be seen yet", || copied(Reads::Eventual, true)),
    Named::breaks("eventual-reads-two-stores", BROKEN, "the same, with the entities in another store", || {
        copied(Reads::Eventual, false)
    }),
    Named::holds("session-reads-no-copies", "two messages without any copy: a session is enough", || {
        racing(Reads::Session)
    }),
    Named::holds(
        "eventual-reads-no-copies",
        "two messages without any copy: stale reads leave work to the sweeper at most",
        || racing(Reads::Eventual),
    ),
];
