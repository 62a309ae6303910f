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
use tokio::sync::Mutex;

use super::{Postgres, connection::Link, error::Failure, statements};

/// Commits for what was seen, one after the other, each for all who had asked before it began.
#[derive(Debug)]
pub(super) struct Settling {
    link: Mutex<Link>,
    begun: AtomicU64,
    done: AtomicU64,
    text: Arc<str>,
}

impl Settling {
    pub(super) fn new(link: Link) -> Self {
        let text = statements::SETTLE.into();
        Self { link: Mutex::new(link), begun: AtomicU64::new(0), done: AtomicU64::new(0), text }
    }

    async fn settle(&self) -> Result<(), Failure> {
        let asked = self.begun.load(Ordering::Acquire);
        let mut link = self.link.lock().await;
        if self.done.load(Ordering::Acquire) > asked {
            return Ok(()); // One that began after it was asked for.
        }
        let number = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
        link.write(&self.text, Default::default()).await?;
        self.done.store(number, Ordering::Release);
        Ok(())
    }

    pub(super) async fn close(&self) {
        self.link.lock().await.close().await;
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
        let settled = self.told(operation, self.0.runtime.spawn(async move { settling.settle().await }).await);
        // Whatever became of that commit, nothing of the caller's was changed by it.
        settled.map_err(|e| match e.is_unknown_outcome() {
            true => {
                let why = format!("{}: no standby has confirmed what was shown: load again", self.place());
                StoreError::new(ErrorKind::Unavailable, operation, why).caused_by(e)
            }
            false => e,
        })
    }
}
