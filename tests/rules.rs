//! The rules of the manager, one named test each: what property tests and crash points do not show plainly.
#![allow(clippy::unwrap_used)]

#[path = "rules/answers.rs"]
mod answers;
#[path = "rules/duplicates.rs"]
mod duplicates;
#[path = "rules/fresh.rs"]
mod fresh;
#[path = "rules/handlers.rs"]
mod handlers;
#[path = "rules/identity.rs"]
mod identity;
#[path = "rules/lifecycle.rs"]
mod lifecycle;
#[path = "rules/limits.rs"]
mod limits;
#[path = "rules/order.rs"]
mod order;
#[path = "rules/outbox.rs"]
mod outbox;
#[path = "rules/passes.rs"]
mod passes;
#[path = "rules/progress.rs"]
mod progress;
#[path = "rules/told.rs"]
mod told;

use hapax_model::{
    Call, Point, Side,
    ledger::{Act, Post, Trouble},
};

/// A posting to the ledger `a` that sends one message on.
fn post(cause: &str) -> Post {
    Post { ledger: "a".into(), cause: cause.into(), outputs: 1, act: Act::Nothing, trouble: Trouble::None }
}

/// The same with nothing to send.
fn quiet(cause: &str) -> Post {
    Post { outputs: 0, ..post(cause) }
}

const fn before(call: Call) -> Point {
    Point { call, side: Side::Before }
}

const fn after(call: Call) -> Point {
    Point { call, side: Side::After }
}
