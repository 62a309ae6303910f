//! What the shell's tasks share state by, and wait by: in a usual build, and in usual tests, std's and tokio's own.
//!
//! With `--cfg shuttle` (`cargo xtask shuttle`) the same names are those of `explored`, for the unit tests of this crate that are
//! called `interleaved`: they run the shipped code of a part in thousands of orders, or in all of them.
//!
//! # What is explored
//! Between any two operations on what is named here another task may run: before a lock is taken and as it is given back, before
//! each operation on an atomic, and before each call and each poll of a `Notify`, a semaphore, a channel or a timer. A timer that was
//! begun ends at any moment, or never, as the test says; a task that waits for something that never comes is found as a deadlock.
//!
//! # What is not
//! - *Weak memory:* every atomic is as `SeqCst`. Nothing here publishes other memory by a `Relaxed` one.
//! - *Within tokio:* its primitives are used as they are, each operation as one step. One that tokio itself makes in two, a place in a
//!   channel and then the message in it, is two steps here as well.
//! - *Within std's `Arc`:* counts of references are taken for right.
//! - *The endpoint's loop:* it is one task, polls all passes in itself, and shares only what is explored here. That the passes
//!   themselves come to the same in any order is the explorer's in `hapax-model`.
//! - *Random walks* may miss an order. Only where a test says that all orders were gone through, none is left, within the number of
//!   tasks and operations that the test has.
//!
//! # Source
//! `shuttle`, by AWS; S. Burckhardt and others, "A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs" (ASPLOS
//! 2010), for the second kind of random walk.

#[cfg(not(all(test, shuttle)))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic};

#[cfg(all(test, shuttle))]
pub(crate) use explored::{
    AsyncMutex, Mutex, MutexGuard, Notify, Semaphore, atomic, mpsc, oneshot, sleep, sleep_until, timeout, timeout_at,
};
#[cfg(not(all(test, shuttle)))]
pub(crate) use tokio::{
    sync::{Mutex as AsyncMutex, Notify, Semaphore, mpsc, oneshot},
    time::{sleep, sleep_until, timeout, timeout_at},
};

#[cfg(all(test, shuttle))]
pub(crate) mod explored;
