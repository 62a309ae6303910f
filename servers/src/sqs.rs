//! moto has its queues in memory alone. A program around it writes them down before it confirms, so that a kill can be tried.

use std::{path::Path, process::Command};

use crate::{
    leash::{made, own_port},
    process::Process,
};

/// The program that moto is served by.
const EMULATOR: &str = include_str!("sqs_emulator.py");
/// Where `cargo xtask test sqs` installs moto, below the target folder.
const PYTHON: &str = "xtask/moto-5.2.5/bin/python3";
/// Who runs it when root starts it: Python and moto are in folders of root's.
const SERVANTS: [&str; 1] = ["root"];

/// An emulator of SQS that may be killed and run again. It ends with this; what it has confirmed stays in its folder.
#[derive(Debug)]
pub struct SqsServer {
    process: Process,
    port: u16,
    keeps: bool,
}

impl SqsServer {
    /// A new one with no queues, in `folder`. It does not run yet.
    ///
    /// # Errors
    /// There is no free port.
    pub fn create(folder: &Path) -> Result<Self, String> {
        Ok(Self { process: Process::new(folder), port: own_port()?, keeps: true })
    }

    /// One that has no queues any more once it was killed.
    #[must_use]
    pub fn that_forgets(mut self) -> Self {
        self.keeps = false;
        self
    }

    /// Where it is.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Runs it, unless it runs. To be called again until it answers.
    ///
    /// # Errors
    /// It cannot be run: one line with the remedy.
    pub fn run(&mut self) -> Result<(), String> {
        if self.process.is_up() {
            return Ok(());
        }
        let python = made(PYTHON)
            .ok_or("there is no emulator of SQS: `cargo xtask test sqs` installs it, with Python and pip")?;
        let mut server = Command::new(python);
        server.args(["-c", EMULATOR, &self.port.to_string()]);
        if self.keeps {
            server.arg(self.process.folder());
        }
        self.process.run(&mut server, &SERVANTS, "the emulator of SQS")
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
