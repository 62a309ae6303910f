//! Messages that cause messages of the explored world: to the saga itself, as timeouts, to a second saga, as answers.

use super::{
    Named, alarm,
    book::{Does, asking, note, scenario, special},
    shelf,
};
use crate::explore::{Budgets, Scenario};

const NONE: Budgets = Budgets::NONE;

fn itself(budgets: Budgets) -> Scenario {
    Scenario { budgets, ..scenario(vec![special(0, 0, Does::SendsItself)], 2) }
}

fn alarms(stopped: bool, budgets: Budgets) -> Scenario {
    Scenario { budgets, ..alarm::scenario(stopped, 2) }
}

fn in_a_row(notes: u8, outputs: u8, budgets: Budgets) -> Scenario {
    let messages = (0..notes).map(|number| note("b", number, outputs)).collect();
    // Lines are those of the first saga; of the second one entries and marks tell.
    Scenario { downstream: Some(shelf::manager()), budgets, ..scenario(messages, 2) }
}

/// A message and a copy of it, with an address for the answer each.
fn asked(budgets: Budgets) -> Scenario {
    asked_after(0, budgets)
}

/// The same, where the answer comes after other messages.
fn asked_after(outputs: u8, budgets: Budgets) -> Scenario {
    let message = note("b", 0, outputs);
    Scenario { budgets, ..scenario(vec![asking(&message, "here"), asking(&message, "there")], 2) }
}

pub(super) const ALL: &[Named] = &[
    Named::holds("to-itself", "a message to the saga that sends it; a crash, a copy, an unknown outcome", || {
        itself(Budgets { crashes: 1, duplicates: 1, unknown: 1, ..NONE })
    }),
    Named::holds("timeout", "a timeout that rings; a crash, a copy", || {
        alarms(false, Budgets { crashes: 1, duplicates: 1, ..NONE })
    }),
    Named::holds(
        "timeout-swept",
        "a timeout that could not be sent, and is left to the sweeper; a refused call",
        || alarms(false, Budgets { refused: 1, ..NONE }),
    ),
    Named::holds("timeout-cancelled", "a timeout that is cancelled, perhaps too late; a crash", || {
        alarms(true, Budgets { crashes: 1, ..NONE })
    }),
    Named::holds(
        "timeout-cancelled-copy",
        "a timeout that is cancelled, perhaps too late; a copy, an unknown outcome",
        || alarms(true, Budgets { duplicates: 1, unknown: 1, ..NONE }),
    ),
    Named::holds("two-in-a-row", "a message to a second saga; a crash, a copy, an unknown outcome", || {
        in_a_row(1, 1, Budgets { crashes: 1, duplicates: 1, unknown: 1, ..NONE })
    }),
    Named::holds("two-in-a-row-two-messages", "two messages that each send one to a second saga; a crash", || {
        in_a_row(2, 1, Budgets { crashes: 1, ..NONE })
    }),
    Named::holds("answers", "two copies that want an answer each; a crash, an unknown outcome", || {
        asked(Budgets { crashes: 1, unknown: 1, ..NONE })
    }),
    // Found here once: a copy whose answer could not be sent within the back-off was acknowledged as if its entry were
    // left to the sweeper, but its message was over and there was no entry.
    Named::holds("answers-refused", "two copies that want an answer each; two refused calls", || {
        asked(Budgets { refused: 2, ..NONE })
    }),
    Named::holds(
        "answers-again",
        "a message that wants an answer, and two copies that want it at the same place",
        || {
            let message = asking(&note("b", 0, 0), "here");
            Scenario { budgets: Budgets { duplicates: 2, refused: 1, ..NONE }, ..scenario(vec![message], 2) }
        },
    ),
    Named::holds("answers-after-others", "two copies that want an answer each, which is not all that is sent", || {
        asked_after(1, Budgets { refused: 1, ..NONE })
    }),
    Named::holds(
        "answers-sent-before",
        "a copy that wants an answer again which was sent, and is not all that is sent",
        || {
            let message = asking(&note("b", 0, 1), "here");
            Scenario { budgets: Budgets { duplicates: 1, refused: 2, ..NONE }, ..scenario(vec![message], 2) }
        },
    ),
    // Found by reading: while there could be no marks, the second copy of a pass ended as the first, which had its answer.
    Named::holds(
        "answers-in-a-pass-sent-before",
        "two copies that want an answer each, perhaps in one pass, after it was sent; a copy more, two refused calls",
        || Scenario { pass_max: 2, together: false, ..asked_after(1, Budgets { duplicates: 1, refused: 2, ..NONE }) },
    ),
    Named::holds("answers-never-sent", "two copies that want an answer each, of which one can never be sent", || {
        asked(Budgets { unroutable: 1, refused: 1, ..NONE })
    }),
    Named::holds(
        "answers-two-stores",
        "two copies that want an answer each, two stores; a crash, two refused calls",
        || Scenario { together: false, ..asked(Budgets { crashes: 1, refused: 2, ..NONE }) },
    ),
    Named::holds("answers-late", "two copies that want an answer each; two passes that are too slow, a crash", || {
        Scenario { attempts_max: 4, ..asked(Budgets { crashes: 1, late: 2, ..NONE }) }
    }),
    Named::holds("answers-in-a-pass", "copies that want an answer each, perhaps in one pass; a copy more", || {
        Scenario { pass_max: 2, attempts_max: 2, ..asked(Budgets { duplicates: 1, refused: 1, ..NONE }) }
    }),
    Named::holds("two-in-a-row-two-outputs", "a message that sends two to a second saga; a crash, a copy", || {
        in_a_row(1, 2, Budgets { crashes: 1, duplicates: 1, ..NONE })
    }),
    Named::holds("early", "a message that may not start its saga, and comes before the one that does; a crash", || {
        Scenario {
            attempts_max: 2,
            may_set_aside: Some(vec![1]),
            budgets: Budgets { crashes: 1, ..NONE },
            ..alarm::early(2)
        }
    }),
    Named::holds(
        "timeout-cancelled-at-once",
        "a timeout that is set and cancelled in one run; a crash, a copy",
        || Scenario { budgets: Budgets { crashes: 1, duplicates: 1, ..NONE }, ..alarm::at_once(2) },
    ),
    Named::holds("two-timeouts", "two timeouts that are set in one run, and both ring; a crash", || Scenario {
        budgets: Budgets { crashes: 1, ..NONE },
        ..alarm::both(2)
    }),
    Named::holds("to-itself-all-of-it", "a message to the saga that sends it; all that may go wrong", || {
        itself(Budgets { crashes: 1, unknown: 1, refused: 1, duplicates: 2, delayed: 1, sweeps: 1, ..NONE })
    })
    .thorough(),
    Named::holds("timeout-all-of-it", "a timeout that is cancelled, perhaps too late; all that may go wrong", || {
        alarms(true, Budgets { crashes: 1, unknown: 1, refused: 1, duplicates: 1, stale_loads: 1, ..NONE })
    })
    .thorough(),
    Named::holds("two-in-a-row-all-of-it", "a message to a second saga; all that may go wrong", || {
        in_a_row(1, 1, Budgets { crashes: 1, unknown: 1, refused: 1, duplicates: 2, delayed: 1, sweeps: 1, ..NONE })
    })
    .thorough(),
    Named::holds("two-in-a-row-mixed", "two messages that each send one to a second saga; a crash, a copy", || {
        in_a_row(2, 1, Budgets { crashes: 1, duplicates: 1, ..NONE })
    })
    .thorough(),
];
