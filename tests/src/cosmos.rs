//! A database of each test's own, on the emulator or in the service itself: nothing has to be cleaned up before, and tests run side by side.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering},
};

use azure_core::credentials::{Secret, TokenCredential};
use azure_data_cosmos::{
    AccountEndpoint, AccountReference, CosmosClient, CosmosRuntime, RoutingStrategy, options::Region,
};
use hapax::{
    CosmosDb,
    ports::{ErrorKind, StoreError},
    stores::cosmos::{CosmosDbOptions, Layout},
};

use crate::{
    http_faults::{Asked, FaultProxy},
    real::{self, AZURE},
};

/// Where the emulator is: set by `cargo xtask test`.
const SERVER: &str = "HAPAX_TEST_COSMOS";
/// The emulator does not look at it.
const KEY: &str = "dGVzdGtleQ==";
/// Where the service itself is, and a key of the account: making databases takes one.
const ENDPOINT_OF_SERVICE: &str = "HAPAX_AZURE_COSMOS_ENDPOINT";
const KEY_OF_SERVICE: &str = "HAPAX_AZURE_COSMOS_KEY";

/// A database that no other test uses: on the emulator, whose databases are not removed since it has them in memory; or in
/// Cosmos DB [itself](real), and removed when the test's thread ends.
#[derive(Debug, Clone)]
pub struct CosmosDatabase {
    url: String,
    name: String,
    layout: Layout,
    path: Option<&'static str>,
}

impl CosmosDatabase {
    /// A name that no other test uses; there is no such database yet.
    ///
    /// # Panics
    /// When no emulator is known.
    #[must_use]
    pub fn new(layout: Layout) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("hapax-t-{}-{number}-{:08x}", std::process::id(), fastrand::u32(..));
        if real::is_asked(AZURE) {
            let database = Self { url: before_the_service().to_owned(), name, layout, path: None };
            database.remove_later();
            return database;
        }
        let url = std::env::var(SERVER).unwrap_or_else(|_| {
            panic!("no Cosmos DB emulator to test with: run `cargo xtask test`, or set {SERVER}=http://HOST:PORT")
        });
        Self { url, name, layout, path: None }
    }

    #[cfg(feature = "real")]
    fn remove_later(&self) {
        let database = self.clone();
        real::remove_later(format!("the database {} in Cosmos DB", self.name), || async move {
            let deleted = database.client().await.database_client(database.name).delete(None).await;
            match deleted {
                Err(error) if !error.status().is_not_found() => Err(error.to_string()),
                _ => Ok(()),
            }
        });
    }

    #[cfg(not(feature = "real"))]
    const fn remove_later(&self) {}

    /// The same database with another partition key path.
    #[must_use]
    pub const fn partition_path(mut self, path: &'static str) -> Self {
        self.path = Some(path);
        self
    }

    /// The one of that name, as another process made it.
    #[must_use]
    pub fn named(url: &str, name: &str, layout: Layout) -> Self {
        Self { url: url.to_owned(), name: name.to_owned(), layout, path: None }
    }

    /// The same database by another way, for example through a proxy.
    #[must_use]
    pub fn through(&self, url: &str) -> Self {
        Self { url: url.to_owned(), ..self.clone() }
    }

    /// Where the emulator is, or what stands before the service itself.
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
        self.try_client().await.expect("a client of Cosmos DB")
    }

    async fn try_client(&self) -> azure_data_cosmos::Result<CosmosClient> {
        Self::client_of(AccountReference::with_authentication_key(self.endpoint(), Secret::new(key()))).await
    }

    fn endpoint(&self) -> AccountEndpoint {
        self.url.parse().expect("the emulator's address is a URL")
    }

    async fn client_of(account: AccountReference) -> azure_data_cosmos::Result<CosmosClient> {
        // The library's connections are the process's by default, and end with the runtime of the test that opened them.
        let runtime = CosmosRuntime::builder().build().await.expect("connections of its own");
        let builder = CosmosClient::builder().with_runtime(runtime);
        builder.build(account, RoutingStrategy::ProximityTo(Region::EAST_US)).await
    }

    /// How a store in it is opened; database and containers are made.
    ///
    /// # Panics
    /// When the emulator does not answer.
    pub async fn options(&self) -> CosmosDbOptions {
        self.options_of(self.client().await)
    }

    /// The same where the emulator may not answer.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`]: it does not.
    pub async fn try_options(&self) -> Result<CosmosDbOptions, StoreError> {
        let failed = |e| StoreError::new(ErrorKind::Unavailable, "building a client", "no answer").caused_by(e);
        Ok(self.options_of(self.try_client().await.map_err(failed)?))
    }

    /// How a store in it is opened by an identity, which makes nothing: making databases takes a key.
    ///
    /// # Panics
    /// When the emulator does not answer.
    pub async fn options_as(&self, identity: Arc<dyn TokenCredential>) -> CosmosDbOptions {
        let account = AccountReference::with_credential(self.endpoint(), identity);
        self.options_of(Self::client_of(account).await.expect("a client of Cosmos DB")).create_if_missing(false)
    }

    fn options_of(&self, client: CosmosClient) -> CosmosDbOptions {
        let options = CosmosDb::options(client, &self.name).layout(self.layout).create_if_missing(true);
        match self.path {
            Some(path) => options.partition_path(path),
            None => options,
        }
    }

    /// A store in it.
    ///
    /// # Panics
    /// When it cannot be opened.
    pub async fn open(&self) -> CosmosDb {
        self.options().await.open().await.expect("a store in Cosmos DB")
    }
}

/// Where clients find the service itself: a proxy of this process, which speaks TLS to it. The client library takes plain HTTP on
/// this host, signs neither host nor port, and with TLS of its own it would bring another library along.
fn before_the_service() -> &'static str {
    static PROXY: OnceLock<FaultProxy> = OnceLock::new();
    let start = || {
        let url = real::needed(AZURE, ENDPOINT_OF_SERVICE, "https://ACCOUNT.documents.azure.com/");
        let _ = key(); // Both are named before anything is asked.
        FaultProxy::start(&url).unwrap_or_else(|error| panic!("{ENDPOINT_OF_SERVICE}: {error}"))
    };
    PROXY.get_or_init(start).url()
}

fn key() -> String {
    match real::is_asked(AZURE) {
        true => real::needed(AZURE, KEY_OF_SERVICE, "a key of the account that may write"),
        false => KEY.to_owned(),
    }
}
