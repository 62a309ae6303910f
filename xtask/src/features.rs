//! Each feature of each published crate compiles alone, and so does none of them.
//!
//! The list comes from the manifests, so a new feature is checked without a word here. Clippy rather than `check`: with
//! one feature alone, what only another feature uses is dead code, and that is what clippy tells.

use crate::process;
use crate::workspace::Package;

/// Checks one crate, first bare, then with each of its features.
///
/// # Errors
/// The choices that do not compile without a warning.
pub(crate) fn each_alone(package: &Package) -> Result<String, String> {
    let bare = std::iter::once("");
    // `default` alone is what the workspace-wide run with default features has seen.
    let features = package.features.iter().map(String::as_str).filter(|feature| *feature != "default");
    let mut wrong = Vec::new();
    let mut choices = 0;
    for feature in bare.chain(features) {
        choices += 1;
        // Without `--no-deps` a warning in core would be told once for each choice of every crate above it.
        let choice = ["clippy", "--locked", "--quiet", "--no-deps", "--package", &package.name];
        let command = &mut process::cargo(choice);
        command.arg("--no-default-features");
        if !feature.is_empty() {
            command.args(["--features", feature]);
        }
        if process::run(command.args(["--", "-D", "warnings"])).is_err() {
            wrong.push(if feature.is_empty() { "no feature" } else { feature });
        }
    }
    if wrong.is_empty() { Ok(format!("{choices} choices")) } else { Err(format!("not alone: {}", wrong.join(", "))) }
}
