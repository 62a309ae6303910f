//! The program itself, which is built with its tests.
#![allow(dead_code, clippy::unwrap_used)]

use std::process::{Command, Output};

/// `cargo test` builds examples too, unless it is told to build less.
pub(crate) fn program() -> Command {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap().parent().unwrap();
    let program = folder.join("examples").join(format!("orders{}", std::env::consts::EXE_SUFFIX));
    assert!(program.exists(), "{} is missing; cargo build -p hapax-example-orders --example orders", program.display());
    Command::new(program)
}

/// What becomes of it with these arguments.
pub(crate) fn orders(arguments: &[&str]) -> Output {
    program().args(arguments).output().unwrap()
}

/// All that it says.
pub(crate) fn words(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The number in a row of its report, as the row begins there.
pub(crate) fn number(report: &str, row: &str) -> u64 {
    let row = report.lines().find_map(|line| line.strip_prefix(row)).unwrap_or_else(|| panic!("no {row}: {report}"));
    row.split_whitespace().next().unwrap().parse().unwrap()
}
