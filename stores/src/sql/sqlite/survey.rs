//! What a person is shown of it. Each is one statement that reads, by an index, and looks at no more rows than asked for.

use std::sync::Arc;

use async_trait::async_trait;
use hapax_core::{
    ids::{EndpointName, EntityKey, MessageId, Scope},
    ports::{Answer, Count, DedupEntries, Scheduled, ScheduledMessage, StoreError, Survey},
};
use sqlx::{
    Row,
    sqlite::{SqliteArguments, SqliteRow},
};

use super::{
    super::{
        rows::as_i64,
        survey::{self, LOOKING, as_limit},
    },
    Sqlite,
    arguments::Bind,
    error::malformed,
    rows::now,
    statements::survey::{DEDUP, ENTITIES, LETTERED, LETTERS, SCHEDULED, SCHEDULED_MESSAGE, SCOPES},
};

impl Sqlite {
    async fn surveyed(&self, sql: &'static str, arguments: SqliteArguments) -> Result<Vec<SqliteRow>, StoreError> {
        self.read_alone(LOOKING, sql, arguments).await
    }

    fn counted<const N: usize>(&self, rows: &[SqliteRow]) -> Result<[Option<u64>; N], StoreError> {
        survey::numbers(rows).map_err(|e| malformed(LOOKING, self.file(), "what was counted").caused_by(e))
    }
}

#[async_trait]
impl Survey for Sqlite {
    async fn scopes(&self, limit: usize) -> Result<Answer<Vec<Scope>>, StoreError> {
        let mut arguments = SqliteArguments::default();
        arguments.bind(as_i64(limit));
        let rows = self.surveyed(SCOPES, arguments).await?;
        let damaged = || malformed(LOOKING, self.file(), "the list of endpoints and sagas");
        survey::each(&rows, |row| survey::scope(row.try_get(0).ok()?, row.try_get(1).ok()?), damaged)
    }

    async fn lettered(&self, limit: usize) -> Result<Answer<Vec<EndpointName>>, StoreError> {
        let mut arguments = SqliteArguments::default();
        arguments.bind(as_i64(limit));
        let rows = self.surveyed(LETTERED, arguments).await?;
        let damaged = || malformed(LOOKING, self.file(), "the list of endpoints with letters");
        survey::each(&rows, |row| row.try_get::<&str, _>(0).ok()?.parse().ok(), damaged)
    }

    async fn entity_keys(
        &self,
        scope: &Arc<Scope>,
        after: Option<&EntityKey>,
        limit: usize,
    ) -> Result<Answer<Vec<EntityKey>>, StoreError> {
        let after = after.map_or("", |after| after.key().as_str()); // Before every key: none is empty.
        let mut arguments = SqliteArguments::default();
        arguments.bind(scope.endpoint.as_str()).bind(scope.saga.as_str()).bind(after).bind(as_i64(limit));
        let rows = self.surveyed(ENTITIES, arguments).await?;
        let damaged = || malformed(LOOKING, self.file(), "the key of an entity");
        survey::each(
            &rows,
            |row| Some(EntityKey::new(scope.clone(), row.try_get::<&str, _>(0).ok()?.parse().ok()?)),
            damaged,
        )
    }

    async fn dedup_count(&self, limit: u64) -> Result<Answer<DedupEntries>, StoreError> {
        let mut arguments = SqliteArguments::default();
        arguments.bind(as_limit(limit));
        let rows = self.surveyed(DEDUP, arguments).await?;
        Ok(Answer::Is(survey::dedup_entries(self.counted(&rows)?, limit)))
    }

    async fn dead_letter_count(&self, endpoint: &EndpointName, limit: u64) -> Result<Answer<Count>, StoreError> {
        let mut arguments = SqliteArguments::default();
        arguments.bind(endpoint.as_str()).bind(as_limit(limit));
        let rows = self.surveyed(LETTERS, arguments).await?;
        Ok(Answer::Is(survey::count(self.counted(&rows)?, limit)))
    }

    async fn scheduled(&self, endpoint: &EndpointName, limit: u64) -> Result<Answer<Scheduled>, StoreError> {
        let mut arguments = SqliteArguments::default();
        arguments.bind(endpoint.as_str()).bind(as_limit(limit)).bind(now());
        let rows = self.surveyed(SCHEDULED, arguments).await?;
        Ok(Answer::Is(survey::scheduled(self.counted(&rows)?, limit)))
    }

    async fn scheduled_message(
        &self,
        endpoint: &EndpointName,
        id: &MessageId,
    ) -> Result<Answer<Vec<ScheduledMessage>>, StoreError> {
        let mut arguments = SqliteArguments::default();
        arguments.bind(endpoint.as_str()).bind(id.to_string());
        let rows = self.surveyed(SCHEDULED_MESSAGE, arguments).await?;
        let damaged = || malformed(LOOKING, self.file(), "a row of the schedule");
        survey::each(&rows, |row| survey::scheduled_message(row.try_get(0).ok()?, row.try_get(1).ok()?), damaged)
    }
}
