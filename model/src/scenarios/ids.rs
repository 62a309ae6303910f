//! Messages that have their id in common, and nothing else: what one endpoint, saga or entity remembers silences no other.

use std::sync::Arc;

use super::{
    Named,
    book::{lower, note, scenario, under_id_of},
    shelf::beside,
};
use crate::explore::{Budgets, MakeManager, Scenario};

const NONE: Budgets = Budgets::NONE;
const USUAL: Budgets = Budgets { crashes: 1, duplicates: 1, ..NONE };

/// One event, which two receivers that share a store are given.
fn event(second: fn() -> MakeManager, budgets: Budgets) -> Scenario {
    let note = note("b", 0, 1);
    Scenario { downstream: Some(second()), lower: vec![1], budgets, ..scenario(vec![note.clone(), note], 2) }
}

/// Two messages of different bodies, by senders that use one id.
fn one_id(books: [&str; 2], may_set_aside: Vec<u8>, budgets: Budgets) -> Scenario {
    let [first, second] = [note(books[0], 0, 1), note(books[1], 1, 1)];
    let second = under_id_of(&first, &second);
    Scenario { may_set_aside: Some(may_set_aside), budgets, ..scenario(vec![first, second], 2) }
}

/// Whichever comes first is handled; the other is not dropped in silence.
fn two_bodies(budgets: Budgets) -> Scenario {
    Scenario {
        at_rest: vec![(
            "the_other_is_set_aside",
            Arc::new(
                |view| if view.letters.len() == 1 { Ok(()) } else { Err(format!("set aside: {:?}", view.letters)) },
            ),
        )],
        ..one_id(["b", "b"], vec![0, 1], budgets)
    }
}

pub(super) const ALL: &[Named] = &[
    Named::holds("two-endpoints", "an event that two endpoints on one store are given; a crash, a copy", || {
        event(lower, USUAL)
    }),
    Named::holds("two-sagas", "an event that two sagas of one endpoint are given; a crash, a copy", || {
        event(beside, USUAL)
    }),
    Named::holds("one-id-two-entities", "messages of two entities that have one id; a crash, a copy", || {
        one_id(["a", "b"], Vec::new(), USUAL)
    }),
    Named::holds("one-id-two-bodies", "two messages of one entity that have one id; a crash, a copy", || {
        two_bodies(USUAL)
    }),
    Named::holds("one-id-in-a-pass", "two messages that have one id, perhaps in one pass; a crash, a copy", || {
        Scenario { pass_max: 2, attempts_max: 2, ..two_bodies(USUAL) }
    }),
];
