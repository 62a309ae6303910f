//! Programs that packages of Python bring.

use std::process::Command;

use super::machine::Machine;
use super::objects::once;
use crate::process;

/// What helps where this fails.
pub(super) const REMEDY: &str = "`apt-get install python3-venv`";

/// Has `package`, without what it names in its turn, in `packages` below that folder of `target`. A second time it costs nothing.
///
/// # Errors
/// There is no Python, or the package cannot be had.
pub(super) fn install(machine: &Machine, folder: &str, package: &str) -> Result<(), String> {
    once(&machine.target.join(folder), |folder| {
        let mut python = Command::new(machine.program(&["python3"]).ok_or("there is no python3")?);
        process::run(python.args(["-m", "venv"]).arg(folder.join("python")))?;
        let mut pip = Command::new(folder.join("python/bin/python3"));
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target"]);
        process::run(pip.arg(folder.join("packages")).arg(package))
    })
}
