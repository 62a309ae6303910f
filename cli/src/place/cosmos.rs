//! Cosmos DB without TLS.

use azure_core::credentials::Secret;
use azure_data_cosmos::{AccountReference, CosmosClient, RoutingStrategy, options::Region};
use hapax::CosmosDb;

use crate::failure::Failure;

/// An emulator takes any key.
const KEY: &str = "aGFwYXg=";

pub(super) async fn open(host: &str, database: &str, create: bool) -> Result<CosmosDb, Failure> {
    let url = format!("http://{host}/");
    let endpoint =
        url.parse().map_err(|_| Failure::usage(format!("`{url}` is no address: write cosmos://HOST:PORT/DATABASE")))?;
    let account = AccountReference::with_authentication_key(endpoint, Secret::new(KEY));
    let client = CosmosClient::builder().build(account, RoutingStrategy::ProximityTo(Region::EAST_US)).await;
    let client = client.map_err(|error| Failure::of(&error))?;
    let store = CosmosDb::options(client, database).create_if_missing(create).open().await;
    store.map_err(|error| super::opening(&error))
}
