//! All that is known of one message.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use serde::Serialize;

use super::{Operator, Selection, ShownLetter, ShownRow, TakenAction, WaitingEntry, masked, shown::text, with_causes};
use crate::{
    entity::OutboxEntry,
    envelope::Envelope,
    ids::{DedupKey, EndpointName, EntityKey, IdempotencyKey, MessageId, SagaKey, Scope, TypeName},
    ports::{Answer, Count, ErrorKind, Known, Page, ScheduledMessage, StoreError},
    registry::stateless_key,
};

/// Entities, and messages of a queue, that are looked at for one message unless told otherwise: seconds on any store.
const LOOKS_MAX: usize = 10_000;
/// Dedup keys that are asked for at a time.
const KEYS_AT_ONCE: usize = 256;
/// Dead letters of one message that are shown.
const LETTERS_MAX: usize = 100;

/// Where to look for a message, and what is known of it already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hints {
    /// Where to look; everywhere, unless it says so.
    pub of: Selection,
    /// Which instance of the saga: then that one alone is asked.
    pub key: Option<SagaKey>,
    /// Its sender's name for its intent, where it has one: it is remembered by this and not by its id.
    pub idempotency_key: Option<IdempotencyKey>,
    /// Entities of each saga that are looked at, and messages of each queue. Default 10,000.
    pub looks_max: usize,
}

impl Default for Hints {
    fn default() -> Self {
        Self { of: Selection::default(), key: None, idempotency_key: None, looks_max: LOOKS_MAX }
    }
}

/// What is known of a message. Each part is of another moment, and what is over leaves no trace but a dedup entry.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct MessageLife {
    /// Which.
    pub message_id: String,
    /// Rows of outbox tables: it was stored to be sent.
    pub outbox_rows: Vec<ShownRow>,
    /// Outbox entries of entities that hold it: a handler sends it, and that has not been finished.
    pub sent_by: Vec<SentBy>,
    /// It waits in a schedule until it is due.
    pub scheduled: Answer<Vec<ScheduledCopy>>,
    /// Copies in queues, with their attempts.
    pub queued: Answer<Vec<QueuedCopy>>,
    /// Where its effect is saved, and whether all it has sent is on its way.
    pub handled: Answer<Vec<Handled>>,
    /// Letters about it.
    pub dead_letters: Vec<ShownLetter>,
    /// What was done with such, as far as the record goes back; of a call for more than 200 letters it names the first.
    pub actions: Vec<TakenAction>,
    /// Entities that were asked whether they have handled it.
    pub entities_asked: Count,
}

/// A message in a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ScheduledCopy {
    /// Which endpoint sends it.
    pub endpoint: String,
    /// Where it is to go.
    pub destination: String,
    /// When.
    pub due: String,
}

/// A copy in a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct QueuedCopy {
    /// Whose queue.
    pub endpoint: String,
    /// How often it has been given.
    pub attempts: u32,
    /// Somebody has it now, unless he has died.
    pub leased: bool,
    /// When it is given next.
    pub available: String,
    /// When it was sent.
    pub sent: String,
}

/// An entity whose outbox holds the message as one that is to be sent.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SentBy {
    /// The endpoint.
    pub endpoint: String,
    /// The saga.
    pub saga: String,
    /// Which instance.
    pub key: String,
    /// The entry.
    pub entry: WaitingEntry,
}

/// An entity that has handled the message.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Handled {
    /// The endpoint.
    pub endpoint: String,
    /// The saga or stateless handler.
    pub saga: String,
    /// Which instance.
    pub key: String,
    /// Under what it is remembered.
    #[serde(serialize_with = "text")]
    pub dedup_key: DedupKey,
    /// It has a dedup entry: all that it caused is sent.
    pub remembered: bool,
    /// Which attempt was saved.
    pub attempt: Option<String>,
    /// When, by the saver's clock.
    pub time: Option<String>,
    /// It was answered, and the answer is kept for copies.
    pub replied: bool,
    /// What it has to send still waits here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<WaitingEntry>,
}

impl Operator {
    /// What is known of the message `id`.
    ///
    /// What its sender [numbers](crate::ids::SequenceNumber) is remembered by its number, and not found among what was handled.
    ///
    /// # Errors
    /// Those of the store. What cannot be told is said in the answer.
    pub async fn message(&self, id: &MessageId, hints: &Hints) -> Result<MessageLife, StoreError> {
        let mut life = MessageLife {
            message_id: id.to_string(),
            outbox_rows: Vec::new(),
            sent_by: Vec::new(),
            scheduled: Answer::Is(Vec::new()),
            queued: Answer::unknown("no transport was given that could be asked"),
            handled: Answer::Is(Vec::new()),
            dead_letters: Vec::new(),
            actions: Vec::new(),
            entities_asked: Count::default(),
        };
        let page = Page { message_id: Some(id.clone()), ..Page::first(LETTERS_MAX) };
        for outbox in &self.outboxes {
            let rows = outbox.rows(None, &page).await?;
            life.outbox_rows.extend(rows.iter().map(|row| ShownRow::of(outbox.name(), row)));
        }
        match self.endpoints(&hints.of).await? {
            Answer::Is(endpoints) => {
                life.queued = self.queued(&endpoints, id, hints).await;
                for endpoint in &endpoints {
                    // Also one that is held since its retry was cut short.
                    let office = self.dead_letter_office(endpoint, "", Duration::ZERO);
                    let letters = office.show(id).await?;
                    life.dead_letters.extend(letters.iter().take(LETTERS_MAX).map(ShownLetter::of));
                    life.actions.extend(TakenAction::about(endpoint, office.actions().await?, id));
                    self.add_scheduled(endpoint, id, &mut life).await?;
                }
            }
            Answer::Unknown { why } => life.scheduled = Answer::Unknown { why },
        }
        match self.scopes(&hints.of).await? {
            Answer::Is(scopes) => {
                for scope in &scopes {
                    self.add_waiting(scope, id, hints, &mut life).await?;
                    self.add_handled(scope, id, hints, &mut life).await?;
                }
            }
            Answer::Unknown { why } => life.handled = Answer::Unknown { why },
        }
        Ok(life)
    }

    async fn queued(&self, endpoints: &[EndpointName], id: &MessageId, hints: &Hints) -> Answer<Vec<QueuedCopy>> {
        let Some(queues) = &self.queues else { return Answer::unknown("no transport was given that could be asked") };
        let mut found = Vec::new();
        for endpoint in endpoints {
            match queues.queued(endpoint, id, hints.looks_max as u64).await {
                Ok(Answer::Is(copies)) => found.extend(copies.into_iter().map(|copy| QueuedCopy {
                    endpoint: endpoint.to_string(),
                    attempts: copy.attempts,
                    leased: copy.leased,
                    available: copy.available.to_string(),
                    sent: copy.sent.to_string(),
                })),
                Ok(Answer::Unknown { why }) => return Answer::Unknown { why },
                Err(error) => return Answer::unknown(masked(&with_causes(&error))),
            }
        }
        Answer::Is(found)
    }

    async fn add_scheduled(
        &self,
        endpoint: &EndpointName,
        id: &MessageId,
        life: &mut MessageLife,
    ) -> Result<(), StoreError> {
        let found = self.survey.scheduled_message(endpoint, id).await?;
        let Answer::Is(scheduled) = &mut life.scheduled else { return Ok(()) };
        match found {
            Answer::Is(found) => scheduled.extend(found.into_iter().map(|ScheduledMessage { destination, due }| {
                let (endpoint, destination) = (endpoint.to_string(), destination.to_string());
                ScheduledCopy { endpoint, destination, due: due.to_string() }
            })),
            Answer::Unknown { why } => life.scheduled = Answer::Unknown { why },
        }
        Ok(())
    }

    /// Outbox entries that hold the message, or are of it.
    async fn add_waiting(
        &self,
        scope: &Arc<Scope>,
        id: &MessageId,
        hints: &Hints,
        life: &mut MessageLife,
    ) -> Result<(), StoreError> {
        let probe = probe(id, hints.idempotency_key.as_ref())?;
        for pending in self.pending(scope, Duration::ZERO, hints.looks_max).await? {
            let Some((entity, shown)) = self.look_at(&pending).await? else { continue };
            let key = DedupKey::of(&pending.key, &probe);
            if entity.entry(&key).is_some() {
                add_found(&mut life.handled, self.ask_one(&pending.key, key).await?, None);
            }
            for (entry, shown_entry) in entity.outbox.iter().zip(shown.entries) {
                if entry.outgoing.iter().any(|outgoing| outgoing.envelope.message_id == *id) {
                    life.sent_by.push(SentBy {
                        endpoint: shown.endpoint.clone(),
                        saga: shown.saga.clone(),
                        key: shown.key.clone(),
                        entry: shown_entry,
                    });
                }
            }
        }
        Ok(())
    }

    /// Asks the entities of a saga whether they have handled the message.
    async fn add_handled(
        &self,
        scope: &Arc<Scope>,
        id: &MessageId,
        hints: &Hints,
        life: &mut MessageLife,
    ) -> Result<(), StoreError> {
        let probe = probe(id, hints.idempotency_key.as_ref())?;
        // A stateless handler has an entity for each message, whose key follows from the message.
        let stateless = stateless_key(scope, &probe).map_err(|error| refused(&error.to_string()))?;
        let (mut found, mut unknown) = (self.ask(&[EntityKey::new(scope.clone(), stateless)], &probe).await?, None);
        if let Some(key) = &hints.key {
            life.entities_asked = life.entities_asked.and(Count::exactly(1));
            found.extend(self.ask(&[EntityKey::new(scope.clone(), key.clone())], &probe).await?);
        } else {
            let (mut asked, mut after) = (0, None);
            while asked < hints.looks_max {
                let page = KEYS_AT_ONCE.min(hints.looks_max - asked);
                let keys = match self.survey.entity_keys(scope, after.as_ref(), page).await? {
                    Answer::Is(keys) => keys,
                    Answer::Unknown { why } => {
                        unknown = Some(why);
                        break;
                    }
                };
                asked += keys.len();
                found.extend(self.ask(&keys, &probe).await?);
                after = keys.last().cloned();
                if keys.len() < page {
                    break;
                }
            }
            life.entities_asked = life.entities_asked.and(Count::up_to(asked as u64, hints.looks_max as u64));
        }
        add_found(&mut life.handled, found, unknown);
        Ok(())
    }

    /// Which of `entities` remember the message. One that is in an outbox only was found there.
    async fn ask(&self, entities: &[EntityKey], probe: &Envelope) -> Result<Vec<Handled>, StoreError> {
        let mut found = Vec::new();
        let asked: Vec<DedupKey> = entities.iter().map(|entity| DedupKey::of(entity, probe)).collect();
        // Where dedup entries stand beside their entities, only the entity's own load tells of them.
        let alone = self.stores.dedup().dedup_capabilities().alone;
        let known = if alone && !asked.is_empty() { Some(self.stores.dedup().contains(&asked).await?) } else { None };
        for (key, entity) in asked.into_iter().zip(entities) {
            if known.as_ref().is_none_or(|known| is_known(known, &key)) {
                found.extend(self.ask_one(entity, key).await?);
            }
        }
        Ok(found)
    }

    async fn ask_one(&self, entity: &EntityKey, key: DedupKey) -> Result<Option<Handled>, StoreError> {
        let loaded = self.stores.entities().load(entity, &[key]).await?;
        let marks = match loaded.known {
            Some(marks) => marks,
            None => self.stores.dedup().contains(&[key]).await?,
        };
        let waits = loaded.stored.as_ref().and_then(|stored| stored.entity.entry(&key));
        let is_there = waits.is_some() || is_known(&marks, &key);
        Ok(is_there.then(|| Handled::of(entity, key, &marks, waits.map(|entry| &**entry))))
    }
}

impl Handled {
    fn of(entity: &EntityKey, dedup_key: DedupKey, marks: &Known, waits: Option<&OutboxEntry>) -> Self {
        let entry = marks.entry(&dedup_key);
        let attempt = entry.map(|entry| entry.attempt).or_else(|| waits.map(|waits| waits.attempt));
        let time = entry.map(|entry| entry.time).or_else(|| waits.map(|waits| waits.saved_at));
        Self {
            endpoint: entity.scope().endpoint.to_string(),
            saga: entity.scope().saga.to_string(),
            key: entity.key().to_string(),
            dedup_key,
            remembered: is_known(marks, &dedup_key),
            attempt: attempt.map(|attempt| attempt.to_string()),
            time: time.map(|time| time.to_string()),
            replied: entry.is_some_and(|entry| entry.reply.is_some()),
            waits: waits.map(|entry| WaitingEntry::of(entry, None, marks.attempt(&dedup_key, &entry.attempt))),
        }
    }
}

/// Adds what was found to what is known. Why the rest is not known is said only where nothing is.
fn add_found(handled: &mut Answer<Vec<Handled>>, found: impl IntoIterator<Item = Handled>, unknown: Option<String>) {
    let mut known = handled.is().cloned().unwrap_or_default();
    for one in found {
        if !known.iter().any(|other| other.dedup_key == one.dedup_key && other.key == one.key) {
            known.push(one);
        }
    }
    match (known.is_empty(), unknown) {
        (false, _) => *handled = Answer::Is(known),
        (true, Some(why)) => *handled = Answer::Unknown { why },
        (true, None) => {}
    }
}

fn is_known(known: &Known, key: &DedupKey) -> bool {
    known.entry(key).is_some() || known.is_folded(key)
}

/// A message of which nothing is known but what it is remembered by.
fn probe(id: &MessageId, idempotency_key: Option<&IdempotencyKey>) -> Result<Envelope, StoreError> {
    let message_type = TypeName::parse("unknown").map_err(|error| refused(&error.to_string()))?;
    let mut probe = Envelope::new(id.clone(), message_type, Bytes::new());
    probe.idempotency_key = idempotency_key.cloned();
    Ok(probe)
}

fn refused(why: &str) -> StoreError {
    StoreError::new(ErrorKind::Misconfigured, "looking for a message", why)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn of(saga: &str) -> Handled {
        let scope = Arc::new(Scope { endpoint: "shop".parse().unwrap(), saga: saga.parse().unwrap() });
        let entity = EntityKey::new(scope, "7".parse().unwrap());
        let probe = probe(&"m-1".parse().unwrap(), None).unwrap();
        Handled::of(&entity, DedupKey::of(&entity, &probe), &Known::default(), None)
    }

    /// Goal: where a store cannot list the entities of a saga, what was found elsewhere is told all the same. Method: as `message` adds what it
    /// finds on such a store, saga by saga.
    #[test]
    fn what_was_found_stays_where_the_rest_is_not_known() {
        let why = || Some("name the key".to_owned());
        let mut handled = Answer::Is(Vec::new());
        add_found(&mut handled, [], why());
        assert_eq!(handled, Answer::Unknown { why: "name the key".to_owned() });
        add_found(&mut handled, [of("order")], None);
        add_found(&mut handled, [], why());
        add_found(&mut handled, [of("order"), of("invoice")], why());
        assert_eq!(handled, Answer::Is(vec![of("order"), of("invoice")]));
    }
}
