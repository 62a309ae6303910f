//! How an audit reads, and whom it watches.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use super::{
    Audited, Auditor,
    moment::Moment,
    subject::{Check, Now, Sighting, Subject},
};
use crate::{
    ids::{DedupKey, EntityKey, Scope},
    metrics::{Backlog, Event, Invariant, Violation},
    ports::{Loaded, Pending, StoreError},
};

/// How often an entity is loaded for one look, if it is saved meanwhile.
const LOADS_MAX: usize = 2;
/// Violations that are remembered, so that each is told once.
const TOLD_MAX: usize = 1024;

/// The entities under audit, in the order in which they are looked at.
#[derive(Debug)]
pub(super) struct WatchList {
    subjects: VecDeque<Subject>,
    watched_max: usize,
    /// Entities that could have been watched so far.
    offered: u64,
    told: VecDeque<(Invariant, DedupKey)>,
    /// Which scope's pending entries are next.
    scope: usize,
    /// Behind which entity a scope's are next.
    after: HashMap<Arc<Scope>, EntityKey>,
    /// What the pages of each scope had, since its first one.
    found: HashMap<Arc<Scope>, Found>,
}

/// What waits, and what is over and has not gone yet.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Found {
    pub(super) waiting: Backlog,
    pub(super) left_over: usize,
}

impl WatchList {
    pub(super) fn new(watched_max: usize) -> Self {
        Self {
            subjects: VecDeque::new(),
            watched_max,
            offered: 0,
            told: VecDeque::new(),
            scope: 0,
            after: HashMap::new(),
            found: HashMap::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.subjects.len()
    }

    pub(super) const fn watched_max(&self) -> usize {
        self.watched_max
    }

    pub(super) fn next_scope<'a>(&mut self, scopes: &'a [Audited]) -> Option<&'a Audited> {
        self.scope = (self.scope + 1) % scopes.len().max(1);
        scopes.get(self.scope)
    }

    /// The first page of what waits in `scope` is next.
    pub(super) fn begin(&mut self, scope: &Scope) {
        self.after.remove(scope);
    }

    fn take(&mut self, entity: &EntityKey) -> Option<Subject> {
        let place = self.subjects.iter().position(|subject| subject.entity == *entity)?;
        self.subjects.remove(place)
    }

    /// Watched before, so it stays.
    fn keep(&mut self, subject: Subject) {
        if !subject.is_empty() {
            self.subjects.push_back(subject);
        }
    }

    /// A new one has its chance, the same as each before it had.
    fn offer(&mut self, subject: Subject) {
        if subject.is_empty() {
            return;
        }
        self.offered += 1;
        if self.subjects.len() < self.watched_max {
            self.subjects.push_back(subject);
        } else if let Ok(place) = usize::try_from(fastrand::u64(..self.offered))
            && let Some(before) = self.subjects.get_mut(place)
        {
            *before = subject;
        }
    }

    /// Whether it is told for the first time.
    fn is_new(&mut self, invariant: Invariant, message: DedupKey) -> bool {
        if self.told.contains(&(invariant, message)) {
            return false;
        }
        if self.told.len() >= TOLD_MAX {
            self.told.pop_front();
        }
        self.told.push_back((invariant, message));
        true
    }
}

impl Auditor {
    /// What the endpoint has handled since the last time; answers how many entities that were.
    pub(super) async fn look_at_new(&self, list: &mut WatchList) -> Result<usize, StoreError> {
        let (told, since) = self.sample.take(Moment::new(self.clock.now().await));
        let mut subjects: Vec<(Subject, bool)> = Vec::new();
        for told in told {
            let place = subjects.iter().position(|(subject, _)| subject.entity == told.entity);
            let place = place.unwrap_or_else(|| {
                let before = list.take(&told.entity);
                let is_new = before.is_none();
                subjects.push((before.unwrap_or_else(|| Subject::new(told.entity.clone())), is_new));
                subjects.len() - 1
            });
            subjects[place].0.watch(told, since);
        }
        let looks = subjects.len();
        let mut ended = Ok(());
        for (mut subject, is_new) in subjects {
            // Once a store has failed the others wait for the next time, and are not forgotten.
            if ended.is_ok() {
                ended = self.look(list, &mut subject).await.map(drop);
            }
            if is_new { list.offer(subject) } else { list.keep(subject) }
        }
        self.tally.watched(list.len());
        ended.map(|()| looks)
    }

    /// One page of what waits in a scope; answers how many entities that were.
    pub(super) async fn look_at_pending(
        &self,
        list: &mut WatchList,
        audited: &Audited,
        limit: usize,
    ) -> Result<usize, StoreError> {
        if limit == 0 {
            return Ok(0);
        }
        let after = list.after.remove(&audited.scope);
        let pending = self.stores.entities().pending(&audited.scope, self.sweep_age, after.as_ref(), limit).await;
        let pending = pending.inspect_err(|_| self.tally.failed())?;
        if let Some(last) = pending.last().filter(|_| pending.len() == limit) {
            list.after.insert(audited.scope.clone(), last.key.clone());
        }
        // A page that is not the first adds to those before it.
        let mut found = after.and_then(|_| list.found.remove(&audited.scope)).unwrap_or_default();
        for pending in &pending {
            let before = list.take(&pending.key);
            let is_new = before.is_none();
            let mut subject = before.unwrap_or_else(|| Subject::new(pending.key.clone()));
            let seen = self.look(list, &mut subject).await;
            if is_new {
                list.offer(subject)
            } else {
                list.keep(subject)
            }
            found.add(pending, &seen?);
        }
        list.found.insert(audited.scope.clone(), found);
        self.tally.found(list.found.values());
        self.tally.watched(list.len());
        Ok(pending.len())
    }

    /// The next `looks` of those that are watched.
    pub(super) async fn look_at_watched(&self, list: &mut WatchList, looks: usize) -> Result<(), StoreError> {
        for _ in 0..looks.min(list.len()) {
            let Some(mut subject) = list.subjects.pop_front() else { break };
            let seen = self.look(list, &mut subject).await;
            list.keep(subject);
            seen?;
        }
        self.tally.watched(list.len());
        Ok(())
    }

    pub(super) async fn look(&self, list: &mut WatchList, subject: &mut Subject) -> Result<Sighting, StoreError> {
        let now = self.now(&subject.entity).await;
        subject.forget(&now);
        let seen = self.sight(&subject.entity, &subject.keys()).await.inspect_err(|_| self.tally.failed())?;
        self.tally.looked(seen.is_fresh);
        for check in subject.judge(&seen, &now) {
            self.tell(list, &subject.entity, check, now.moment);
        }
        Ok(seen)
    }

    async fn now(&self, entity: &EntityKey) -> Now {
        let scope = entity.scope();
        Now {
            moment: Moment::new(self.clock.now().await),
            sweeps: self.rounds.sweeps(scope),
            sweep_failed: self.rounds.failed(entity),
            writes: self.rounds.writes(),
            sweep_age: self.sweep_age,
            watch_for: self.watch_for,
            is_handled: self.scopes.iter().any(|audited| audited.scope == *scope && audited.is_handled),
        }
    }

    /// Reads as a pass does: the entity, and when that has returned, what is over.
    async fn sight(&self, entity: &EntityKey, keys: &[DedupKey]) -> Result<Sighting, StoreError> {
        let (entities, dedup) = (self.stores.entities(), self.stores.dedup());
        let mut loads = 0;
        loop {
            let Loaded { stored, known } = entities.load(entity, keys).await?;
            let known = match known {
                Some(known) => known,
                None => {
                    let entries = stored.iter().flat_map(|stored| &stored.entity.outbox).map(|entry| entry.key);
                    let mut keys: Vec<DedupKey> = keys.iter().copied().chain(entries).collect();
                    keys.sort_unstable();
                    keys.dedup();
                    dedup.contains(&keys).await?
                }
            };
            let version = entities.version(entity).await?;
            let is_fresh = version.as_ref() == stored.as_ref().map(|stored| &stored.version);
            loads += 1;
            if is_fresh || loads >= LOADS_MAX {
                return Ok(Sighting { stored, known, is_fresh });
            }
        }
    }

    fn tell(&self, list: &mut WatchList, entity: &EntityKey, check: Check, now: Moment) {
        let Check { invariant, message, broken } = check;
        let (message, message_id) = message.unzip();
        let violation = broken.map(|what| Violation {
            invariant,
            entity: entity.clone(),
            message,
            message_id: message_id.flatten(),
            what,
            at: now.wall,
        });
        if let Some(violation) = &violation {
            if message.is_some_and(|message| !list.is_new(invariant, message)) {
                return;
            }
            let Violation { message, message_id, what, .. } = violation;
            let (message, message_id) =
                (message.map(|key| key.to_string()), message_id.as_ref().map(ToString::to_string));
            tracing::error!(%entity, message, message_id, %invariant, what, remedy = invariant.remedy(), "the promise is broken");
        }
        self.tally.checked(invariant, violation.as_ref());
        self.metrics.observe(Event::Audited(entity, invariant, violation.as_ref()));
    }
}

impl Found {
    fn add(&mut self, pending: &Pending, seen: &Sighting) {
        let Some(stored) = &seen.stored else { return };
        let mut waits = false;
        for entry in &stored.entity.outbox {
            let Some(listed) = pending.entries.iter().find(|listed| listed.attempt == entry.attempt) else { continue };
            if seen.known.attempt(&entry.key, &entry.attempt) {
                self.left_over += 1;
            } else {
                waits = true;
                self.waiting.entries += 1;
                self.waiting.oldest = self.waiting.oldest.max(Some(listed.age));
            }
        }
        self.waiting.entities += usize::from(waits);
    }
}
