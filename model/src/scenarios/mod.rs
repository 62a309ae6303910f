//! The configurations that the shipped manager is explored in, each under a name.

pub mod book;

use book::{note, scenario};

use crate::explore::{Budgets, Reads, Scenario};

/// What an exploration must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expects {
    /// Nothing: everything that is claimed holds in every world.
    Holds,
    /// That this claim is broken: a control, without which "nothing found" would mean little.
    Breaks(&'static str),
}

/// How long it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// At most a few seconds.
    Quick,
    /// Minutes.
    Thorough,
}

/// A configuration.
#[derive(Debug, Clone, Copy)]
pub struct Named {
    /// Its name, for the command line.
    pub name: &'static str,
    /// What is special about it.
    pub about: &'static str,
    /// What must come out.
    pub expects: Expects,
    /// How long it takes.
    pub size: Size,
    /// Makes it.
    pub make: fn() -> Scenario,
}

const NONE: Budgets = Budgets::NONE;

/// All configurations.
pub const ALL: &[Named] = &[
    Named {
        name: "quiet",
        about: "two messages of one entity, two workers, no faults",
        expects: Expects::Holds,
        size: Size::Quick,
        make: || scenario(vec![note("b", 0, 1), note("b", 1, 1)], 2),
    },
    Named {
        name: "one-message",
        about: "one message, two workers, a crash, an unknown outcome, a copy",
        expects: Expects::Holds,
        size: Size::Quick,
        make: || Scenario {
            budgets: Budgets { crashes: 1, unknown: 1, duplicates: 1, ..NONE },
            ..scenario(vec![note("b", 0, 1)], 2)
        },
    },
    Named {
        name: "one-message-two-stores",
        about: "as one-message, with the dedup entries in a store of their own",
        expects: Expects::Holds,
        size: Size::Quick,
        make: || Scenario {
            budgets: Budgets { crashes: 1, unknown: 1, duplicates: 1, ..NONE },
            together: false,
            ..scenario(vec![note("b", 0, 1)], 2)
        },
    },
    Named {
        name: "mixed",
        about: "two messages of one entity, two workers, a crash, an unknown outcome, a copy",
        expects: Expects::Holds,
        size: Size::Quick,
        make: || Scenario {
            budgets: Budgets { crashes: 1, unknown: 1, duplicates: 1, ..NONE },
            ..scenario(vec![note("b", 0, 1), note("b", 1, 1)], 2)
        },
    },
    Named {
        name: "all-of-it",
        about: "two messages of one entity, two workers, two crashes, two unknown outcomes, a refusal, two copies",
        expects: Expects::Holds,
        size: Size::Thorough,
        make: || Scenario {
            budgets: Budgets { crashes: 2, unknown: 2, refused: 1, duplicates: 2, ..NONE },
            ..scenario(vec![note("b", 0, 1), note("b", 1, 1)], 2)
        },
    },
    Named {
        name: "crash",
        about: "two messages of one entity, two workers, a crash",
        expects: Expects::Holds,
        size: Size::Quick,
        make: || Scenario {
            budgets: Budgets { crashes: 1, ..NONE },
            ..scenario(vec![note("b", 0, 1), note("b", 1, 1)], 2)
        },
    },
    Named {
        name: "unknown",
        about: "two messages of one entity, two workers, an unknown outcome",
        expects: Expects::Holds,
        size: Size::Quick,
        make: || Scenario {
            budgets: Budgets { unknown: 1, ..NONE },
            ..scenario(vec![note("b", 0, 1), note("b", 1, 1)], 2)
        },
    },
    Named {
        name: "copy",
        about: "two messages of one entity, two workers, a copy",
        expects: Expects::Holds,
        size: Size::Quick,
        make: || Scenario {
            budgets: Budgets { duplicates: 1, ..NONE },
            ..scenario(vec![note("b", 0, 1), note("b", 1, 1)], 2)
        },
    },
    Named {
        name: "lagging-reads",
        about: "a dedup store whose newest entry may not be seen yet",
        expects: Expects::Breaks("effect_at_most_once"),
        size: Size::Quick,
        make: || Scenario {
            budgets: Budgets { duplicates: 1, ..NONE },
            reads: Reads::Lagging(1),
            ..scenario(vec![note("b", 0, 1)], 1)
        },
    },
    Named {
        name: "evicted-too-early",
        about: "a dedup entry that is forgotten while a copy may still come",
        expects: Expects::Breaks("effect_at_most_once"),
        size: Size::Quick,
        make: || Scenario {
            budgets: Budgets { duplicates: 1, evictions: 1, ..NONE },
            ..scenario(vec![note("b", 0, 1)], 1)
        },
    },
];

/// The configuration with this name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Named> {
    ALL.iter().find(|named| named.name == name)
}
