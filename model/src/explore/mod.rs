//! Goes through everything that can happen to a few messages and workers, within budgets of faults.
//!
//! What runs is the shipped [`SagaManager`](hapax_core::SagaManager) and [`deliver`](hapax_core::deliver); all their awaits
//! are port calls, and each of them is answered by the explorer, in every way in which it may go. Worlds that are equal
//! are gone through once.

mod answers;
mod calls;
mod claims;
mod graph;
mod search;
mod space;
mod state;
mod steps;
mod story;
mod trie;
mod wire;

pub use claims::Broken;
pub use graph::{Graph, Move, Snapshot, SnapshotRow, Vertex};
pub use search::Report;
use search::Search;
use space::Space;
pub use space::{MakeManager, ReadLines, Reads, Scenario, Sentence, View};
pub use state::Budgets;
pub use story::Story;
pub use trie::Work;

/// Worlds after which an exploration gives up: about 2 GB.
pub const STATES_MAX: usize = 8_000_000;

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
