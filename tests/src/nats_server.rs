//! A server that a test may kill or set otherwise, which it must not do to the server of all tests.

use std::time::Instant;

use hapax::Nats;

use crate::{
    Scratch,
    postgres_server::{ASK_EVERY, START_LIMIT},
};

/// A server of one test's own, which may be killed and started again. It and its data go with this.
#[derive(Debug)]
pub struct NatsServer {
    // Before the folder.
    server: hapax_servers::NatsServer,
    scratch: Scratch,
}

impl NatsServer {
    /// A new server, once it answers.
    ///
    /// # Panics
    /// When NATS's program is not there, or does not start.
    pub async fn start() -> Self {
        Self::told("").await
    }

    /// The same with `more` in its settings.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    pub async fn told(more: &str) -> Self {
        let scratch = Scratch::new("nats-server");
        let server = hapax_servers::NatsServer::create(scratch.folder());
        let mut server = Self { server: server.unwrap_or_else(|why| panic!("{why}")), scratch };
        server.server.configure(more).unwrap_or_else(|why| panic!("{why}"));
        server.restart().await;
        server
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Its port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.server.port()
    }

    /// Begins again with `more` in its settings. It is not waited for until it answers.
    ///
    /// # Panics
    /// When it does not begin.
    pub fn told_anew(&mut self, more: &str) {
        self.server.configure(more).unwrap_or_else(|why| panic!("{why}"));
        self.server.kill();
        self.server.run().unwrap_or_else(|why| panic!("{why}"));
    }

    /// Begins again with TLS, with the files that `write` puts into its folder: `certificate.pem`, `key.pem` and
    /// `authority.pem`. Whether clients must show a certificate is `asks`. It is not waited for until it answers.
    ///
    /// # Panics
    /// When it does not begin.
    pub fn with_tls(&mut self, asks: bool, write: impl FnOnce(&std::path::Path)) {
        write(self.scratch.folder());
        self.server.want_tls(asks).unwrap_or_else(|why| panic!("{why}"));
        self.server.kill();
        self.server.run().unwrap_or_else(|why| panic!("{why}"));
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

    /// Runs it again, until it answers and has what queues need.
    ///
    /// # Panics
    /// When it does not.
    pub async fn restart(&mut self) {
        let begun = Instant::now();
        loop {
            self.server.run().unwrap_or_else(|why| panic!("{why}"));
            let opened = Nats::open(self.url()).await;
            let Err(error) = opened else { return };
            assert!(begun.elapsed() < START_LIMIT, "it does not answer: {error:?}\n{}", self.server.log());
            tokio::time::sleep(ASK_EVERY).await;
        }
    }
}
