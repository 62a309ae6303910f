use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use crate::leash::{Leashed, Servant, find, free_port};

/// Who runs it when root starts it: it refuses to run as root.
const SERVANTS: [&str; 2] = ["postgres", "nobody"];

/// pgbouncer in front of a PostgreSQL server, which lets everybody in. It ends with this.
#[derive(Debug)]
pub struct Pgbouncer {
    _running: Leashed,
    folder: PathBuf,
    port: u16,
}

impl Pgbouncer {
    /// Runs it before `server`, a host and a port, where all are `user`. Each transaction may get another session; `settings`
    /// (`name = value`) add to that. Its files are in `folder`, which is its user's from now on. It does not answer at once.
    ///
    /// # Errors
    /// Its program is not there, or cannot be run: one line with the remedy.
    pub fn run(folder: &Path, server: (&str, u16), user: &str, settings: &[&str]) -> Result<Self, String> {
        let program =
            find("pgbouncer").ok_or("there is no program `pgbouncer`: install it (`apt-get install pgbouncer`)")?;
        let port = free_port().map_err(|e| format!("there is no free port: {e}"))?;
        let ((host, server_port), settings) = (server, settings.join("\n"));
        let config = format!(
            "[databases]\n* = host={host} port={server_port} user={user}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\nmax_client_conn = 200\n\
             {settings}\n"
        );
        let file = folder.join("pgbouncer.ini");
        let cannot = |e: io::Error| format!("pgbouncer cannot be run in {}: {e}", folder.display());
        fs::write(&file, config).map_err(cannot)?;
        let servant = Servant::of(folder, &SERVANTS)?;
        let _running = Leashed::run(Command::new(program).arg(&file), &servant, folder).map_err(cannot)?;
        Ok(Self { _running, folder: folder.to_owned(), port })
    }

    /// Where it listens, on this host.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Its log.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}
