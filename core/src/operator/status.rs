//! How it stands: what waits, what was set aside, what is remembered.

use std::{sync::Arc, time::Duration};

use serde::Serialize;

use super::{Operator, Selection, masked, shown::text, with_causes};
use crate::{
    ids::{EndpointName, Scope},
    ports::{Answer, Count, Next, OutboxState, StoreError},
    time::Timestamp,
};

/// Entities that are asked for at a time.
const PAGE: usize = 256;

/// Letters that are held of which it is asked whether they are in their place, too.
const HELD_ASKED_MAX: u64 = 100;

/// How a store's endpoints stand.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Status {
    /// When it was asked, by the clock of whoever asks.
    #[serde(serialize_with = "text")]
    pub time: Timestamp,
    /// The store, for example `sqlite`.
    pub store: &'static str,
    /// What is remembered, of all endpoints together.
    pub dedup: Answer<DedupStatus>,
    /// Each endpoint.
    pub endpoints: Answer<Vec<EndpointStatus>>,
    /// Outbox tables.
    pub outboxes: Vec<OutboxStatus>,
}

/// Dedup entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DedupStatus {
    /// How many.
    pub entries: Count,
    /// None is older than this, in milliseconds.
    pub oldest_at_most_ms: Option<u64>,
    /// How long they are kept at least, in milliseconds.
    pub retention_ms: Option<u64>,
}

/// One endpoint.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct EndpointStatus {
    /// Its name.
    pub endpoint: String,
    /// Its queue.
    pub queue: Answer<QueueStatus>,
    /// Messages that were set aside.
    pub dead_letters: Answer<Count>,
    /// Messages that are not due yet.
    pub schedule: Answer<ScheduleStatus>,
    /// Its sagas and stateless handlers, those of hapax itself too, with what waits in their entities.
    pub sagas: Answer<Vec<SagaStatus>>,
}

/// A saga.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SagaStatus {
    /// Its name.
    pub saga: String,
    /// Entities with messages that may not have been sent.
    pub waiting: Count,
    /// Outbox entries in these.
    pub entries: u64,
    /// How long the oldest of those that were looked at has waited, in milliseconds.
    pub oldest_ms: Option<u64>,
}

/// A queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct QueueStatus {
    /// Messages in it.
    pub messages: Count,
    /// Of these, those under a lease.
    pub leased: Answer<Count>,
}

/// A schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ScheduleStatus {
    /// Messages in it.
    pub messages: Count,
    /// Of these, those that are due.
    pub overdue: Count,
    /// In how many milliseconds the first is due; 0 where it is overdue.
    pub next_in_ms: Option<u64>,
    /// For how many milliseconds the first has been due.
    pub overdue_for_ms: Option<u64>,
}

/// An outbox table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OutboxStatus {
    /// Database and table.
    pub table: String,
    /// Messages that wait.
    pub waiting: u64,
    /// Of these, those that a relay has under a lease.
    pub claimed: u64,
    /// How old the oldest of them is, in milliseconds.
    pub oldest_ms: Option<u64>,
    /// For how many milliseconds the first of those that are due could have been sent.
    pub lag_ms: Option<u64>,
    /// Messages that have failed.
    pub failed: u64,
    /// Relays that are there.
    pub relays: u64,
}

/// In whole milliseconds.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Operator {
    /// How it stands with what `of` selects, counted up to `limit` of each.
    ///
    /// # Errors
    /// Those of the store. A queue that cannot be reached is said as that.
    pub async fn status(&self, of: &Selection, limit: u64) -> Result<Status, StoreError> {
        let time = self.clock.now().await.0;
        let scopes = self.scopes(of).await?;
        let endpoints = match self.endpoints_with(of, &scopes).await? {
            Answer::Unknown { why } => Answer::Unknown { why },
            Answer::Is(names) => {
                let mut endpoints = Vec::with_capacity(names.len());
                for name in names {
                    endpoints.push(self.endpoint_status(&name, &scopes, limit).await?);
                }
                Answer::Is(endpoints)
            }
        };
        let mut outboxes = Vec::with_capacity(self.outboxes.len());
        for outbox in &self.outboxes {
            outboxes.push(OutboxStatus::of(outbox.name(), outbox.state().await?));
        }
        let store = self.stores.entities().capabilities().name;
        Ok(Status { time, store, dedup: self.dedup_status(limit, time).await?, endpoints, outboxes })
    }

    async fn dedup_status(&self, limit: u64, now: Timestamp) -> Result<Answer<DedupStatus>, StoreError> {
        if self.dedup_is_apart {
            let name = self.stores.dedup().dedup_capabilities().name;
            return Ok(Answer::unknown(format!("they are kept apart, in {name}, which does not count them")));
        }
        let keeps = self.stores.dedup().dedup_capabilities().keeps;
        Ok(self.survey.dedup_count(limit).await?.map(|entries| DedupStatus {
            entries: entries.count,
            oldest_at_most_ms: entries.none_before.map(|time| millis(now.since(time))),
            retention_ms: keeps.or(entries.retention).map(millis),
        }))
    }

    async fn endpoint_status(
        &self,
        endpoint: &EndpointName,
        scopes: &Answer<Vec<Arc<Scope>>>,
        limit: u64,
    ) -> Result<EndpointStatus, StoreError> {
        let sagas = match scopes {
            Answer::Unknown { why } => Answer::Unknown { why: why.clone() },
            Answer::Is(scopes) => {
                let mut sagas = Vec::new();
                for scope in scopes.iter().filter(|scope| scope.endpoint == *endpoint) {
                    sagas.push(self.saga_status(scope, limit).await?);
                }
                Answer::Is(sagas)
            }
        };
        Ok(EndpointStatus {
            endpoint: endpoint.to_string(),
            queue: self.queue_status(endpoint, limit).await,
            dead_letters: self.letters_status(endpoint, limit).await?,
            schedule: self.schedule_status(endpoint, limit).await?,
            sagas,
        })
    }

    /// With those that are held since their retry was cut short.
    async fn letters_status(&self, endpoint: &EndpointName, limit: u64) -> Result<Answer<Count>, StoreError> {
        let count = match self.survey.dead_letter_count(endpoint, limit).await? {
            Answer::Is(count) if count.number < limit => count,
            other => return Ok(other),
        };
        let office = self.dead_letter_office(endpoint, "", Duration::ZERO);
        let held = match self.survey.dead_letter_count(office.held(), limit - count.number).await? {
            Answer::Is(held) => held.number,
            Answer::Unknown { .. } => 0,
        };
        // One by one it is asked of a few: of more, those that are in both places count twice while their retry goes on.
        let alone = if held <= HELD_ASKED_MAX { office.held_alone().await? as u64 } else { held };
        Ok(Answer::Is(Count::up_to(count.number + alone, limit)))
    }

    async fn saga_status(&self, scope: &Arc<Scope>, limit: u64) -> Result<SagaStatus, StoreError> {
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        let (mut found, mut entries, mut oldest, mut after) = (0_usize, 0, None, None);
        while found < most {
            let page = PAGE.min(most - found);
            let pending = self.stores.entities().pending(scope, Duration::ZERO, after.as_ref(), page).await?;
            found += pending.len();
            for entry in pending.iter().flat_map(|pending| &pending.entries) {
                entries += 1;
                oldest = oldest.max(Some(entry.age));
            }
            after = pending.last().map(|last| last.key.clone());
            if pending.len() < page {
                break;
            }
        }
        let waiting = Count::up_to(found as u64, limit);
        Ok(SagaStatus { saga: scope.saga.to_string(), waiting, entries, oldest_ms: oldest.map(millis) })
    }

    async fn queue_status(&self, endpoint: &EndpointName, limit: u64) -> Answer<QueueStatus> {
        let Some(queues) = &self.queues else { return Answer::unknown("no transport was given that could be asked") };
        match queues.queue(endpoint, limit).await {
            Ok(queue) => Answer::Is(QueueStatus { messages: queue.messages, leased: queue.leased }),
            Err(error) => Answer::unknown(masked(&with_causes(&error))),
        }
    }

    async fn schedule_status(&self, endpoint: &EndpointName, limit: u64) -> Result<Answer<ScheduleStatus>, StoreError> {
        let Some(schedule) = &self.schedule else {
            return Ok(Answer::unknown("this store keeps no schedule: look where the endpoint's is"));
        };
        let next = schedule.next(endpoint).await?;
        Ok(self.survey.scheduled(endpoint, limit).await?.map(|scheduled| ScheduleStatus {
            messages: scheduled.messages,
            overdue: scheduled.overdue,
            next_in_ms: next.map(|next| match next {
                Next::In(wait) => millis(wait),
                Next::Overdue(_) => 0,
            }),
            overdue_for_ms: next.and_then(|next| match next {
                Next::In(_) => None,
                Next::Overdue(since) => Some(millis(since)),
            }),
        }))
    }
}

impl OutboxStatus {
    fn of(table: &str, state: OutboxState) -> Self {
        let OutboxState { stored, claimed, oldest, lag, failed, relays, .. } = state;
        Self {
            table: table.to_owned(),
            waiting: stored,
            claimed,
            oldest_ms: oldest.map(millis),
            lag_ms: lag.map(millis),
            failed,
            relays,
        }
    }
}
