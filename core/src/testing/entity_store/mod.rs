//! Checks that an [`EntityStore`] keeps its promises, each by a function of the promise's name.
//!
//! ```ignore
//! hapax_core::entity_store_suite!(MyBuilder::new()); // one test for each promise
//! ```
//!
//! or, in a test of your own, [`check_all`]`(&builder).await.assert()`. Names are random, so that runs do not meet and
//! nothing has to be cleaned up; nothing sleeps except to look again for what is promised "sooner or later".

mod groups;
mod hand;
mod limits;
mod marks;
mod saves;
mod upkeep;

use std::{fmt, sync::Arc};

use async_trait::async_trait;

pub(super) use self::marks::is_whole;
pub use self::{
    groups::{honest_errors, own_result},
    limits::{apart, capabilities, limits_before_writing},
    marks::{complete, finish_marks_first, one_snapshot, only_with_the_winner},
    saves::{current, guarded, kept, never_again, whole},
    upkeep::{pending, purge_spares},
};
use super::{Broken, Checked, Kept, Report, report::run};
use crate::ports::{DedupStore, EntityStore};

const WHOLE: &str = "entity store 1, whole";
const GUARDED: &str = "entity store 2, guarded";
const NEVER_AGAIN: &str = "entity store 3, never again";
const KEPT: &str = "entity store 4, kept";
const ONE_SNAPSHOT: &str = "entity store 5, one snapshot";
const ONLY_WITH_THE_WINNER: &str = "entity store 6, only with the winner";
const FINISH_MARKS_FIRST: &str = "entity store 7, finish marks first";
const OWN_RESULT: &str = "entity store 8, own result";
const CURRENT: &str = "entity store 9, current";
const PENDING: &str = "entity store 10, pending";
const PURGE_SPARES: &str = "entity store 11, purge spares";
const LIMITS_BEFORE_WRITING: &str = "entity store 12, limits before writing";
const HONEST_ERRORS: &str = "entity store 13, honest errors";
const COMPLETE: &str = "entity store 14, complete";
const APART: &str = "entity store 15, apart";
const CAPABILITIES: &str = "entity store, capabilities";

/// Handles in use at one time, each as another process would have it.
const HANDS: usize = 4;
/// Why a check does not apply.
const NOT_TOGETHER: &str = "the store keeps entities only";

/// Opens the store under test.
#[async_trait]
pub trait Builder: fmt::Debug + Send + Sync {
    /// Another handle onto the same data, as another process would open it: with connections and caches of its own.
    async fn entities(&self) -> Arc<dyn EntityStore>;

    /// Another handle onto the dedup entries that [`entities`](Builder::entities) answers for in `load` and adds to in
    /// `save` and `finish`; `None` for a store that keeps entities only.
    async fn dedup(&self) -> Option<Arc<dyn DedupStore>>;

    /// Another handle onto the same data whose way to the backend is bad: requests and answers get lost, come late, or
    /// are repeated by the client. Promise 13 is judged on the errors it gives. `None` where there is no such way.
    async fn faulty(&self) -> Option<Arc<dyn EntityStore>>;
}

/// Checks every promise.
pub async fn check_all(builder: &dyn Builder) -> Report {
    crate::entity_store_suite!(@run [builder all])
}

/// Checks the promises one by one and ends at the first that is broken: for tests that a suite has teeth.
pub async fn first_broken(builder: &dyn Builder) -> Option<Broken> {
    crate::entity_store_suite!(@run [builder first_broken])
}

/// One test for each promise of an [`EntityStore`], named as the promise. The argument is an
/// expression for a [`Builder`], made anew in each test; the crate needs tokio
/// with `macros` and `rt-multi-thread`.
#[macro_export]
macro_rules! entity_store_suite {
    (@run [$($args:tt)*]) => { $crate::entity_store_suite!(@each [run] [$($args)*]) };
    (@each [$($each:tt)*] [$($args:tt)*]) => {
        // In the order in which one rests on another, so that the first that fails says what is wrong.
        $($each)*! {
            [$($args)*]
            CAPABILITIES capabilities
            WHOLE whole
            GUARDED guarded
            NEVER_AGAIN never_again
            KEPT kept
            CURRENT current
            APART apart
            ONE_SNAPSHOT one_snapshot
            ONLY_WITH_THE_WINNER only_with_the_winner
            FINISH_MARKS_FIRST finish_marks_first
            COMPLETE complete
            OWN_RESULT own_result
            PENDING pending
            PURGE_SPARES purge_spares
            LIMITS_BEFORE_WRITING limits_before_writing
            HONEST_ERRORS honest_errors
        }
    };
    ($builder:expr) => { $crate::entity_store_suite!(@each [$crate::suite_tests] [entity_store $builder]); };
}
