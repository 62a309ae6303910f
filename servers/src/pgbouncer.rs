//! A pooler that gives each transaction another session: what rests on a session breaks behind it, and is to be found out.

use std::{path::Path, process::Command};

use crate::{
    leash::{installed, own_port},
    process::Process,
};

/// Who runs it when root starts it: it refuses to run as root.
const SERVANTS: [&str; 2] = ["postgres", "nobody"];
/// Its settings, in its folder.
const SETTINGS: &str = "pgbouncer.ini";

/// pgbouncer in front of a PostgreSQL server, which lets everybody in. It ends with this.
#[derive(Debug)]
pub struct Pgbouncer {
    process: Process,
    port: u16,
}

impl Pgbouncer {
    /// Runs it before `server`, a host and a port, where all are `user`. Each transaction may get another session; `settings`
    /// (`name = value`) add to that. Its files are in `folder`, which is its user's from now on. It does not answer at once.
    ///
    /// # Errors
    /// Its program is not there, or cannot be run: one line with the remedy.
    pub fn run(folder: &Path, server: (&str, u16), user: &str, settings: &[&str]) -> Result<Self, String> {
        let program = installed("pgbouncer", "it", "pgbouncer")?;
        let port = own_port()?;
        let ((host, server_port), settings) = (server, settings.join("\n"));
        let config = format!(
            "[databases]\n* = host={host} port={server_port} user={user}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\nmax_client_conn = 200\n\
             {settings}\n"
        );
        let mut process = Process::new(folder);
        process.write(SETTINGS, &config)?;
        let mut pgbouncer = Command::new(program);
        pgbouncer.arg(process.file(SETTINGS));
        process.run(&mut pgbouncer, &SERVANTS, "pgbouncer")?;
        Ok(Self { process, port })
    }

    /// Where it listens, on this host.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Its log.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log()
    }
}
