use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::leash::{Leashed, Servant, free_port, made};

/// Where `cargo xtask test kafka` builds it, below the target folder, if there is Go to build it with.
const PROGRAM: &str = "xtask/kfake-20260804/kfake";
/// Who runs it when root starts it: the program is in a folder of root's.
const SERVANTS: [&str; 1] = ["root"];

/// A broker that speaks Kafka's protocol and may be killed and run again: kfake, which franz-go tests its client with. It ends with this; its
/// data stays in its folder.
#[derive(Debug)]
pub struct KfakeServer {
    running: Option<Leashed>,
    folder: PathBuf,
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
        let port = free_port().map_err(|e| format!("there is no free port: {e}"))?;
        Ok(Self { running: None, folder: folder.to_owned(), port, secret: None })
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
        if self.running.as_mut().is_some_and(|running| !running.has_ended()) {
            return Ok(());
        }
        let program = made(PROGRAM).ok_or(Self::REMEDY)?;
        let servant = Servant::of(&self.folder, &SERVANTS)?;
        let mut server = Command::new(program);
        server.arg(self.port.to_string()).arg(self.folder.join("data")).args(&self.secret);
        let running = Leashed::run(&mut server, &servant, &self.folder);
        self.running = Some(running.map_err(|e| format!("kfake cannot be run: {e}"))?);
        Ok(())
    }

    /// Kills it, as a crash would: SIGKILL, nothing is written any more.
    pub fn kill(&mut self) {
        drop(self.running.take());
    }

    /// What it has said.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}
