//! `cargo xtask api`: what the packages show to others, as lists that are kept: whoever changes it sees so in a diff, and says so in the changelog.
//!
//! Of those alone that build on few others: `hapax-core` has the words, the ports and the traits on which adapters and handlers of others are built.
//! Stores, transports and `hapax`, which puts all together, bring client libraries that take minutes to be looked through.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::process;
use crate::report::Verdict;

const PACKAGES: [&str; 4] = ["hapax-core", "hapax-model", "hapax-otel", "hapax-page"];
const FOLDER: &str = "api";
/// Where a nightly compiler's objects go.
const TARGET: &str = "target/api";
const TOOL: &str = "public-api";
const REMEDY: &str = "`cargo install cargo-public-api --locked` and `rustup toolchain install nightly`";
/// Lines of a difference that are shown.
const SHOWN_MAX: usize = 20;

/// Writes the lists anew.
pub(crate) fn bless() -> ExitCode {
    let written = PACKAGES.iter().try_for_each(|package| {
        let (list, file) = (listed(package)?, kept(package));
        std::fs::write(&file, list).map_err(|error| format!("{}: {error}", file.display()))
    });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}; it needs {REMEDY}");
            ExitCode::FAILURE
        }
    }
}

/// Whether the lists are as they are kept.
pub(crate) fn check() -> Verdict {
    if !process::has_cargo(TOOL) {
        return Verdict::Skipped(format!("it needs {REMEDY}"));
    }
    let (mut lines, mut changed, mut missing) = (0, Vec::new(), Vec::new());
    for package in PACKAGES {
        let file = kept(package);
        if !file.exists() {
            missing.push(package);
            continue;
        }
        let kept = match std::fs::read_to_string(&file) {
            Ok(kept) => kept,
            Err(error) => return Verdict::Failed(format!("{}: {error}", file.display())),
        };
        let list = match listed(package) {
            Ok(list) => list,
            Err(why) => return Verdict::Skipped(format!("{why}; it needs {REMEDY}")),
        };
        lines += list.lines().count();
        changed.extend(difference(&kept, &list).map(|difference| format!("{package}:\n{difference}")));
    }
    if !changed.is_empty() {
        let remedy = "what is shown has changed; say so in CHANGELOG.md, and run `cargo xtask api`";
        return Verdict::Failed(format!("{remedy}:\n{}", changed.join("\n")));
    }
    if !missing.is_empty() {
        return Verdict::Skipped(format!("no list is kept of {}: `cargo xtask api` writes it", missing.join(", ")));
    }
    Verdict::Passed(format!("{lines} lines of {} packages", PACKAGES.len()))
}

fn kept(package: &str) -> PathBuf {
    process::root().join(FOLDER).join(format!("{package}.txt"))
}

fn listed(package: &str) -> Result<String, String> {
    // Without what is derived or comes with every type.
    let args = [TOOL, "--package", package, "--all-features", "-sss", "--target-dir", TARGET];
    process::output(&mut process::cargo(args))
}

/// What is gone, and what is new.
fn difference(kept: &str, list: &str) -> Option<String> {
    let only = |one: &str, other: &str, sign: &str| {
        let other: std::collections::BTreeSet<String> = other.lines().map(str::to_owned).collect();
        let only = one.lines().filter(|line| !other.contains(*line)).map(|line| format!("{sign} {line}"));
        only.collect::<Vec<String>>()
    };
    let mut lines = only(kept, list, "-");
    lines.extend(only(list, kept, "+"));
    let more = lines.len().saturating_sub(SHOWN_MAX);
    lines.truncate(SHOWN_MAX);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    (!lines.is_empty()).then(|| lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dependencies::ARROWS;

    #[test]
    fn the_list_of_the_core_is_kept_and_all_are_of_published_packages() {
        assert!(kept(PACKAGES[0]).exists());
        assert!(PACKAGES.iter().all(|package| ARROWS.iter().any(|(published, _)| published == package)));
    }

    #[test]
    fn what_is_gone_and_what_is_new_is_told() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(difference("a\nb\n", "b\nc\n").as_deref(), Some("- a\n+ c"));
    }
}
