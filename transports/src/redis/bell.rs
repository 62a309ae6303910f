use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ::redis::cmd;
use tokio::sync::Notify;

use super::{Broker, link::Lane};

/// How long the server holds a question whether something came.
const HELD: Duration = Duration::from_secs(1);

const WAITING: &str = "waiting for messages";

/// Tells when something comes into a queue, whoever sends it. It takes nothing: whoever is told asks for it, and a call that is
/// dropped while it waits has lost nothing.
///
/// The question is held by the server (`XREAD` with `BLOCK`, beside the group), so it has a connection of its own. There is one
/// at a time: those of calls that were dropped would be answered one after the other.
pub(super) struct Bell {
    queue: String,
    lane: Lane,
    rings: Notify,
    is_asked: AtomicBool,
    failed: Mutex<bool>,
}

impl Bell {
    pub(super) fn new(queue: String) -> Arc<Self> {
        let (lane, rings) = (Lane::default(), Notify::new());
        Arc::new(Self { queue, lane, rings, is_asked: AtomicBool::new(false), failed: Mutex::new(false) })
    }

    /// Waits until there is something behind the entry `last`, or a while. It may be told for nothing.
    pub(super) async fn rung(self: &Arc<Self>, broker: &Arc<Broker>, last: &str) {
        let rung = self.rings.notified();
        tokio::pin!(rung);
        rung.as_mut().enable();
        if !self.is_asked.swap(true, Ordering::Relaxed) {
            let (bell, broker, last) = (self.clone(), broker.clone(), last.to_owned());
            tokio::spawn(async move {
                let asked = bell.ask(&broker, &last).await;
                bell.is_asked.store(false, Ordering::Relaxed);
                // Else whoever waits looks by itself now and then; it finds the error, too.
                if asked {
                    bell.rings.notify_waiters();
                }
            });
        }
        rung.await;
    }

    async fn ask(&self, broker: &Broker, last: &str) -> bool {
        let asked = async {
            let open = broker.link.open(&self.lane).await?;
            let mut read = cmd("XREAD");
            read.arg("COUNT").arg(1).arg("BLOCK").arg(HELD.as_millis() as u64);
            read.arg("STREAMS").arg(&self.queue).arg(last);
            let patience = broker.link.patience + HELD;
            broker.link.ask_within(&open, WAITING, false, &read, patience).await
        };
        let asked = asked.await;
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let failed_before = std::mem::replace(&mut *failed, asked.is_err());
        if let Err(error) = &asked
            && !failed_before
        {
            tracing::debug!(%error, queue = self.queue, "nobody tells of new messages: they are looked for");
        }
        asked.is_ok()
    }
}
