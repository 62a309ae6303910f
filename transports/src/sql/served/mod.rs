//! What the queues on a server have in common, whichever server that is.
//!
//! A [`Hub`] is where receivers, senders and writers of one handle meet; [`Queues`] is what differs.

pub(super) mod asks;
pub(super) mod dispatcher;
mod marks;
pub(super) mod rare;
pub(super) mod receiver;
pub(super) mod signals;
pub(super) mod writer;

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use asks::Ask;
use hapax_core::{
    ids::EndpointName,
    ports::{ErrorKind, StoreError, TransportError},
};
use hapax_stores::sql::numbers::Numbers;
use signals::{Position, Signal, Signals};
use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot},
    time::timeout,
};

use super::room::Room;

/// Requests that wait for the writers; who finds no room waits for it.
pub(crate) const ASKS_MAX: usize = 4096;

/// Queues on a server: a handle, of which each clone is as good as the others.
#[async_trait::async_trait]
pub(crate) trait Queues: Clone + Send + Sync + 'static {
    fn hub(&self) -> &Hub<Self>;

    /// The numbers of queues that are known: see [`rare::queue_of`].
    fn names(&self) -> &Numbers<EndpointName>;

    /// The number of `endpoint`'s queue, if there is one.
    async fn find_queue(&self, endpoint: &EndpointName) -> Result<Option<i64>, StoreError>;

    /// Writes a queue for `endpoint`, unless there are [`rare::QUEUES_MAX`] or it is there by now.
    async fn add_queue(&self, endpoint: &EndpointName) -> Result<(), StoreError>;

    /// Waits until what the server has shown is kept, where it shows what a crash may take back.
    async fn settle_shown(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Messages in all queues, counted up to `most` where that is less work.
    async fn count_up_to(&self, most: u64) -> Result<u64, StoreError>;

    /// The highest number of a message, whichever queue it is in; 0 where there is none.
    async fn newest(&self) -> Result<i64, StoreError>;

    /// Whether `queue` has a message with a number of `last` or lower. What is said to be gone stays gone when the server crashes.
    async fn is_left(&self, queue: i64, last: i64) -> Result<bool, StoreError>;

    /// Looks for what may be given in each of the queues that somebody waits at.
    async fn look(&self, waiting: &[(Arc<Signal>, Position)]) -> Result<Vec<Seen>, StoreError>;

    /// Something was sent to these queues, and who waits for it here knows.
    fn sent(&self, queues: &[i64]);

    /// A reason as the server can keep it.
    fn reason(&self, reason: String) -> String;
}

/// What a look tells of one queue.
pub(crate) struct Seen {
    pub(crate) queue: i64,
    /// Something may be given.
    pub(crate) is_there: bool,
    /// How many milliseconds it is until the next one is due.
    pub(crate) due: Option<i64>,
    pub(crate) now: i64,
}

/// Where those meet who share a handle.
pub(crate) struct Hub<Q: Queues> {
    pub(crate) place: Arc<str>,
    pub(crate) rules: Rules,
    pub(crate) asks: mpsc::Sender<Ask<Q>>,
    pub(crate) signals: Signals,
    pub(crate) room: Room,
    /// Which connections there were at the last look.
    pub(crate) looked_since: AtomicU64,
    /// The next lease's token. Begins at random, so that no other process gives the same ones.
    token: AtomicI64,
    pub(crate) runtime: Handle,
}

/// What its options say.
pub(crate) struct Rules {
    pub(crate) lease: Duration,
    pub(crate) ordered_keys: bool,
    pub(crate) message_bytes_max: usize,
    pub(crate) messages_max: u64,
    /// Bytes of one group, as [`Ask::size`] counts.
    pub(crate) group_bytes_max: usize,
    /// What has no answer for so long is given up.
    pub(crate) limit: Duration,
}

impl<Q: Queues> Hub<Q> {
    pub(crate) fn new(
        place: &Arc<str>,
        rules: Rules,
        asks: mpsc::Sender<Ask<Q>>,
        signals: Signals,
        runtime: Handle,
    ) -> Self {
        let token = AtomicI64::new(fastrand::i64(0..i64::MAX / 2));
        Self {
            place: place.clone(),
            rules,
            asks,
            signals,
            room: Room::default(),
            looked_since: AtomicU64::default(),
            token,
            runtime,
        }
    }

    /// A token that no lease has.
    pub(crate) fn token(&self) -> i64 {
        self.token.fetch_add(1, Ordering::Relaxed)
    }

    /// Queues a request and waits for its answer. Unknown is what has been queued and is not answered in time.
    pub(crate) async fn ask<T>(
        &self,
        operation: &'static str,
        ask: Ask<Q>,
        answer: oneshot::Receiver<Result<T, TransportError>>,
    ) -> Result<T, TransportError> {
        let limit = self.rules.limit;
        let error = |kind, why: &str| TransportError::new(kind, operation, format!("{}: {why}", self.place));
        match timeout(limit, self.asks.send(ask)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => {
                let why = "the queue is closed, or the runtime that opened it is gone: open it again";
                return Err(error(ErrorKind::Unavailable, why));
            }
            Err(_) => {
                let why = "more is asked for than the server can write: send less";
                return Err(error(ErrorKind::Unavailable, why));
            }
        }
        match timeout(limit, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => {
                Err(error(ErrorKind::UnknownOutcome, "the queue was closed; whether it was done is not known"))
            }
            Err(_) => Err(error(
                ErrorKind::UnknownOutcome,
                "it has taken longer than its limit; whether it was done is not known",
            )),
        }
    }
}

#[cfg(test)]
mod tests;
