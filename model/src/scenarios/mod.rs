//! The configurations that the shipped manager is explored in, each under a name.

pub mod alarm;
pub mod book;
mod evictions;
mod faults;
mod flows;
mod ids;
mod reads;
mod shapes;
pub mod shelf;
mod slow;

use crate::explore::Scenario;

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

impl Named {
    const fn holds(name: &'static str, about: &'static str, make: fn() -> Scenario) -> Self {
        Self { name, about, expects: Expects::Holds, size: Size::Quick, make }
    }

    const fn breaks(name: &'static str, claim: &'static str, about: &'static str, make: fn() -> Scenario) -> Self {
        Self { name, about, expects: Expects::Breaks(claim), size: Size::Quick, make }
    }

    const fn thorough(self) -> Self {
        Self { size: Size::Thorough, ..self }
    }
}

const LISTS: &[&[Named]] = &[faults::ALL, shapes::ALL, reads::ALL, flows::ALL, ids::ALL, evictions::ALL, slow::ALL];

/// All configurations.
pub const ALL: &[Named] = &{
    const COUNT: usize = faults::ALL.len()
        + shapes::ALL.len()
        + reads::ALL.len()
        + flows::ALL.len()
        + ids::ALL.len()
        + evictions::ALL.len()
        + slow::ALL.len();
    let mut all = [faults::ALL[0]; COUNT];
    let (mut list, mut next) = (0, 0);
    while list < LISTS.len() {
        let mut at = 0;
        while at < LISTS[list].len() {
            all[next] = LISTS[list][at];
            at += 1;
            next += 1;
        }
        list += 1;
    }
    all
};

/// The configuration with this name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Named> {
    ALL.iter().find(|named| named.name == name)
}
