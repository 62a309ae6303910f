//! `cargo xtask shuttle`: what the shell's tasks share, in thousands of orders of their steps, and in all of them where they are few.
//!
//! The tests are within the source of `hapax-core`, in modules that are called `interleaved`; `core/src/sync.rs` says what they
//! explore and what not. They are built with `--cfg shuttle` into a folder of their own, so that nothing else is built anew.

use std::process::{Command, ExitCode};

use crate::lines::{Runner, Seen};
use crate::process;

/// As a test program, in the header of a mutant.
pub(crate) const INTERLEAVED: &str = "interleaved";

/// What cargo is told. Most of what goes on in a test is shuttle: it is optimised, which takes seconds, once.
pub(crate) const ARGS: [&str; 9] = [
    "test",
    "--locked",
    "--package=hapax-core",
    "--lib",
    "--all-features",
    "--config=profile.dev.package.shuttle-engine.opt-level=2",
    "--config=profile.dev.package.shuttle-schedulers.opt-level=2",
    "--config=profile.dev.package.shuttle-std.opt-level=2",
    "--config=profile.dev.package.corosensei.opt-level=2",
];

/// The usual tests do not run on what these are built with.
const OTHERS: &str = "--skip=::tests::";

/// Runs the tests whose names contain one of `filters`; all of them for none.
pub(crate) fn run(filters: &[String]) -> ExitCode {
    match explore(filters) {
        Ok(seen) => {
            println!("{seen}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// # Errors
/// A test has failed, or none was there. The schedule by which shuttle has failed is in the output.
pub(crate) fn explore(filters: &[String]) -> Result<String, String> {
    let mut command = process::cargo(ARGS);
    build_for(&mut command);
    command.args(["--", OTHERS]);
    match filters {
        [] => command.arg(format!("{INTERLEAVED}::")),
        filters => command.args(filters),
    };
    let mut seen = Seen::default();
    let ended_well = process::watch(&mut command, |line| seen.line(Runner::CargoTest, line))?;
    match (ended_well, seen.totals.passed) {
        (true, 0) => {
            Err(format!("no test: their names contain `{INTERLEAVED}::`, and one of the parts that were given"))
        }
        (true, passed) => Ok(format!("{passed} tests pass in every order that was gone through")),
        (false, _) => Err("a test fails: `cargo xtask shuttle NAME` runs it alone".to_owned()),
    }
}

/// Builds the tests and runs none.
pub(crate) fn build() -> Command {
    let mut command = process::cargo(ARGS);
    build_for(&mut command);
    command.arg("--no-run");
    command
}

/// Sets what a command of cargo needs beside [`ARGS`].
pub(crate) fn build_for(command: &mut Command) {
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    command.env_remove("CARGO_ENCODED_RUSTFLAGS").env("RUSTFLAGS", format!("{flags} --cfg shuttle").trim());
    command.env("CARGO_TARGET_DIR", process::root().join("target/shuttle"));
}
