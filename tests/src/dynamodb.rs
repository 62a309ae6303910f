use std::sync::atomic::{AtomicU64, Ordering};

use aws_sdk_dynamodb::{Client, config::Intercept};
use hapax::{DynamoDb, stores::dynamodb::DynamoDbOptions};

/// Where the emulator is: set by `cargo xtask test`.
const SERVER: &str = "HAPAX_TEST_DYNAMODB";

/// A table that no other test uses. Tables are not removed: the emulator that `cargo xtask test` starts has them in memory.
#[derive(Debug, Clone)]
pub struct DynamoDbTable {
    url: String,
    name: String,
}

impl DynamoDbTable {
    /// A name that no other test uses; there is no such table yet.
    ///
    /// # Panics
    /// When no emulator is known.
    #[must_use]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let url = std::env::var(SERVER).unwrap_or_else(|_| {
            panic!("no DynamoDB emulator to test with: run `cargo xtask test`, or set {SERVER}=http://HOST:PORT")
        });
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Self { url, name: format!("t-{}-{number}-{:08x}", std::process::id(), fastrand::u32(..)) }
    }

    /// The same table by another way, for example through a proxy.
    #[must_use]
    pub fn through(&self, url: &str) -> Self {
        Self { url: url.to_owned(), ..self.clone() }
    }

    /// Where the emulator is.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The table's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A client with connections of its own.
    #[must_use]
    pub fn client(&self) -> Client {
        DynamoDb::local_client(&self.url)
    }

    /// A client whose requests and answers `intercept` sees.
    #[must_use]
    pub fn client_seen_by(&self, intercept: impl Intercept + 'static) -> Client {
        Client::from_conf(self.client().config().to_builder().interceptor(intercept).build())
    }

    /// How a store in it is opened by `client`; the table is made.
    #[must_use]
    pub fn options_of(&self, client: Client) -> DynamoDbOptions {
        DynamoDb::options(client, &self.name).create_if_missing(true)
    }

    /// How a store in it is opened; the table is made.
    #[must_use]
    pub fn options(&self) -> DynamoDbOptions {
        self.options_of(self.client())
    }

    /// A store in it.
    ///
    /// # Panics
    /// When it cannot be opened.
    pub async fn open(&self) -> DynamoDb {
        self.options().open().await.expect("a store in DynamoDB")
    }
}
