//! What a person is shown of it.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use hapax_core::{
    ids::{EndpointName, EntityKey, MessageId, Scope},
    ports::{Answer, Count, DedupEntries, Scheduled, ScheduledMessage, StoreError, Survey},
    time::Timestamp,
};
use tokio::time::Instant;

use super::Memory;

fn count_of(number: usize, limit: u64) -> Count {
    Count::up_to((number as u64).min(limit), limit)
}

#[async_trait]
impl Survey for Memory {
    async fn scopes(&self, limit: usize) -> Result<Answer<Vec<Scope>>, StoreError> {
        let state = self.state();
        let names: BTreeSet<&Arc<Scope>> = state.entities.keys().map(EntityKey::scope).collect();
        let copy = |scope: &Arc<Scope>| Scope { endpoint: scope.endpoint.clone(), saga: scope.saga.clone() };
        Ok(Answer::Is(names.into_iter().take(limit).map(copy).collect()))
    }

    async fn lettered(&self, limit: usize) -> Result<Answer<Vec<EndpointName>>, StoreError> {
        let state = self.state();
        let names: BTreeSet<&EndpointName> = state.letters.all.values().map(|letter| &letter.endpoint).collect();
        Ok(Answer::Is(names.into_iter().take(limit).cloned().collect()))
    }

    async fn entity_keys(
        &self,
        scope: &Arc<Scope>,
        after: Option<&EntityKey>,
        limit: usize,
    ) -> Result<Answer<Vec<EntityKey>>, StoreError> {
        let state = self.state();
        let own = state.entities.keys().filter(|key| key.scope() == scope && after.is_none_or(|after| *key > after));
        let mut keys: Vec<EntityKey> = own.cloned().collect();
        keys.sort_unstable();
        keys.truncate(limit);
        Ok(Answer::Is(keys))
    }

    async fn dedup_count(&self, limit: u64) -> Result<Answer<DedupEntries>, StoreError> {
        let state = self.state();
        let oldest = state.dedup.oldest().and_then(|age| u64::try_from(age.as_millis()).ok());
        let none_before = oldest.map(|age| Timestamp::from_millis(Timestamp::now().as_millis().saturating_sub(age)));
        let count = count_of(state.dedup.len(), limit);
        Ok(Answer::Is(DedupEntries { count, none_before, retention: state.dedup.retention() }))
    }

    async fn dead_letter_count(&self, endpoint: &EndpointName, limit: u64) -> Result<Answer<Count>, StoreError> {
        let state = self.state();
        let number = state.letters.all.values().filter(|letter| letter.endpoint == *endpoint).count();
        Ok(Answer::Is(count_of(number, limit)))
    }

    async fn scheduled(&self, endpoint: &EndpointName, limit: u64) -> Result<Answer<Scheduled>, StoreError> {
        let (state, now) = (self.state(), Instant::now());
        let overdue = state.waiting.messages_of(endpoint).filter(|(due, _)| *due <= now).count();
        let messages = count_of(state.waiting.messages_of(endpoint).count(), limit);
        Ok(Answer::Is(Scheduled { messages, overdue: count_of(overdue, limit) }))
    }

    async fn scheduled_message(
        &self,
        endpoint: &EndpointName,
        id: &MessageId,
    ) -> Result<Answer<Vec<ScheduledMessage>>, StoreError> {
        let state = self.state();
        let own = state.waiting.messages_of(endpoint).filter(|(_, outgoing)| outgoing.envelope.message_id == *id);
        let shown = own.map(|(_, outgoing)| ScheduledMessage {
            destination: outgoing.destination.clone(),
            due: outgoing.envelope.due.unwrap_or_else(Timestamp::now),
        });
        Ok(Answer::Is(shown.collect()))
    }
}
