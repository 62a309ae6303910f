//! Entities, dedup entries and dead letters in one DynamoDB table.
//!
//! An entity with its outbox is one item under a condition on its version; what does not fit into an item is in chunks that are
//! written in the same transaction. What a message needs is four requests: two reads, a save and a finish. See
//! `docs/dynamodb.md` for limits, cost and set-up.
//!
//! # Time
//! DynamoDB has no clock to ask. What the store stamps (since when an entry waits, when a tombstone became one, when a dedup entry
//! may be removed) it stamps by the header `Date` of the service's answers, which tells it to a second; and by this machine's
//! clock only as long as no answer has such a header.

mod call;
mod clock;
mod dedup;
mod enqueue;
mod entity;
#[cfg(feature = "fuzzing")]
mod fuzzing;
#[cfg(test)]
mod golden;
mod keys;
mod letters;
mod options;
mod policy;
mod ports;
mod read;
mod survey;
mod table;
mod token;
mod upkeep;
mod write;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use aws_sdk_dynamodb::{
    Client,
    config::{BehaviorVersion, Config, Credentials, Region},
    types::ConsumedCapacity,
};

#[cfg(feature = "fuzzing")]
pub use self::fuzzing::fuzz;
use self::{call::Limits, clock::ServiceClock};
pub use self::{
    dedup::REPLY_BYTES_MAX,
    entity::ENTITY_BYTES_MAX,
    options::{ATTEMPT_LIMIT, CALL_LIMIT, DynamoDbOptions, KEEPS, MARGIN},
};

/// The store's name in messages.
const NAME: &str = "dynamodb";

/// Entities, dedup entries and dead letters in one DynamoDB table. Cloning gives another handle to the same store.
///
/// # Limits
/// An entity has at most [`ENTITY_BYTES_MAX`] bytes, a kept reply at most [`REPLY_BYTES_MAX`]. Beyond some 390 KB an entity is
/// kept in several items and each of its saves is a transaction, which costs twice as much. Dedup entries are kept for the time
/// that the table was opened with, see [`DynamoDbOptions::keeps`].
#[derive(Clone)]
pub struct DynamoDb(Arc<Inner>);

struct Inner {
    client: Client,
    table: String,
    limits: Limits,
    clock: Arc<ServiceClock>,
    /// How long dedup entries are kept at least.
    keeps: Duration,
    margin: Duration,
    /// What calls have cost, in tenths of a unit.
    units: AtomicU64,
}

impl DynamoDb {
    /// How to open the store that is in `table`. The client comes with region, credentials and TLS; its interceptors and its
    /// HTTP client are used, its repetitions and time limits are not.
    #[must_use]
    pub fn options(client: Client, table: impl Into<String>) -> DynamoDbOptions {
        DynamoDbOptions::new(client, table.into())
    }

    /// A client for an emulator at `endpoint_url`: plain HTTP, credentials that mean nothing.
    #[must_use]
    pub fn local_client(endpoint_url: &str) -> Client {
        let config = Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .credentials_provider(Credentials::new("local", "local", None, None, "hapax local client"))
            .endpoint_url(endpoint_url)
            .http_client(aws_smithy_http_client::Builder::new().build_http())
            .build();
        Client::from_conf(config)
    }

    /// What a role needs to be allowed to use the table with this ARN, as an IAM policy. With `create_if_missing` it needs
    /// `dynamodb:CreateTable` and `dynamodb:UpdateTimeToLive` besides.
    #[must_use]
    pub fn policy_json(table_arn: &str) -> String {
        policy::json(table_arn)
    }

    /// The table.
    #[must_use]
    pub fn table(&self) -> &str {
        &self.0.table
    }

    /// Request units that the calls of this handle and its clones have consumed since it was opened, reads and writes together,
    /// as the service's answers say. Calls that were refused are not in it.
    #[must_use]
    pub fn units(&self) -> f64 {
        self.0.units.load(Ordering::Relaxed) as f64 / 10.0
    }

    fn spent<'a>(&self, consumed: impl IntoIterator<Item = &'a ConsumedCapacity>) {
        let units: f64 = consumed.into_iter().filter_map(ConsumedCapacity::capacity_units).sum();
        self.0.units.fetch_add((units * 10.0).round() as u64, Ordering::Relaxed);
    }
}

impl fmt::Debug for DynamoDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynamoDb").field("table", &self.0.table).field("keeps", &self.0.keeps).finish_non_exhaustive()
    }
}
