//! What is no part of a group: the numbers of queues, and whatever is asked for by itself.

use hapax_core::{
    ids::EndpointName,
    ports::{ErrorKind, StoreError},
};

use super::{Hub, Queues, writer::Fault};

/// Most queues in a schema: far above the endpoints of any company, and a bound for names that come from outside, as the
/// addresses of replies.
pub(crate) const QUEUES_MAX: i64 = 10_000;

/// What is being done where a queue's number is asked for.
pub(crate) const CONNECTING: &str = "opening a queue";

/// The number of `endpoint`'s queue, written if it is new.
pub(crate) async fn queue_of<Q: Queues>(queues: &Q, endpoint: &EndpointName) -> Result<i64, StoreError> {
    let (names, hub) = (queues.names(), queues.hub());
    if let Some(id) = names.get(endpoint) {
        return Ok(id);
    }
    let since = names.since();
    let id = match queues.find_queue(endpoint).await? {
        Some(id) => id,
        None => {
            queues.add_queue(endpoint).await.map_err(|e| hub.nothing_else_written(e))?;
            let full = || {
                let why = format!("{}: it has {QUEUES_MAX} queues, and {endpoint} is one too many", hub.place);
                StoreError::new(ErrorKind::Unavailable, CONNECTING, why)
            };
            queues.find_queue(endpoint).await?.ok_or_else(full)?
        }
    };
    queues.settle_shown().await.map_err(|e| hub.nothing_else_written(e))?;
    names.add(since, endpoint.clone(), id);
    Ok(id)
}

impl<Q: Queues> Hub<Q> {
    /// Whatever became of what failed, what was to be written after it was not.
    fn nothing_else_written(&self, e: StoreError) -> StoreError {
        if !e.is_unknown_outcome() {
            return e;
        }
        let why = format!("{}: what comes before it was not confirmed in time: try again", self.place);
        StoreError::new(ErrorKind::Unavailable, CONNECTING, why).caused_by(e)
    }

    /// Runs `work`, which uses a connection, in a task of its own: dropped half-way, it would leave the connection in the middle
    /// of it.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl Future<Output = Result<T, impl Fault + Send + 'static>> + Send + 'static,
    ) -> Result<T, StoreError> {
        match self.runtime.spawn(work).await {
            Ok(done) => done.map_err(|fault| fault.store_error(operation, &self.place)),
            Err(_) => {
                let why = format!("{}: the runtime that opened the queue is gone: open it again", self.place);
                Err(StoreError::new(ErrorKind::Unavailable, operation, why))
            }
        }
    }

    /// Of a row that cannot be read.
    pub(crate) fn damaged(&self, operation: &'static str, what: &str) -> StoreError {
        let why = format!("{}: {what} cannot be read by this version of hapax", self.place);
        StoreError::new(ErrorKind::Malformed, operation, why)
    }

    /// What the one row of an answer counts.
    pub(crate) fn counted(&self, operation: &'static str, count: Option<i64>) -> Result<u64, StoreError> {
        count.and_then(|count| u64::try_from(count).ok()).ok_or_else(|| self.damaged(operation, "a count"))
    }
}
