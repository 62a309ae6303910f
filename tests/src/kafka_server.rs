//! Brokers that a test may kill: one that has nothing any more then, and one that keeps what it has confirmed.

use std::time::{Duration, Instant};

use hapax::Kafka;

use crate::Scratch;

/// One that needs longer to answer hangs.
const START_LIMIT: Duration = Duration::from_secs(60);
const ASK_EVERY: Duration = Duration::from_millis(50);

/// A broker of one test's own, which may be killed, and then has nothing any more. It goes with this.
#[derive(Debug)]
pub struct KafkaServer {
    // Before the folder.
    server: hapax_servers::KafkaServer,
    _scratch: Scratch,
}

impl KafkaServer {
    /// A new one, once it answers.
    ///
    /// # Panics
    /// When it is not installed, or does not start.
    pub async fn start() -> Self {
        let mut server = Self::made(|server| server);
        server.restart().await;
        server
    }

    /// One whose clients are told to come to a proxy at that port of this host. It runs, and whether it answers is told by nobody.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    #[must_use]
    pub fn behind(port: u16) -> Self {
        let mut server = Self::made(|server| server.advertised_at(port));
        server.server.run().unwrap_or_else(|why| panic!("{why}"));
        server
    }

    fn made(with: impl FnOnce(hapax_servers::KafkaServer) -> hapax_servers::KafkaServer) -> Self {
        let scratch = Scratch::new("kafka-server");
        let server = hapax_servers::KafkaServer::create(scratch.folder()).unwrap_or_else(|why| panic!("{why}"));
        Self { server: with(server), _scratch: scratch }
    }

    /// Where clients come to.
    #[must_use]
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Its own port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.server.port()
    }

    /// Kills it, as a crash would.
    pub fn kill(&mut self) {
        self.server.kill();
    }

    /// What it has said.
    #[must_use]
    pub fn log(&self) -> String {
        self.server.log()
    }

    /// Runs it again, until it answers.
    ///
    /// # Panics
    /// When it does not.
    pub async fn restart(&mut self) {
        let url = self.url();
        until_it_answers(&url, || (self.server.run(), self.server.log())).await;
    }
}

/// A broker of one test's own that keeps what it has confirmed when it is killed. It goes with this.
#[derive(Debug)]
pub struct KfakeServer {
    // Before the folder.
    server: hapax_servers::KfakeServer,
    _scratch: Scratch,
}

impl KfakeServer {
    /// None, which is said, where it is not built. It does not run yet.
    fn made(secret: Option<&str>) -> Option<Self> {
        if !hapax_servers::KfakeServer::is_there() {
            eprintln!("SKIPPED: {}", hapax_servers::KfakeServer::REMEDY);
            return None;
        }
        let scratch = Scratch::new("kfake-server");
        let server = hapax_servers::KfakeServer::create(scratch.folder()).unwrap_or_else(|why| panic!("{why}"));
        let server = secret.into_iter().fold(server, hapax_servers::KfakeServer::that_asks_for);
        Some(Self { server, _scratch: scratch })
    }

    /// A new one, once it answers; none, which is said, where it is not built.
    ///
    /// # Panics
    /// When it does not.
    pub async fn start() -> Option<Self> {
        let mut server = Self::made(None)?;
        server.restart().await;
        Some(server)
    }

    /// One whose users must know this password. It runs, and whether it answers is told by nobody.
    ///
    /// # Panics
    /// When it cannot be run.
    #[must_use]
    pub fn that_asks_for(secret: &str) -> Option<Self> {
        let mut server = Self::made(Some(secret))?;
        server.server.run().unwrap_or_else(|why| panic!("{why}"));
        Some(server)
    }

    /// Where clients come to.
    #[must_use]
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Kills it, as a crash would.
    pub fn kill(&mut self) {
        self.server.kill();
    }

    /// Runs it again, until it answers.
    ///
    /// # Panics
    /// When it does not.
    pub async fn restart(&mut self) {
        let url = self.url();
        until_it_answers(&url, || (self.server.run(), self.server.log())).await;
    }
}

/// `run` says whether it can be run, and what the server has said.
async fn until_it_answers(url: &str, mut run: impl FnMut() -> (Result<(), String>, String)) {
    let begun = Instant::now();
    loop {
        let (runs, log) = run();
        runs.unwrap_or_else(|why| panic!("{why}"));
        let opened = Kafka::options().patience(Duration::from_secs(2)).open(url).await;
        let Err(error) = opened else { return };
        assert!(begun.elapsed() < START_LIMIT, "it does not answer: {error:?}\n{log}");
        tokio::time::sleep(ASK_EVERY).await;
    }
}
