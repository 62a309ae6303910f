//! Cosmos DB without TLS.

use azure_core::credentials::Secret;
use azure_data_cosmos::{AccountReference, CosmosClient, RoutingStrategy, options::Region};
use hapax::{CosmosDb, stores::cosmos::CosmosDbOptions};

use crate::failure::Failure;

/// An emulator takes any key.
const KEY: &str = "aGFwYXg=";

pub(super) async fn open(host: &str, database: &str, create: bool) -> Result<CosmosDb, Failure> {
    let store = options(host, database).await?.create_if_missing(create).open().await;
    store.map_err(|error| super::opening(&error))
}

pub(super) async fn options(host: &str, database: &str) -> Result<CosmosDbOptions, Failure> {
    let url = format!("http://{host}/");
    let endpoint =
        url.parse().map_err(|_| Failure::usage(format!("`{url}` is no address: write cosmos://HOST:PORT/DATABASE")))?;
    let account = AccountReference::with_authentication_key(endpoint, Secret::new(KEY));
    let client = CosmosClient::builder().build(account, RoutingStrategy::ProximityTo(Region::EAST_US)).await;
    Ok(CosmosDb::options(client.map_err(|error| Failure::of(&error))?, database))
}
