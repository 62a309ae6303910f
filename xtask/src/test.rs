//! `cargo xtask test`: every test and every doctest, with every backend that can be had.

use std::process::{Command, ExitCode};

use crate::args::Wanted;
use crate::backends::Backends;
use crate::lines::{Runner, Seen, Totals};
use crate::process;
use crate::report::{Report, Verdict};
use crate::workspace::Workspace;

/// Property tests read it and try many more cases.
const THOROUGH: &str = "HAPAX_THOROUGH";

/// Runs the tests, prints the table, and closes with one line that sums up all runs.
pub(crate) fn run(wanted: &Wanted) -> ExitCode {
    let (report, totals) = all(wanted);
    conclude(&report, Some(totals))
}

/// Prints the table and, last of all, the sums. Fails if a step failed.
pub(crate) fn conclude(report: &Report, totals: Option<Totals>) -> ExitCode {
    println!("\n{report}");
    if let Some(Totals { passed, failed }) = totals {
        println!("{passed} passed, {failed} failed");
    }
    if report.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Runs the tests without a closing word.
pub(crate) fn all(wanted: &Wanted) -> (Report, Totals) {
    let mut report = Report::default();
    let mut seen = Seen::default();
    let backends = match Workspace::load().and_then(|workspace| Backends::provide(&workspace)) {
        Ok(backends) => backends,
        Err(error) => {
            report.step("backends", || Verdict::Failed(error));
            return (report, seen.totals);
        }
    };
    if process::has_cargo("nextest") {
        report.step("tests, by nextest", || nextest(wanted, &mut seen));
    } else {
        let remedy =
            "cargo test ran instead: `cargo install cargo-nextest --locked` gives each test a process of its own";
        report.step("tests, by cargo test", || cargo_test(&["--all-targets"], wanted, &mut seen));
        report.note("nextest", Verdict::Skipped(remedy.to_owned()));
    }
    report.step("doctests", || cargo_test(&["--doc"], wanted, &mut seen));
    backends.report(&seen, wanted.filters.is_empty(), &mut report);
    if !wanted.all {
        let remedy = "what is too slow for each push: `cargo xtask test --all`";
        report.note("thorough", Verdict::Skipped(remedy.to_owned()));
    }
    if seen.totals == Totals::default() && !report.has_failed() {
        let why = format!("no test ran; asked for: {}", wanted.filters.join(", "));
        report.note("something ran", Verdict::Failed(why));
    }
    (report, seen.totals)
}

fn nextest(wanted: &Wanted, seen: &mut Seen) -> Result<String, String> {
    // A word that only doctests bear is no error here; that nothing ran at all is judged at the end.
    let args = ["nextest", "run", "--no-fail-fast", "--no-tests=pass", "--status-level=pass"];
    let command = &mut process::cargo(args);
    watch(Runner::Nextest, command.args(EVERYTHING).args(&wanted.filters), wanted, seen)
}

fn cargo_test(targets: &[&str], wanted: &Wanted, seen: &mut Seen) -> Result<String, String> {
    let command = &mut process::cargo(["test", "--no-fail-fast"]);
    watch(Runner::CargoTest, command.args(targets).args(EVERYTHING).arg("--").args(&wanted.filters), wanted, seen)
}

const EVERYTHING: [&str; 3] = ["--workspace", "--all-features", "--locked"];

fn watch(runner: Runner, command: &mut Command, wanted: &Wanted, seen: &mut Seen) -> Result<String, String> {
    if wanted.all {
        command.env(THOROUGH, "1");
    }
    let before = seen.totals;
    let well = process::watch(command, |line| seen.line(runner, line))?;
    let Totals { passed, failed } = seen.totals;
    let (passed, failed) = (passed - before.passed, failed - before.failed);
    match well {
        true => Ok(format!("{passed} passed")),
        false if failed > 0 => Err(format!("{passed} passed, {failed} failed: see above")),
        false => Err("the tests do not compile or cannot be run: see above".to_owned()),
    }
}
