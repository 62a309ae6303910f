//! A Redis server of one's own that keeps what it confirms, unless told otherwise, as one with usual settings does not.

use std::{fs, path::Path, process::Command};

use crate::{
    leash::{installed, own_port},
    process::Process,
};

/// Who runs it when root starts it, by preference.
const SERVANTS: [&str; 2] = ["redis", "nobody"];
/// Its own log, in its folder.
const LOG: &str = "server.log";

/// A Redis server that may be killed and run again. It ends with this; its data stays in its folder.
#[derive(Debug)]
pub struct RedisServer {
    process: Process,
    port: u16,
    settings: Vec<(String, String)>,
}

impl RedisServer {
    /// A new server with nothing in it, in `folder`, which is the server's user's from now on. It keeps what it confirms. It does
    /// not run yet.
    ///
    /// # Errors
    /// There is no free port.
    pub fn create(folder: &Path) -> Result<Self, String> {
        let server = Self { process: Process::new(folder), port: own_port()?, settings: Vec::new() };
        Ok(server.with("appendonly", "yes").with("appendfsync", "always"))
    }

    /// With another setting, from its next start on.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.set(name, value);
        self
    }

    /// Another setting, from its next start on.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.settings.retain(|(known, _)| known != name);
        self.settings.push((name.to_owned(), value.into()));
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Also answers to TLS from its next start on, with `certificate.pem` and `key.pem` of its folder, and believes clients by
    /// `authority.pem` there. Whether they must show a certificate is `asks`. The port.
    ///
    /// # Errors
    /// There is no free port.
    pub fn answer_to_tls(&mut self, asks: bool) -> Result<u16, String> {
        let port = own_port()?;
        self.set("tls-port", port.to_string());
        for (name, file) in
            [("tls-cert-file", "certificate.pem"), ("tls-key-file", "key.pem"), ("tls-ca-cert-file", "authority.pem")]
        {
            self.set(name, self.process.file(file).display().to_string());
        }
        self.set("tls-auth-clients", if asks { "yes" } else { "no" });
        Ok(port)
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.process.has_ended()
    }

    /// Runs it, unless it runs. To be called again until it answers.
    ///
    /// # Errors
    /// It cannot be run: one line with the remedy.
    pub fn run(&mut self) -> Result<(), String> {
        if self.process.is_up() {
            return Ok(());
        }
        let mut server = Command::new(installed("redis-server", "Redis", "redis-server")?);
        server.args(["--bind", "127.0.0.1", "--port", &self.port.to_string(), "--save", "", "--daemonize", "no"]);
        server.arg("--dir").arg(self.process.folder()).arg("--logfile").arg(self.process.file(LOG));
        for (name, value) in &self.settings {
            server.arg(format!("--{name}")).args(value.split(' '));
        }
        self.process.run(&mut server, &SERVANTS, "redis-server")
    }

    /// Kills it, as a crash would: SIGKILL, nothing is written any more.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Its log.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.process.file(LOG)).unwrap_or_default() + &self.process.log()
    }
}
