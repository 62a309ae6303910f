//! What runs beside the messages: the sweeper, eviction, purge and collecting bodies, the audit, and what becomes due in a schedule.

use std::{
    future::Future,
    slice,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::{
    StreamExt,
    future::{join, join5},
    stream::FuturesUnordered,
};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tracing::Instrument;

use super::{Endpoint, Evict, Settings, circuit::Circuit};
use crate::{
    ids::AttemptId,
    manager::Passes,
    metrics::{Backlog, Event},
    ports::{Pending, StoreError},
};

/// Entities that the sweeper asks for at a time, and finishes at the same time: as many as share a commit. One by one,
/// each would wait for one of its own. A quarter of what is in flight by default, so that messages come first.
const SWEEP_PAGE: usize = 256;
/// A sweep that finds nothing has gone through all that waits, and rests for so many times as long as that took: a million
/// entities take seconds. Not for longer than what is looked for has to wait anyway.
const SWEEP_RESTS: u32 = 10;
/// Tombstones that are purged at a time: what waits behind them waits about a millisecond.
const PURGE_PAGE: usize = 250;
/// So many for each message that was handled since: more go than come, however busy the endpoint is.
const PURGE_PER_MESSAGE: usize = 2;
/// And never more at a time: some ten milliseconds.
const PURGE_PAGE_MAX: usize = 10_000;
/// Rest between two steps of evicting or purging. A step holds up whatever comes behind it for some two milliseconds; ten of
/// them a second are fewer than one call in a hundred of a store that is in use. Not in proportion to the step: in a busy
/// store most of it is waiting for its turn, and steps would fall behind what comes.
pub(super) const UPKEEP_REST: Duration = Duration::from_millis(100);

/// One look through all that waits in the outboxes of a saga.
struct Looked {
    backlog: Backlog,
    /// One of those that were not swept.
    drawn: Option<Pending>,
    /// Whether it came to its end.
    listed: Result<(), StoreError>,
}

impl Looked {
    /// What could not be listed is not there.
    fn ends(&mut self, error: StoreError) -> Vec<Pending> {
        self.listed = Err(error);
        Vec::new()
    }
}

impl Endpoint {
    /// Never ends. What has to go may take long, and the sweeper does not wait for it.
    pub(super) async fn maintain(&self) {
        let Settings { sweep_age, sweep_interval, enqueued_interval, evict_interval, .. } = self.settings;
        // Nobody but sweepers sends what was enqueued, so it has not to be old first.
        let enqueued = async {
            if !self.enqueued.is_empty() {
                self.again_and_again(enqueued_interval, || self.sweep(&self.enqueued, Duration::ZERO)).await;
            }
        };
        // While the stores cannot be reached, it would only be one more to ask them.
        let audit = async {
            if let Some(every) = self.auditor.interval() {
                let turn = || async {
                    let turn = if self.circuit.is_open() { Ok(()) } else { self.auditor.turn().await };
                    turn.map(|()| Duration::ZERO)
                };
                self.again_and_again(every, turn).await;
            }
        };
        join5(
            self.again_and_again(sweep_interval, || self.sweep(&self.managers, sweep_age)),
            enqueued,
            self.again_and_again(evict_interval, || self.evict()),
            audit,
            self.send_due(),
        )
        .await;
    }

    /// `work` says for how long it rests at least.
    async fn again_and_again<F>(&self, every: Duration, work: impl Fn() -> F)
    where
        F: Future<Output = Result<Duration, StoreError>>,
    {
        let mut due = interval(every.max(Duration::from_millis(1)));
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            due.tick().await;
            match work().await {
                Ok(rest) if rest > every => due.reset_after(rest),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(endpoint = %self.name, %error, "maintenance failed; it will be tried again");
                }
            }
        }
    }

    /// Finishes outbox entries that have waited too long: of messages that were given up, and of crashed passes whose
    /// message does not come again (S64, S65).
    pub(super) async fn sweep(&self, managers: &[Arc<dyn Passes>], age: Duration) -> Result<Duration, StoreError> {
        let (begun, mut found, mut ended) = (Instant::now(), false, Ok(()));
        for manager in managers {
            // What is wrong with one saga's entities holds up no other.
            let swept = self.sweep_scope(manager.as_ref(), age).await;
            found |= matches!(swept, Ok(true));
            ended = ended.and_then(|()| swept.map(drop));
        }
        ended?;
        let rest = begun.elapsed().saturating_mul(SWEEP_RESTS).min(self.settings.sweep_age);
        Ok(if found { Duration::ZERO } else { rest })
    }

    /// Answers whether anything had waited too long.
    async fn sweep_scope(&self, manager: &dyn Passes, age: Duration) -> Result<bool, StoreError> {
        let looked = self.sweep_pages(manager, age, |circuit| !circuit.is_open()).await;
        // One entity tries, in case no message does.
        if let Some(one) = &looked.drawn {
            self.auditor.sweeps_held_back(manager.scope());
            let swept = self.circuit.swept();
            self.sweep_page(manager, slice::from_ref(one)).await;
            // Where it could be finished, writes are away, or a few entities that alone take none: the others need none either.
            if self.circuit.swept() != swept {
                self.sweep_pages(manager, age, Circuit::takes_sweeps).await.listed?;
            }
        }
        looked.listed?;
        self.deliver.metrics.observe(Event::Waiting(manager.scope(), looked.backlog));
        Ok(looked.backlog.entities > 0)
    }

    /// Lists what waits, and sweeps it page by page, as long as this says so: while the stores do not do what passes ask of them, all of it would
    /// be sent again at each sweep.
    async fn sweep_pages(&self, manager: &dyn Passes, age: Duration, sweeps: impl Fn(&Circuit) -> bool) -> Looked {
        let mut looked = Looked { backlog: Backlog::default(), drawn: None, listed: Ok(()) };
        let mut waiting = self.waiting(manager, age, None).await.unwrap_or_else(|error| looked.ends(error));
        while !waiting.is_empty() {
            add(&mut looked.backlog, &waiting);
            let next = async {
                // A page that is not full was the last.
                if waiting.len() < SWEEP_PAGE {
                    Ok(Vec::new())
                } else {
                    self.waiting(manager, age, waiting.last()).await
                }
            };
            let next = if sweeps(&self.circuit) {
                join(next, self.sweep_page(manager, &waiting)).await.0
            } else {
                let next = next.await;
                draw(&mut looked.drawn, waiting, looked.backlog.entities);
                next
            };
            waiting = next.unwrap_or_else(|error| looked.ends(error));
        }
        looked
    }

    /// The page behind `after`.
    async fn waiting(
        &self,
        manager: &dyn Passes,
        age: Duration,
        after: Option<&Pending>,
    ) -> Result<Vec<Pending>, StoreError> {
        let (entities, after) = (self.stores.entities(), after.map(|last| &last.key));
        entities.pending(manager.scope(), age, after, SWEEP_PAGE).await
    }

    async fn sweep_page(&self, manager: &dyn Passes, page: &[Pending]) {
        // A loop and no closure, over whose borrows the compiler would lose sight of what is `Send`.
        let mut sweeps = FuturesUnordered::new();
        for pending in page {
            sweeps.push(self.sweep_one(manager, pending));
        }
        while sweeps.next().await.is_some() {}
    }

    async fn sweep_one(&self, manager: &dyn Passes, pending: &Pending) {
        let attempts: Vec<AttemptId> = pending.entries.iter().map(|entry| entry.attempt).collect();
        let oldest = pending.entries.iter().map(|entry| entry.age).max();
        let span = self.spans.sweep(&pending.key, attempts.len());
        span.in_scope(|| tracing::info!(entity = %pending.key, entries = attempts.len(), ?oldest, "sweeping"));
        // It tells the observer itself how it ended.
        manager.pass(&pending.key, &mut [], &attempts).instrument(span).await;
    }

    /// All of it, and then the first error of any part.
    async fn evict(&self) -> Result<Duration, StoreError> {
        let mut ended = self.evict_entries().await;
        for inbox in &self.inboxes {
            ended = ended.and(self.evict_inbox(inbox).await);
        }
        for manager in self.managers.iter().chain(&self.enqueued) {
            ended = ended.and(self.purge(manager.as_ref()).await);
        }
        ended.and(self.collect_bodies().await).map(|()| Duration::ZERO)
    }

    async fn evict_inbox(&self, inbox: &Evict) -> Result<(), StoreError> {
        while inbox(self.settings.retention).await?.more {
            sleep(UPKEEP_REST).await;
        }
        Ok(())
    }

    async fn purge(&self, manager: &dyn Passes) -> Result<(), StoreError> {
        // A tombstone guards against late twins as a dedup entry does, and against passes that are still under way.
        let keep = self.settings.retention.saturating_add(self.settings.deadline);
        loop {
            let handled = usize::try_from(self.handled.swap(0, Ordering::Relaxed)).unwrap_or(usize::MAX);
            let page = handled.saturating_mul(PURGE_PER_MESSAGE).clamp(PURGE_PAGE, PURGE_PAGE_MAX);
            if self.stores.entities().purge(manager.scope(), keep, page).await? < page {
                return Ok(());
            }
            sleep(UPKEEP_REST).await;
        }
    }
}

/// One of all that wait, of whom `so_far` are known with this page, each as likely as the others: one that hangs, or is away alone, would take every
/// sweep's try if it always were the first.
fn draw(drawn: &mut Option<Pending>, page: Vec<Pending>, so_far: usize) {
    let at = fastrand::usize(..so_far.max(1));
    if let Some(one) = page.into_iter().nth(at) {
        *drawn = Some(one);
    }
}

/// A page more of what waits.
fn add(backlog: &mut Backlog, page: &[Pending]) {
    backlog.entities += page.len();
    for pending in page {
        backlog.entries += pending.entries.len();
        backlog.oldest = backlog.oldest.max(pending.entries.iter().map(|entry| entry.age).max());
    }
}
