//! A server that a test may kill or set otherwise. It counts as up when queues can be opened on it.

use std::time::{Duration, Instant};

use hapax::RabbitMq;

use crate::{Scratch, postgres_server::ASK_EVERY};

/// Erlang takes several seconds by itself, and a minute and more beside compilers on two processors.
const START_LIMIT: Duration = Duration::from_secs(180);

/// A server of one test's own, which may be killed and started again. It and its data go with this.
#[derive(Debug)]
pub struct RabbitMqServer {
    // Before the folder.
    server: hapax_servers::RabbitMqServer,
    scratch: Scratch,
}

impl RabbitMqServer {
    /// A new server, once it answers.
    ///
    /// # Panics
    /// When RabbitMQ's program is not there, or does not start.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// The same, with some numbers of its application `rabbit` set.
    ///
    /// # Panics
    /// The same.
    pub async fn start_with(settings: &[(&str, u64)]) -> Self {
        let mut server = Self::create();
        settings.iter().for_each(|(name, number)| server.server.set(name, *number));
        server.restart().await;
        server
    }

    /// The same, with what `rabbitmqadmin` asks, and its port.
    ///
    /// # Panics
    /// The same.
    pub async fn start_with_tools() -> (Self, u16) {
        let mut server = Self::create();
        let port = server.server.answer_to_tools().unwrap_or_else(|why| panic!("{why}"));
        server.restart().await;
        (server, port)
    }

    /// The same, with the plugin by which it speaks AMQP 1.0 too, on the same port.
    ///
    /// # Panics
    /// The same.
    pub async fn with_amqp_1_0() -> Self {
        Self::with_amqp_1_0_and(&[]).await
    }

    /// The same, with some numbers of its application `rabbit` set.
    ///
    /// # Panics
    /// The same.
    pub async fn with_amqp_1_0_and(settings: &[(&str, u64)]) -> Self {
        let mut server = Self::create();
        server.server.enable("rabbitmq_amqp1_0").unwrap_or_else(|why| panic!("{why}"));
        settings.iter().for_each(|(name, number)| server.server.set(name, *number));
        server.restart().await;
        server
    }

    fn create() -> Self {
        let scratch = Scratch::new("rabbitmq-server");
        let server = hapax_servers::RabbitMqServer::create(scratch.folder());
        Self { server: server.unwrap_or_else(|why| panic!("{why}")), scratch }
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Begins again with TLS, with the files that `write` puts into its folder: `certificate.pem`, `key.pem` and
    /// `authority.pem`. Whether clients must show a certificate is `asks`. The port for TLS.
    ///
    /// # Panics
    /// When it does not.
    pub async fn with_tls(&mut self, asks: bool, write: impl FnOnce(&std::path::Path)) -> u16 {
        write(self.scratch.folder());
        let port = self.server.answer_to_tls(asks).unwrap_or_else(|why| panic!("{why}"));
        self.server.kill();
        self.restart().await;
        port
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
            let opened = RabbitMq::open(self.url()).await;
            let Err(error) = opened else { return };
            assert!(begun.elapsed() < START_LIMIT, "it does not answer: {error:?}\n{}", self.server.log());
            tokio::time::sleep(ASK_EVERY).await;
        }
    }
}
