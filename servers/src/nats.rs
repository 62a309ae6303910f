//! A NATS server of one's own. Which program it is can be said, since the one that Debian has does not outlive many kills.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    leash::{installed, made, own_port},
    process::Process,
};

/// Who runs it when root starts it, by preference.
const SERVANTS: [&str; 2] = ["nats", "nobody"];
/// Which program is run, if not the usual one.
const PROGRAM: &str = "HAPAX_NATS_SERVER";
/// Where `cargo xtask test nats` installs one, below the target folder: newer than what Debian has, which does not outlive many kills.
const MADE: &str = "xtask/nats-2.15.1/packages/bin/nats-server";
/// Its settings, in its folder.
const SETTINGS: &str = "nats.conf";

/// A NATS server with JetStream that may be killed and run again. It ends with this; its data stays in its folder.
///
/// Its program is the one that the variable `HAPAX_NATS_SERVER` names, else the one that `cargo xtask test nats` has installed, else the
/// installed one.
#[derive(Debug)]
pub struct NatsServer {
    process: Process,
    port: u16,
}

impl NatsServer {
    /// A new server with nothing in it, in `folder`, which is the server's user's from now on. It does not run yet.
    ///
    /// # Errors
    /// There is no free port, or its settings cannot be written.
    pub fn create(folder: &Path) -> Result<Self, String> {
        let server = Self { process: Process::new(folder), port: own_port()? };
        server.configure("")?;
        Ok(server)
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Its port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// What it is told beside its port and where its data is, from its next start on.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn configure(&self, more: &str) -> Result<(), String> {
        let data = self.process.file("data").display().to_string();
        let settings = format!("listen: \"127.0.0.1:{}\"\njetstream {{ store_dir: \"{data}\" }}\n{more}\n", self.port);
        self.process.write(SETTINGS, &settings)
    }

    /// Wants TLS from its next start on, with `certificate.pem` and `key.pem` of its folder, and believes clients by
    /// `authority.pem` there. Whether they must show a certificate is `asks`.
    ///
    /// # Errors
    /// Its settings cannot be written.
    pub fn want_tls(&self, asks: bool) -> Result<(), String> {
        let file = |name: &str| self.process.file(name).display().to_string();
        self.configure(&format!(
            "tls {{ cert_file: \"{}\", key_file: \"{}\", ca_file: \"{}\", verify: {asks} }}",
            file("certificate.pem"),
            file("key.pem"),
            file("authority.pem"),
        ))
    }

    /// Runs it, unless it runs. To be called again until it answers.
    ///
    /// # Errors
    /// It cannot be run: one line with the remedy.
    pub fn run(&mut self) -> Result<(), String> {
        if self.process.is_up() {
            return Ok(());
        }
        let named = std::env::var_os(PROGRAM).filter(|named| !named.is_empty()).map(PathBuf::from);
        if let Some(named) = named.as_ref().filter(|named| !named.is_file()) {
            return Err(format!(
                "{PROGRAM} is {}, and there is no such file: name the program of NATS",
                named.display()
            ));
        }
        let own = named.or_else(|| made(MADE));
        // One of somebody's own may be in a folder that no servant may read.
        let servants = if own.is_some() { &["root"][..] } else { &SERVANTS[..] };
        let program = own.map_or_else(|| installed("nats-server", "NATS", "nats-server"), Ok)?;
        let mut server = Command::new(&program);
        server.arg("-c").arg(self.process.file(SETTINGS));
        self.process.run(&mut server, servants, program.display())
    }

    /// Kills it, as a crash would: SIGKILL, nothing is written any more.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Its log.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log()
    }
}
