//! What a person is shown of it. Each is one statement that reads.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use hapax_core::{
    envelope::Destination,
    ids::{EndpointName, EntityKey, MessageId, SagaKey, Scope},
    ports::{Answer, Count, DedupEntries, Scheduled, ScheduledMessage, StoreError, Survey},
    time::Timestamp,
};
use sqlx::{
    Row,
    postgres::{PgArguments, PgRow},
};

use super::{
    super::rows::as_i64,
    Postgres,
    arguments::Bind,
    error::malformed,
    statements::survey::{ENTITIES, LETTERS, SCHEDULED_MESSAGE, SCOPES, dedup, scheduled},
};

const LOOKING: &str = "looking at a store";

impl Postgres {
    async fn surveyed(&self, sql: &str, arguments: PgArguments) -> Result<Vec<PgRow>, StoreError> {
        self.read_alone(LOOKING, &self.0.names.put_into(sql).into(), arguments).await
    }

    fn number(&self, rows: &[PgRow], at: usize) -> Result<Option<u64>, StoreError> {
        let number = rows.first().map(|row| row.try_get::<Option<i64>, _>(at)).transpose();
        let number = number.map_err(|e| malformed(LOOKING, self.place(), "a row").caused_by(e))?;
        Ok(number.flatten().and_then(|number| u64::try_from(number).ok()))
    }
}

fn limit_of(limit: u64) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

#[async_trait]
impl Survey for Postgres {
    async fn scopes(&self, limit: usize) -> Result<Answer<Vec<Scope>>, StoreError> {
        let mut arguments = PgArguments::default();
        arguments.bind(as_i64(limit));
        let rows = self.surveyed(SCOPES, arguments).await?;
        let scope = |row: &PgRow| {
            let (endpoint, saga): (&str, &str) = (row.try_get(0).ok()?, row.try_get(1).ok()?);
            Some(Scope { endpoint: endpoint.parse().ok()?, saga: saga.parse().ok()? })
        };
        let damaged = || malformed(LOOKING, self.place(), "the list of endpoints and sagas");
        Ok(Answer::Is(rows.iter().map(|row| scope(row).ok_or_else(damaged)).collect::<Result<_, _>>()?))
    }

    async fn entity_keys(
        &self,
        scope: &Arc<Scope>,
        after: Option<&EntityKey>,
        limit: usize,
    ) -> Result<Answer<Vec<EntityKey>>, StoreError> {
        let after = after.map_or("", |after| after.key().as_str()); // Before every key: none is empty.
        let mut arguments = PgArguments::default();
        arguments.bind(scope.endpoint.as_str()).bind(scope.saga.as_str()).bind(after).bind(as_i64(limit));
        let rows = self.surveyed(ENTITIES, arguments).await?;
        let key = |row: &PgRow| row.try_get::<&str, _>(0).ok()?.parse::<SagaKey>().ok();
        let damaged = || malformed(LOOKING, self.place(), "the key of an entity");
        let keys = rows.iter().map(|row| Ok(EntityKey::new(scope.clone(), key(row).ok_or_else(damaged)?)));
        Ok(Answer::Is(keys.collect::<Result<_, StoreError>>()?))
    }

    async fn dedup_count(&self, limit: u64) -> Result<Answer<DedupEntries>, StoreError> {
        let mut arguments = PgArguments::default();
        arguments.bind(limit_of(limit));
        let rows = self.surveyed(&dedup(), arguments).await?;
        let number = self.number(&rows, 0)?.unwrap_or_default().min(limit);
        let count = Count::up_to(number, limit);
        let none_before = self.number(&rows, 1)?.filter(|_| number > 0).map(Timestamp::from_millis);
        let retention = self.number(&rows, 2)?.map(Duration::from_millis);
        Ok(Answer::Is(DedupEntries { count, none_before, retention }))
    }

    async fn dead_letter_count(&self, endpoint: &EndpointName, limit: u64) -> Result<Answer<Count>, StoreError> {
        let mut arguments = PgArguments::default();
        arguments.bind(endpoint.as_str()).bind(limit_of(limit));
        let rows = self.surveyed(LETTERS, arguments).await?;
        Ok(Answer::Is(Count::up_to(self.number(&rows, 0)?.unwrap_or_default(), limit)))
    }

    async fn scheduled(&self, endpoint: &EndpointName, limit: u64) -> Result<Answer<Scheduled>, StoreError> {
        let mut arguments = PgArguments::default();
        arguments.bind(endpoint.as_str()).bind(limit_of(limit));
        let rows = self.surveyed(&scheduled(), arguments).await?;
        let messages = Count::up_to(self.number(&rows, 0)?.unwrap_or_default(), limit);
        let overdue = Count::up_to(self.number(&rows, 1)?.unwrap_or_default(), limit);
        Ok(Answer::Is(Scheduled { messages, overdue }))
    }

    async fn scheduled_message(
        &self,
        endpoint: &EndpointName,
        id: &MessageId,
    ) -> Result<Answer<Vec<ScheduledMessage>>, StoreError> {
        let mut arguments = PgArguments::default();
        arguments.bind(endpoint.as_str()).bind(id.to_string());
        let rows = self.surveyed(SCHEDULED_MESSAGE, arguments).await?;
        let shown = |row: &PgRow| {
            let destination: &str = row.try_get(0).ok()?;
            let due = u64::try_from(row.try_get::<i64, _>(1).ok()?).ok()?;
            let (destination, due) = (Destination::parse(destination).ok()?, Timestamp::from_millis(due));
            Some(ScheduledMessage { destination, due })
        };
        let damaged = || malformed(LOOKING, self.place(), "a row of the schedule");
        Ok(Answer::Is(rows.iter().map(|row| shown(row).ok_or_else(damaged)).collect::<Result<_, _>>()?))
    }
}
