//! What runs beside the messages: the sweeper, eviction and purge.

use std::{future::Future, sync::atomic::Ordering, time::Duration};

use futures_util::future::join;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::Endpoint;
use crate::{
    ids::AttemptId,
    manager::Passes,
    ports::{Pending, StoreError},
};

/// Entities that the sweeper asks for at a time.
const SWEEP_PAGE: usize = 100;
/// Tombstones that are purged at a time: what waits behind them waits about a millisecond.
const PURGE_PAGE: usize = 250;
/// So many for each message that was handled since: more go than come, however busy the endpoint is.
const PURGE_PER_MESSAGE: usize = 2;
/// And never more at a time: some ten milliseconds.
const PURGE_PAGE_MAX: usize = 10_000;
/// Rest between two steps of evicting or purging. A step holds up whatever comes behind it for some two milliseconds; ten of
/// them a second are fewer than one call in a hundred of a store that is in use. Not in proportion to the step: in a busy
/// store most of it is waiting for its turn, and steps would fall behind what comes.
const UPKEEP_REST: Duration = Duration::from_millis(100);

impl Endpoint {
    /// Never ends. What has to go may take long, and the sweeper does not wait for it.
    pub(super) async fn maintain(&self) {
        join(
            self.again_and_again(self.settings.sweep_interval, || self.sweep()),
            self.again_and_again(self.settings.evict_interval, || self.evict()),
        )
        .await;
    }

    async fn again_and_again<F>(&self, every: Duration, work: impl Fn() -> F)
    where
        F: Future<Output = Result<(), StoreError>>,
    {
        let mut due = interval(every.max(Duration::from_millis(1)));
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            due.tick().await;
            if let Err(error) = work().await {
                tracing::warn!(endpoint = %self.name, %error, "maintenance failed; it will be tried again");
            }
        }
    }

    /// Finishes outbox entries that have waited too long: of messages that were given up, and of crashed passes whose
    /// message does not come again (S64, S65).
    async fn sweep(&self) -> Result<(), StoreError> {
        for manager in &self.managers {
            let mut after = None;
            loop {
                let entities = self.stores.entities();
                let page =
                    entities.pending(manager.scope(), self.settings.sweep_age, after.as_ref(), SWEEP_PAGE).await?;
                for pending in &page {
                    self.sweep_one(manager.as_ref(), pending).await;
                }
                match page.last() {
                    Some(last) if page.len() == SWEEP_PAGE => after = Some(last.key.clone()),
                    _ => break,
                }
            }
        }
        Ok(())
    }

    async fn sweep_one(&self, manager: &dyn Passes, pending: &Pending) {
        let attempts: Vec<AttemptId> = pending.entries.iter().map(|entry| entry.attempt).collect();
        let oldest = pending.entries.iter().map(|entry| entry.age).max();
        tracing::info!(entity = %pending.key, entries = attempts.len(), ?oldest, "sweeping");
        manager.pass(&pending.key, &mut [], &attempts).await; // It tells the observer itself how it ended.
    }

    async fn evict(&self) -> Result<(), StoreError> {
        loop {
            if !self.stores.dedup().evict(self.settings.retention).await?.more {
                break;
            }
            sleep(UPKEEP_REST).await; // Others first: evicting late is always safe.
        }
        // A tombstone guards against late twins as a dedup entry does, and against passes that are still under way.
        let keep = self.settings.retention.saturating_add(self.settings.limits.deadline);
        for manager in &self.managers {
            loop {
                let handled = usize::try_from(self.handled.swap(0, Ordering::Relaxed)).unwrap_or(usize::MAX);
                let page = handled.saturating_mul(PURGE_PER_MESSAGE).clamp(PURGE_PAGE, PURGE_PAGE_MAX);
                if self.stores.entities().purge(manager.scope(), keep, page).await? < page {
                    break;
                }
                sleep(UPKEEP_REST).await;
            }
        }
        Ok(())
    }
}
