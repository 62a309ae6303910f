//! Dedup entries that go, and copies that come however late: what time cannot promise, evidence does.

use std::sync::Arc;

use hapax_core::envelope::Envelope;

use super::{
    Named,
    book::{asking, lower, note, numbered, scenario},
};
use crate::explore::{Budgets, Evicts, Scenario};

const NONE: Budgets = Budgets::NONE;

/// Two messages of one entity that their sender has numbered; each entry may be folded at any moment, and copies may come
/// at any later one.
fn folded(budgets: Budgets) -> Scenario {
    let messages = [note("b", 0, 1), note("b", 1, 1)];
    let numbered: Vec<Arc<Envelope>> = (1..).zip(&messages).map(|(number, one)| numbered(one, number)).collect();
    Scenario { evicts: Evicts::Folded, budgets, ..scenario(numbered, 2) }
}

/// One message, and a transport that shows when no copy of it is left.
fn gone(budgets: Budgets) -> Scenario {
    Scenario { evicts: Evicts::Gone, budgets, attempts_max: 3, ..scenario(vec![note("b", 0, 1)], 2) }
}

pub(super) const ALL: &[Named] = &[
    Named::holds("folded", "two numbered messages whose entries are folded at any moment; copies however late", || {
        folded(Budgets { duplicates: 2, evictions: 2, ..NONE })
    }),
    Named::holds("folded-crash", "as folded; one entry, a copy, a crash, an unknown outcome", || {
        folded(Budgets { crashes: 1, unknown: 1, duplicates: 1, evictions: 1, ..NONE })
    }),
    Named::holds("folded-two-stores", "as folded, with the dedup entries in a store of their own; a crash", || {
        Scenario { together: false, ..folded(Budgets { crashes: 1, duplicates: 1, evictions: 1, ..NONE }) }
    }),
    Named::holds(
        "folded-stale",
        "as folded, with an entity that is read as it was before, and a write under way",
        || folded(Budgets { stale_loads: 1, delayed: 1, duplicates: 1, evictions: 1, ..NONE }),
    ),
    Named::holds(
        "folded-asked",
        "a numbered message that wants an answer: a copy that is too late for it gets none",
        || {
            let messages = vec![numbered(&asking(&note("b", 0, 0), "lower"), 1)];
            Scenario {
                downstream: Some(lower()),
                evicts: Evicts::Folded,
                budgets: Budgets { duplicates: 1, evictions: 1, crashes: 1, ..NONE },
                ..scenario(messages, 1)
            }
        },
    ),
    Named::holds(
        "gone-crash",
        "a message without a number whose entry goes when no copy is left; two crashes, an unknown outcome",
        || gone(Budgets { crashes: 2, unknown: 1, evictions: 1, ..NONE }),
    ),
    Named::holds("gone-lease", "the same; a lease that runs out, a process that stops", || {
        gone(Budgets { expiries: 1, process_crashes: 1, evictions: 1, ..NONE })
    }),
    Named::breaks(
        "forgotten-before-gone",
        "effect_at_most_once",
        "a message without a number whose entry goes while the message is still given to somebody",
        || Scenario { evicts: Evicts::Forgotten, ..gone(Budgets { crashes: 1, evictions: 1, ..NONE }) },
    ),
    Named::breaks(
        "numbered-and-forgotten",
        "effect_at_most_once",
        "a numbered message whose entry is dropped instead of folded",
        || Scenario { evicts: Evicts::Forgotten, ..folded(Budgets { duplicates: 1, evictions: 1, ..NONE }) },
    ),
];
