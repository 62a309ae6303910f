//! `cargo xtask test`: every test and every doctest, with every backend that can be had.

use std::{
    num::NonZero,
    process::{Command, ExitCode},
    time::Duration,
};

use crate::args::Wanted;
use crate::backends::{Backends, EMULATORS};
use crate::lines::{Runner, Seen, Totals};
use crate::pace;
use crate::process;
use crate::report::{Report, Verdict};
use crate::workspace::Workspace;

/// Property tests read it and try many more cases.
const THOROUGH: &str = "HAPAX_THOROUGH";

/// Of the shared checks: where the tests begin later, all of them would not come to an end in the time there is, and the profile `short` is run. They
/// take more than twice what comes before them.
const LATE: Duration = Duration::from_secs(1_500);

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
    let is_short = !wanted.all && wanted.filters.is_empty() && pace::is_past(LATE);
    if process::has_cargo("nextest") {
        report.step("tests, by nextest", || nextest(wanted, is_short, &backends, &mut seen));
    } else {
        let remedy =
            "cargo test ran instead: `cargo install cargo-nextest --locked` gives each test a process of its own";
        report.step("tests, by cargo test", || cargo_test(&["--all-targets"], wanted, &backends, &mut seen));
        report.note("nextest", Verdict::Skipped(remedy.to_owned()));
    }
    report.step("doctests", || cargo_test(&["--doc"], wanted, &backends, &mut seen));
    if !backends.left_out().iter().any(|name| name == "cosmos") {
        report.step("tests of the emulators", || tests_of_emulators(wanted, &backends, &mut seen));
    }
    backends.report(&seen, wanted.filters.is_empty(), &mut report);
    if !wanted.all {
        let remedy = "what is too slow for each push: `cargo xtask test --all`";
        report.note("thorough", Verdict::Skipped(remedy.to_owned()));
    }
    if is_short {
        let why =
            "this machine is slow, and only the profile `short` of .config/nextest.toml was run: `cargo xtask test`";
        report.note("the other tests", Verdict::Skipped(why.to_owned()));
    }
    if seen.totals == Totals::default() && !report.has_failed() {
        let why = format!("no test ran; asked for: {}", wanted.filters.join(", "));
        report.note("something ran", Verdict::Failed(why));
    }
    (report, seen.totals)
}

fn nextest(wanted: &Wanted, is_short: bool, backends: &Backends, seen: &mut Seen) -> Result<String, String> {
    // A word that only doctests bear is no error here; that nothing ran at all is judged at the end.
    let mut command = process::cargo(["nextest", "run", "--no-fail-fast", "--no-tests=pass", "--status-level=pass"]);
    command.args(["--test-threads", &places().to_string()]);
    command.args(EVERYTHING).args(nextest_choice(&wanted.filters, &backends.left_out()));
    if is_short {
        command.args(["--profile", "short"]);
    }
    if wanted.all || !wanted.filters.is_empty() {
        command.arg("--ignore-default-filter"); // Of `.config/nextest.toml`: what is asked for is run.
    }
    watch(Runner::Nextest, &mut command, wanted, backends, seen)
}

/// Places that a test takes, unless `.config/nextest.toml` says otherwise: one that only waits takes fewer.
const PLACES: usize = 2;

/// Places for tests: for two more than there are processors, since there are always some that wait for a disk, a server or a lease.
fn places() -> usize {
    PLACES * (std::thread::available_parallelism().map_or(2, NonZero::get) + 2)
}

fn cargo_test(targets: &[&str], wanted: &Wanted, backends: &Backends, seen: &mut Seen) -> Result<String, String> {
    let mut command = process::cargo(["test", "--no-fail-fast"]);
    command.args(targets).args(EVERYTHING).args(cargo_test_choice(&wanted.filters, &backends.left_out()));
    watch(Runner::CargoTest, &mut command, wanted, backends, seen)
}

/// Those that need what only the emulators' own process has: an account of several regions.
fn tests_of_emulators(wanted: &Wanted, backends: &Backends, seen: &mut Seen) -> Result<String, String> {
    let mut command = process::cargo(["test", "--no-fail-fast", "--locked", "--manifest-path", EMULATORS]);
    command.args(cargo_test_choice(&wanted.filters, &[])).env("CARGO_TARGET_DIR", Backends::emulators_target());
    watch(Runner::CargoTest, &mut command, wanted, backends, seen)
}

/// Which tests nextest runs: those that bear any of the words, or all, but none that bears what is left out.
fn nextest_choice(words: &[String], left_out: &[String]) -> Vec<String> {
    let mut choice = words.to_vec();
    if !left_out.is_empty() {
        let borne: Vec<String> = left_out.iter().map(|name| format!("test(~{name})")).collect();
        choice.extend(["-E".to_owned(), format!("not ({})", borne.join(" | "))]);
    }
    choice
}

/// The same for the standard runner.
fn cargo_test_choice(words: &[String], left_out: &[String]) -> Vec<String> {
    let skipped = left_out.iter().flat_map(|name| ["--skip".to_owned(), name.clone()]);
    std::iter::once("--".to_owned()).chain(words.iter().cloned()).chain(skipped).collect()
}

const EVERYTHING: [&str; 3] = ["--workspace", "--all-features", "--locked"];

fn watch(
    runner: Runner,
    command: &mut Command,
    wanted: &Wanted,
    backends: &Backends,
    seen: &mut Seen,
) -> Result<String, String> {
    command.envs(backends.variables());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_and_what_is_asked_for_go_together() {
        let words = ["a_late_twin".to_owned()];
        let left_out = ["pg".to_owned(), "pg_queue".to_owned()];
        let nextest = ["a_late_twin", "-E", "not (test(~pg) | test(~pg_queue))"];
        assert_eq!(nextest_choice(&words, &left_out), nextest);
        assert_eq!(nextest_choice(&words, &[]), ["a_late_twin"]);
        let cargo_test = ["--", "a_late_twin", "--skip", "pg", "--skip", "pg_queue"];
        assert_eq!(cargo_test_choice(&words, &left_out), cargo_test);
        assert_eq!(cargo_test_choice(&[], &[]), ["--"]);
    }
}
