//! An emulator that a test may kill, and that keeps what it has confirmed or forgets it, as the test is about.

use std::time::{Duration, Instant};

use hapax::Sqs;

use crate::Scratch;

/// One that needs longer to answer hangs; Python needs a few seconds on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(120);
const ASK_EVERY: Duration = Duration::from_millis(50);

/// An emulator of SQS of one test's own, which may be killed and started again. It and its data go with this.
#[derive(Debug)]
pub struct SqsServer {
    // Before the folder.
    server: hapax_servers::SqsServer,
    _scratch: Scratch,
}

impl SqsServer {
    /// A new one that keeps what it confirms, once it answers.
    ///
    /// # Panics
    /// When it is not installed, or does not start.
    pub async fn start() -> Self {
        Self::begun(|server| server).await
    }

    /// One that has nothing any more once it was killed.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    pub async fn that_forgets() -> Self {
        Self::begun(hapax_servers::SqsServer::that_forgets).await
    }

    async fn begun(with: impl FnOnce(hapax_servers::SqsServer) -> hapax_servers::SqsServer) -> Self {
        let scratch = Scratch::new("sqs-server");
        let server = hapax_servers::SqsServer::create(scratch.folder()).unwrap_or_else(|why| panic!("{why}"));
        let mut server = Self { server: with(server), _scratch: scratch };
        server.restart().await;
        server
    }

    /// Where it is.
    #[must_use]
    pub fn url(&self) -> String {
        self.server.url()
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
            let Err(error) = Sqs::open(&Sqs::local_client(&self.url())).await else { return };
            assert!(begun.elapsed() < START_LIMIT, "it does not answer: {error:?}\n{}", self.server.log());
            tokio::time::sleep(ASK_EVERY).await;
        }
    }
}
