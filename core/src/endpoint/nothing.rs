//! The stores of an endpoint without sagas, and of an operator who looks at outbox tables alone.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::{
    entity::{DedupEntry, Entity, Expected, Version},
    ids::{DedupKey, EndpointName, EntityKey, MessageId, Scope},
    ports::{
        Answer, Count, DeadLetter, DeadLetters, DedupCapabilities, DedupEntries, DedupStore, EntityStore, ErrorKind,
        Evicted, Finished, Known, Loaded, LongMemory, Page, Pending, Saved, Scheduled, ScheduledMessage,
        StoreCapabilities, StoreError, Survey,
    },
};

/// There is nothing in it, and nothing can be put into it.
#[derive(Debug)]
pub(crate) struct Nothing;

fn refused(operation: &'static str) -> StoreError {
    StoreError::new(ErrorKind::Misconfigured, operation, "this endpoint has no store: add .store(..)")
}

#[async_trait]
impl EntityStore for Nothing {
    fn capabilities(&self) -> StoreCapabilities {
        StoreCapabilities {
            name: "nothing",
            entity_bytes_max: 0,
            together: false,
            processed_max: StoreCapabilities::PROCESSED_UNLIMITED,
            durable: true,
        }
    }

    async fn load(&self, _: &EntityKey, _: &[DedupKey]) -> Result<Loaded, StoreError> {
        Ok(Loaded { stored: None, known: None })
    }

    async fn save(&self, _: &EntityKey, _: &Expected, _: &Entity, _: &[DedupEntry]) -> Result<Saved, StoreError> {
        Err(refused("saving an entity"))
    }

    async fn finish(
        &self,
        _: &EntityKey,
        _: &[DedupEntry],
        _: Option<(&Version, &Entity)>,
    ) -> Result<Option<Finished>, StoreError> {
        Ok(None)
    }

    async fn version(&self, _: &EntityKey) -> Result<Option<Version>, StoreError> {
        Ok(None)
    }

    async fn pending(
        &self,
        _: &Arc<Scope>,
        _: Duration,
        _: Option<&EntityKey>,
        _: usize,
    ) -> Result<Vec<Pending>, StoreError> {
        Ok(Vec::new())
    }

    async fn purge(&self, _: &Arc<Scope>, _: Duration, _: usize) -> Result<usize, StoreError> {
        Ok(0)
    }
}

#[async_trait]
impl DedupStore for Nothing {
    fn dedup_capabilities(&self) -> DedupCapabilities {
        DedupCapabilities {
            name: "nothing",
            keeps: None,
            alone: true,
            durable: true,
            consistent: true,
            reply_bytes_max: usize::MAX,
        }
    }

    async fn contains(&self, _: &[DedupKey]) -> Result<Known, StoreError> {
        Ok(Known::default())
    }

    async fn insert(&self, _: &[DedupEntry]) -> Result<(), StoreError> {
        Err(refused("adding a dedup entry"))
    }

    async fn evict(&self, _: Duration) -> Result<Evicted, StoreError> {
        Ok(Evicted::default())
    }

    fn long_memory(&self) -> Option<&dyn LongMemory> {
        None
    }
}

const NO_STORE: &str = "there is no store of hapax here: there are outbox tables alone";

#[async_trait]
impl DeadLetters for Nothing {
    async fn add(&self, _: &DeadLetter) -> Result<(), StoreError> {
        Err(refused("setting a message aside"))
    }

    async fn list(&self, _: &EndpointName, _: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        Ok(Vec::new())
    }

    async fn discard(&self, _: &[DeadLetter]) -> Result<usize, StoreError> {
        Ok(0)
    }
}

#[async_trait]
impl Survey for Nothing {
    async fn scopes(&self, _: usize) -> Result<Answer<Vec<Scope>>, StoreError> {
        Ok(Answer::unknown(NO_STORE))
    }

    async fn entity_keys(
        &self,
        _: &Arc<Scope>,
        _: Option<&EntityKey>,
        _: usize,
    ) -> Result<Answer<Vec<EntityKey>>, StoreError> {
        Ok(Answer::unknown(NO_STORE))
    }

    async fn dedup_count(&self, _: u64) -> Result<Answer<DedupEntries>, StoreError> {
        Ok(Answer::unknown(NO_STORE))
    }

    async fn lettered(&self, _: usize) -> Result<Answer<Vec<EndpointName>>, StoreError> {
        Ok(Answer::unknown(NO_STORE))
    }

    async fn dead_letter_count(&self, _: &EndpointName, _: u64) -> Result<Answer<Count>, StoreError> {
        Ok(Answer::unknown(NO_STORE))
    }

    async fn scheduled(&self, _: &EndpointName, _: u64) -> Result<Answer<Scheduled>, StoreError> {
        Ok(Answer::unknown(NO_STORE))
    }

    async fn scheduled_message(
        &self,
        _: &EndpointName,
        _: &MessageId,
    ) -> Result<Answer<Vec<ScheduledMessage>>, StoreError> {
        Ok(Answer::unknown(NO_STORE))
    }
}
