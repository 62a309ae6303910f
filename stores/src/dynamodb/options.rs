//! How the store is opened.

use std::{sync::Arc, time::Duration};

use aws_sdk_dynamodb::{
    Client,
    config::{retry::RetryConfig, timeout::TimeoutConfig},
};
use hapax_core::ports::StoreError;

use super::{
    DynamoDb, Inner,
    call::Limits,
    clock::{Listen, ServiceClock},
    table,
};

/// Longest time that one call of the store may wait for the service, with all its tries, unless told otherwise: a request takes
/// milliseconds, and a message waits for it. A request of megabytes is given a second more for each half of one.
pub const CALL_LIMIT: Duration = Duration::from_secs(5);
/// Longest time that one try may take, unless told otherwise: leaves room for a second one.
pub const ATTEMPT_LIMIT: Duration = Duration::from_secs(2);
/// How long dedup entries are kept, unless told otherwise: longer than most queues repeat a message.
pub const KEEPS: Duration = Duration::from_secs(7 * 24 * 3600);
/// How much longer than that their time to live is, unless told otherwise: above any difference of clocks.
pub const MARGIN: Duration = Duration::from_secs(24 * 3600);

/// How to open the store, see [`DynamoDb::options`].
#[derive(Debug, Clone)]
pub struct DynamoDbOptions {
    client: Client,
    pub(super) table: String,
    limits: Limits,
    pub(super) keeps: Duration,
    margin: Duration,
    pub(super) create: bool,
    pub(super) pinned: bool,
}

impl DynamoDbOptions {
    pub(super) fn new(client: Client, table: String) -> Self {
        let limits = Limits { call: CALL_LIMIT, attempt: ATTEMPT_LIMIT };
        Self { client, table, limits, keeps: KEEPS, margin: MARGIN, create: false, pinned: false }
    }

    /// Creates the table where there is none: on demand, with its index and its time to live. Default: no, and a table that is not
    /// there is an error.
    #[must_use]
    pub fn create_if_missing(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Dedup entries are kept at least this long: no endpoint on the table may ask for a longer retention. The longest that any
    /// store was ever opened with counts, and is kept in the table. Entries keep the time that they were inserted with, so
    /// raise it in every process, and wait for as long as it was before, before an endpoint asks for more. Default [`KEEPS`].
    #[must_use]
    pub fn keeps(mut self, keeps: Duration) -> Self {
        self.keeps = keeps;
        self
    }

    /// How much longer the time to live of a dedup entry is. Default [`MARGIN`].
    #[must_use]
    pub fn margin(mut self, margin: Duration) -> Self {
        self.margin = margin;
        self
    }

    /// Longest time that one call may wait for the service, with all its tries. A write that has not been answered by then has an
    /// unknown outcome. Default [`CALL_LIMIT`].
    #[must_use]
    pub fn call_limit(mut self, limit: Duration) -> Self {
        self.limits.call = limit;
        self
    }

    /// Longest time that one try of a call may take. Default [`ATTEMPT_LIMIT`].
    #[must_use]
    pub fn attempt_limit(mut self, limit: Duration) -> Self {
        self.limits.attempt = limit;
        self
    }

    /// Takes a table with replicas in other regions. Say so only where every process of every endpoint on it uses one and the same
    /// region: a condition holds within a region alone, and of two regions' saves one is lost in silence. Default: no, and such
    /// a table is refused.
    #[must_use]
    pub fn global_table_pinned(mut self, pinned: bool) -> Self {
        self.pinned = pinned;
        self
    }

    /// Opens the store: looks at the table, creates it if told so, and learns the service's time.
    ///
    /// # Errors
    /// [`Misconfigured`](hapax_core::ports::ErrorKind::Misconfigured) for a table that is not as the store needs it, with what to
    /// change; [`Denied`](hapax_core::ports::ErrorKind::Denied) without the permissions of [`DynamoDb::policy_json`];
    /// [`Unavailable`](hapax_core::ports::ErrorKind::Unavailable) when the service does not answer.
    pub async fn open(self) -> Result<DynamoDb, StoreError> {
        let clock = Arc::new(ServiceClock::new());
        let config = self
            .client
            .config()
            .to_builder()
            .retry_config(RetryConfig::disabled())
            .timeout_config(TimeoutConfig::disabled())
            .interceptor(Listen(clock.clone()))
            .build();
        let mut store = Inner {
            client: Client::from_conf(config),
            table: self.table.clone(),
            limits: self.limits,
            clock,
            keeps: self.keeps,
            margin: self.margin,
            units: Default::default(),
        };
        store.keeps = table::open(&store, &self).await?;
        Ok(DynamoDb(Arc::new(store)))
    }
}
