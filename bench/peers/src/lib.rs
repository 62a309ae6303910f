//! What the programs of the peers share: deliveries, state, clock and report.
//!
//! A program is started by `hapax-bench` with `--database URL --seconds S`. It reads the deliveries from its standard input,
//! one a line, id and body, until an empty line; makes what it needs; says `ready`; begins when it is told `go`; and says in
//! one line of JSON what it has done and what it has found afterwards.

mod account;
mod order;
mod outbox;
#[cfg(feature = "relay")]
pub mod relay;
mod report;

pub use account::{Account, Changed, Deposit};
pub use order::{Delivery, Order, main};
pub use outbox::{Outbox, fed};
pub use report::{Books, Progress, Report, Sample, Window, cpu_seconds_of, distinct_gone};

/// The hand-written transaction on the driver's version that two of the peers are built on.
#[cfg(feature = "driver-9")]
pub mod driver_9 {
    use sqlx_9 as sqlx;
    include!("transaction.rs");
}

/// The same on the version before it.
#[cfg(feature = "driver-8")]
pub mod driver_8 {
    use sqlx_8 as sqlx;
    include!("transaction.rs");
}

/// What goes wrong, for people.
pub type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// Deliveries that are handled at the same time.
pub const WORKERS: usize = 32;
