//! What waits to be sent, entity by entity, and the rows of outbox tables.

use std::{sync::Arc, time::Duration};

use serde::Serialize;

use super::{Operator, Selection, shown::ShownOutgoing, status::millis};
use crate::{
    entity::{Entity, OutboxEntry},
    ids::Scope,
    ports::{Answer, OutboxRow, OutboxRows, Page, Pending, RowStatus, StoreError},
};

/// Entities that are asked for at a time.
const ENTITIES: usize = 256;

/// An entity with messages that may not have been sent.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WaitingEntity {
    /// Its endpoint.
    pub endpoint: String,
    /// Its saga.
    pub saga: String,
    /// Which instance.
    pub key: String,
    /// Its outbox entries, in the order in which their messages were handled.
    pub entries: Vec<WaitingEntry>,
}

/// An outbox entry: a message that was handled, with what is to be sent for it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WaitingEntry {
    /// Under what the handled message is remembered.
    pub dedup_key: String,
    /// Which attempt at it was saved.
    pub attempt: String,
    /// When, by the saver's clock.
    pub saved: String,
    /// For how long it has waited, by the store's clock, in milliseconds.
    pub age_ms: Option<u64>,
    /// All is sent, and it goes with the next save of the entity, or the next sweep.
    pub over: bool,
    /// What is to be sent.
    pub outgoing: Vec<ShownOutgoing>,
}

/// A row of an outbox table.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ShownRow {
    /// Database and table.
    pub table: String,
    /// Its message's id.
    pub message_id: String,
    /// What has become of it.
    pub status: RowStatus,
    /// It is in the archive.
    pub archived: bool,
    /// How often it was tried.
    pub attempts: u32,
    /// When its transaction stored it.
    pub stored: String,
    /// When its status became another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// While it waits: not tried before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
    /// Why the last attempt has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<ShownOutgoing>,
    /// Why it cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

impl ShownRow {
    /// `row` of `table`, without its message's body.
    #[must_use]
    pub fn of(table: &str, row: &OutboxRow) -> Self {
        Self {
            table: table.to_owned(),
            message_id: row.message_id.to_string(),
            status: row.status,
            archived: row.archived,
            attempts: row.attempts,
            stored: row.stored.to_string(),
            ended: row.ended.map(|time| time.to_string()),
            ready: row.ready.map(|time| time.to_string()),
            last_error: row.last_error.clone(),
            message: row.outgoing.as_ref().ok().map(ShownOutgoing::of),
            unreadable: row.outgoing.as_ref().err().cloned(),
        }
    }
}

impl WaitingEntry {
    pub(super) fn of(entry: &OutboxEntry, age: Option<Duration>, over: bool) -> Self {
        Self {
            dedup_key: entry.key.to_string(),
            attempt: entry.attempt.to_string(),
            saved: entry.saved_at.to_string(),
            age_ms: age.map(millis),
            over,
            outgoing: entry.unsent().filter_map(|index| entry.outgoing.get(index)).map(ShownOutgoing::of).collect(),
        }
    }
}

impl Operator {
    /// Entities that `of` selects with messages that may not have been sent, and have waited for `older_than`; `skip` of them are passed by,
    /// and `limit` are shown at most.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn waiting(
        &self,
        of: &Selection,
        older_than: Duration,
        skip: usize,
        limit: usize,
    ) -> Result<Answer<Vec<WaitingEntity>>, StoreError> {
        let scopes = match self.scopes(of).await? {
            Answer::Is(scopes) => scopes,
            Answer::Unknown { why } => return Ok(Answer::Unknown { why }),
        };
        let (mut skip, mut found) = (skip, Vec::new());
        for scope in &scopes {
            let mut after = None;
            while found.len() < limit {
                let page = ENTITIES.min(skip.saturating_add(limit - found.len()));
                let listed = self.stores.entities().pending(scope, older_than, after.as_ref(), page).await?;
                for pending in &listed {
                    if skip > 0 {
                        skip -= 1;
                    } else if let Some((_, entity)) = self.look_at(pending).await? {
                        found.push(entity);
                    }
                }
                after = listed.last().map(|last| last.key.clone());
                if listed.len() < page {
                    break;
                }
            }
        }
        found.truncate(limit);
        Ok(Answer::Is(found))
    }

    /// Rows of its outbox tables: those with `status`, else those that have failed before those that wait; one list over all tables, of which
    /// `skip` are passed by, and `limit` are shown at most.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn rows(
        &self,
        status: Option<RowStatus>,
        skip: usize,
        limit: usize,
    ) -> Result<Vec<ShownRow>, StoreError> {
        let wanted = status.map_or_else(|| vec![RowStatus::Failed, RowStatus::Waits], |status| vec![status]);
        let (mut skip, mut shown) = (skip, Vec::new());
        for outbox in self.outboxes() {
            for status in wanted.iter().copied() {
                if shown.len() >= limit {
                    return Ok(shown);
                }
                let page = Page { skip, limit: limit - shown.len(), message_id: None };
                let rows = outbox.rows(Some(status), &page).await?;
                let passed = if rows.is_empty() { number(&**outbox, status).await? } else { skip };
                skip = skip.saturating_sub(passed);
                shown.extend(rows.iter().map(|row| ShownRow::of(outbox.name(), row)));
            }
        }
        Ok(shown)
    }

    /// An entity that was listed, if something still is in its outbox.
    pub(super) async fn look_at(&self, pending: &Pending) -> Result<Option<(Entity, WaitingEntity)>, StoreError> {
        let loaded = self.stores.entities().load(&pending.key, &[]).await?;
        let Some(stored) = loaded.stored.filter(|stored| !stored.entity.outbox.is_empty()) else { return Ok(None) };
        let entity = stored.entity;
        let known = match loaded.known {
            Some(known) => known,
            None => {
                let keys: Vec<_> = entity.outbox.iter().map(|entry| entry.key).collect();
                self.stores.dedup().contains(&keys).await?
            }
        };
        let age = |entry: &OutboxEntry| {
            pending.entries.iter().find(|listed| listed.attempt == entry.attempt).map(|listed| listed.age)
        };
        let entries = entity.outbox.iter();
        let entries =
            entries.map(|entry| WaitingEntry::of(entry, age(entry), known.attempt(&entry.key, &entry.attempt)));
        let Scope { endpoint, saga } = &**pending.key.scope();
        let shown = WaitingEntity {
            endpoint: endpoint.to_string(),
            saga: saga.to_string(),
            key: pending.key.key().to_string(),
            entries: entries.collect(),
        };
        Ok(Some((entity, shown)))
    }

    /// Each entity of `scope` in which something waits, up to `limit`, in the order of their keys.
    pub(super) async fn pending(
        &self,
        scope: &Arc<Scope>,
        older_than: Duration,
        limit: usize,
    ) -> Result<Vec<Pending>, StoreError> {
        let mut found: Vec<Pending> = Vec::new();
        while found.len() < limit {
            let page = ENTITIES.min(limit - found.len());
            let after = found.last().map(|last| last.key.clone());
            let listed = self.stores.entities().pending(scope, older_than, after.as_ref(), page).await?;
            let is_last = listed.len() < page;
            found.extend(listed);
            if is_last {
                break;
            }
        }
        Ok(found)
    }
}

/// How many rows there are of those that others are listed behind.
async fn number(outbox: &dyn OutboxRows, status: RowStatus) -> Result<usize, StoreError> {
    let state = outbox.state().await?;
    let number = match status {
        RowStatus::Failed => state.failed,
        RowStatus::Waits => state.stored,
        RowStatus::Sent | RowStatus::Expired => 0,
    };
    Ok(usize::try_from(number).unwrap_or(usize::MAX))
}
