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

use crate::{AnyError, Scratch, figure::Figure, measure::Machine};

/// Whether no bar is missed, or none is judged.
pub(crate) fn bench(options: &Options) -> Result<bool, AnyError> {
    let machine = Machine::of_this_run();
    let scratch = Scratch::within(&options.dir)?;
    let judged = options.judged();
    let mut figures = Vec::new();
    for name in &options.only {
        eprintln!("{name}");
        // Removed at once: the files of one may be in the way of the next.
        let dir = scratch.below(name)?;
        let found = measure(name, &dir.0, options)?;
        found.iter().for_each(|figure| eprintln!("{}", figure.line(judged)));
        figures.extend(found);
    }
    println!("{}", machine.line());
    figures.iter().for_each(|figure| println!("{}", figure.line(judged)));
    if let Some(file) = &options.json {
        let json = serde_json::json!({ "machine": machine, "settings": options, "judged": judged, "figures": figures });
        let json = serde_json::to_vec_pretty(&json)?;
        std::fs::write(file, json).map_err(|e| format!("--json {}: {e}", file.display()))?;
    }
    Ok(!judged || figures.iter().all(Figure::is_met))
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
