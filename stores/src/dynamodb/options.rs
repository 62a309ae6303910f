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

/// Longest time that one call of the store may wait for the service, with all its tries, unless told otherwise: 5 s. A request takes
/// milliseconds, and a message waits for it. A request of megabytes is given a second more for each half of one.
pub const CALL_LIMIT: Duration = Duration::from_secs(5);
/// Longest time that one try may take, unless told otherwise: 2 s, which leaves room for a second one.
pub const ATTEMPT_LIMIT: Duration = Duration::from_secs(2);
/// How long dedup entries are kept, unless told otherwise: 7 days, longer than most queues repeat a message.
pub const KEEPS: Duration = Duration::from_secs(7 * 24 * 3600);
/// How much longer than that their time to live is, unless told otherwise: a day, above any difference of clocks.
pub const MARGIN: Duration = Duration::from_secs(24 * 3600);

/// In less no request is answered.
const CALL_LIMIT_MIN: Duration = Duration::from_millis(1);
/// A call that takes longer hangs.
const CALL_LIMIT_MAX: Duration = Duration::from_secs(24 * 3600);
/// Nothing is kept for longer, with its margin.
const KEEPS_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

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

    /// Dedup entries are kept at least this long: no endpoint on the table may ask for a longer retention. The table says for how
    /// long, since it was first opened; less counts as that, and more is refused with what to do, since entries keep the time that
    /// they were inserted with. Default [`KEEPS`].
    #[must_use]
    pub fn keeps(mut self, keeps: Duration) -> Self {
        self.keeps = keeps;
        self
    }

    /// How much longer the time to live of a dedup entry is. Default [`MARGIN`]; with [`keeps`](Self::keeps) at most a hundred years.
    #[must_use]
    pub fn margin(mut self, margin: Duration) -> Self {
        self.margin = margin;
        self
    }

    /// Longest time that one call may wait for the service, with all its tries. A write that has not been answered by then has an
    /// unknown outcome. From a millisecond to a day; default [`CALL_LIMIT`].
    #[must_use]
    pub fn call_limit(mut self, limit: Duration) -> Self {
        self.limits.call = limit;
        self
    }

    /// Longest time that one try of a call may take. From a millisecond to a day; default [`ATTEMPT_LIMIT`].
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
    /// [`Misconfigured`](hapax_core::ports::ErrorKind::Misconfigured) for a table that is not as the store needs it and for times
    /// that are none, with what to change; [`Absent`](hapax_core::ports::ErrorKind::Absent) where there is no table;
    /// [`Denied`](hapax_core::ports::ErrorKind::Denied) without the permissions of [`DynamoDb::policy_json`];
    /// [`Unavailable`](hapax_core::ports::ErrorKind::Unavailable) when the service does not answer.
    pub async fn open(self) -> Result<DynamoDb, StoreError> {
        self.check()?;
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

    /// Refuses times that no call and no entry can have.
    fn check(&self) -> Result<(), StoreError> {
        for (name, limit) in [("call_limit", self.limits.call), ("attempt_limit", self.limits.attempt)] {
            if !(CALL_LIMIT_MIN..=CALL_LIMIT_MAX).contains(&limit) {
                return Err(table::wrong(format!(
                    "`{name}` is {limit:?}: give from {CALL_LIMIT_MIN:?} to {CALL_LIMIT_MAX:?}"
                )));
            }
        }
        if self.keeps.saturating_add(self.margin) > KEEPS_MAX {
            return Err(table::wrong("`keeps` and `margin` are more than a hundred years: give less"));
        }
        Ok(())
    }
}
