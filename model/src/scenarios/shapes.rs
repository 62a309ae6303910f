//! Sagas and messages of other shapes: completion, passes of several messages, failing handlers, several entities.

use std::sync::Arc;

use super::{
    Named,
    book::{Does, given_once, last, narrow, note, ordered, scenario, special},
};
use crate::explore::{Budgets, Scenario};

const NONE: Budgets = Budgets::NONE;

fn completion(budgets: Budgets) -> Scenario {
    // A message that comes after the saga is complete is set aside.
    Scenario { budgets, may_set_aside: Some(vec![0]), ..scenario(vec![note("b", 0, 1), last("b", 1, 1)], 2) }
}

fn pass(budgets: Budgets) -> Scenario {
    Scenario { pass_max: 2, attempts_max: 2, budgets, ..scenario(vec![note("b", 0, 1), note("b", 1, 1)], 2) }
}

/// A message that is poison at its second delivery.
fn poison(budgets: Budgets) -> Scenario {
    Scenario {
        manager: given_once(),
        attempts_max: 2,
        may_set_aside: Some(vec![0]),
        budgets,
        ..scenario(vec![note("b", 0, 1)], 2)
    }
}

/// The first of two messages can never be handled.
fn hopeless(does: Does, pass_max: usize, budgets: Budgets) -> Scenario {
    Scenario {
        pass_max,
        attempts_max: 2,
        may_set_aside: Some(vec![0]),
        at_rest: vec![(
            "set_aside_for_good",
            Arc::new(|view| if view.letters == [0] { Ok(()) } else { Err(format!("set aside: {:?}", view.letters)) }),
        )],
        budgets,
        ..scenario(vec![special(0, 1, does), note("b", 1, 1)], 2)
    }
}

/// Two messages of which one has room in the outbox.
fn full(budgets: Budgets) -> Scenario {
    Scenario { manager: narrow(), sweeper_first: true, budgets, ..scenario(vec![note("b", 0, 1), note("b", 1, 1)], 2) }
}

/// A saga that promises order, or only seems to.
fn in_order(promised: bool, budgets: Budgets) -> Scenario {
    let two = scenario(vec![note("b", 0, 1), note("b", 1, 1)], 2);
    let manager = if promised { ordered() } else { two.manager.clone() };
    Scenario { manager, ordered: true, budgets, ..two }
}

pub(super) const ALL: &[Named] = &[
    Named::holds("completion", "the second of two messages completes the saga; a crash", || {
        completion(Budgets { crashes: 1, ..NONE })
    }),
    Named::holds(
        "completion-copy",
        "the second of two messages completes the saga; a copy, an unknown outcome",
        || completion(Budgets { duplicates: 1, unknown: 1, ..NONE }),
    ),
    Named::holds("completion-at-once", "a message completes the saga that it starts; two copies, a crash", || {
        Scenario { budgets: Budgets { duplicates: 2, crashes: 1, ..NONE }, ..scenario(vec![last("b", 0, 1)], 2) }
    }),
    Named::holds("pass-of-two", "two messages handled and saved together; a crash", || {
        pass(Budgets { crashes: 1, ..NONE })
    }),
    Named::holds("pass-with-copies", "two messages handled together, the same one perhaps twice in a pass", || {
        pass(Budgets { duplicates: 1, ..NONE })
    }),
    Named::holds(
        "pass-with-copies-no-output",
        "two messages that send nothing, handled together, the same one perhaps twice in a pass",
        || Scenario {
            pass_max: 2,
            attempts_max: 2,
            budgets: Budgets { duplicates: 1, ..NONE },
            ..scenario(vec![note("b", 0, 0), note("b", 1, 0)], 2)
        },
    ),
    Named::holds("pass-unknown", "two messages handled together; an unknown outcome, a refused call", || {
        pass(Budgets { unknown: 1, refused: 1, ..NONE })
    }),
    Named::holds("fails-always", "a handler that always fails, beside one that does not; a crash", || {
        hopeless(Does::Fails, 1, Budgets { crashes: 1, ..NONE })
    }),
    Named::holds("fails-with-copies", "the same, with copies of it in one pass", || {
        hopeless(Does::Fails, 2, Budgets { duplicates: 1, ..NONE })
    }),
    Named::holds("fails-for-good", "a handler that fails for good, beside one that does not; a crash, a copy", || {
        hopeless(Does::FailsForGood, 1, Budgets { crashes: 1, duplicates: 1, ..NONE })
    }),
    Named::holds("panics", "a handler that panics, beside one that does not; a crash, a copy", || {
        hopeless(Does::Panics, 1, Budgets { crashes: 1, duplicates: 1, ..NONE })
    }),
    Named::holds("panics-in-a-pass", "a handler that panics, in passes of two; a copy", || {
        hopeless(Does::Panics, 2, Budgets { duplicates: 1, ..NONE })
    }),
    Named::holds("fails-early", "a handler that fails until another message is handled; a copy, a crash", || {
        Scenario {
            attempts_max: 2,
            may_set_aside: Some(vec![1]),
            budgets: Budgets { crashes: 1, ..NONE },
            ..scenario(vec![note("b", 0, 1), special(1, 1, Does::After(0))], 2)
        }
    }),
    Named::holds(
        "fails-after-change",
        "a handler that changes its state and fails until another message is handled, in passes of two; a crash",
        || Scenario {
            pass_max: 2,
            attempts_max: 2,
            may_set_aside: Some(vec![1]),
            budgets: Budgets { crashes: 1, ..NONE },
            ..scenario(vec![note("b", 0, 1), special(1, 1, Does::WrittenAfter(2)), note("b", 2, 1)], 1)
        },
    ),
    Named::holds(
        "set-aside-unsure",
        "a handler that always fails; setting its message aside is refused, unknown, late",
        || Scenario {
            attempts_max: 2,
            may_set_aside: Some(vec![0]),
            budgets: Budgets { refused: 1, unknown: 1, delayed: 1, duplicates: 1, ..NONE },
            ..scenario(vec![special(0, 1, Does::Fails)], 2)
        },
    ),
    // Found here once: a copy may be saved between a worker's last look at the entity and its letter. So it is no more
    // claimed that what has taken effect is never set aside, but what a worker can know.
    Named::holds(
        "poison",
        "a message that is poison at its second delivery; a crash, an unknown outcome, a copy",
        || poison(Budgets { crashes: 1, unknown: 1, duplicates: 1, ..NONE }),
    ),
    Named::holds("poison-two-stores", "the same, with the dedup entries in a store of their own", || Scenario {
        together: false,
        ..poison(Budgets { crashes: 1, unknown: 1, duplicates: 1, ..NONE })
    }),
    Named::holds(
        "poison-stale-load",
        "a message that is poison at its second delivery; a crash, a copy, an entity that is read as it was before",
        || poison(Budgets { crashes: 1, duplicates: 1, stale_loads: 1, ..NONE }),
    ),
    Named::holds("pass-with-failure", "two messages handled together, of which one always fails", || Scenario {
        pass_max: 2,
        attempts_max: 2,
        may_set_aside: Some(vec![0]),
        budgets: Budgets { crashes: 1, ..NONE },
        ..scenario(vec![special(0, 1, Does::Fails), note("b", 1, 1)], 1)
    }),
    Named::holds("full", "two messages, and room for one in the outbox; a crash, a refused call", || {
        full(Budgets { crashes: 1, refused: 1, ..NONE })
    }),
    Named::holds("full-copy", "two messages, and room for one in the outbox; a copy, an unknown outcome", || {
        full(Budgets { duplicates: 1, unknown: 1, ..NONE })
    }),
    Named::holds(
        "full-never-sent",
        "two messages, room for one in the outbox, and one that can never be sent; a crash, a refused call",
        || full(Budgets { unroutable: 1, crashes: 1, refused: 1, ..NONE }),
    ),
    Named::holds("two-entities", "messages of two entities; a crash, an unknown outcome, a copy", || Scenario {
        budgets: Budgets { crashes: 1, unknown: 1, duplicates: 1, ..NONE },
        ..scenario(vec![note("a", 0, 1), note("b", 1, 1)], 2)
    }),
    Named::holds("two-outputs", "a message that sends two; two crashes, an unknown outcome, a refusal, a copy", || {
        Scenario {
            budgets: Budgets { crashes: 2, unknown: 1, refused: 1, duplicates: 1, ..NONE },
            ..scenario(vec![note("b", 0, 2)], 2)
        }
    }),
    Named::holds(
        "no-output",
        "messages that send nothing are marked in the commit that saves them; a crash, a copy",
        || Scenario {
            budgets: Budgets { crashes: 1, duplicates: 1, unknown: 1, ..NONE },
            ..scenario(vec![note("b", 0, 0), note("b", 1, 1)], 2)
        },
    ),
    Named::holds("no-effect", "a message whose handler changes nothing and sends nothing; a crash, a copy", || {
        Scenario {
            budgets: Budgets { crashes: 1, duplicates: 1, ..NONE },
            ..scenario(vec![special(0, 0, Does::Nothing), note("b", 1, 1)], 2)
        }
    }),
    Named::holds("no-effect-two-stores", "the same with the dedup entries in a store of their own", || Scenario {
        together: false,
        budgets: Budgets { crashes: 1, duplicates: 1, ..NONE },
        ..scenario(vec![special(0, 0, Does::Nothing), note("b", 1, 1)], 2)
    }),
    Named::holds("three-messages", "three messages of one entity, two workers, no faults", || {
        scenario(vec![note("b", 0, 1), note("b", 1, 1), note("b", 2, 1)], 2)
    }),
    Named::holds("three-messages-crash", "three messages of one entity, three workers, a crash", || Scenario {
        budgets: Budgets { crashes: 1, ..NONE },
        ..scenario(vec![note("b", 0, 1), note("b", 1, 1), note("b", 2, 1)], 3)
    })
    .thorough(),
    Named::holds("ordered", "a saga that promises ordered outputs; a crash, a refused call", || {
        in_order(true, Budgets { crashes: 1, refused: 1, ..NONE })
    }),
    Named::breaks("not-ordered", "outputs_in_order", "a saga that does not promise ordered outputs has none", || {
        in_order(false, NONE)
    }),
    Named::holds("rides", "clean-ups are left to the next save; a crash, a copy", || Scenario {
        rides: true,
        budgets: Budgets { crashes: 1, duplicates: 1, ..NONE },
        ..scenario(vec![note("b", 0, 1), note("b", 1, 1)], 2)
    }),
    Named::holds(
        "completion-all-of-it",
        "the second of two messages completes the saga; all that may go wrong",
        || completion(Budgets { crashes: 1, unknown: 1, refused: 1, duplicates: 1, delayed: 1, ..NONE }),
    )
    .thorough(),
    Named::holds("pass-all-of-it", "two messages handled together; a crash, an unknown outcome, a copy", || {
        pass(Budgets { crashes: 1, unknown: 1, duplicates: 1, ..NONE })
    })
    .thorough(),
    Named::holds(
        "ordered-all-of-it",
        "ordered outputs; a crash, an unknown outcome, two refusals, a copy, a sweeper",
        || in_order(true, Budgets { crashes: 1, unknown: 1, refused: 2, duplicates: 1, sweeps: 1, ..NONE }),
    )
    .thorough(),
    Named::holds("rides-all-of-it", "clean-ups are left to the next save; a crash, an unknown outcome, a copy", || {
        Scenario {
            rides: true,
            budgets: Budgets { crashes: 1, unknown: 1, duplicates: 1, ..NONE },
            ..scenario(vec![note("b", 0, 1), note("b", 1, 1)], 2)
        }
    })
    .thorough(),
    Named::holds(
        "poison-all-of-it",
        "a message that is poison at its second delivery; all that may go wrong, in two stores",
        || Scenario {
            together: false,
            ..poison(Budgets { crashes: 1, unknown: 1, refused: 1, duplicates: 1, delayed: 1, stale_loads: 1, ..NONE })
        },
    )
    .thorough(),
    Named::holds(
        "fails-all-of-it",
        "a handler that always fails, beside one that does not; all that may go wrong",
        || Scenario {
            attempts_max: 2,
            may_set_aside: Some(vec![0]),
            budgets: Budgets { crashes: 1, unknown: 1, refused: 1, duplicates: 1, delayed: 1, ..NONE },
            ..scenario(vec![special(0, 1, Does::Fails), note("b", 1, 1)], 2)
        },
    )
    .thorough(),
];
