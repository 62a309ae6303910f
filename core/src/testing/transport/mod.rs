//! Checks that a [`Transport`] keeps the promises of [`Dispatcher`](crate::ports::Dispatcher),
//! [`Receiver`](crate::ports::Receiver) and [`Marks`](crate::ports::Marks), each by a function of the promise's name.
//!
//! ```ignore
//! hapax_core::transport_suite!(MyBuilder::new()); // one test for each promise
//! ```
//!
//! or, so that a test turns red when your transport stops to claim what it did,
//!
//! ```ignore
//! hapax_core::transport_suite!(MyBuilder::new(), unclaimed: ["in_order", "given_in_order"]);
//! ```
//!
//! or, in a test of your own, [`check_all`]`(&builder).await.assert()`. Endpoints have random names, so that runs do not
//! meet. What promises 1 to 5 of the receiver say of leases takes a few leases' time: build the transport with short
//! ones, of a second or so.

mod dispatcher;
pub(super) mod line;
mod marks;
mod receiver;

use std::{fmt, sync::Arc};

use async_trait::async_trait;

pub use self::{
    dispatcher::{confirmed, in_order, own_result, refused_before, unchanged},
    marks::{any_process, behind_all, gone_for_good, in_the_end},
    receiver::{
        counted, given_in_order, hidden_under_a_lease, kept_until_settled, late_settles_are_refused, not_early,
        retry_comes_back,
    },
};
use super::{Broken, Checked, Kept, Report, report::run};
use crate::ports::Transport;

const CONFIRMED: &str = "dispatcher 1, confirmed";
const OWN_RESULT: &str = "dispatcher 2, own result";
const UNCHANGED: &str = "dispatcher 3, unchanged";
const IN_ORDER: &str = "dispatcher 4, in order";
const REFUSED_BEFORE: &str = "dispatcher 5, refused before";
const KEPT_UNTIL_SETTLED: &str = "receiver 1, kept until settled";
const HIDDEN_UNDER_A_LEASE: &str = "receiver 2, hidden under a lease";
const LATE_SETTLES_ARE_REFUSED: &str = "receiver 3, late settles are refused";
const RETRY_COMES_BACK: &str = "receiver 4, retry comes back";
const COUNTED: &str = "receiver 5, counted";
const NOT_EARLY: &str = "receiver 6, not early";
const GIVEN_IN_ORDER: &str = "receiver 7, given in order";
const BEHIND_ALL: &str = "marks 1, behind all";
const GONE_FOR_GOOD: &str = "marks 2, gone for good";
const IN_THE_END: &str = "marks 3, in the end";
const ANY_PROCESS: &str = "marks 4, any process";

/// Opens the transport under test.
#[async_trait]
pub trait Builder: fmt::Debug + Send + Sync {
    /// Another connection to the same broker, as another process would open it.
    async fn transport(&self) -> Arc<dyn Transport>;
}

/// Checks every promise.
pub async fn check_all(builder: &dyn Builder) -> Report {
    crate::transport_suite!(@run [builder all])
}

/// Checks the promises one by one and ends at the first that is broken: for tests that a suite has teeth.
pub async fn first_broken(builder: &dyn Builder) -> Option<Broken> {
    crate::transport_suite!(@run [builder first_broken])
}

/// One test for each promise of a [`Transport`], named as the promise. The argument is an
/// expression for a [`Builder`], made anew in each test; the crate needs tokio with
/// `macros` and `rt-multi-thread`. With `unclaimed: [..]` only the promises that are
/// named there may be left untried.
#[macro_export]
macro_rules! transport_suite {
    (@run [$($args:tt)*]) => { $crate::transport_suite!(@each [run] [$($args)*]) };
    (@each [$($each:tt)*] [$($args:tt)*]) => {
        $($each)*! {
            [$($args)*]
            CONFIRMED confirmed
            OWN_RESULT own_result
            UNCHANGED unchanged
            IN_ORDER in_order
            REFUSED_BEFORE refused_before
            KEPT_UNTIL_SETTLED kept_until_settled
            HIDDEN_UNDER_A_LEASE hidden_under_a_lease
            LATE_SETTLES_ARE_REFUSED late_settles_are_refused
            RETRY_COMES_BACK retry_comes_back
            COUNTED counted
            NOT_EARLY not_early
            GIVEN_IN_ORDER given_in_order
            BEHIND_ALL behind_all
            GONE_FOR_GOOD gone_for_good
            IN_THE_END in_the_end
            ANY_PROCESS any_process
        }
    };
    ($builder:expr) => { $crate::transport_suite!(@each [$crate::suite_tests] [transport $builder]); };
    ($builder:expr, unclaimed: $unclaimed:expr) => {
        $crate::transport_suite!(@each [$crate::suite_tests] [transport $builder, $unclaimed]);
    };
}
