//! What is no part of a group: looks, on a connection of their own, and what is rare, on another: names of queues,
//! subscriptions, whatever is asked for by itself.

use std::sync::Arc;

use async_trait::async_trait;
use hapax_core::{
    ids::{EndpointName, TypeName},
    ports::StoreError,
};
use hapax_stores::sql::numbers::Numbers;
use sqlx::{
    Decode, Row, Type,
    postgres::{PgArguments, PgRow},
};

use super::{
    super::marks::{ASKING, MARKING},
    super::served::{
        Hub, Queues, Seen,
        rare::{CONNECTING, QUEUES_MAX, queue_of},
        receiver::RECEIVING,
        signals::{Position, Signal},
    },
    PostgresQueue,
    arguments::Bind,
};

#[async_trait]
impl Queues for PostgresQueue {
    fn hub(&self) -> &Hub<Self> {
        &self.0.hub
    }

    fn names(&self) -> &Numbers<EndpointName> {
        &self.0.names
    }

    async fn find_queue(&self, endpoint: &EndpointName) -> Result<Option<i64>, StoreError> {
        let mut arguments = PgArguments::default();
        arguments.bind(endpoint.as_str());
        let rows = self.read(CONNECTING, &self.0.texts.queue_id, arguments).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        row.try_get(0).map(Some).map_err(|e| self.0.hub.damaged(CONNECTING, "the list of queues").caused_by(e))
    }

    async fn add_queue(&self, endpoint: &EndpointName) -> Result<(), StoreError> {
        let mut arguments = PgArguments::default();
        arguments.bind(endpoint.as_str()).bind(QUEUES_MAX);
        self.rare(CONNECTING, &self.0.texts.queue_add, arguments).await.map(drop)
    }

    async fn count_up_to(&self, most: u64) -> Result<u64, StoreError> {
        self.count_up_to(most).await
    }

    async fn newest(&self) -> Result<i64, StoreError> {
        let rows = self.read(MARKING, &self.0.texts.newest, PgArguments::default()).await?;
        self.only(MARKING, &rows)
    }

    async fn is_left(&self, queue: i64, last: i64) -> Result<bool, StoreError> {
        let mut arguments = PgArguments::default();
        arguments.bind(queue).bind(last);
        let rows = self.rare(ASKING, &self.0.texts.is_left, arguments).await?;
        self.only(ASKING, &rows)
    }

    async fn look(&self, waiting: &[(Arc<Signal>, Position)]) -> Result<Vec<Seen>, StoreError> {
        let mut arguments = PgArguments::default();
        arguments.bind(waiting.iter().map(|(signal, _)| signal.queue).collect::<Vec<i64>>());
        arguments.bind(waiting.iter().map(|(_, from)| from.due).collect::<Vec<i64>>());
        arguments.bind(waiting.iter().map(|(_, from)| from.id).collect::<Vec<i64>>());
        let rows = self.read_look(RECEIVING, arguments).await?;
        let damaged = |e: sqlx::Error| self.0.hub.damaged(RECEIVING, "a queue").caused_by(e);
        rows.iter().map(|row| seen(row).map_err(damaged)).collect()
    }

    fn sent(&self, queues: &[i64]) {
        self.0.told.tell(queues);
    }

    fn reason(&self, reason: String) -> String {
        reason.replace('\0', "\u{fffd}") // The server's text holds every character but this one.
    }
}

fn seen(row: &PgRow) -> Result<Seen, sqlx::Error> {
    Ok(Seen { queue: row.try_get(0)?, is_there: row.try_get(1)?, due: row.try_get(2)?, now: row.try_get(3)? })
}

impl PostgresQueue {
    /// What the one row of an answer says.
    fn only<T>(&self, operation: &'static str, rows: &[PgRow]) -> Result<T, StoreError>
    where
        T: for<'r> Decode<'r, sqlx::Postgres> + Type<sqlx::Postgres>,
    {
        let said = rows.first().and_then(|row| row.try_get(0).ok());
        said.ok_or_else(|| self.0.hub.damaged(operation, "a number"))
    }

    pub(super) async fn subscribe(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<i64, StoreError> {
        let id = queue_of(self, endpoint).await?;
        if !types.is_empty() {
            let mut arguments = PgArguments::default();
            arguments.bind(id).bind(types.iter().map(TypeName::as_str).collect::<Vec<&str>>());
            self.rare(CONNECTING, &self.0.texts.subscribe, arguments).await?;
        }
        Ok(id)
    }

    /// A statement that reads.
    pub(super) async fn read(
        &self,
        operation: &'static str,
        sql: &Arc<str>,
        arguments: PgArguments,
    ) -> Result<Vec<PgRow>, StoreError> {
        let (wire, sql) = (self.0.rare.clone(), sql.clone());
        self.0.hub.run(operation, async move { wire.lock().await.read(&sql, arguments).await }).await
    }

    /// The same, on the connection for looks.
    pub(super) async fn read_look(
        &self,
        operation: &'static str,
        arguments: PgArguments,
    ) -> Result<Vec<PgRow>, StoreError> {
        let (wire, sql) = (self.0.looks.clone(), self.0.texts.look.clone());
        self.0.hub.run(operation, async move { wire.lock().await.read(&sql, arguments).await }).await
    }

    /// A rare statement that writes. What it finds done by others is kept as well once it is confirmed.
    pub(super) async fn rare(
        &self,
        operation: &'static str,
        sql: &Arc<str>,
        arguments: PgArguments,
    ) -> Result<Vec<PgRow>, StoreError> {
        let (wire, sql) = (self.0.rare.clone(), sql.clone());
        self.0.hub.run(operation, async move { wire.lock().await.write_settled(&sql, arguments).await }).await
    }
}
