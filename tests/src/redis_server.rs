//! A server that a test may kill or set otherwise, also to what queues refuse.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use hapax::{RedisStreams, transports::redis::MayLose};

use crate::Scratch;

/// A server that needs longer to answer hangs; it needs some milliseconds.
const START_LIMIT: Duration = Duration::from_secs(60);
const ASK_EVERY: Duration = Duration::from_millis(10);

/// A server of one test's own, which may be killed and started again. It and its data go with this.
#[derive(Debug)]
pub struct RedisServer {
    // Before the folder.
    server: hapax_servers::RedisServer,
    scratch: Scratch,
}

impl RedisServer {
    /// A new server that keeps what it confirms, once it answers.
    ///
    /// # Panics
    /// When Redis' program is not there, or does not start.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// The same with other settings.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start_with(settings: &[(&str, &str)]) -> Self {
        let mut server = Self::create();
        for (name, value) in settings {
            server.server.set(name, *value);
        }
        server.restart().await;
        server
    }

    /// One that does not run yet.
    ///
    /// # Panics
    /// When there is no free port.
    #[must_use]
    pub fn create() -> Self {
        let scratch = Scratch::new("redis-server");
        let server = hapax_servers::RedisServer::create(scratch.folder());
        Self { server: server.unwrap_or_else(|why| panic!("{why}")), scratch }
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Where its data is.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.scratch.folder()
    }

    /// Its port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.server.port()
    }

    /// Begins again with TLS, with the files that `write` puts into its folder: `certificate.pem`, `key.pem` and
    /// `authority.pem`. Whether clients must show a certificate is `asks`. The port for TLS; `None` where the program has no TLS.
    ///
    /// # Panics
    /// When there is no free port.
    pub async fn with_tls(&mut self, asks: bool, write: impl FnOnce(&Path)) -> Option<u16> {
        write(self.scratch.folder());
        let port = self.server.answer_to_tls(asks).unwrap_or_else(|why| panic!("{why}"));
        self.server.kill();
        self.server.run().unwrap_or_else(|why| panic!("{why}"));
        let begun = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            if self.server.has_ended() {
                return None;
            }
            assert!(begun.elapsed() < START_LIMIT, "it does not answer to TLS\n{}", self.server.log());
            tokio::time::sleep(ASK_EVERY).await;
        }
        Some(port)
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
        let begun = Instant::now();
        loop {
            self.server.run().unwrap_or_else(|why| panic!("{why}"));
            let opened = RedisStreams::options().may_lose(MayLose::Everything).open(self.url()).await;
            let Err(error) = opened else { return };
            // It answers, and is not what queues need, which is what the test is about.
            if error.kind() == hapax::ports::ErrorKind::Misconfigured {
                return;
            }
            assert!(begun.elapsed() < START_LIMIT, "it does not answer: {error:?}\n{}", self.server.log());
            tokio::time::sleep(ASK_EVERY).await;
        }
    }
}
