//! Programs that sell and relay, in worse circumstances than a death: stopped beyond their leases and continued, on hosts whose
//! clocks are hours apart, or are set while they work, with their broker away for minutes, with handlers that are killed, replaced one
//! by one, beside programs of an older commit, and with a million messages that wait.
//!
//! Always: nothing that was committed is lost, nothing that was not is seen, what comes twice bears the same id, and where order
//! is kept the first copies of each key come in the order of their commits.
#![allow(clippy::unwrap_used)]
#![cfg(target_os = "linux")] // Clocks come by LD_PRELOAD, figures of memory from /proc.

#[path = "../process/audit.rs"]
mod audit;
mod away;
mod backlog;
mod clocks;
#[path = "../process/crew.rs"]
mod crew;
mod inbox;
mod market;
mod older;
#[path = "../process/shim.rs"]
mod shim;
#[path = "../process/shops.rs"]
mod shops;
#[path = "../process/sites.rs"]
mod sites;
mod stalls;
#[path = "../process/stored.rs"]
mod stored;
mod upgrade;

/// Whether what is too slow for each push is wanted as well.
fn is_thorough() -> bool {
    std::env::var_os("HAPAX_THOROUGH").is_some()
}
