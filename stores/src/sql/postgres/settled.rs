//! Where commits wait for a standby, what has been seen is not yet what is kept: a commit whose wait is cut, by the end of its
//! connection or a crash, is there for everybody to see, and no standby ever had it. Whoever has acted on it by then, by
//! giving up a message that was seen or by sending what waited in an outbox, has acted on what a fail-over takes back.
//!
//! What is committed after it, and confirmed, is on the standby with all that came before it. So a later write of the caller's
//! own needs nothing; where there is none, a commit is made for it that changes nothing. Without standbys there is nothing
//! to do: the server shows what is on its disk.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use hapax_core::ports::{ErrorKind, StoreError};
use tokio::{sync::Mutex, time::timeout};

use super::{Postgres, connection::Link, error::Failure, statements};

/// Commits for what was seen, one after the other, each for all who had asked before it began.
#[derive(Debug)]
pub(super) struct Settling {
    begun: AtomicU64,
    one: Mutex<One>,
    text: Arc<str>,
}

#[derive(Debug)]
struct One {
    link: Link,
    /// The number of the last one, and what became of it: those who had asked before it began are told the same, or each of
    /// them would wait as long where no standby answers.
    ended: Option<(u64, Result<(), Failure>)>,
}

impl Settling {
    pub(super) fn new(link: Link) -> Self {
        let text = statements::SETTLE.into();
        Self { begun: AtomicU64::new(0), one: Mutex::new(One { link, ended: None }), text }
    }

    async fn settle(&self) -> Result<(), Failure> {
        let asked = self.begun.load(Ordering::Acquire);
        let mut one = self.one.lock().await;
        if let Some((number, ended)) = &one.ended
            && *number > asked
        {
            return ended.clone();
        }
        let number = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
        let ended = one.link.write(&self.text, Default::default()).await.map(drop);
        one.ended = Some((number, ended.clone()));
        ended
    }

    pub(super) async fn close(&self) {
        self.one.lock().await.link.close().await;
    }
}

impl Postgres {
    /// Waits until all that has been seen is where commits are waited for. In a task of its own: dropped half-way, it would
    /// leave the connection in the middle of it.
    pub(super) async fn settle(&self, operation: &'static str) -> Result<(), StoreError> {
        if !self.0.standbys.load(Ordering::Relaxed) {
            return Ok(());
        }
        let settling = self.0.settling.clone();
        // Whatever becomes of that commit, nothing of the caller's is changed by it.
        let unconfirmed = || {
            let why = format!("{}: no standby has confirmed what was shown: load again", self.place());
            StoreError::new(ErrorKind::Unavailable, operation, why)
        };
        let task = self.0.runtime.spawn(async move { settling.settle().await });
        let Ok(ended) = timeout(self.0.write_limit, task).await else { return Err(unconfirmed()) };
        self.told(operation, ended).map_err(|e| if e.is_unknown_outcome() { unconfirmed().caused_by(e) } else { e })
    }
}
