//! `cargo xtask soak`: builds and runs hapax-soak, and provides what its store and its broker need beside installed servers.

use std::process::{Command, ExitCode};

use crate::{
    backends::{self, Emulator},
    process,
};

/// Stores whose client libraries take long to build: a feature each, an emulator, and the variable that tells where that is.
const SERVICES: [(&str, &str); 2] = [("dynamodb", "HAPAX_TEST_DYNAMODB"), ("cosmos", "HAPAX_TEST_COSMOS")];
/// The same without a service: it is a directory.
const OBJECT: &str = "object";
/// Brokers behind a feature each, whose programs are brought by packages.
const BROKERS: [&str; 2] = ["kafka", "sqs"];
/// A broker whose program is not the installed one.
const BROUGHT: &str = "nats";

/// A run that is about to be started; its emulator ends with it.
#[derive(Debug)]
pub(crate) struct Soak {
    pub(crate) command: Command,
    _emulator: Option<Emulator>,
}

impl Soak {
    /// With these arguments. Builds what is not there yet; `with_all`: for every store, so that it is built once for runs on several.
    ///
    /// # Errors
    /// It cannot be built, or there is no emulator.
    pub(crate) fn prepare(args: &[String], with_all: bool) -> Result<Self, String> {
        let (mut features, mut emulator) = (Vec::new(), None);
        let asked = |name: &str| args.iter().any(|arg| arg == name || arg.ends_with(&format!("={name}")));
        let service = SERVICES.into_iter().find(|(name, _)| asked(name));
        features.extend(SERVICES.iter().map(|(name, _)| *name).filter(|name| with_all || asked(name)));
        features.extend((with_all || asked(OBJECT)).then_some(OBJECT));
        for broker in BROKERS.into_iter().filter(|name| asked(name)) {
            features.push(broker);
            // A run has one of its own, from what this one has brought.
            drop(backends::started(broker).map_err(|why| format!("there is no {broker} to run on: {why}"))?);
        }
        if let Some((service, variable)) = service {
            let started = backends::started(service).map_err(|why| format!("there is no emulator to run on: {why}"))?;
            emulator = Some((variable, started));
        }
        if asked(BROUGHT)
            && let Some(how) = backends::beside(BROUGHT)
        {
            println!("{how}");
        }
        let features = features.join(",");
        let all = ["--release", "--locked", "--package", "hapax-soak", "--features", &features];
        let build: Vec<&str> = ["build", "--quiet"].into_iter().chain(all.iter().copied()).collect();
        process::run(&mut process::cargo(build))?;
        let run: Vec<&str> = ["run", "--quiet"].into_iter().chain(all.iter().copied()).collect();
        let mut command = process::cargo(run);
        command.arg("--").args(args);
        if let Some((variable, emulator)) = &emulator {
            command.env(variable, &emulator.url);
        }
        Ok(Self { command, _emulator: emulator.map(|(_, emulator)| emulator) })
    }
}

/// Hands the arguments on and the exit code back.
pub(crate) fn run(args: &[String]) -> ExitCode {
    let status = Soak::prepare(args, false).and_then(|mut soak| {
        let status = soak.command.status();
        status.map_err(|error| format!("cargo cannot be started: {error}"))
    });
    match status {
        // No code, or one too large for a code: it was ended from outside.
        Ok(status) => status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from),
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
