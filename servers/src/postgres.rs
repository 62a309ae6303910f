//! A PostgreSQL server of one's own, or a standby of one. Both are reached by TCP alone, for the path of a socket could be too long.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    leash::{Servant, installed, own_port},
    process::Process,
};

/// Who runs it when root starts it, by preference: it refuses to run as root.
const SERVANTS: [&str; 2] = ["postgres", "nobody"];

/// A PostgreSQL server that may be killed and run again. It ends with this; its data stays in its folder.
#[derive(Debug)]
pub struct PostgresServer {
    process: Process,
    settings: Vec<String>,
    port: u16,
    tls: bool,
}

impl PostgresServer {
    /// A new server with `settings` (`name=value`) and nothing in it, in `folder`, which is the server's user's from now on.
    /// It does not run yet.
    ///
    /// # Errors
    /// PostgreSQL's programs are not there, or cannot make its data: one line with the remedy.
    pub fn create(folder: &Path, settings: &[&str]) -> Result<Self, String> {
        let arguments = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"];
        let mut server = Self::made_by("initdb", &arguments, folder)?;
        server.settings(settings);
        Ok(server)
    }

    /// A standby named `name` of `primary`, which answers at `port`, with all that is in it, in `folder`, as [`create`](Self::create) does. It
    /// does not run yet.
    ///
    /// # Errors
    /// PostgreSQL's programs are not there, or the primary does not let itself be copied: one line.
    pub fn follow(folder: &Path, primary: &Self, port: u16, name: &str) -> Result<Self, String> {
        let from = format!("--dbname=postgres://postgres@127.0.0.1:{port}/postgres?application_name={name}");
        let how = ["--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync", from.as_str()];
        let mut server = Self::made_by("pg_basebackup", &how, folder)?;
        server.settings.clone_from(&primary.settings);
        Ok(server)
    }

    /// One without settings, whose data the program `name` makes, told `arguments` beside where.
    fn made_by(name: &str, arguments: &[&str], folder: &Path) -> Result<Self, String> {
        let servant = Servant::of(folder, &SERVANTS)?;
        let mut command = Command::new(program(name)?);
        command.arg("--pgdata").arg(folder.join("data")).args(arguments).current_dir(folder);
        let made = servant.runs(&mut command).output().map_err(|e| format!("{name} cannot be run: {e}"))?;
        if !made.status.success() {
            return Err(format!("{name} failed: {}", String::from_utf8_lossy(&made.stderr).trim()));
        }
        Ok(Self { process: Process::new(folder), settings: Vec::new(), port: own_port()?, tls: false })
    }

    /// Begins with `settings` (`name=value`) from its next start on, instead of those that it was started with.
    pub fn settings(&mut self, settings: &[&str]) {
        self.settings = settings.iter().map(|&setting| setting.to_owned()).collect();
    }

    /// Answers to who asks for TLS from its next start on, with `certificate.pem` and `key.pem` of its folder. The key is its user's
    /// alone from now on.
    ///
    /// # Errors
    /// There is no key, or it cannot be given away: one line.
    pub fn answer_to_tls(&mut self) -> Result<(), String> {
        self.process.keep_secret("key.pem", &SERVANTS)?;
        self.tls = true;
        Ok(())
    }

    /// Its port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Runs it, unless it runs. One that was killed may not come up before all that it has left behind has ended: to be
    /// called again until it answers.
    ///
    /// # Errors
    /// It cannot be run: one line.
    pub fn run(&mut self) -> Result<(), String> {
        if self.process.is_up() {
            return Ok(());
        }
        let mut postgres = Command::new(program("postgres")?);
        postgres.arg("-D").arg(self.process.file("data")).args(["-p", &self.port.to_string()]);
        // No socket: its path could be too long.
        postgres.args(["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]);
        for setting in &self.settings {
            postgres.args(["-c", setting]);
        }
        if self.tls {
            postgres.args(["-c", "ssl=on"]);
            for (name, file) in [("ssl_cert_file", "certificate.pem"), ("ssl_key_file", "key.pem")] {
                postgres.args(["-c", &format!("{name}={}", self.process.file(file).display())]);
            }
        }
        self.process.run(&mut postgres, &SERVANTS, "postgres")
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

fn program(name: &str) -> Result<PathBuf, String> {
    installed(name, "PostgreSQL", "postgresql")
}
