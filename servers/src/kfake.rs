//! Tansu has lost everything when it was killed. This broker has not, so kills of a broker are tried with it.

use std::{path::Path, process::Command};

use crate::{
    leash::{made, own_port},
    process::Process,
};

/// Where `cargo xtask test kafka` builds it, below the target folder, if there is Go to build it with.
const PROGRAM: &str = "xtask/kfake-20260804/kfake";
/// Who runs it when root starts it: the program is in a folder of root's.
const SERVANTS: [&str; 1] = ["root"];

/// A broker that speaks Kafka's protocol and may be killed and run again: kfake, which franz-go tests its client with. It ends with this; its
/// data stays in its folder.
#[derive(Debug)]
pub struct KfakeServer {
    process: Process,
    port: u16,
    secret: Option<String>,
}

impl KfakeServer {
    /// Whether its program is there.
    #[must_use]
    pub fn is_there() -> bool {
        made(PROGRAM).is_some()
    }

    /// What is said where it is not: the remedy.
    pub const REMEDY: &str = "there is no kfake: `cargo xtask test kafka` builds it where there is Go 1.25 or newer";

    /// A new one without topics, in `folder`. It does not run yet.
    ///
    /// # Errors
    /// There is no free port.
    pub fn create(folder: &Path) -> Result<Self, String> {
        Ok(Self { process: Process::new(folder), port: own_port()?, secret: None })
    }

    /// One that lets in only `plain`, `scram256` and `scram512`, each by the mechanism of SASL that it is called after, with this password.
    #[must_use]
    pub fn that_asks_for(mut self, secret: &str) -> Self {
        self.secret = Some(secret.to_owned());
        self
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("kafka://127.0.0.1:{}", self.port)
    }

    /// Its port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Runs it, unless it runs. To be called again until it answers.
    ///
    /// # Errors
    /// It cannot be run: one line with the remedy.
    pub fn run(&mut self) -> Result<(), String> {
        if self.process.is_up() {
            return Ok(());
        }
        let program = made(PROGRAM).ok_or(Self::REMEDY)?;
        let mut server = Command::new(program);
        server.arg(self.port.to_string()).arg(self.process.file("data")).args(&self.secret);
        self.process.run(&mut server, &SERVANTS, "kfake")
    }

    /// Kills it, as a crash would: SIGKILL, nothing is written any more.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// What it has said.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log()
    }
}
