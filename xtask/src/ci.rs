//! `cargo xtask ci`: what a change must pass, the cheap questions first.

use std::process::{Command, ExitCode, Stdio};
use std::thread;

use crate::api;
use crate::args::Wanted;
use crate::backends::{Backends, EMULATORS};
use crate::book;
use crate::dependencies::{self, ARROWS};
use crate::features;
use crate::msrv;
use crate::orphans;
use crate::policy::Policy;
use crate::process;
use crate::report::Report;
use crate::shuttle;
use crate::test;
use crate::texts;
use crate::unsafe_code;
use crate::workspace::Workspace;

/// The examples that are run, with their arguments: hello as it stands in the README; orders, the main job, with the
/// same few orders each time, so that a failure can be had again; and a check of a user's handler.
const EXAMPLES: [(&str, &[&str], &[&str]); 3] = [
    ("hello", &[], &[]),
    ("orders", &[], &["--orders", "200", "--seed", "1"]),
    ("check-good", &["--package", "hapax", "--features", "check"], &[]),
];

/// The lock file of a workspace of its own: that of the others is asked by every call of cargo.
fn locked(folder: &str) -> Result<String, String> {
    let manifest = format!("{folder}/Cargo.toml");
    let mut asked = process::cargo(["metadata", "--locked", "--format-version", "1", "--manifest-path", &manifest]);
    process::output(&mut asked).map(|_| String::new()).map_err(|why| {
        format!("{folder}/Cargo.lock is not current: `cargo metadata --manifest-path {manifest}` writes it: {why}")
    })
}

/// Runs every step, whatever failed before it, and prints the table. The tests come last, so that their lines close
/// the output. With `all`, also what takes minutes and seldom changes.
pub(crate) fn run(tests: bool, all: bool) -> ExitCode {
    let mut report = Report::default();
    let ahead = thread::spawn(built_ahead);
    report.step("format", || ends_well(&mut process::cargo(["fmt", "--all", "--check"])));
    // Their dependencies are not built here; what is written is looked at all the same, and that it names what it needs.
    for folder in ["bench/peers", "servers/emulators", "tests/fuzz"] {
        report.step(&format!("format of {folder}"), || {
            let manifest = format!("{folder}/Cargo.toml");
            ends_well(process::cargo(["fmt", "--manifest-path", &manifest, "--check"]).arg("--all"))
        });
        report.step(&format!("lock of {folder}"), || locked(folder));
    }
    report.step("texts", texts::check);
    report.step("lock and changelog", texts::companions);
    report.step("unsafe code", unsafe_code::check);
    report.step("pages", book::check);
    report.step("book", book::step);
    packages(&mut report);
    lints(&mut report, all);
    for (name, from, args) in EXAMPLES {
        report.step(&format!("example {name}"), || example(name, from, args));
    }
    let _ = ahead.join(); // How it ended is seen where it is needed.
    report.step("orders of the shell's steps", || shuttle::explore(&[]));
    if !tests {
        return test::conclude(&report, None);
    }
    let (tested, totals) = test::all(&Wanted { all, ..Wanted::default() });
    report.append(tested);
    test::conclude(&report, Some(totals))
}

/// Builds what has a target folder of its own and is needed below, while the checks of each feature leave half a processor idle. Says nothing:
/// where it is needed it is built again, unless it is there.
fn built_ahead() {
    for mut command in [Backends::emulators_build(), shuttle::build()] {
        let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

/// Runs one example in an empty folder below `target/`: what it leaves there is neither in the tree nor in its own way
/// the next time.
fn example(name: &str, from: &[&str], args: &[&str]) -> Result<String, String> {
    let (folder, manifest) = (process::root().join("target/xtask").join(name), process::root().join("Cargo.toml"));
    let _ = std::fs::remove_dir_all(&folder); // It may not be there; anything worse shows in the next line.
    std::fs::create_dir_all(&folder).map_err(|error| format!("{} cannot be made: {error}", folder.display()))?;
    // Not `--release`, as people run them: the tests build most of this anyway.
    let run = &mut process::cargo(["run", "--locked", "--example", name]);
    ends_well(run.args(from).arg("--manifest-path").arg(manifest).arg("--").args(args).current_dir(folder))
}

/// What can be asked of the graph of packages, and each feature alone.
fn packages(report: &mut Report) {
    let workspace = match Workspace::load() {
        Ok(workspace) => workspace,
        Err(error) => return report.step("packages", || Err(error)),
    };
    report.step("files", || orphans::check(&workspace));
    report.step("oldest compiler", || msrv::check(&workspace));
    report.step("directions", || dependencies::directions(&workspace));
    report.step("absent", dependencies::absent);
    match Policy::load() {
        Ok(policy) => {
            report.step("licences", || dependencies::licences(&workspace, &policy));
            report.step("bans and sources", || dependencies::bans(&workspace, &policy));
        }
        Err(error) => report.step("licences and bans", || Err(error)),
    }
    report.step("advisories", dependencies::advisories);
    let is_published = |name: &str| ARROWS.iter().any(|(published, _)| *published == name);
    for package in workspace.own().filter(|package| is_published(&package.name)) {
        report.step(&format!("{}, each feature", package.name), || features::each_alone(package));
    }
}

fn lints(report: &mut Report, all: bool) {
    let clippy = ["clippy", "--locked", "--workspace", "--all-targets"];
    let strict = ["--", "-D", "warnings"];
    report.step("clippy, all features", || ends_well(process::cargo(clippy).arg("--all-features").args(strict)));
    if all {
        // Each builds most of its dependencies anew: the first with fewer features, the other those of a workspace of its own.
        report.step("clippy, default features", || ends_well(process::cargo(clippy).args(strict)));
        let mut emulators = process::cargo(["clippy", "--locked", "--all-targets", "--manifest-path", EMULATORS]);
        emulators.args(strict).env("CARGO_TARGET_DIR", Backends::emulators_target());
        report.step("clippy of the emulators", || ends_well(&mut emulators));
    }
    let doc = ["doc", "--locked", "--workspace", "--all-features", "--no-deps", "--document-private-items"];
    report.step("public API", api::check);
    report.step("docs", || ends_well(process::cargo(doc).env("RUSTDOCFLAGS", "-Dwarnings")));
}

fn ends_well(command: &mut Command) -> Result<String, String> {
    process::run(command).map(|()| String::new())
}
