//! A sweep by hand: what an endpoint's own sweeper does, for an endpoint that does not run.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use serde::Serialize;

use super::{Operator, Selection};
use crate::{
    claim::is_claim,
    codec::Codec,
    endpoint::RandomIds,
    enqueued::Nobody,
    handler_error::chain,
    ids::{AttemptId, Scope},
    manager::{Limits, Ports, SagaManager},
    metrics::{Event, Metrics},
    ports::{Answer, ErrorKind, Pending, StoreError},
    registry::Registry,
    sync::Mutex,
};

/// Failures that are told; beyond them they are only counted.
const TOLD_MAX: usize = 100;

/// Why an entity is left to the endpoint.
const BODIES_ELSEWHERE: &str =
    "a body of what it sends is in a store of bodies, which is not known here: the endpoint's own sweeper sends it";

/// What a sweep came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Swept {
    /// Entities that had something to send for as long as asked for.
    pub entities: usize,
    /// Outbox entries in these.
    pub entries: usize,
    /// Of these, those that are finished: sent, marked and cleaned up.
    pub finished: usize,
    /// Entities of which something is left.
    pub failed: usize,
    /// Why, for the first hundred of them.
    pub reasons: Vec<NotSwept>,
}

/// An entity whose entries could not be finished.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NotSwept {
    /// Which.
    pub entity: String,
    /// Why.
    pub why: String,
}

/// Hears how each pass has ended.
#[derive(Debug, Default)]
struct Ear(Mutex<Swept>);

impl Metrics for Ear {
    fn observe(&self, event: Event<'_>) {
        let mut swept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Swept(_, entries) => swept.finished += entries,
            Event::SweepFailed(entity, why) => {
                swept.failed += 1;
                if swept.reasons.len() < TOLD_MAX {
                    swept.reasons.push(NotSwept { entity: entity.to_string(), why: why.to_owned() });
                }
            }
            _ => {}
        }
    }
}

impl Operator {
    /// Finishes outbox entries of what `of` selects that have waited for `older_than`, in up to `limit` entities of each saga: sends what they
    /// hold by the [transport](Self::sends_by) that was given, marks and cleans up. It is the endpoint's own sweep, and may run beside it.
    ///
    /// # Errors
    /// Those of the store when it is asked what waits. How single entities ended is in the answer.
    pub async fn sweep(&self, of: &Selection, older_than: Duration, limit: usize) -> Result<Answer<Swept>, StoreError> {
        let scopes = match self.scopes(of).await? {
            Answer::Is(scopes) => scopes,
            Answer::Unknown { why } => return Ok(Answer::Unknown { why }),
        };
        let mut total = Swept::default();
        for scope in &scopes {
            let swept = self.sweep_scope(scope, older_than, limit).await?;
            total.entities += swept.entities;
            total.entries += swept.entries;
            total.finished += swept.finished;
            total.failed += swept.failed;
            total.reasons.extend(swept.reasons);
        }
        total.reasons.truncate(TOLD_MAX);
        Ok(Answer::Is(total))
    }

    async fn sweep_scope(&self, scope: &Arc<Scope>, older_than: Duration, limit: usize) -> Result<Swept, StoreError> {
        let ear = Arc::new(Ear::default());
        let ports = Ports {
            stores: self.stores.clone(),
            dispatcher: self.dispatcher.clone(),
            dead_letters: self.letters.clone(),
            clock: self.clock.clone(),
            ids: Arc::new(RandomIds::default()),
            metrics: ear.clone(),
        };
        // A sweep handles nothing, so it needs no handlers: only the name, for where the entities are. Whether the saga keeps the order of what it
        // sends is not known here, so it is kept.
        let registry = Registry::<Nobody>::named(scope.saga.as_str()).ordered_outputs();
        let manager = SagaManager::new(&scope.endpoint, registry, ports, Limits::default(), Codec::Json);
        let manager = manager.map_err(|error| StoreError::new(ErrorKind::Misconfigured, "sweeping", chain(&error)))?;
        let pending = self.pending(scope, older_than, limit).await?;
        let entries = pending.iter().map(|pending| pending.entries.len()).sum();
        // One after the other: it is seldom in a hurry, and the endpoint's own messages come first.
        for pending in &pending {
            if self.has_bodies_elsewhere(pending).await? {
                ear.observe(Event::SweepFailed(&pending.key, BODIES_ELSEWHERE));
                continue;
            }
            let attempts: Vec<AttemptId> = pending.entries.iter().map(|entry| entry.attempt).collect();
            manager.pass(&pending.key, &mut [], &attempts).await;
        }
        let mut swept = ear.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (swept.entities, swept.entries) = (pending.len(), entries);
        Ok(swept)
    }

    /// A body that does not travel has to be kept for whoever gets the message, by the store of bodies that the endpoint has.
    async fn has_bodies_elsewhere(&self, pending: &Pending) -> Result<bool, StoreError> {
        let stored = self.stores.entities().load(&pending.key, &[]).await?.stored;
        let entries = stored.iter().flat_map(|stored| &stored.entity.outbox);
        Ok(entries.flat_map(|entry| &entry.outgoing).any(|outgoing| is_claim(&outgoing.envelope)))
    }
}
