//! `cargo xtask bench`: builds and runs hapax-bench, which knows the backends and the bars.

use std::process::ExitCode;

use crate::process;

/// Hands the arguments on and the exit code back.
pub(crate) fn run(args: &[String]) -> ExitCode {
    let mut command = process::cargo(["run", "--quiet", "--release", "--locked", "--package", "hapax-bench", "--"]);
    match command.args(args).status() {
        // No code, or one too large for a code: it was ended from outside.
        Ok(status) => status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from),
        Err(error) => {
            eprintln!("cargo cannot be started: {error}");
            ExitCode::FAILURE
        }
    }
}
