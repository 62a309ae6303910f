//! How the store is opened: each bound with its default and the reason for it. What the client library cannot tell of an account has to
//! be known, and said.

use std::{fmt, time::Duration};

use azure_data_cosmos::{CosmosClient, DatabaseClient};
use hapax_core::ports::StoreError;

use super::{
    CosmosDb,
    error::unfit,
    places::{PARTITION_PATH, property_of},
    start,
};

/// How long a call is waited for, its repetitions by the client library included. After that the outcome of a write is
/// unknown. Default 10 s: below the deadline of a pass, and ten times what a distant region takes.
const CALL_LIMIT: Duration = Duration::from_secs(10);
/// How long the client library waits, at most, while the service says that there are too many requests. Default half of the
/// call's time, so that a call refused for this reason is told so and not given up with an unknown outcome.
const THROTTLE_SHARE: u32 = 2;
/// How long dedup entries are kept at least. Default a week: the longest that usual brokers keep a message is less.
const KEEPS: Duration = Duration::from_secs(7 * 24 * 3600);
/// How much longer the service is told to keep them: a day covers any clock and any pass that is still under way.
pub(super) const KEEPS_MARGIN: Duration = Duration::from_secs(24 * 3600);
/// The container of everything, or of all but the dedup entries.
const CONTAINER: &str = "hapax";
/// The container of the dedup entries where they are apart.
const DEDUP_CONTAINER: &str = "hapax-dedup";

/// Where dedup entries are kept. Complete: there is no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layout {
    /// With their entity, in its partition: a save and the dedup entries of messages with nothing outgoing are one batch, and
    /// so are marks and clean-up. A message costs four calls, or three when it sends nothing. For one store that keeps both
    /// ([`Stores::one`](hapax_core::manager::Stores::one)): entries cannot be added without their entity, and looking them up
    /// without it asks every partition.
    Together,
    /// In a container of their own, each in a partition of its own, found by its key alone. A message costs five calls. For
    /// any pair of stores.
    Apart,
}

impl Layout {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Together => "together",
            Self::Apart => "apart",
        }
    }
}

/// How a [`CosmosDb`] store is opened. From [`CosmosDb::options`].
#[derive(Clone)]
#[must_use]
pub struct CosmosDbOptions {
    pub(super) client: CosmosClient,
    pub(super) database: String,
    pub(super) container: String,
    pub(super) dedup_container: String,
    pub(super) partition_path: String,
    pub(super) layout: Layout,
    pub(super) create_if_missing: bool,
    pub(super) keeps: Duration,
    pub(super) call_limit: Duration,
    pub(super) one_write_region: bool,
}

impl CosmosDbOptions {
    pub(super) fn new(client: CosmosClient, database: impl Into<String>) -> Self {
        Self {
            client,
            database: database.into(),
            container: CONTAINER.to_owned(),
            dedup_container: DEDUP_CONTAINER.to_owned(),
            partition_path: PARTITION_PATH.to_owned(),
            layout: Layout::Together,
            create_if_missing: false,
            keeps: KEEPS,
            call_limit: CALL_LIMIT,
            one_write_region: false,
        }
    }

    /// The container of entities, dead letters and, [together](Layout::Together), dedup entries. Default `hapax`.
    pub fn container(mut self, name: impl Into<String>) -> Self {
        self.container = name.into();
        self
    }

    /// The container of the dedup entries where they are [apart](Layout::Apart). Default `hapax-dedup`.
    pub fn dedup_container(mut self, name: impl Into<String>) -> Self {
        self.dedup_container = name.into();
        self
    }

    /// The partition key path of the [container](Self::container), for one that has documents of your own, beside which you
    /// [enqueue](CosmosDb::enqueue) messages: one property at the top of a document, as `/customer`, and none that the store
    /// has itself. Default `/pk`. The container's default time to live is `-1` all the same: without a `ttl` of their own, documents
    /// stay.
    pub fn partition_path(mut self, path: impl Into<String>) -> Self {
        self.partition_path = path.into();
        self
    }

    /// Where dedup entries are kept. Default [`Layout::Together`]. Fixed once the container is in use.
    pub const fn layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// Creates the database and the containers if they are not there, with the service's default throughput. Default no: it
    /// takes an account's key, since roles of the data plane do not allow it.
    pub const fn create_if_missing(mut self, create: bool) -> Self {
        self.create_if_missing = create;
        self
    }

    /// How long dedup entries are kept at least; no endpoint may ask for a longer retention. In whole seconds; default seven
    /// days. The service is told to keep them a day longer. Fixed once the container is in use.
    pub const fn keeps(mut self, keeps: Duration) -> Self {
        self.keeps = keeps;
        self
    }

    /// How long a call is waited for, before the outcome of a write is unknown. Default 10 s. Opening may take six times as long.
    pub const fn call_limit(mut self, limit: Duration) -> Self {
        self.call_limit = limit;
        self
    }

    /// You know that the account takes writes in one region only, though its consistency is below *strong*. Default no: the
    /// account has to be strong, and an account that is strong has one write region.
    ///
    /// The client library does not tell how many regions take writes, so this is **not checked**: with several, two of them
    /// handle a message twice. While the writes of such an account move to another region, a program that does not write may
    /// still ask the old one, see the chapter on Cosmos DB.
    pub const fn one_write_region(mut self, known: bool) -> Self {
        self.one_write_region = known;
        self
    }

    /// Opens the store.
    ///
    /// # Errors
    /// [`ErrorKind::Absent`](hapax_core::ports::ErrorKind::Absent) with the remedy, where containers are missing, and
    /// [`ErrorKind::Misconfigured`](hapax_core::ports::ErrorKind::Misconfigured) where they are not as they have to be, where the
    /// account is not strong, and where the environment switches hedging on;
    /// [`ErrorKind::Denied`](hapax_core::ports::ErrorKind::Denied) where an identity is to make containers. Else what the service
    /// says, or after six times the [`call_limit`](Self::call_limit) that it says nothing.
    pub async fn open(self) -> Result<CosmosDb, StoreError> {
        start::open(self).await
    }

    pub(super) fn checked(self) -> Result<Self, StoreError> {
        if self.keeps.as_secs() == 0 || self.keeps.subsec_nanos() != 0 {
            return Err(unfit(format!("dedup entries cannot be kept for {:?}; give whole seconds", self.keeps)));
        }
        if self.keeps.saturating_add(KEEPS_MARGIN).as_secs() > i32::MAX as u64 {
            return Err(unfit("dedup entries cannot be kept for more than 68 years; give less"));
        }
        if self.call_limit.is_zero() {
            return Err(unfit("calls have no time at all; raise the limit of a call"));
        }
        if self.layout == Layout::Apart && self.container == self.dedup_container {
            return Err(unfit("dedup entries that are apart need a container of their own; give it another name"));
        }
        let path = &self.partition_path;
        if property_of(path).is_none() {
            return Err(unfit(format!(
                "documents cannot have their partition key at {path}; use a container whose partition key path is one property \
                 at the top of a document, as /customer, that the store does not use itself"
            )));
        }
        Ok(self)
    }

    pub(super) fn throttle_wait(&self) -> Duration {
        self.call_limit / THROTTLE_SHARE
    }

    pub(super) fn database_client(&self) -> DatabaseClient {
        self.client.database_client(self.database.clone())
    }
}

impl fmt::Debug for CosmosDbOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CosmosDbOptions")
            .field("database", &self.database)
            .field("container", &self.container)
            .field("layout", &self.layout)
            .finish_non_exhaustive()
    }
}
