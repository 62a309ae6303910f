//! What a person is shown of it: DynamoDB finds what is asked for by its key, and all else only by reading the whole table.

use std::sync::Arc;

use async_trait::async_trait;
use hapax_core::{
    ids::{EndpointName, EntityKey, MessageId, Scope},
    ports::{Answer, Count, DedupEntries, Scheduled, ScheduledMessage, StoreError, Survey},
};

use super::{
    DynamoDb,
    call::Doing,
    keys::{PK, letters, text},
};

const NO_NAMES: &str = "DynamoDB lists names only by reading the whole table: name endpoint and saga";
const NO_KEYS: &str = "DynamoDB lists entities only by reading the whole table: name the key of the saga's instance";
const NO_COUNT: &str =
    "DynamoDB counts dedup entries only by reading the whole table: see the table's item count in its console";
const NO_SCHEDULE: &str = "DynamoDB keeps no schedule: look where the endpoint's is";

#[async_trait]
impl Survey for DynamoDb {
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
        Ok(Answer::unknown("DynamoDB tells whose letters it keeps only by reading all of them: name the endpoint"))
    }

    async fn dead_letter_count(&self, endpoint: &EndpointName, limit: u64) -> Result<Answer<Count>, StoreError> {
        let doing = Doing::reading("counting dead letters");
        let query = self.0.client.query().table_name(&self.0.table).consistent_read(true);
        let query = query
            .key_condition_expression("#pk = :pk")
            .projection_expression("#pk")
            .expression_attribute_names("#pk", PK)
            .expression_attribute_values(":pk", text(letters(endpoint)));
        let (mut number, mut start) = (0, None);
        while number < limit {
            let (items, next) = self.page(doing, &query, start).await?;
            number += items.len() as u64;
            match next {
                Some(next) => start = Some(next),
                None => break,
            }
        }
        Ok(Answer::Is(Count::up_to(number.min(limit), limit)))
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
