//! When dedup entries may go: after a time, or when something has shown that their messages can come no more.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{Endpoint, Settings, maintenance::UPKEEP_REST};
use crate::ports::{BoxError, Keep, LongMemory, Mark, Marks, Moment, Passed, StoreError};

/// What decides when an endpoint may forget that a message is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Eviction {
    /// Time: so long after. It must exceed the transport's longest redelivery and the deadline of a pass, and a message that comes later
    /// all the same is handled again. What most need; the default is [`Settings::retention`], and this is the same said here.
    After(Duration),
    /// What shows that no copy can come any more, however long it takes; no entry goes within [`Settings::retention`], which has to exceed
    /// the deadline of a pass and the time for which a sender may send a message again, and nothing else.
    ///
    /// - A message that its sender has [numbered](super::EndpointBuilder::number_messages) is known for ever, by its number: of numbers that
    ///   follow one another, the dedup store keeps the first and the last. No copy is too late, whoever sends it. Its reply
    ///   is kept for the retention, and is not sent again after it.
    /// - Any other is known until its transport has shown that no copy is left in the queue
    ///   ([`TransportCapabilities::marks`](crate::ports::TransportCapabilities::marks)): a row that is gone, an offset that is committed.
    ///   Where the transport cannot show that, the retention decides, and has to exceed the transport's longest redelivery.
    ///
    /// The dedup store has to remember numbers: see [`DedupStore::long_memory`](crate::ports::DedupStore::long_memory). Each pass over a
    /// numbered message asks it once more. What is handled [in a transaction](super::EndpointBuilder::in_transaction) is
    /// remembered for the retention alone.
    Evidence,
}

/// Of an endpoint that does not go by time alone.
#[derive(Debug)]
pub(super) struct Evidence {
    fold: bool,
    keys: Duration,
    marks: Option<Arc<dyn Marks>>,
    /// Of the endpoint's upkeep alone, which is one task: nobody waits for it, and there is no order of steps to explore.
    shown: Mutex<Shown>,
}

/// What the queue has shown so far.
#[derive(Debug, Default)]
struct Shown {
    /// A mark, and the store's time before it was made.
    waiting: Option<(Moment, Mark)>,
    until: Option<Moment>,
}

impl Evidence {
    /// `None` where time alone decides.
    pub(super) fn of(evidence: bool, settings: &Settings, marks: Option<Arc<dyn Marks>>) -> Option<Self> {
        let keys = settings.idempotency_retention;
        let marks = marks.filter(|_| evidence);
        let keys_too = keys.is_some_and(|keys| keys > settings.retention);
        (evidence || keys_too).then(|| Self {
            fold: evidence,
            keys: keys.unwrap_or_default(),
            marks,
            shown: Mutex::default(),
        })
    }

    /// What has been shown by now. Once a mark has passed, whatever was inserted the retention before it was made may go: its senders had
    /// sent for the last time by then.
    async fn passed(&self, memory: &dyn LongMemory, retention: Duration) -> Result<Passed, BoxError> {
        let Some(marks) = &self.marks else { return Ok(Passed::Unasked) };
        let waiting = self.shown().waiting.clone();
        if let Some((moment, mark)) = waiting
            && marks.passed(&mark).await?
        {
            let mut shown = self.shown();
            shown.waiting = None;
            shown.until = shown.until.max(Some(moment.before(retention)));
        }
        if self.shown().waiting.is_none() {
            // The time first: what is inserted between the two is not counted as in front of the mark.
            let moment = memory.moment().await?;
            let mark = marks.end().await?;
            self.shown().waiting = Some((moment, mark));
        }
        Ok(self.shown().until.map_or(Passed::Waits, Passed::Until))
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Endpoint {
    pub(super) async fn evict_entries(&self) -> Result<(), StoreError> {
        let (dedup, retention) = (self.stores.dedup(), self.settings.retention);
        let (Some(evidence), Some(memory)) = (&self.evidence, dedup.long_memory()) else {
            while dedup.evict(retention).await?.more {
                tokio::time::sleep(UPKEEP_REST).await; // Others first: evicting late is always safe.
            }
            return Ok(());
        };
        let passed = evidence.passed(memory, retention).await.unwrap_or_else(|error| {
            let error: &dyn std::error::Error = error.as_ref();
            tracing::warn!(endpoint = %self.name, error, "the queue does not show what has passed; asked again at the next eviction");
            Passed::Waits // Numbers are folded all the same.
        });
        let keep = Keep { endpoint: &self.name, retention, keys: evidence.keys, fold: evidence.fold, passed };
        while memory.evict_keeping(&keep).await?.more {
            tokio::time::sleep(UPKEEP_REST).await;
        }
        Ok(())
    }
}
