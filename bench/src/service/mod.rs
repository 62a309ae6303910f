//! Figures of a service that are no rate: how long it takes to come back, to wake up, to start, to sweep; what eviction
//! costs those who write meanwhile; whether memory stays.

mod counted;
mod evicting;
mod memory;
mod options;
mod recovery;
mod startup;
mod sweep;
mod wake;
mod worker;

use std::{path::Path, time::Duration};

pub(crate) use options::{HELP, Options, parse};
pub(crate) use worker::{ROLE, run as work};

use crate::{
    AnyError,
    figure::Figure,
    figures::{self, Asked},
};

/// Whether no bar is missed, or none is judged.
pub(crate) fn bench(options: &Options) -> Result<bool, AnyError> {
    let Options { only, dir, json, .. } = options;
    figures::take(&Asked { only, dir, json: json.as_ref(), judged: options.judged() }, options, measure)
}

fn measure(name: &str, dir: &Path, options: &Options) -> Result<Vec<Figure>, AnyError> {
    match name {
        "recovery" => recovery::measure(dir, options),
        "wake" => wake::measure(dir, options),
        "startup" => startup::measure(dir, options),
        "sweep" => sweep::measure(dir, options),
        "evicting" => evicting::measure(dir, options),
        "memory" => memory::measure(dir, options),
        other => Err(format!("there is no figure named {other}").into()),
    }
}

/// As on the machine of a small service: one thread besides those of the driver.
fn runtime() -> Result<tokio::runtime::Runtime, AnyError> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
