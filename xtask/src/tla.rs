//! `cargo xtask tla`: the specification in TLA+, checked by TLC, and compared with the explorer.

mod jar;
mod worlds;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::process;
use crate::report::{Report, Verdict};
use crate::test;

const SPEC: &str = "Hapax.tla";

/// All that must hold in every state; what must hold in every run is asked for by itself, for it takes longer.
const INVARIANTS: [&str; 8] = [
    "effect_at_most_once",
    "no_lost_update",
    "no_ghost_output",
    "marked_only_when_sent",
    "ack_implies_done",
    "no_gap",
    "no_garbage_at_rest",
    "complete_at_rest",
];
const LIVENESS: &str = "every_run_ends";

/// Nothing is done wrong.
const NO_MUTANT: &str = "none";
/// What is done wrong, and which claim finds it.
const MUTANTS: [(&str, &str); 6] = [
    ("check_before_load", "effect_at_most_once"),
    ("mark_before_dispatch", "marked_only_when_sent"),
    ("clean_before_mark", "no_gap"),
    ("no_version_check", "no_lost_update"),
    ("note_what_is_unsent", "marked_only_when_sent"),
    ("no_sweeper", "no_garbage_at_rest"),
];

/// The constants of the specification; the explorer's `worlds` takes the same.
#[derive(Debug, Clone, Copy)]
struct Size {
    messages: u8,
    /// The first so many of them send nothing.
    silent: u8,
    workers: u8,
    together: bool,
    crashes: u8,
    unknown: u8,
    refused: u8,
    duplicates: u8,
}

const NO_FAULTS: Size =
    Size { messages: 2, silent: 0, workers: 2, together: true, crashes: 0, unknown: 0, refused: 0, duplicates: 0 };
/// One message with every fault there is: small, and every action occurs in it.
const ONE: Size = Size { messages: 1, crashes: 1, unknown: 1, refused: 1, duplicates: 1, ..NO_FAULTS };
const A_CRASH: Size = Size { crashes: 1, ..NO_FAULTS };
const TWO: Size = Size { crashes: 1, unknown: 1, duplicates: 1, ..NO_FAULTS };

/// Those in which specification and explorer must have been to the same worlds.
const COMPARED: [(&str, Size); 5] = [
    ("one message, one store", ONE),
    ("one message, two stores", Size { together: false, crashes: 0, ..ONE }),
    ("two messages, one store, a crash", A_CRASH),
    ("two messages, two stores, an unknown outcome", Size { together: false, unknown: 1, ..NO_FAULTS }),
    ("two messages, one of them silent, a copy", Size { silent: 1, duplicates: 1, ..NO_FAULTS }),
];

/// Runs every step and prints the table.
pub(crate) fn run() -> ExitCode {
    let mut report = Report::default();
    let tlc = match jar::get(&folder()) {
        Ok(jar) => Tlc { jar },
        Err(verdict) => {
            report.step("specification", || verdict);
            return test::conclude(&report, None);
        }
    };
    // TLC looks for a configuration beside the specification, and nothing is written outside of `target/`.
    if let Err(error) = fs::copy(process::root().join("model/tla").join(SPEC), folder().join(SPEC)) {
        report.step("specification", || Verdict::Failed(format!("{SPEC} cannot be copied: {error}")));
        return test::conclude(&report, None);
    }
    for (name, size) in [("one store", TWO), ("two stores", Size { together: false, ..TWO })] {
        report.step(&format!("it holds, {name}"), || tlc.holds(&size));
    }
    report.step(LIVENESS, || tlc.ends(&A_CRASH));
    report.step(&format!("{LIVENESS}, control: without the sweeper"), || tlc.does_not_end(&ONE, "no_sweeper"));
    for (mutant, claim) in MUTANTS {
        report.step(&format!("mutant {mutant}"), || tlc.finds(mutant, claim));
    }
    for (name, size) in COMPARED {
        report.step(&format!("same worlds: {name}"), || same_worlds(&tlc, &size, NO_MUTANT));
    }
    report.step("control: without the sweeper", || differs(&tlc, &ONE, "no_sweeper"));
    test::conclude(&report, None)
}

/// Both have been to the same worlds.
fn same_worlds(tlc: &Tlc, size: &Size, mutant: &str) -> Result<String, String> {
    worlds::compare(&tlc.worlds(size, mutant)?, &explored(size)?)
}

/// They have not, for one of them leaves something out: so the comparison can fail.
fn differs(tlc: &Tlc, size: &Size, mutant: &str) -> Result<String, String> {
    match same_worlds(tlc, size, mutant) {
        Err(difference) if difference.contains("worlds only in the explorer") => {
            println!("{difference}");
            Ok(difference.lines().next().unwrap_or_default().trim_end_matches(':').to_owned())
        }
        Err(other) => Err(other),
        Ok(_) => Err(format!("{mutant} makes no difference: the comparison sees nothing")),
    }
}

/// The worlds of the shipped code.
fn explored(size: &Size) -> Result<BTreeSet<String>, String> {
    let Size { messages, silent, workers, together, crashes, unknown, refused, duplicates } = size;
    let run = ["run", "--quiet", "--locked", "--package", "hapax-model", "--example", "worlds", "--"];
    let args = format!(
        "messages={messages} silent={silent} workers={workers} together={} crashes={crashes} unknown={unknown} \
         refused={refused} duplicates={duplicates}",
        u8::from(*together)
    );
    worlds::of_explorer(&process::output(process::cargo(run).args(args.split_whitespace()))?)
}

fn folder() -> PathBuf {
    process::root().join("target/tla")
}

/// The checker.
struct Tlc {
    jar: PathBuf,
}

impl Tlc {
    /// Every invariant holds; says in how many states.
    fn holds(&self, size: &Size) -> Result<String, String> {
        self.run("holds", size, NO_MUTANT, &INVARIANTS, &[], &[]).and_then(|said| well(&said))
    }

    /// Every run ends.
    fn ends(&self, size: &Size) -> Result<String, String> {
        self.run("ends", size, NO_MUTANT, &[], &[LIVENESS], &[]).and_then(|said| well(&said))
    }

    /// Not every run ends: so the property can fail.
    fn does_not_end(&self, size: &Size, mutant: &str) -> Result<String, String> {
        let said = self.run("ends", size, mutant, &[], &[LIVENESS], &[])?;
        match said.contains("Temporal properties were violated") {
            true => Ok("a run is found that does not".into()),
            false => Err(format!("{LIVENESS} should be broken, and TLC said: {}", gist(&said))),
        }
    }

    /// What is done wrong is found by the claim that speaks of it.
    fn finds(&self, mutant: &str, claim: &str) -> Result<String, String> {
        // What is left to the sweeper must have failed twice; what is done in the wrong order is seen with two stores.
        let size = if mutant == "no_sweeper" { ONE } else { Size { together: false, ..TWO } };
        let said = self.run(mutant, &size, mutant, &INVARIANTS, &[], &[])?;
        if said.contains(&format!("Invariant {claim} is violated")) {
            let steps = said.lines().filter(|line| line.starts_with("State ")).count().saturating_sub(1);
            return Ok(format!("{claim} is broken after {steps} steps"));
        }
        Err(format!("{claim} should be broken, and TLC said: {}", gist(&said)))
    }

    /// Every state, projected.
    fn worlds(&self, size: &Size, mutant: &str) -> Result<BTreeSet<String>, String> {
        let dump = folder().join("worlds.dump");
        let _ = fs::remove_file(&dump); // It may not be there; an old one must not be taken for a new one.
        // What is left out on purpose breaks claims, and is to be seen whole.
        let invariants: &[&str] = if mutant == NO_MUTANT { &INVARIANTS } else { &[] };
        let said = self.run("worlds", size, mutant, invariants, &[], &["-dump".as_ref(), dump.as_ref()])?;
        well(&said)?;
        let states = fs::read_to_string(&dump).map_err(|error| format!("{}: {error}", dump.display()))?;
        worlds::of_spec(&states)
    }

    /// Runs TLC; gives back what it said, whatever it found.
    fn run(
        &self,
        name: &str,
        size: &Size,
        mutant: &str,
        invariants: &[&str],
        properties: &[&str],
        more: &[&Path],
    ) -> Result<String, String> {
        let config = format!("{name}.cfg");
        fs::write(folder().join(&config), configuration(size, mutant, invariants, properties))
            .map_err(|error| format!("{config}: {error}"))?;
        let mut command = Command::new("java");
        command.args(["-XX:+UseParallelGC", "-cp"]).arg(&self.jar).arg("tlc2.TLC");
        // One worker: the first break that is found is then one with the fewest steps. A last state without a step out
        // of it is no mistake: all is over.
        command.args(["-workers", "1", "-deadlock", "-cleanup", "-metadir"]).arg(folder().join("states"));
        command.arg("-config").arg(config).args(more).arg(SPEC);
        let output =
            command.current_dir(folder()).output().map_err(|error| format!("java cannot be started: {error}"))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn configuration(size: &Size, mutant: &str, invariants: &[&str], properties: &[&str]) -> String {
    let Size { messages, silent, workers, together, crashes, unknown, refused, duplicates } = *size;
    let set = |last: u8| format!("{{{}}}", (1..=last).map(|n| n.to_string()).collect::<Vec<_>>().join(", "));
    let mut text = format!(
        "SPECIFICATION Spec\nCONSTANTS\n  Messages = {}\n  Silent = {}\n  Workers = {}\n  Together = {}\n  \
         Crashes = {crashes}\n  Unknown = {unknown}\n  Refused = {refused}\n  Duplicates = {duplicates}\n  \
         Mutant = \"{mutant}\"\n",
        set(messages),
        set(silent),
        set(workers),
        if together { "TRUE" } else { "FALSE" },
    );
    for (kind, names) in [("INVARIANT", invariants), ("PROPERTY", properties)] {
        for name in names {
            let _ = writeln!(text, "{kind} {name}"); // Writing to a text cannot fail.
        }
    }
    text
}

/// That TLC has been through and found nothing; says how many states there are.
fn well(said: &str) -> Result<String, String> {
    if !said.contains("No error has been found") {
        return Err(gist(said));
    }
    let states = said.lines().rev().find_map(|line| line.split_once(" distinct states found"));
    let states = states.and_then(|(before, _)| before.rsplit(' ').next()).unwrap_or("?");
    Ok(format!("{states} states"))
}

/// From the first error on; all of it if there is none.
fn gist(said: &str) -> String {
    said.find("Error:").map_or(said, |at| &said[at..]).to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_a_run_that_went_through_counts() {
        let said =
            "Model checking completed. No error has been found.\n62 states generated, 41 distinct states found, 0 left";
        assert_eq!(well(said).unwrap(), "41 states");
        assert!(well("Error: Invariant no_gap is violated.").is_err());
        assert!(well("").is_err());
    }

    #[test]
    fn a_person_s_configuration_is_the_first_that_is_checked() {
        let text = include_str!("../../model/tla/Hapax.cfg");
        assert_eq!(text, configuration(&TWO, NO_MUTANT, &INVARIANTS, &[]));
    }

    #[test]
    fn the_specification_has_every_mutant_and_claims_under_the_explorer_s_names() {
        let spec = include_str!("../../model/tla/Hapax.tla");
        for claim in INVARIANTS.iter().chain([&LIVENESS]) {
            assert!(spec.lines().any(|line| line.starts_with(claim)), "{claim}");
        }
        let explorer = process::root().join("model/src/explore");
        let files = fs::read_dir(explorer).unwrap().map(|file| fs::read_to_string(file.unwrap().path()).unwrap());
        let explorer: String = files.collect();
        for claim in INVARIANTS.iter().chain([&LIVENESS]) {
            assert!(explorer.contains(&format!("\"{claim}\"")), "the explorer has no {claim}");
        }
        for (mutant, claim) in MUTANTS {
            assert!(spec.contains(&format!("\"{mutant}\"")), "{mutant}");
            assert!(INVARIANTS.contains(&claim), "{claim}");
        }
    }
}
