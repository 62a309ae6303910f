//! What a person is shown of it: what stands in one partition. Anything else would ask every partition, for a charge that grows with what
//! they hold.

use std::sync::Arc;

use async_trait::async_trait;
use azure_data_cosmos::{FeedScope, Query};
use hapax_core::{
    ids::{EndpointName, EntityKey, MessageId, Scope},
    ports::{Answer, Count, DedupEntries, Scheduled, ScheduledMessage, StoreError, Survey},
};
use serde_json::Value;

use super::{CosmosDb, places::letters_of};

const COUNTING: &str = "counting dead letters";
/// Letters that are counted at most: an answer of the service has a row for each.
const COUNTED_MAX: u64 = 10_000;
const NO_NAMES: &str = "Cosmos DB lists names only by asking every partition: name endpoint and saga";
const NO_KEYS: &str = "Cosmos DB lists entities only by asking every partition: name the key of the saga's instance";
const NO_COUNT: &str = "Cosmos DB counts dedup entries only by asking every partition: see the account's metrics";
const NO_SCHEDULE: &str = "Cosmos DB keeps no schedule: look where the endpoint's is";

#[async_trait]
impl Survey for CosmosDb {
    async fn scopes(&self, _: usize) -> Result<Answer<Vec<Scope>>, StoreError> {
        Ok(Answer::unknown(NO_NAMES))
    }

    async fn entity_keys(
        &self,
        _: &Arc<Scope>,
        _: Option<&EntityKey>,
        _: usize,
    ) -> Result<Answer<Vec<EntityKey>>, StoreError> {
        Ok(Answer::unknown(NO_KEYS))
    }

    async fn dedup_count(&self, _: u64) -> Result<Answer<DedupEntries>, StoreError> {
        Ok(Answer::unknown(NO_COUNT))
    }

    async fn lettered(&self, _: usize) -> Result<Answer<Vec<EndpointName>>, StoreError> {
        Ok(Answer::unknown("Cosmos DB tells whose letters it keeps only by reading all of them: name the endpoint"))
    }

    async fn dead_letter_count(&self, endpoint: &EndpointName, limit: u64) -> Result<Answer<Count>, StoreError> {
        let limit = limit.clamp(1, COUNTED_MAX);
        let query = Query::from(format!("SELECT TOP {limit} c.id FROM c"));
        let scope = FeedScope::partition(letters_of(endpoint));
        let rows = usize::try_from(limit).unwrap_or(usize::MAX);
        let found: Vec<Value> = self.0.everything.query(COUNTING, query, scope, rows).await?;
        Ok(Answer::Is(Count::up_to(found.len() as u64, limit)))
    }

    async fn scheduled(&self, _: &EndpointName, _: u64) -> Result<Answer<Scheduled>, StoreError> {
        Ok(Answer::unknown(NO_SCHEDULE))
    }

    async fn scheduled_message(
        &self,
        _: &EndpointName,
        _: &MessageId,
    ) -> Result<Answer<Vec<ScheduledMessage>>, StoreError> {
        Ok(Answer::unknown(NO_SCHEDULE))
    }
}
