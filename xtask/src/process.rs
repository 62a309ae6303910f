//! Starting cargo and git: output streamed, in the root of the tree.

use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// How variables begin by which cargo tells a program of its own package.
const OF_THE_PACKAGE: [&str; 2] = ["CARGO_PKG_", "CARGO_MANIFEST_"];

/// The root of the tree. `cargo run` names this package's folder; without it the current folder is meant.
pub(crate) fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    here.and_then(|folder| folder.parent().map(PathBuf::from)).unwrap_or_else(|| PathBuf::from("."))
}

/// The very cargo that runs this program, in the root of the tree.
pub(crate) fn cargo<'a>(args: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    // What cargo tells this program of its own package is not for the builds that it starts: build scripts that look at such a variable run
    // again, and all that builds on them with them, whenever the same is built without xtask.
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| OF_THE_PACKAGE.iter().any(|of| name.starts_with(of))) {
            command.env_remove(name);
        }
    }
    command
}

/// git, in the root of the tree.
pub(crate) fn git<'a>(args: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new("git");
    command.args(args).current_dir(root());
    command
}

/// Runs to the end with the output on this program's own.
///
/// # Errors
/// The command line and how it ended, unless that was well.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    println!("$ {}", shown(command));
    let status = command.status().map_err(|error| format!("{}: cannot be started: {error}", shown(command)))?;
    if status.success() { Ok(()) } else { Err(format!("{} ended with {status}", shown(command))) }
}

/// Runs to the end, hands each line of either output on as it comes, and passes it to `see` free of colours.
/// True if the command ended well.
///
/// # Errors
/// The command could not be started or its output not be read.
pub(crate) fn watch(command: &mut Command, mut see: impl FnMut(&str)) -> Result<bool, String> {
    println!("$ {}", shown(command));
    let program = shown_program(command);
    let failed = |error| format!("{program}: cannot be run: {error}");
    // One pipe for both outputs: their order tells which test program a result belongs to.
    let (reader, writer) = std::io::pipe().map_err(failed)?;
    if std::io::stdout().is_terminal() && std::env::var_os("CARGO_TERM_COLOR").is_none() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    command.stdin(Stdio::null()).stdout(writer.try_clone().map_err(failed)?).stderr(writer);
    let mut child = command.spawn().map_err(failed)?;
    // The command holds the writing ends; while it does, reading never ends.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut lines = BufReader::new(reader);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line).map_err(failed)? > 0 {
        std::io::stdout().write_all(&line).map_err(failed)?;
        see(&plain(&String::from_utf8_lossy(&line)));
        line.clear();
    }
    child.wait().map(|status| status.success()).map_err(failed)
}

/// Runs to the end and returns what it printed.
///
/// # Errors
/// What it said on its other output, when it did not end well.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{}: cannot be started: {error}", shown(command)))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{} ended with {}: {}", shown(command), output.status, said.trim()));
    }
    String::from_utf8(output.stdout).map_err(|_| format!("{} printed something that is not UTF-8", shown(command)))
}

/// Whether a cargo subcommand is installed.
pub(crate) fn has_cargo(subcommand: &str) -> bool {
    cargo([subcommand, "--version"]).output().is_ok_and(|output| output.status.success())
}

/// The command line as one would type it, without the folder of the program.
fn shown(command: &Command) -> String {
    let args = command.get_args().map(|arg| arg.to_string_lossy().into_owned());
    std::iter::once(shown_program(command)).chain(args).collect::<Vec<_>>().join(" ")
}

fn shown_program(command: &Command) -> String {
    let program = PathBuf::from(command.get_program());
    program.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// The line without the sequences that colour it (ESC `[` ... letter).
fn plain(line: &str) -> String {
    let mut rest = line;
    let mut plain = String::with_capacity(line.len());
    while let Some((before, coloured)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        rest = coloured.trim_start_matches(|c: char| !c.is_ascii_alphabetic());
        rest = rest.get(1..).unwrap_or_default();
    }
    plain.push_str(rest);
    plain.truncate(plain.trim_end().len());
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_do_not_hide_a_word_from_the_reader() {
        assert_eq!(plain("\u{1b}[32;1m        PASS\u{1b}[0m [ 0.1s] a\n"), "        PASS [ 0.1s] a");
        assert_eq!(plain("cut off \u{1b}[3"), "cut off");
    }
}
