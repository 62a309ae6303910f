//! `cargo xtask soak`: two endpoints in many processes under faults of every kind, for minutes; then the books, from what is stored and sent alone.
//!
//! Whatever is to be met and was not makes a run void, and that is an error too.

mod clock;
mod counts;
mod crew;
mod faults;
#[path = "../process/forgetful.rs"]
mod forgetful;
#[allow(dead_code)] // Some of its ports are not for this program.
#[path = "../process/fuse.rs"]
mod fuse;
mod leases;
mod ledger;
mod load;
mod messages;
mod options;
mod place;
mod plots;
mod points;
mod recount;
mod report;
mod run;
mod servers;
#[path = "../process/shim.rs"]
mod shim;
mod sink;
mod unmet;
mod worker;

use std::process::ExitCode;

use clap::Parser;
use clock::Clock;
use options::Options;
use worker::Plan;

pub(crate) type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// What its workers are called with, and a plan behind it.
const WORKER: &str = "worker";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ended = match &arguments[..] {
        [worker, plan] if worker == WORKER => work(plan),
        _ => soak(Options::parse()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn work(plan: &str) -> Result<(), AnyError> {
    let plan: Plan = serde_json::from_str(plan)?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(worker::run(&plan))
}

fn soak(options: Options) -> Result<(), AnyError> {
    if let Some(status) = Clock::elsewhere()? {
        // It has said why.
        return if status.success() { Ok(()) } else { std::process::exit(1) };
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    report::prepare(&options.report())?;
    if options.points {
        return runtime.block_on(async {
            tokio::select! {
                ended = points::run(&options) => ended,
                _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
            }
        });
    }
    let asked = options.clone();
    let outcome = runtime.block_on(async {
        tokio::select! {
            outcome = run::run(options) => outcome,
            _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
        }
    })?;
    report::write(&asked, &outcome)?;
    let (faults, title) = (&outcome.books.faults, format!("{} and {}", asked.store, asked.transport));
    if !faults.is_empty() {
        return Err(format!("{title}: seed {}: {}", outcome.seed, faults.join("\n")).into());
    }
    if !outcome.unmet.is_empty() {
        return Err(format!("{title}: void, since there were no {}", outcome.unmet.join(", ")).into());
    }
    Ok(())
}
