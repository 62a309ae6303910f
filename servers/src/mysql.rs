//! A MariaDB server of one's own, temporary files included: one that starts removes those of all others that it finds.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    leash::{Servant, installed, own_port},
    process::Process,
};

/// Who runs it when root starts it, by preference: it refuses to run as root.
const SERVANTS: [&str; 2] = ["mysql", "nobody"];

/// A MariaDB server that may be killed and run again. It ends with this; its data stays in its folder.
#[derive(Debug)]
pub struct MySqlServer {
    process: Process,
    settings: Vec<String>,
    port: u16,
    tls: bool,
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
        install.arg(temporary(folder));
        install.current_dir(folder).stdin(Stdio::null());
        let made = servant.runs(&mut install).output().map_err(|e| format!("mariadb-install-db cannot be run: {e}"))?;
        if !made.status.success() {
            let [said, told] = [&made.stderr, &made.stdout].map(|output| String::from_utf8_lossy(output));
            return Err(format!("mariadb-install-db failed ({}): {} {}", made.status, said.trim(), told.trim()));
        }
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        Ok(Self { process: Process::new(folder), settings, port: own_port()?, tls: false })
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
        if self.process.is_up() {
            return Ok(());
        }
        let mut mariadbd = Command::new(program("mariadbd")?);
        mariadbd.arg("--no-defaults").arg(format!("--datadir={}", self.process.file("data").display()));
        // The socket is below its data: a full path could be too long.
        mariadbd.arg(format!("--port={}", self.port)).args(["--bind-address=127.0.0.1", "--socket=socket"]);
        mariadbd.arg(temporary(self.process.folder())).args([
            "--pid-file=pid",
            "--innodb-log-file-size=16M",
            "--innodb-buffer-pool-size=32M",
        ]);
        for setting in &self.settings {
            mariadbd.arg(format!("--{setting}"));
        }
        if self.tls {
            for (name, file) in [("ssl-cert", "certificate.pem"), ("ssl-key", "key.pem")] {
                mariadbd.arg(format!("--{name}={}", self.process.file(file).display()));
            }
        }
        self.process.run(&mut mariadbd, &SERVANTS, "mariadbd")
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

/// Temporary tables lie with the data. A server that starts removes those of all others that it finds, and one that makes its
/// data is such a server too.
fn temporary(folder: &Path) -> String {
    format!("--tmpdir={}", folder.display())
}

fn program(name: &str) -> Result<PathBuf, String> {
    installed(name, "MariaDB", "mariadb-server")
}
