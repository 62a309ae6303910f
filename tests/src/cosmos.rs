use std::sync::atomic::{AtomicU64, Ordering};

use azure_core::credentials::Secret;
use azure_data_cosmos::{AccountReference, CosmosClient, CosmosRuntime, RoutingStrategy, options::Region};
use hapax::{
    CosmosDb,
    stores::cosmos::{CosmosDbOptions, Layout},
};

use crate::http_faults::Asked;

/// Where the emulator is: set by `cargo xtask test`.
const SERVER: &str = "HAPAX_TEST_COSMOS";
/// The emulator does not look at it.
const KEY: &str = "dGVzdGtleQ==";

/// A database that no other test uses. Databases are not removed: the emulator that `cargo xtask test` starts has them in
/// memory.
#[derive(Debug, Clone)]
pub struct CosmosDatabase {
    url: String,
    name: String,
    layout: Layout,
}

impl CosmosDatabase {
    /// A name that no other test uses; there is no such database yet.
    ///
    /// # Panics
    /// When no emulator is known.
    #[must_use]
    pub fn new(layout: Layout) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let url = std::env::var(SERVER).unwrap_or_else(|_| {
            panic!("no Cosmos DB emulator to test with: run `cargo xtask test`, or set {SERVER}=http://HOST:PORT")
        });
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("t-{}-{number}-{:08x}", std::process::id(), fastrand::u32(..));
        Self { url, name, layout }
    }

    /// The same database by another way, for example through a proxy.
    #[must_use]
    pub fn through(&self, url: &str) -> Self {
        Self { url: url.to_owned(), ..self.clone() }
    }

    /// Where the emulator is.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The database's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether a request writes an item, or several.
    #[must_use]
    pub fn is_write(asked: &Asked) -> bool {
        let is_query =
            asked.header("x-ms-documentdb-isquery").or_else(|| asked.header("x-ms-cosmos-is-query-plan-request"));
        asked.path().contains("/docs") && asked.method() != "GET" && is_query.is_none()
    }

    /// A client with connections of its own.
    ///
    /// # Panics
    /// When the emulator does not answer.
    pub async fn client(&self) -> CosmosClient {
        let endpoint = self.url.parse().expect("the emulator's address is a URL");
        let account = AccountReference::with_authentication_key(endpoint, Secret::new(KEY));
        // The library's connections are the process's by default, and end with the runtime of the test that opened them.
        let runtime = CosmosRuntime::builder().build().await.expect("connections of its own");
        let builder = CosmosClient::builder().with_runtime(runtime);
        let client = builder.build(account, RoutingStrategy::ProximityTo(Region::EAST_US)).await;
        client.expect("a client of the emulator")
    }

    /// How a store in it is opened; database and containers are made.
    ///
    /// # Panics
    /// When the emulator does not answer.
    pub async fn options(&self) -> CosmosDbOptions {
        CosmosDb::options(self.client().await, &self.name).layout(self.layout).create(true)
    }

    /// A store in it.
    ///
    /// # Panics
    /// When it cannot be opened.
    pub async fn open(&self) -> CosmosDb {
        self.options().await.open().await.expect("a store in Cosmos DB")
    }
}
