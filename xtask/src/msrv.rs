//! The oldest compiler that the packages say they can be built with: whether they can.

use std::process::Command;

use crate::process;
use crate::report::Verdict;
use crate::workspace::Workspace;

/// Where that compiler's objects go.
const TARGET: &str = "target/msrv";

/// With the compiler of that version: the one that builds all else, or another that is installed.
pub(crate) fn check(workspace: &Workspace) -> Verdict {
    let mut stated: Vec<&str> = workspace.own().filter_map(|package| package.rust_version.as_deref()).collect();
    stated.sort_unstable();
    stated.dedup();
    let [stated] = stated[..] else {
        return Verdict::Failed(format!("one `rust-version` for all packages is stated, not {stated:?}"));
    };
    let Ok(said) = process::output(Command::new("rustc").arg("--version").current_dir(process::root())) else {
        return Verdict::Failed("rustc does not say its version".to_owned());
    };
    let said = said.trim();
    if is(said, stated) {
        return Verdict::Passed(format!("{stated} is what builds all of this: {said}"));
    }
    if !Command::new("rustup").args(["run", stated, "rustc", "--version"]).output().is_ok_and(|it| it.status.success())
    {
        let remedy =
            format!("{said} is newer than {stated}, and that is not here: `rustup toolchain install {stated}`");
        return Verdict::Skipped(remedy);
    }
    let mut check = Command::new("rustup");
    check.args(["run", stated, "cargo", "check", "--workspace", "--all-features", "--locked"]);
    process::run(check.env("CARGO_TARGET_DIR", TARGET).current_dir(process::root())).map(|()| stated.to_owned()).into()
}

/// Whether `rustc 1.95.0 (..)` is of the version `1.95`.
fn is(said: &str, stated: &str) -> bool {
    let version = said.split_whitespace().nth(1).unwrap_or_default();
    version == stated || version.strip_prefix(stated).is_some_and(|rest| rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_release_is_of_its_version_and_a_newer_one_is_not() {
        assert!(is("rustc 1.95.0 (59807616e 2026-04-14)", "1.95") && is("rustc 1.95.0", "1.95.0"));
        assert!(!is("rustc 1.96.0", "1.95") && !is("rustc 1.95.1", "1.95.0") && !is("rustc 1.950.0", "1.95"));
    }
}
