//! What a person is shown of it. Each is one statement that reads.

use std::sync::Arc;

use async_trait::async_trait;
use hapax_core::{
    ids::{EndpointName, EntityKey, MessageId, Scope},
    ports::{Answer, Count, DedupEntries, Scheduled, ScheduledMessage, StoreError, Survey},
};
use sqlx::{
    Row,
    mysql::{MySqlArguments, MySqlRow},
};

use super::{
    super::{
        rows::as_i64,
        survey::{self, LOOKING, as_limit},
    },
    MySql,
    arguments::Bind,
    error::malformed,
    rows,
    statements::survey::{
        ENTITIES, LETTERED, LETTERED_MAX, LETTERS, SCHEDULED_MESSAGE, SCOPES, SLOTS, dedup, scheduled,
    },
};

impl MySql {
    async fn surveyed(&self, sql: &str, arguments: MySqlArguments) -> Result<Vec<MySqlRow>, StoreError> {
        self.read_alone(LOOKING, &self.0.names.put_into(sql).into(), arguments).await
    }

    fn counted<const N: usize>(&self, rows: &[MySqlRow]) -> Result<[Option<u64>; N], StoreError> {
        survey::numbers(rows).map_err(|e| malformed(LOOKING, self.place(), "what was counted").caused_by(e))
    }
}

#[async_trait]
impl Survey for MySql {
    async fn scopes(&self, limit: usize) -> Result<Answer<Vec<Scope>>, StoreError> {
        let mut arguments = MySqlArguments::default();
        arguments.bind(as_i64(limit));
        let rows = self.surveyed(SCOPES, arguments).await?;
        let damaged = || malformed(LOOKING, self.place(), "the list of endpoints and sagas");
        survey::each(&rows, |row| survey::scope(rows::text(row, 0).ok()?, rows::text(row, 1).ok()?), damaged)
    }

    async fn lettered(&self, limit: usize) -> Result<Answer<Vec<EndpointName>>, StoreError> {
        let damaged = || malformed(LOOKING, self.place(), "the list of endpoints with letters");
        let mut found: Vec<EndpointName> = Vec::new();
        loop {
            let page = LETTERED_MAX.min(limit - found.len());
            let mut arguments = MySqlArguments::default();
            arguments.bind(found.last().map_or("", EndpointName::as_str).as_bytes()).bind(as_i64(page));
            let rows = self.surveyed(LETTERED, arguments).await?;
            for row in &rows {
                found.push(rows::text(row, 0).ok().and_then(|name| name.parse().ok()).ok_or_else(damaged)?);
            }
            if rows.len() < LETTERED_MAX || found.len() >= limit {
                return Ok(Answer::Is(found));
            }
        }
    }

    async fn entity_keys(
        &self,
        scope: &Arc<Scope>,
        after: Option<&EntityKey>,
        limit: usize,
    ) -> Result<Answer<Vec<EntityKey>>, StoreError> {
        let after = after.map_or("", |after| after.key().as_str()); // Before every key: none is empty.
        let mut arguments = MySqlArguments::default();
        arguments.bind(scope.endpoint.as_str().as_bytes()).bind(scope.saga.as_str().as_bytes());
        arguments.bind(after.as_bytes()).bind(as_i64(limit));
        let rows = self.surveyed(ENTITIES, arguments).await?;
        let damaged = || malformed(LOOKING, self.place(), "the key of an entity");
        survey::each(&rows, |row| Some(EntityKey::new(scope.clone(), rows::text(row, 0).ok()?.parse().ok()?)), damaged)
    }

    async fn dedup_count(&self, limit: u64) -> Result<Answer<DedupEntries>, StoreError> {
        let mut arguments = MySqlArguments::default();
        for _ in 0..SLOTS {
            arguments.bind(as_limit(limit));
        }
        let rows = self.surveyed(&dedup(), arguments).await?;
        Ok(Answer::Is(survey::dedup_entries(self.counted(&rows)?, limit)))
    }

    async fn dead_letter_count(&self, endpoint: &EndpointName, limit: u64) -> Result<Answer<Count>, StoreError> {
        let mut arguments = MySqlArguments::default();
        arguments.bind(endpoint.as_str().as_bytes()).bind(as_limit(limit));
        let rows = self.surveyed(LETTERS, arguments).await?;
        Ok(Answer::Is(survey::count(self.counted(&rows)?, limit)))
    }

    async fn scheduled(&self, endpoint: &EndpointName, limit: u64) -> Result<Answer<Scheduled>, StoreError> {
        let mut arguments = MySqlArguments::default();
        let name = endpoint.as_str().as_bytes();
        arguments.bind(name).bind(as_limit(limit)).bind(name).bind(as_limit(limit));
        let rows = self.surveyed(&scheduled(), arguments).await?;
        Ok(Answer::Is(survey::scheduled(self.counted(&rows)?, limit)))
    }

    async fn scheduled_message(
        &self,
        endpoint: &EndpointName,
        id: &MessageId,
    ) -> Result<Answer<Vec<ScheduledMessage>>, StoreError> {
        let mut arguments = MySqlArguments::default();
        arguments.bind(endpoint.as_str().as_bytes()).bind(id.to_string().into_bytes());
        let rows = self.surveyed(SCHEDULED_MESSAGE, arguments).await?;
        let damaged = || malformed(LOOKING, self.place(), "a row of the schedule");
        survey::each(&rows, |row| survey::scheduled_message(rows::text(row, 0).ok()?, row.try_get(1).ok()?), damaged)
    }
}
