//! `cargo xtask survivors`: mistakes that nobody thought of.
//!
//! The mutants of `model/mutants/` are those that somebody had in mind. cargo-mutants makes every small change that it knows
//! to the manager and to `deliver`, one after the other, in a copy of the tree. The rules judge first, since they are over at
//! once; what they let live goes before the explorer, in its quick configurations, and then before the properties and the
//! state machine.
//! What survives those too has to stand, with its reason, in `model/mutants/SURVIVORS.md`, and nothing else may stand there.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use crate::mutants::{self, Tree};
use crate::process;
use crate::report::Report;

/// The page of those that live, each with its reason.
const PAGE: &str = "model/mutants/SURVIVORS.md";

/// How cargo-mutants ends when it has looked at everything: all caught, some missed, some that took too long.
const LOOKED: [i32; 3] = [0, 2, 3];

/// What the judges' test programs are told: the manager is the same on every store, so that no server has to run.
const TOLD: [&str; 2] = ["--skip=on_postgres", "--skip=on_mysql"];

/// A judge is given this many times what it takes with the source as it is, and at least so long: other work on the machine
/// must not look like a mutant that does not end.
const PATIENCE: u32 = 5;
const PATIENCE_MIN: Duration = Duration::from_secs(30);
/// Seconds after which a build is given up.
const BUILD_MAX: &str = "1800";

/// A judge: a package and those of its test programs that are asked.
struct Judge {
    name: &'static str,
    package: &'static str,
    tests: &'static [&'static str],
    /// What the package is built with.
    features: &'static [&'static str],
    /// What is optimised.
    profiles: &'static [&'static str],
}

/// Nothing is optimised: few mutants come as far as what takes long to run, so what is built quickly is done soonest.
const QUICKLY_BUILT: &[&str] =
    &["profile.dev.opt-level=0", "profile.dev.debug=0", "profile.dev.package.hapax-model.opt-level=0"];
/// Here many histories are gone through.
const QUICKLY_RUN: &[&str] =
    &["profile.dev.opt-level=0", "profile.dev.debug=0", "profile.dev.package.hapax-model.opt-level=1"];

/// The one that is built and over soonest first, the one that takes longest last: each sees only what those before it let
/// live.
const JUDGES: [Judge; 3] = [
    Judge {
        name: "rules",
        package: "hapax-tests",
        tests: &["rules"],
        features: &["--no-default-features"],
        profiles: QUICKLY_BUILT,
    },
    Judge {
        name: "explorer",
        package: "hapax-model",
        tests: &["explore"],
        features: &[],
        profiles: &mutants::PROFILES,
    },
    Judge {
        name: "properties",
        package: "hapax-tests",
        tests: &["properties", "machine"],
        features: &[],
        profiles: QUICKLY_RUN,
    },
];

/// What became of the mutants before one judge.
#[derive(Debug, Default)]
struct Verdicts {
    caught: usize,
    /// Those that did not end.
    slow: usize,
    unviable: usize,
    missed: Vec<String>,
}

/// Tries all mutants, or those whose name contains one of `parts`, and compares what lives with the page.
pub(crate) fn run(parts: &[String]) -> ExitCode {
    let mut report = Report::default();
    let mut alive = None;
    if process::has_cargo("mutants") {
        alive = judged(parts, &mut report);
    } else {
        let remedy = "cargo-mutants is not installed: `cargo install --locked cargo-mutants`";
        report.step("cargo-mutants", || Err(remedy.to_owned()));
    }
    if let Some(alive) = alive {
        report.step(PAGE, || {
            let page = fs::read_to_string(process::root().join(PAGE)).map_err(|error| format!("{PAGE}: {error}"))?;
            compared(&alive, &explained(&page), parts.is_empty())
        });
    }
    println!("\n{report}");
    if report.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Brings them before one judge after the other. Answers what none of them has found.
fn judged(parts: &[String], report: &mut Report) -> Option<Vec<String>> {
    let mut tree = None;
    report.step("copy", || {
        tree = Some(Tree::copy()?);
        Ok(String::new())
    });
    let tree = tree?;
    let folder = tree.beside("survivors");
    let _ = fs::remove_dir_all(&folder); // What an earlier run has found says nothing of this source.
    let mut alive = None;
    for (at, judge) in JUDGES.iter().enumerate() {
        let mut verdicts = None;
        report.step(judge.name, || {
            fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
            let patience = unchanged(&tree, judge)?;
            looked(
                command(&tree, judge, parts, patience)
                    .args((at > 0).then_some("--iterate"))
                    .arg("--output")
                    .arg(&folder)
                    // To cargo-mutants, which passes it on to cargo, which passes it on to the test programs.
                    .args(["--", "--"])
                    .args(TOLD),
            )?;
            let found = Verdicts::take(&folder.join("mutants.out"))?;
            let said = found.said();
            verdicts = Some(found);
            Ok(said)
        });
        // Without one judge's word the next would be asked about everything.
        alive = Some(verdicts?.missed);
    }
    report.step("restored", || tree.restore().map(|()| String::new()));
    alive
}

/// Asks a judge about the source as it is. Answers how long it may take about a mutant.
fn unchanged(tree: &Tree, judge: &Judge) -> Result<Duration, String> {
    let test = || {
        let mut command = tree.cargo(["test", "--quiet", "--package", judge.package]);
        command.args(asked(judge));
        command
    };
    process::run(test().arg("--no-run"))?;
    let start = Instant::now();
    process::run(test().arg("--").args(TOLD)).map_err(|error| format!("red without a mutant: {error}"))?;
    Ok((start.elapsed() * PATIENCE).max(PATIENCE_MIN))
}

/// What every call of cargo is told about the judge.
fn asked(judge: &Judge) -> Vec<String> {
    let tests = judge.tests.iter().map(|test| format!("--test={test}"));
    let profiles = judge.profiles.iter().map(|profile| format!("--config={profile}"));
    let features = judge.features.iter().map(|&feature| feature.to_owned());
    std::iter::once("--locked".to_owned()).chain(features).chain(tests).chain(profiles).collect()
}

/// cargo-mutants before `judge`, about the mutants whose names contain one of `parts`.
fn command(tree: &Tree, judge: &Judge, parts: &[String], patience: Duration) -> Command {
    let mut command = tree.cargo(["mutants", "--in-place", "--no-shuffle", "--baseline=skip", "--package=hapax-core"]);
    command.arg(format!("--timeout={}", patience.as_secs())).args(["--build-timeout", BUILD_MAX]);
    command.args(["--test-package", judge.package]);
    command.args(asked(judge).iter().map(|arg| format!("--cargo-arg={arg}")));
    command.args(parts.iter().map(|part| format!("--re={}", literally(part))));
    command
}

/// A regular expression that finds `part` and nothing else.
fn literally(part: &str) -> String {
    let mut expression = String::new();
    for letter in part.chars() {
        if letter.is_ascii_punctuation() {
            expression.push('\\');
        }
        expression.push(letter);
    }
    expression
}

/// Runs cargo-mutants, which says by its exit code what it has found.
fn looked(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("cargo-mutants cannot be started: {error}"))?;
    match status.code() {
        Some(code) if LOOKED.contains(&code) => Ok(()),
        _ => Err(format!("cargo-mutants ended with {status}: what it says above is the reason")),
    }
}

impl Verdicts {
    /// Reads what cargo-mutants has written, and enters what did not end among what is caught, so that no other judge has
    /// to wait for it.
    fn take(folder: &Path) -> Result<Self, String> {
        let failed = |file: &Path, error: std::io::Error| format!("{}: {error}", file.display());
        let read = |name: &str| {
            let file = folder.join(name);
            fs::read_to_string(&file).map_err(|error| failed(&file, error))
        };
        let count = |text: &str| text.lines().count();
        let (caught, slow) = (read("caught.txt")?, read("timeout.txt")?);
        let file = folder.join("caught.txt");
        fs::write(&file, format!("{caught}{slow}")).map_err(|error| failed(&file, error))?;
        let missed = read("missed.txt")?.lines().map(without_place).collect();
        Ok(Self { caught: count(&caught), slow: count(&slow), unviable: count(&read("unviable.txt")?), missed })
    }

    fn said(&self) -> String {
        let Self { caught, slow, unviable, missed } = self;
        format!(
            "{} killed, {} of them because they did not end; {unviable} do not build; {} live",
            caught + slow,
            slow,
            missed.len()
        )
    }
}

/// `core/src/a.rs:12:34: replace b` without the place, which the next change would move.
fn without_place(line: &str) -> String {
    let mut parts = line.splitn(4, ':');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(file), Some(_), Some(_), Some(what)) => format!("{file}:{what}"),
        _ => line.to_owned(),
    }
}

/// The mutants that the page explains: the first column of its tables.
fn explained(page: &str) -> Vec<String> {
    let first = |line: &str| Some(line.strip_prefix("| `")?.split_once("` |")?.0.replace("\\|", "|"));
    page.lines().filter_map(first).collect()
}

/// Whether exactly those live that are explained; if not `all` were tried, whether those that live are.
fn compared(alive: &[String], explained: &[String], all: bool) -> Result<String, String> {
    let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for name in alive {
        counts.entry(name).or_default().0 += 1;
    }
    for name in explained {
        counts.entry(name).or_default().1 += 1;
    }
    let mut wrong = Vec::new();
    for (name, (alive, explained)) in counts {
        if alive > explained {
            wrong
                .push(format!("{alive} live and {explained} are explained: kill it by a test, or say why not: {name}"));
        } else if all && alive < explained {
            wrong.push(format!("{alive} live and {explained} are explained: take it from the page: {name}"));
        }
    }
    if wrong.is_empty() { Ok(format!("{} live, each explained", alive.len())) } else { Err(wrong.join("\n")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "core/src/a.rs: delete match arm A(_) | B::C in f";

    #[test]
    fn a_mutant_is_named_without_the_line_it_stands_in() {
        assert_eq!(without_place("core/src/a.rs:12:3: delete match arm A(_) | B::C in f"), NAME);
        assert_eq!(without_place("something else"), "something else");
    }

    #[test]
    fn what_lives_is_what_is_explained() {
        let page = "# Page\n\n| mutant | why |\n| --- | --- |\n| `core/src/a.rs: delete match arm A(_) \\| B::C in f` | so |\n";
        let explained = explained(page);
        assert_eq!(explained, [NAME]);
        let alive = vec![NAME.to_owned()];
        assert!(compared(&alive, &explained, true).is_ok());
        let twice = vec![NAME.to_owned(); 2];
        assert!(compared(&twice, &explained, true).is_err_and(|why| why.contains("kill it")));
        assert!(compared(&[], &explained, true).is_err_and(|why| why.contains("take it from the page")));
        assert!(compared(&[], &explained, false).is_ok(), "only some were tried");
    }

    #[test]
    fn a_part_of_a_name_is_no_expression() {
        assert_eq!(literally("a::b(x)"), "a\\:\\:b\\(x\\)");
    }
}
