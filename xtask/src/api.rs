//! `cargo xtask api`: what `hapax-core` shows to others, as a list that is kept: whoever changes it sees so in a diff, and says so in the changelog.
//!
//! Of that package alone: it has the words, the ports and the traits on which adapters and handlers of others are built; the other packages put
//! things together by it, and their client libraries take minutes to be looked through.

use std::process::ExitCode;

use crate::process;
use crate::report::Verdict;

const PACKAGE: &str = "hapax-core";
const KEPT: &str = "api/hapax-core.txt";
/// Where a nightly compiler's objects go.
const TARGET: &str = "target/api";
const TOOL: &str = "public-api";
const REMEDY: &str = "`cargo install cargo-public-api --locked` and `rustup toolchain install nightly`";
/// Lines of a difference that are shown.
const SHOWN_MAX: usize = 20;

/// Writes the list anew.
pub(crate) fn bless() -> ExitCode {
    let written = listed().and_then(|list| {
        let file = process::root().join(KEPT);
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

/// Whether the list is as it is kept.
pub(crate) fn check() -> Verdict {
    if !process::has_cargo(TOOL) {
        return Verdict::Skipped(format!("it needs {REMEDY}"));
    }
    let file = process::root().join(KEPT);
    let kept = match std::fs::read_to_string(&file) {
        Ok(kept) => kept,
        Err(error) => return Verdict::Failed(format!("{}: {error}: `cargo xtask api` writes it", file.display())),
    };
    match listed() {
        Ok(list) => match difference(&kept, &list) {
            None => Verdict::Passed(format!("{} lines", list.lines().count())),
            Some(difference) => Verdict::Failed(format!(
                "what {PACKAGE} shows has changed; say so in CHANGELOG.md, and run `cargo xtask api`:\n{difference}"
            )),
        },
        Err(why) => Verdict::Skipped(format!("{why}; it needs {REMEDY}")),
    }
}

fn listed() -> Result<String, String> {
    // Without what is derived or comes with every type.
    let args = [TOOL, "--package", PACKAGE, "--all-features", "-sss", "--target-dir", TARGET];
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

    #[test]
    fn what_is_gone_and_what_is_new_is_told() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(difference("a\nb\n", "b\nc\n").as_deref(), Some("- a\n+ c"));
    }
}
