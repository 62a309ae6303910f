use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::leash::{Leashed, Servant, find, free_port};

/// Who runs it when root starts it, by preference: it refuses to run as root.
const SERVANTS: [&str; 2] = ["mysql", "nobody"];

/// Where it keeps what is temporary: when one begins it removes what others have in the same folder, and these then fail.
const TEMPORARY: &str = "TMPDIR";

/// A MariaDB server that may be killed and run again. It ends with this; its data stays in its folder.
#[derive(Debug)]
pub struct MySqlServer {
    running: Option<Leashed>,
    folder: PathBuf,
    settings: Vec<String>,
    port: u16,
}

impl MySqlServer {
    /// A new server with `settings` (`name=value`) and no database but its own, in `folder`, which is the server's user's
    /// from now on. It does not run yet.
    ///
    /// # Errors
    /// MariaDB's programs are not there, or cannot make its data: one line with the remedy.
    pub fn create(folder: &Path, settings: &[&str]) -> Result<Self, String> {
        let servant = Servant::of(folder, &SERVANTS)?;
        let mut install = Command::new(program("mariadb-install-db")?);
        install.arg("--no-defaults").arg(format!("--datadir={}", folder.join("data").display()));
        install.args(["--auth-root-authentication-method=normal", "--skip-test-db", "--innodb-log-file-size=16M"]);
        install.current_dir(folder).stdin(Stdio::null()).env(TEMPORARY, folder);
        let made = servant.runs(&mut install).output().map_err(|e| format!("mariadb-install-db cannot be run: {e}"))?;
        if !made.status.success() {
            return Err(format!("mariadb-install-db failed: {}", String::from_utf8_lossy(&made.stderr).trim()));
        }
        let port = free_port().map_err(|e| format!("there is no free port: {e}"))?;
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        Ok(Self { running: None, folder: folder.to_owned(), settings, port })
    }

    /// Begins with `settings` (`name=value`) from its next start on, instead of those that it was started with.
    pub fn settings(&mut self, settings: &[&str]) {
        self.settings = settings.iter().map(|&setting| setting.to_owned()).collect();
    }

    /// The URL of its database `database`.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("mysql://root@127.0.0.1:{}/{database}", self.port)
    }

    /// Runs it, unless it runs. To be called again until it answers.
    ///
    /// # Errors
    /// It cannot be run: one line.
    pub fn run(&mut self) -> Result<(), String> {
        if self.running.as_mut().is_some_and(|running| !running.has_ended()) {
            return Ok(());
        }
        let mut mariadbd = Command::new(program("mariadbd")?);
        mariadbd.arg("--no-defaults").arg(format!("--datadir={}", self.folder.join("data").display()));
        // The socket is below its data: a full path could be too long.
        mariadbd.arg(format!("--port={}", self.port)).args(["--bind-address=127.0.0.1", "--socket=socket"]);
        mariadbd.args(["--pid-file=pid", "--innodb-log-file-size=16M", "--innodb-buffer-pool-size=32M"]);
        mariadbd.env(TEMPORARY, &self.folder);
        for setting in &self.settings {
            mariadbd.arg(format!("--{setting}"));
        }
        let servant = Servant::of(&self.folder, &SERVANTS)?;
        let running = Leashed::run(&mut mariadbd, &servant, &self.folder);
        self.running = Some(running.map_err(|e| format!("mariadbd cannot be run: {e}"))?);
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
    find(name)
        .ok_or_else(|| format!("there is no program `{name}`: install MariaDB (`apt-get install mariadb-server`)"))
}
