//! An audit beside the running endpoint: looks at a sample of what it keeps, whether the promise holds.
//!
//! It asks the stores through the ports that the endpoint uses, and changes nothing. What it says is to be believed, so no rule counts
//! what crashes, races, unknown outcomes and late clean-ups may bring about:
//!
//! - *The entity is read first, the dedup entries after.* An effect moves from the outbox to the dedup entries: read the other way
//!   round, one that moves between the two reads would be in neither.
//! - *What rests on an entry's absence, or on a version, counts only on a fresh load*: when the store still has the loaded version after
//!   the dedup entries have been asked. Loads may be old.
//! - *A message is watched for half of its retention only*, by whichever clock has gone further.
//! - *What waits is counted by sweeps that this process has made since*, and not at all while the sweeper says why it cannot.

#[cfg(all(test, shuttle))]
mod interleaved;
mod look;
mod moment;
mod outside;
mod report;
mod sample;
mod subject;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use look::WatchList;
use moment::Moment;
pub use outside::StoreAudit;
use report::Tally;
pub use report::{AuditCount, AuditReport};
use sample::{Rounds, Sample, Watching};

use super::Settings;
use crate::{
    ids::Scope,
    manager::Stores,
    metrics::Metrics,
    ports::{Clock, StoreError},
    sync::AsyncMutex,
};

/// How much an endpoint looks at to see whether its promise holds: see the [invariants](crate::metrics::Invariant). Off unless it is
/// [given](super::EndpointBuilder::audit), since some stores charge for each read.
///
/// It looks at entities: those of messages that this process has handled, drawn at random, and those that wait for the sweeper. One
/// look is a `load`, a `contains` if the load does not answer that too, and a `version`; twice that if the entity is saved
/// meanwhile. With the defaults that is at most a look every two seconds. Nothing is asked for and nothing is locked where messages are
/// handled, but for those that are drawn: the others cost a few additions and comparisons.
///
/// Each process has its own sample. All are taken to have one retention and one [`sweep_age`](Settings::sweep_age).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Audit {
    /// How often it looks. Default 10 s: a message is looked at within this after it was handled, and what a store has forgotten
    /// at once is found.
    pub interval: Duration,
    /// Entities that are looked at each time, at most. Default 5: a half for new messages, the rest for those that are watched and
    /// those that wait.
    pub looks_max: usize,
    /// Entities that are watched, at most; each takes a few hundred bytes. Default 500: with the other defaults each is looked
    /// at every hour or so. Which ones stay is drawn, so that their ages are spread from now to half of the retention.
    pub watched_max: usize,
}

impl Default for Audit {
    fn default() -> Self {
        Self { interval: Duration::from_secs(10), looks_max: 5, watched_max: 500 }
    }
}

impl Audit {
    /// What is wrong with it.
    pub(super) fn check(&self) -> Result<(), String> {
        let is_zero = |name: &str| Err(format!("{name} of the audit is 0, so nothing would be looked at; raise it"));
        match self {
            Self { looks_max: 0, .. } => is_zero("looks_max"),
            Self { watched_max: 0, .. } => is_zero("watched_max"),
            Self { interval: Duration::ZERO, .. } => is_zero("interval"),
            Self { looks_max: 1 | 2, .. } => {
                Err("looks_max of the audit is below 3: new messages alone would be looked at; raise it".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// Looks at what an endpoint keeps.
#[derive(Debug)]
pub(super) struct Auditor {
    /// `None`: only when it is asked to.
    audit: Option<Audit>,
    stores: Stores,
    clock: Arc<dyn Clock>,
    metrics: Arc<dyn Metrics>,
    scopes: Vec<Audited>,
    sweep_age: Duration,
    watch_for: Duration,
    sample: Arc<Sample>,
    rounds: Arc<Rounds>,
    list: AsyncMutex<WatchList>,
    tally: Tally,
}

/// A saga whose entities are audited.
#[derive(Debug, Clone)]
pub(super) struct Audited {
    pub(super) scope: Arc<Scope>,
    /// It handles messages: nobody else saves its entities.
    pub(super) is_handled: bool,
}

/// A message is watched for its retention divided by this: the rest is for clocks that differ and looks that take long.
const WATCH_SHARE: u32 = 2;

impl Auditor {
    /// With whoever observes the endpoint from now on in place of `metrics`.
    pub(super) async fn new(
        audit: Option<Audit>,
        stores: &Stores,
        clock: &Arc<dyn Clock>,
        metrics: Arc<dyn Metrics>,
        scopes: Vec<Audited>,
        settings: &Settings,
    ) -> (Arc<Self>, Arc<dyn Metrics>) {
        let now = Moment::new(clock.now().await);
        let bounds = audit.unwrap_or_default();
        let sample = Arc::new(Sample::new(bounds.looks_max.div_ceil(2), now));
        let rounds = Arc::new(Rounds::new(scopes.iter().map(|audited| &audited.scope)));
        let observer: Arc<dyn Metrics> = match audit {
            Some(_) => Arc::new(Watching { metrics: metrics.clone(), sample: sample.clone(), rounds: rounds.clone() }),
            None => metrics.clone(),
        };
        let auditor = Self {
            audit,
            stores: stores.clone(),
            clock: clock.clone(),
            metrics,
            scopes,
            sweep_age: settings.sweep_age,
            watch_for: settings.retention / WATCH_SHARE,
            sample,
            rounds,
            list: AsyncMutex::new(WatchList::new(bounds.watched_max)),
            tally: Tally::default(),
        };
        (Arc::new(auditor), observer)
    }

    /// How often it looks by itself.
    pub(super) fn interval(&self) -> Option<Duration> {
        self.audit.map(|audit| audit.interval)
    }

    /// The sweep of `scope` that is under way passes by what waits, since the stores are away.
    pub(super) fn sweeps_held_back(&self, scope: &Arc<Scope>) {
        self.rounds.held_back(scope);
    }

    pub(super) fn report(&self) -> AuditReport {
        self.tally.report()
    }

    /// A few entities: new ones first, then what waits, then the next of those that are watched.
    pub(super) async fn turn(&self) -> Result<(), StoreError> {
        let looks_max = self.audit.unwrap_or_default().looks_max;
        let mut list = self.list.lock().await;
        let mut looks = self.look_at_new(&mut list).await?;
        if let Some(audited) = list.next_scope(&self.scopes) {
            let pending_max = looks_max.saturating_sub(looks).div_ceil(2);
            looks += self.look_at_pending(&mut list, audited, pending_max).await?;
        }
        self.look_at_watched(&mut list, looks_max.saturating_sub(looks)).await
    }

    /// All that is watched, and all that waits as far as it is to be watched.
    pub(super) async fn everything(&self) -> Result<AuditReport, StoreError> {
        let mut list = self.list.lock().await;
        self.look_at_new(&mut list).await?;
        let (watched, watched_max) = (list.len(), list.watched_max());
        self.look_at_watched(&mut list, watched).await?;
        for audited in &self.scopes {
            list.begin(&audited.scope);
            while self.look_at_pending(&mut list, audited, watched_max).await? == watched_max {}
        }
        drop(list);
        Ok(self.report())
    }
}
