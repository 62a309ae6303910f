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
    mysql::{MySqlArguments, MySqlRow},
};

use super::{
    super::rows::as_i64,
    MySql,
    arguments::Bind,
    error::malformed,
    rows,
    statements::survey::{ENTITIES, LETTERS, SCHEDULED_MESSAGE, SCOPES, SLOTS, dedup, scheduled},
};

const LOOKING: &str = "looking at a store";

impl MySql {
    async fn surveyed(&self, sql: &str, arguments: MySqlArguments) -> Result<Vec<MySqlRow>, StoreError> {
        self.read_alone(LOOKING, &self.0.names.put_into(sql).into(), arguments).await
    }

    fn number_in(&self, rows: &[MySqlRow], at: usize) -> Result<Option<u64>, StoreError> {
        let number = rows.first().map(|row| row.try_get::<Option<i64>, _>(at)).transpose();
        let number = number.map_err(|e| malformed(LOOKING, self.place(), "a row").caused_by(e))?;
        Ok(number.flatten().and_then(|number| u64::try_from(number).ok()))
    }
}

fn limit_of(limit: u64) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

#[async_trait]
impl Survey for MySql {
    async fn scopes(&self, limit: usize) -> Result<Answer<Vec<Scope>>, StoreError> {
        let mut arguments = MySqlArguments::default();
        arguments.bind(as_i64(limit));
        let rows = self.surveyed(SCOPES, arguments).await?;
        let scope = |row: &MySqlRow| {
            let (endpoint, saga) = (rows::text(row, 0).ok()?, rows::text(row, 1).ok()?);
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
        let mut arguments = MySqlArguments::default();
        arguments.bind(scope.endpoint.as_str().as_bytes()).bind(scope.saga.as_str().as_bytes());
        arguments.bind(after.as_bytes()).bind(as_i64(limit));
        let rows = self.surveyed(ENTITIES, arguments).await?;
        let key = |row: &MySqlRow| rows::text(row, 0).ok()?.parse::<SagaKey>().ok();
        let damaged = || malformed(LOOKING, self.place(), "the key of an entity");
        let keys = rows.iter().map(|row| Ok(EntityKey::new(scope.clone(), key(row).ok_or_else(damaged)?)));
        Ok(Answer::Is(keys.collect::<Result<_, StoreError>>()?))
    }

    async fn dedup_count(&self, limit: u64) -> Result<Answer<DedupEntries>, StoreError> {
        let mut arguments = MySqlArguments::default();
        for _ in 0..SLOTS {
            arguments.bind(limit_of(limit));
        }
        let rows = self.surveyed(&dedup(), arguments).await?;
        let number = self.number_in(&rows, 0)?.unwrap_or_default().min(limit);
        let count = Count::up_to(number, limit);
        let none_before = self.number_in(&rows, 1)?.filter(|_| number > 0).map(Timestamp::from_millis);
        let retention = self.number_in(&rows, 2)?.map(Duration::from_millis);
        Ok(Answer::Is(DedupEntries { count, none_before, retention }))
    }

    async fn dead_letter_count(&self, endpoint: &EndpointName, limit: u64) -> Result<Answer<Count>, StoreError> {
        let mut arguments = MySqlArguments::default();
        arguments.bind(endpoint.as_str().as_bytes()).bind(limit_of(limit));
        let rows = self.surveyed(LETTERS, arguments).await?;
        Ok(Answer::Is(Count::up_to(self.number_in(&rows, 0)?.unwrap_or_default(), limit)))
    }

    async fn scheduled(&self, endpoint: &EndpointName, limit: u64) -> Result<Answer<Scheduled>, StoreError> {
        let mut arguments = MySqlArguments::default();
        let name = endpoint.as_str().as_bytes();
        arguments.bind(name).bind(limit_of(limit)).bind(name).bind(limit_of(limit));
        let rows = self.surveyed(&scheduled(), arguments).await?;
        let messages = Count::up_to(self.number_in(&rows, 0)?.unwrap_or_default(), limit);
        let overdue = Count::up_to(self.number_in(&rows, 1)?.unwrap_or_default(), limit);
        Ok(Answer::Is(Scheduled { messages, overdue }))
    }

    async fn scheduled_message(
        &self,
        endpoint: &EndpointName,
        id: &MessageId,
    ) -> Result<Answer<Vec<ScheduledMessage>>, StoreError> {
        let mut arguments = MySqlArguments::default();
        arguments.bind(endpoint.as_str().as_bytes()).bind(id.to_string().into_bytes());
        let rows = self.surveyed(SCHEDULED_MESSAGE, arguments).await?;
        let shown = |row: &MySqlRow| {
            let destination = rows::text(row, 0).ok()?;
            let due = u64::try_from(row.try_get::<i64, _>(1).ok()?).ok()?;
            let (destination, due) = (Destination::parse(destination).ok()?, Timestamp::from_millis(due));
            Some(ScheduledMessage { destination, due })
        };
        let damaged = || malformed(LOOKING, self.place(), "a row of the schedule");
        Ok(Answer::Is(rows.iter().map(|row| shown(row).ok_or_else(damaged)).collect::<Result<_, _>>()?))
    }
}
