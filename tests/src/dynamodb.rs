//! A table of each test's own, on the emulator or in the service itself: nothing has to be cleaned up before, and tests run side by side.

use std::sync::atomic::{AtomicU64, Ordering};

use aws_sdk_dynamodb::{Client, config::Intercept};
use hapax::{DynamoDb, stores::dynamodb::DynamoDbOptions};

use crate::real::{self, AWS};

/// Where the emulator is: set by `cargo xtask test`.
const SERVER: &str = "HAPAX_TEST_DYNAMODB";

/// A table that no other test uses: on the emulator, whose tables are not removed since it has them in memory; or on DynamoDB
/// [itself](real), and removed when the test's thread ends.
#[derive(Debug, Clone)]
pub struct DynamoDbTable {
    /// None on the service itself, which has addresses of its own.
    url: Option<String>,
    name: String,
}

impl DynamoDbTable {
    /// A name that no other test uses; there is no such table yet.
    ///
    /// # Panics
    /// When no emulator is known and the service itself is not asked for.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "nobody expects a default to panic")]
    pub fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("hapax-t-{}-{number}-{:08x}", std::process::id(), fastrand::u32(..));
        if real::is_asked(AWS) {
            return Self::in_the_service(name);
        }
        let url = std::env::var(SERVER).unwrap_or_else(|_| {
            panic!("no DynamoDB emulator to test with: run `cargo xtask test`, or set {SERVER}=http://HOST:PORT")
        });
        Self { url: Some(url), name }
    }

    #[cfg(feature = "real")]
    fn in_the_service(name: String) -> Self {
        let table = name.clone();
        real::remove_later(format!("the table {name} in DynamoDB"), || async move {
            let deleted = real::dynamodb_client().delete_table().table_name(table).send().await;
            match deleted.map_err(aws_sdk_dynamodb::Error::from) {
                Ok(_) | Err(aws_sdk_dynamodb::Error::ResourceNotFoundException(_)) => Ok(()),
                Err(error) => Err(error.to_string()),
            }
        });
        Self { url: None, name }
    }

    #[cfg(not(feature = "real"))]
    fn in_the_service(_: String) -> Self {
        unreachable!("who asks for it without the feature is refused")
    }

    /// The one of that name, as another process made it.
    #[must_use]
    pub fn named(url: &str, name: &str) -> Self {
        Self { url: Some(url.to_owned()), name: name.to_owned() }
    }

    /// The same table by another way, for example through a proxy.
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
        self.url.as_deref().unwrap_or_else(|| panic!("no proxy can stand before DynamoDB itself: unset {AWS}"))
    }

    /// The table's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A client with connections of its own.
    #[must_use]
    pub fn client(&self) -> Client {
        match &self.url {
            Some(url) => DynamoDb::local_client(url),
            #[cfg(feature = "real")]
            None => real::dynamodb_client(),
            #[cfg(not(feature = "real"))]
            None => unreachable!("who asks for it without the feature is refused"),
        }
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
