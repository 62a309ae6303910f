//! Goes through everything that can happen to a few messages and workers, within budgets of faults.
//!
//! What runs is the shipped [`SagaManager`](hapax_core::SagaManager) and [`deliver`](hapax_core::deliver); all their awaits
//! are port calls, and each of them is answered by the explorer, in every way in which it may go. Worlds that are equal
//! are gone through once: also those that differ only in the names of workers, of versions or of attempts that nobody
//! remembers, or in how much may still go wrong.

mod answers;
mod calls;
mod claims;
mod graph;
mod judge;
mod letters;
mod live;
mod mermaid;
pub(crate) mod outside;
mod partly;
mod quiet;
mod replay;
mod replies;
mod scenario;
mod search;
mod short;
mod space;
mod state;
mod steps;
mod story;
mod tables;
mod traces;
mod trie;
mod troubles;
mod wire;
mod writes;

pub use claims::{Broken, CLAIMS, Claim, claim};
pub use graph::{Graph, Move, Snapshot, SnapshotRow, Vertex};
pub use live::{CrossCheck, cross_check};
pub(crate) use quiet::one_by_one;
pub use replay::{Replay, labels, replay};
pub use scenario::{Evicts, MakeManager, ReadLines, Reads, Refusal, Scenario, Sentence, View};
pub use search::Report;
use search::Search;
use space::Space;
pub(crate) use space::ports_of_nothing;
pub use state::Budgets;
pub use story::Story;
pub use traces::{Asked, Trace, Tracer, What};

/// Worlds after which an exploration gives up: less than 4 GB.
pub const STATES_MAX: usize = 60_000_000;

/// Goes through all of `scenario`.
///
/// # Errors
/// When the code under test cannot be explored: it waits for something that is no port, or does not do the same twice.
pub fn explore(scenario: Scenario) -> Result<Report, String> {
    explore_at_most(scenario, STATES_MAX)
}

/// As [`explore`], and gives up after `states_max` worlds.
///
/// # Errors
/// As [`explore`].
pub fn explore_at_most(scenario: Scenario, states_max: usize) -> Result<Report, String> {
    Search::new(Space::new(scenario)?).run(states_max)
}
