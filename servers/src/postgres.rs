use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::leash::{Leashed, Servant, find, free_port};

/// Who runs it when root starts it, by preference: it refuses to run as root.
const SERVANTS: [&str; 2] = ["postgres", "nobody"];

/// A PostgreSQL server that may be killed and run again. It ends with this; its data stays in its folder.
#[derive(Debug)]
pub struct PostgresServer {
    running: Option<Leashed>,
    folder: PathBuf,
    settings: Vec<String>,
    port: u16,
}

impl PostgresServer {
    /// A new server with `settings` (`name=value`) and nothing in it, in `folder`, which is the server's user's from now on.
    /// It does not run yet.
    ///
    /// # Errors
    /// PostgreSQL's programs are not there, or cannot make its data: one line with the remedy.
    pub fn create(folder: &Path, settings: &[&str]) -> Result<Self, String> {
        let servant = Servant::of(folder, &SERVANTS)?;
        let mut initdb = Command::new(program("initdb")?);
        initdb.arg("--pgdata").arg(folder.join("data")).args(["--username=postgres", "--auth=trust"]);
        initdb.args(["--encoding=UTF8", "--locale=C", "--no-sync"]).current_dir(folder);
        let made = servant.runs(&mut initdb).output().map_err(|e| format!("initdb cannot be run: {e}"))?;
        if !made.status.success() {
            return Err(format!("initdb failed: {}", String::from_utf8_lossy(&made.stderr).trim()));
        }
        let port = free_port().map_err(|e| format!("there is no free port: {e}"))?;
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        Ok(Self { running: None, folder: folder.to_owned(), settings, port })
    }

    /// A standby named `name` of `primary`, which answers at `port`, with all that is in it, in `folder`, as [`create`](Self::create) does. It
    /// does not run yet.
    ///
    /// # Errors
    /// PostgreSQL's programs are not there, or the primary does not let itself be copied: one line.
    pub fn follow(folder: &Path, primary: &Self, port: u16, name: &str) -> Result<Self, String> {
        let servant = Servant::of(folder, &SERVANTS)?;
        let mut copy = Command::new(program("pg_basebackup")?);
        copy.arg("--pgdata").arg(folder.join("data")).args(["--write-recovery-conf", "--wal-method=stream"]);
        copy.args(["--checkpoint=fast", "--no-sync", "--dbname"]);
        copy.arg(format!("postgres://postgres@127.0.0.1:{port}/postgres?application_name={name}"));
        let made = servant.runs(copy.current_dir(folder)).output();
        let made = made.map_err(|e| format!("pg_basebackup cannot be run: {e}"))?;
        if !made.status.success() {
            return Err(format!("pg_basebackup failed: {}", String::from_utf8_lossy(&made.stderr).trim()));
        }
        let port = free_port().map_err(|e| format!("there is no free port: {e}"))?;
        Ok(Self { running: None, folder: folder.to_owned(), settings: primary.settings.clone(), port })
    }

    /// Begins with `settings` (`name=value`) from its next start on, instead of those that it was started with.
    pub fn settings(&mut self, settings: &[&str]) {
        self.settings = settings.iter().map(|&setting| setting.to_owned()).collect();
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
        if self.running.as_mut().is_some_and(|running| !running.has_ended()) {
            return Ok(());
        }
        let mut postgres = Command::new(program("postgres")?);
        postgres.arg("-D").arg(self.folder.join("data")).args(["-p", &self.port.to_string()]);
        // No socket: its path could be too long.
        postgres.args(["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]);
        for setting in &self.settings {
            postgres.args(["-c", setting]);
        }
        let servant = Servant::of(&self.folder, &SERVANTS)?;
        let running = Leashed::run(&mut postgres, &servant, &self.folder);
        self.running = Some(running.map_err(|e| format!("postgres cannot be run: {e}"))?);
        Ok(())
    }

    /// Kills it, as a crash would: SIGKILL, nothing is written any more.
    pub fn kill(&mut self) {
        drop(self.running.take());
    }

    /// Its log.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

fn program(name: &str) -> Result<PathBuf, String> {
    find(name).ok_or_else(|| format!("there is no program `{name}`: install PostgreSQL (`apt-get install postgresql`)"))
}
