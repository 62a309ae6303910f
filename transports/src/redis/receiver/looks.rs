//! What is not looked for each time: leases that have run out, and what may be removed.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::{super::scripts::Script, End, RECEIVING};

/// How often leases that have run out are looked for, at most; a shorter lease is looked for eight times while it lasts.
const LOOK: Duration = Duration::from_secs(1);
const LOOK_MIN: Duration = Duration::from_millis(20);
/// How often what was acknowledged and left by consumers that are not hapax is removed.
const TRIM: Duration = Duration::from_secs(10);

/// When what is not looked for each time was looked for.
#[derive(Default)]
pub(super) struct Looks {
    leases: Option<Instant>,
    trim: Option<Instant>,
}

impl End {
    /// Removes what may be removed, now and then. Whether it is time to look for leases that have run out. Nobody waits for it: who receives
    /// from a server that does not answer is to be told so by what it asks for itself.
    pub(in super::super) fn trimmed(self: &Arc<Self>) -> bool {
        let (looks, trims) = self.begin_looks();
        if trims {
            let end = self.clone();
            tokio::spawn(async move { end.trim().await });
        }
        looks
    }

    /// A look has failed, and what it was to find is still there.
    pub(in super::super) fn look_again(&self) {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner).leases = None;
    }

    /// Whether it is time to look for leases that have run out, and for what may be removed.
    fn begin_looks(&self) -> (bool, bool) {
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        let every = (self.broker.options.lease / 8).clamp(LOOK_MIN, LOOK);
        let is_due = |last: &mut Option<Instant>, every| {
            let due = last.is_none_or(|last| last.elapsed() >= every);
            if due {
                *last = Some(Instant::now());
            }
            due
        };
        let leases = is_due(&mut looks.leases, every);
        let trims = is_due(&mut looks.trim, TRIM);
        (leases, trims)
    }

    /// Nothing is lost when it fails: it is tried again.
    async fn trim(&self) {
        let asked = self.broker.link.ask(&self.lane, RECEIVING, true, |scripts| {
            let mut call = scripts.call(Script::Trim, &[&self.queue]);
            call.arg(self.broker.group());
            call
        });
        if let Err(error) = asked.await {
            tracing::debug!(%error, endpoint = %self.endpoint, "what others have acknowledged is not removed now");
        }
    }
}
