//! What runs beside the messages: the sweeper, eviction and purge.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::Endpoint;
use crate::{
    ids::AttemptId,
    manager::Passes,
    ports::{Pending, StoreError},
};

/// Entities that the sweeper asks for at a time.
const SWEEP_PAGE: usize = 100;
/// Tombstones that are purged at a time.
const PURGE_PAGE: usize = 1000;

impl Endpoint {
    /// Never ends.
    pub(super) async fn maintain(&self) {
        let mut sweep = interval(self.settings.sweep_interval.max(Duration::from_millis(1)));
        let mut evict = interval(self.settings.evict_interval.max(Duration::from_millis(1)));
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        evict.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let done = tokio::select! {
                _ = sweep.tick() => self.sweep().await,
                _ = evict.tick() => self.evict().await,
            };
            if let Err(error) = done {
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
        while self.stores.dedup().evict(self.settings.retention).await?.more {
            tokio::task::yield_now().await; // Others first: evicting late is always safe.
        }
        // A tombstone guards against late twins as a dedup entry does, and against passes that are still under way.
        let keep = self.settings.retention.saturating_add(self.settings.limits.deadline);
        for manager in &self.managers {
            while self.stores.entities().purge(manager.scope(), keep, PURGE_PAGE).await? == PURGE_PAGE {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }
}
