//! Passes that take longer than their deadline, of messages that are given up for it.
//!
//! One worker: of two, one may save between the other's last look at the entity and its letter, which no look can prevent.

use super::{
    Named,
    book::{note, scenario},
};
use crate::explore::{Budgets, Scenario};

const NONE: Budgets = Budgets::NONE;

/// Messages, each sending one, which are set aside the first time that they fail: whoever is too slow has no second try.
fn given_up_at_once(messages: u8, budgets: Budgets) -> Scenario {
    let messages = (0..messages).map(|number| note("b", number, 1)).collect();
    Scenario { tries: 0, attempts_max: 1, may_set_aside: None, budgets, ..scenario(messages, 1) }
}

pub(super) const ALL: &[Named] = &[
    Named::holds(
        "slow",
        "one message, given up when it is too slow, a crash, a copy, an entity that is read as it was before",
        || given_up_at_once(1, Budgets { late: 1, crashes: 1, duplicates: 1, stale_loads: 1, ..NONE }),
    ),
    Named::holds("slow-of-two", "as slow, with two messages, two stores, two passes that are too slow", || Scenario {
        together: false,
        ..given_up_at_once(2, Budgets { late: 2, crashes: 1, duplicates: 1, stale_loads: 1, ..NONE })
    }),
];
