//! Each thing that may go wrong, alone and with others.

use super::{
    Named,
    book::{given_once, note, scenario},
};
use crate::explore::{Budgets, Refusal, Scenario};

const NONE: Budgets = Budgets::NONE;

/// Two messages of one entity and two workers.
fn two(budgets: Budgets) -> Scenario {
    Scenario { budgets, ..scenario(vec![note("b", 0, 1), note("b", 1, 1)], 2) }
}

/// The same with dedup entries in a store of their own.
fn apart(budgets: Budgets) -> Scenario {
    Scenario { together: false, ..two(budgets) }
}

/// One message and two workers.
fn single(budgets: Budgets) -> Scenario {
    Scenario { budgets, ..scenario(vec![note("b", 0, 1)], 2) }
}

const USUAL: Budgets = Budgets { crashes: 1, unknown: 1, duplicates: 1, ..NONE };
const WRITES: Budgets =
    Budgets { crashes: 1, unknown: 1, refused: 1, duplicates: 1, delayed: 1, own_conflicts: 1, ..NONE };
const OTHERS: Budgets = Budgets {
    process_crashes: 1,
    duplicates: 1,
    expiries: 1,
    sweeps: 1,
    late: 1,
    stale_loads: 1,
    unroutable: 1,
    ..NONE
};
const ALL_OF_IT: Budgets = Budgets { crashes: 2, unknown: 2, refused: 1, duplicates: 2, ..NONE };

pub(super) const ALL: &[Named] = &[
    Named::holds("quiet", "two messages of one entity, two workers, no faults", || two(NONE)),
    Named::holds("one-message", "one message, two workers, a crash, an unknown outcome, a copy", || single(USUAL)),
    Named::holds("one-message-two-stores", "as one-message, with the dedup entries in a store of their own", || {
        Scenario { together: false, ..single(USUAL) }
    }),
    Named::holds(
        "one-message-all-of-it",
        "one message, two workers, two crashes, two unknown outcomes, a refusal, two copies",
        || single(ALL_OF_IT),
    ),
    Named::holds("crash", "two messages, two workers, a crash", || two(Budgets { crashes: 1, ..NONE })),
    Named::holds("two-crashes", "two messages, two workers, two crashes", || two(Budgets { crashes: 2, ..NONE })),
    Named::holds("unknown", "two messages, two workers, an unknown outcome", || two(Budgets { unknown: 1, ..NONE })),
    Named::holds("copy", "two messages, two workers, a copy", || two(Budgets { duplicates: 1, ..NONE })),
    Named::holds("refused", "two messages, two workers, two refused calls", || two(Budgets { refused: 2, ..NONE })),
    Named::holds(
        "delayed",
        "two messages, two workers, a copy, a write that is done at any later moment or never",
        || two(Budgets { delayed: 1, duplicates: 1, ..NONE }),
    ),
    Named::holds("lease", "two messages, two workers, a lease that runs out under its holder", || {
        two(Budgets { expiries: 1, ..NONE })
    }),
    Named::holds(
        "own-conflict",
        "two messages, two workers, a copy, a save that wins and is told that it lost",
        || two(Budgets { own_conflicts: 1, duplicates: 1, ..NONE }),
    ),
    Named::holds("sweeper", "two messages, two workers, a sweeper beside them, a crash", || {
        two(Budgets { sweeps: 1, crashes: 1, ..NONE })
    }),
    Named::holds("late", "two messages, two workers, two passes that take longer than their deadline", || Scenario {
        attempts_max: 3,
        ..two(Budgets { late: 2, ..NONE })
    }),
    Named::holds("stale-load", "two messages, two workers, a copy, an entity that is read as it was before", || {
        two(Budgets { stale_loads: 1, duplicates: 1, ..NONE })
    }),
    Named::holds(
        "never-sent",
        "a message that sends two, of which one can never be sent; an unknown outcome, a copy",
        || Scenario {
            budgets: Budgets { unroutable: 1, unknown: 1, refused: 1, duplicates: 1, ..NONE },
            ..scenario(vec![note("b", 0, 2)], 2)
        },
    ),
    Named::holds(
        "never-sent-nor-the-others",
        "a message that sends three, of which one can never be sent, and all others are refused at once; a copy",
        || Scenario {
            budgets: Budgets { unroutable: 1, refused: 1, duplicates: 1, ..NONE },
            ..scenario(vec![note("b", 0, 3)], 1)
        },
    ),
    Named::holds("too-large", "two messages, perhaps together, and a save that the store refuses as too large", || {
        Scenario {
            pass_max: 2,
            // It will not fit however often it is tried.
            may_set_aside: Some(vec![0, 1]),
            refused_as: vec![Refusal::TooLarge],
            ..two(Budgets { refused: 2, ..NONE })
        }
    }),
    Named::holds("unreadable", "two messages, two stores, and what another version of the program has written", || {
        Scenario { refused_as: vec![Refusal::Malformed], ..apart(Budgets { refused: 1, duplicates: 1, ..NONE }) }
    }),
    Named::holds("outage", "a message that is poison at its second delivery; a refused call is no delivery", || {
        Scenario { manager: given_once(), attempts_max: 2, ..single(Budgets { refused: 1, ..NONE }) }
    }),
    Named::holds(
        "evicted-without-copies",
        "two messages without any copy, and a dedup entry that is forgotten",
        || two(Budgets { evictions: 1, ..NONE }),
    ),
    Named::holds("process", "two messages, two workers, a process that stops with both, a copy", || {
        two(Budgets { process_crashes: 1, duplicates: 1, ..NONE })
    }),
    Named::holds("crash-two-stores", "two messages, two stores, a crash", || apart(Budgets { crashes: 1, ..NONE })),
    Named::holds("unknown-two-stores", "two messages, two stores, an unknown outcome", || {
        apart(Budgets { unknown: 1, ..NONE })
    }),
    Named::holds("copy-two-stores", "two messages, two stores, a copy", || apart(Budgets { duplicates: 1, ..NONE })),
    Named::holds("refused-two-stores", "two messages, two stores, a refused call", || {
        apart(Budgets { refused: 1, ..NONE })
    }),
    Named::holds("delayed-two-stores", "two messages, two stores, a write that is done later or never", || {
        apart(Budgets { delayed: 1, ..NONE })
    }),
    Named::holds("sweeper-two-stores", "two messages, two stores, a sweeper beside the workers, a crash", || {
        apart(Budgets { sweeps: 1, crashes: 1, ..NONE })
    }),
    Named::holds("mixed", "two messages, two workers, a crash, an unknown outcome, a copy", || two(USUAL)),
    Named::holds("mixed-two-stores", "as mixed, with the dedup entries in a store of their own", || apart(USUAL)),
    Named::holds("mixed-three-workers", "as mixed, with three workers", || Scenario { tasks: 3, ..two(USUAL) })
        .thorough(),
    Named::holds(
        "zombies",
        "two messages, two workers, two writes that are done later or never, a crash, a copy",
        || two(Budgets { delayed: 2, crashes: 1, duplicates: 1, ..NONE }),
    )
    .thorough(),
    Named::holds(
        "all-of-it",
        "two messages, two workers, two crashes, two unknown outcomes, a refusal, two copies",
        || two(ALL_OF_IT),
    )
    .thorough(),
    Named::breaks(
        "evicted-too-early",
        "effect_at_most_once",
        "a dedup entry that is forgotten while a copy may still come",
        || Scenario { tasks: 1, ..single(Budgets { duplicates: 1, evictions: 1, ..NONE }) },
    ),
    // What is promised is broken here, and what depends on it. Each of the two handlings is still finished.
    Named::holds(
        "handled-twice",
        "a dedup entry that is forgotten while copies may still come: each handling sends all that it sends; a crash",
        || Scenario {
            without: vec!["effect_at_most_once", "marked_only_when_sent"],
            ..single(Budgets { crashes: 1, duplicates: 2, evictions: 1, ..NONE })
        },
    ),
    Named::holds("writes", "one message, two workers, all that may go wrong with a write", || single(WRITES))
        .thorough(),
    Named::holds("writes-two-stores", "as writes, with the dedup entries in a store of their own", || Scenario {
        together: false,
        ..single(WRITES)
    })
    .thorough(),
    Named::holds("others", "one message, two workers, a copy, all that may go wrong with anything else", || Scenario {
        // A lease, a process and a pass that is too slow: three deliveries may fail, and no more. So none may be given up.
        attempts_max: 4,
        ..single(OTHERS)
    })
    .thorough(),
    Named::holds(
        "all-of-it-two-stores",
        "as all-of-it with one copy, and the dedup entries in a store of their own",
        || apart(Budgets { duplicates: 1, unknown: 1, ..ALL_OF_IT }),
    )
    .thorough(),
    Named::holds(
        "stale-and-late",
        "two messages, two workers, stale loads, a lease, a sweeper, a crash, a write under way",
        || two(Budgets { stale_loads: 1, expiries: 1, sweeps: 1, crashes: 1, delayed: 1, ..NONE }),
    )
    .thorough(),
];
