//! Entities, dedup entries and dead letters in Cosmos DB (its API for NoSQL).
//!
//! ```no_run
//! # async fn open() -> Result<(), Box<dyn std::error::Error>> {
//! use azure_core::credentials::Secret;
//! use azure_data_cosmos::{AccountReference, CosmosClient, RoutingStrategy, options::Region};
//! use hapax_stores::CosmosDb;
//!
//! let account = AccountReference::with_authentication_key(
//!     "https://example.documents.azure.com/".parse()?,
//!     Secret::new(std::env::var("COSMOS_KEY")?),
//! );
//! let client = CosmosClient::builder().build(account, RoutingStrategy::ProximityTo(Region::WEST_EUROPE)).await?;
//! let store = CosmosDb::options(client, "shop").create_if_missing(true).open().await?;
//! # drop(store);
//! # Ok(())
//! # }
//! ```
//!
//! The client is the user's: with an account's key, or with an identity of Entra ID, over the TLS that the features of
//! `azure_data_cosmos` name. None is chosen here.
//!
//! # What is stored
//! One document for an entity, with its outbox, in a partition of its own; one for each dedup entry, in its entity's partition
//! or [apart](Layout::Apart); one for each dead letter. State and records are base64 in JSON, so an entity has at most
//! 1 400 KiB where the service takes documents of 2 MiB. All documents of an entity are one logical partition, of which the
//! service takes 20 GB.
//!
//! # Consistency
//! A message is handled twice if a read says "not seen" of what is over. So only the answers of the region that takes the
//! writes count, reads are never hedged, and the account has to have one such region: it is *strong*, or the user
//! [says so](CosmosDbOptions::one_write_region).

mod access;
mod calls;
mod documents;
mod enqueue;
mod entities;
mod error;
#[cfg(feature = "fuzzing")]
mod fuzzing;
mod letters;
mod marks;
mod options;
mod places;
mod rows;
mod start;
mod survey;
mod upkeep;
mod waiting;

use std::{fmt, sync::Arc, time::Duration};

use access::Access;
use azure_data_cosmos::CosmosClient;

#[cfg(feature = "fuzzing")]
pub use self::fuzzing::fuzz;
pub use self::options::{CosmosDbOptions, Layout};

/// Name for messages.
const NAME: &str = "cosmos";

/// Entities, dedup entries and dead letters in Cosmos DB. Cloning gives another handle to the same store.
///
/// # Limits
/// An entity has at most 1 400 KiB, and with the dedup entries that are saved in the same batch 2 MB; all documents of an
/// entity together 20 GB. A call is given up after [10 s](CosmosDbOptions::call_limit).
#[derive(Clone)]
pub struct CosmosDb(Arc<Inner>);

struct Inner {
    /// Entities and dead letters.
    everything: Access,
    /// Dedup entries: the same container where they are together.
    marks: Access,
    layout: Layout,
    keeps: Duration,
    /// What the service is told: longer than what is promised.
    kept: Duration,
}

impl CosmosDb {
    /// How to open a store in `database` of the account of `client`.
    pub fn options(client: CosmosClient, database: impl Into<String>) -> CosmosDbOptions {
        CosmosDbOptions::new(client, database)
    }

    /// Request units that the service has charged for the calls of this store and its clones, repetitions by the client
    /// library included: what the service says of each answer, summed up. Calls that were given up are not in it.
    #[must_use]
    pub fn request_units(&self) -> f64 {
        self.0.everything.calls.units()
    }

    /// Requests that the client library has sent for the calls of this store and its clones, as far as it was heard of them.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.0.everything.calls.requests()
    }

    /// Where its dedup entries are.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.0.layout
    }
}

impl fmt::Debug for CosmosDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CosmosDb").field("layout", &self.0.layout).finish_non_exhaustive()
    }
}
