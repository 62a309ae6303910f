//! `cargo xtask soak`: builds and runs hapax-soak, and starts the emulator that a store needs.

use std::process::ExitCode;

use crate::{backends, process};

/// A store whose client library takes long to build, behind a feature, and which has an emulator.
const SERVICE: &str = "dynamodb";
const VARIABLE: &str = "HAPAX_TEST_DYNAMODB";

/// Hands the arguments on and the exit code back.
pub(crate) fn run(args: &[String]) -> ExitCode {
    let mut command = process::cargo(["run", "--quiet", "--release", "--locked", "--package", "hapax-soak"]);
    let mut emulator = None;
    if args.iter().any(|arg| arg.ends_with(SERVICE)) {
        command.args(["--features", SERVICE]);
        match backends::started(SERVICE) {
            Ok(started) => emulator = Some(started),
            Err(error) => {
                eprintln!("there is no emulator to run on: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    if let Some(emulator) = &emulator {
        command.env(VARIABLE, &emulator.url);
    }
    match command.arg("--").args(args).status() {
        // No code, or one too large for a code: it was ended from outside.
        Ok(status) => status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from),
        Err(error) => {
            eprintln!("cargo cannot be started: {error}");
            ExitCode::FAILURE
        }
    }
}
