//! Queues of each test's own, on the emulator or in the service itself: nothing has to be cleaned up before, and tests run side by side.

use aws_sdk_sqs::Client;
use hapax::{Sqs, transports::sqs::SqsOptions};

use crate::real::{self, AWS};

/// Where the emulator is: set by `cargo xtask test`.
const SERVER: &str = "HAPAX_TEST_SQS";

/// Queues that no other test uses: on the emulator, whose queues are not removed since it has them in memory; or in SQS
/// [itself](real), and removed when the test's thread ends.
#[derive(Debug, Clone)]
pub struct SqsQueues {
    /// None in the service itself, which has addresses of its own.
    url: Option<String>,
    prefix: String,
}

impl SqsQueues {
    /// A prefix that no other test uses.
    ///
    /// # Panics
    /// When no emulator is known and the service itself is not asked for.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "nobody expects a default to panic")]
    pub fn new() -> Self {
        let prefix = format!("hapax-t-{:016x}", fastrand::u64(..));
        if real::is_asked(AWS) {
            return Self::in_the_service(prefix);
        }
        let url = std::env::var(SERVER).unwrap_or_else(|_| {
            panic!("no SQS emulator to test with: run `cargo xtask test`, or set {SERVER}=http://HOST:PORT")
        });
        Self { url: Some(url), prefix }
    }

    #[cfg(feature = "real")]
    fn in_the_service(prefix: String) -> Self {
        let named = prefix.clone();
        real::remove_later(format!("queues called {prefix}* in SQS"), || async move {
            let client = real::sqs_client();
            let listed = client.list_queues().queue_name_prefix(named).max_results(1000).send().await;
            for url in listed.map_err(|e| e.to_string())?.queue_urls() {
                client.delete_queue().queue_url(url).send().await.map_err(|e| e.to_string())?;
            }
            Ok(())
        });
        Self { url: None, prefix }
    }

    #[cfg(not(feature = "real"))]
    fn in_the_service(_: String) -> Self {
        unreachable!("who asks for it without the feature is refused")
    }

    /// The same queues by another way, for example through a proxy, or on a server of the test's own.
    #[must_use]
    pub fn through(&self, url: &str) -> Self {
        Self { url: Some(url.to_owned()), ..self.clone() }
    }

    /// Where the emulator is.
    ///
    /// # Panics
    /// On the service itself: a request is signed for its own host, and a proxy would be another.
    #[must_use]
    pub fn url(&self) -> &str {
        self.url.as_deref().unwrap_or_else(|| panic!("no proxy can stand before SQS itself: unset {AWS}"))
    }

    /// What the names of the queues begin with.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// A client with connections of its own.
    #[must_use]
    pub fn client(&self) -> Client {
        match &self.url {
            Some(url) => Sqs::local_client(url),
            #[cfg(feature = "real")]
            None => real::sqs_client(),
            #[cfg(not(feature = "real"))]
            None => unreachable!("who asks for it without the feature is refused"),
        }
    }

    /// How they are opened.
    pub fn options(&self) -> SqsOptions {
        Sqs::options().prefix(&self.prefix)
    }

    /// Opened by `options`.
    ///
    /// # Panics
    /// When they cannot be.
    pub async fn open(&self, options: SqsOptions) -> Sqs {
        options.open(&self.client()).await.unwrap_or_else(|e| panic!("{e:?}"))
    }
}
