//! Each feature of each published crate compiles alone, and so does none of them.
//!
//! The list comes from the manifests, so a new feature is checked without a word here. Clippy rather than `check`: with
//! one feature alone, what only another feature uses is dead code, and that is what clippy tells.

use std::time::Duration;

use crate::pace;
use crate::process;
use crate::report::Verdict;
use crate::workspace::Package;

/// Of the shared checks: what is not looked at by then is left out, so that there is time for the tests. A machine of two cores is through with all
/// in three quarters of it.
const UNTIL: Duration = Duration::from_secs(1_080);

fn named(feature: &str) -> &str {
    if feature.is_empty() { "no feature" } else { feature }
}

/// Checks one crate, first bare, then with each of its features.
///
/// Fails with the choices that do not compile without a warning.
pub(crate) fn each_alone(package: &Package) -> Verdict {
    let bare = std::iter::once("");
    // `default` alone is what the workspace-wide run with default features has seen.
    let features = package.features.iter().map(String::as_str).filter(|feature| *feature != "default");
    let (mut wrong, mut left_out) = (Vec::new(), Vec::new());
    let mut choices = 0;
    for feature in bare.chain(features) {
        if pace::is_past(UNTIL) {
            left_out.push(named(feature));
            continue;
        }
        choices += 1;
        // Without `--no-deps` a warning in core would be told once for each choice of every crate above it.
        let choice = ["clippy", "--locked", "--quiet", "--no-deps", "--package", &package.name];
        let command = &mut process::cargo(choice);
        command.arg("--no-default-features");
        if !feature.is_empty() {
            command.args(["--features", feature]);
        }
        if process::run(command.args(["--", "-D", "warnings"])).is_err() {
            wrong.push(named(feature));
        }
    }
    if !wrong.is_empty() {
        Verdict::Failed(format!("not alone: {}", wrong.join(", ")))
    } else if !left_out.is_empty() {
        Verdict::Skipped(format!(
            "this machine is slow: {choices} choices are looked at, and not {}: `cargo xtask ci`",
            left_out.join(", ")
        ))
    } else {
        Verdict::Passed(format!("{choices} choices"))
    }
}
