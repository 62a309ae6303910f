//! From who stores messages to the relay in the same process, past the table.

use std::{
    mem,
    sync::{Arc, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::Counted;
use crate::{
    envelope::Outgoing,
    ports::{Claim, Dispatcher, Refused},
    sync::{
        Mutex, Notify,
        atomic::{AtomicI64, AtomicUsize, Ordering},
        mpsc, timeout_at,
    },
};

/// Claims that are given back for others at the next call. Beyond it they are forgotten, and free when their lease is over.
const RETURNED_MAX: usize = 100_000;

/// Bytes of messages that wait to be taken by the relay. Whatever their number, memory is bounded: beyond it they are dropped,
/// and claimed from the table.
const BYTES_MAX: usize = 64 << 20;

/// What an [`OutboxTable`](crate::ports::OutboxTable) knows of the relay in its own process. For adapters.
#[derive(Debug)]
pub struct PushLine {
    owner: i64,
    lease: Duration,
    dispatcher: Arc<dyn Dispatcher>,
    queue: mpsc::Sender<Pushed>,
    pub(super) bytes: AtomicUsize,
    left: Notify,
    token: AtomicI64,
    returned: Mutex<Vec<Claim>>,
    wake: Notify,
    pub(super) counted: Arc<Counted>,
}

/// A row that is committed, on its way to the relay.
#[derive(Debug)]
pub struct Pushed {
    /// The right to it, which it was born with.
    pub claim: Claim,
    /// When that is over: read from this process's clock before the row was stored, and the lease.
    pub until: Instant,
    /// What is to be sent.
    pub outgoing: Outgoing,
}

impl PushLine {
    pub(super) fn new(
        owner: i64,
        lease: Duration,
        dispatcher: Arc<dyn Dispatcher>,
        rows: usize,
        counted: Arc<Counted>,
    ) -> (Arc<Self>, mpsc::Receiver<Pushed>) {
        let (queue, pushed) = mpsc::channel(rows.max(1));
        let (token, returned, wake) = (AtomicI64::new(fastrand::i64(1..)), Mutex::default(), Notify::new());
        let (bytes, left) = (AtomicUsize::new(0), Notify::new());
        (Arc::new(Self { owner, lease, dispatcher, queue, bytes, left, token, returned, wake, counted }), pushed)
    }

    /// The relay's number: the owner of what is born, and its token. No claim has the same.
    #[must_use]
    pub const fn owner(&self) -> i64 {
        self.owner
    }

    /// How long what is born belongs to the relay.
    #[must_use]
    pub const fn lease(&self) -> Duration {
        self.lease
    }

    /// A token that no other claim of the relay has.
    #[must_use]
    pub fn token(&self) -> i64 {
        // Positive, whatever was drawn first: zero and less mean that nobody has it.
        self.token.fetch_add(1, Ordering::Relaxed) & i64::MAX
    }

    /// Whether the relay's transport can ever send `outgoing`.
    ///
    /// # Errors
    /// [`Refused`], with the reason.
    pub fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        self.dispatcher.check(outgoing)
    }

    /// Hands a committed row over. If there is no room, or the relay has ended, it is given back for a claim.
    pub fn push(&self, pushed: Pushed) {
        let bytes = pushed.outgoing.envelope.size();
        let sent = if self.bytes.fetch_add(bytes, Ordering::Relaxed) > BYTES_MAX {
            Err(mpsc::error::TrySendError::Full(pushed))
        } else {
            self.queue.try_send(pushed)
        };
        if let Err(refused) = sent {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.left.notify_one(); // Somebody may have found no room for what has none.
            let (mpsc::error::TrySendError::Full(pushed) | mpsc::error::TrySendError::Closed(pushed)) = refused;
            self.counted.dropped.fetch_add(1, Ordering::Relaxed);
            let mut returned = self.returned.lock().unwrap_or_else(PoisonError::into_inner);
            if returned.len() < RETURNED_MAX {
                returned.push(pushed.claim);
            }
        }
    }

    /// Hands a committed row over that was read from a log, and waits for room as long as its lease goes on. `false`: there was
    /// none, or the relay has ended, and the row is as it was. A call that is dropped has handed nothing over.
    pub async fn hand(&self, pushed: Pushed) -> bool {
        let room = async {
            loop {
                let left = self.left.notified();
                if self.bytes.load(Ordering::Relaxed) <= BYTES_MAX {
                    return self.queue.reserve().await.ok();
                }
                left.await;
            }
        };
        let Ok(Some(place)) = timeout_at(pushed.until, room).await else { return false };
        self.bytes.fetch_add(pushed.outgoing.envelope.size(), Ordering::Relaxed);
        place.send(pushed);
        true
    }

    /// Whether the relay takes nothing any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }

    /// `pushed` was taken.
    pub(super) fn has_left(&self, pushed: &Pushed) {
        self.bytes.fetch_sub(pushed.outgoing.envelope.size(), Ordering::Relaxed);
        self.left.notify_one();
    }

    /// There may be something to claim.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    pub(super) fn take_returned(&self) -> Vec<Claim> {
        mem::take(&mut self.returned.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
