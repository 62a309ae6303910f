//! What is no part of a group: looks, on a connection of their own, and what is rare, on another: names of queues,
//! subscriptions, whatever is asked for by itself.

use std::sync::Arc;

use hapax_core::{
    ids::{EndpointName, TypeName},
    ports::{ErrorKind, StoreError},
};
use hapax_stores::sql::postgres::wire::{Fault, Wire};
use sqlx::{
    Row,
    postgres::{PgArguments, PgRow},
};
use tokio::sync::Mutex;

use super::{CONNECTING, PostgresQueue, arguments::Bind};

/// Most queues in a schema: far above the endpoints of any company, and a bound for names that come from outside, as the
/// addresses of replies.
const QUEUES_MAX: i64 = 10_000;

impl PostgresQueue {
    fn known_queue(&self, endpoint: &EndpointName) -> Option<i64> {
        self.0.names.get(endpoint)
    }

    /// The number of `endpoint`'s queue, written if it is new.
    pub(super) async fn queue_of(&self, endpoint: &EndpointName) -> Result<i64, StoreError> {
        if let Some(id) = self.known_queue(endpoint) {
            return Ok(id);
        }
        if let Some(id) = self.find_queue(endpoint).await? {
            return Ok(id);
        }
        let mut arguments = PgArguments::default();
        arguments.bind(endpoint.as_str()).bind(QUEUES_MAX);
        match self.rare(CONNECTING, &self.0.texts.queue_add, arguments).await {
            Ok(_) => {}
            // Whatever became of the name, what was to be written under it was not.
            Err(e) if e.is_unknown_outcome() => {
                let why = format!("{}: a new queue could not be written in time: try again", self.place());
                return Err(StoreError::new(ErrorKind::Unavailable, CONNECTING, why).caused_by(e));
            }
            Err(e) => return Err(e),
        }
        let full = || {
            let why = format!("{}: it has {QUEUES_MAX} queues, and {endpoint} is one too many", self.place());
            StoreError::new(ErrorKind::Unavailable, CONNECTING, why)
        };
        self.find_queue(endpoint).await?.ok_or_else(full)
    }

    async fn find_queue(&self, endpoint: &EndpointName) -> Result<Option<i64>, StoreError> {
        let mut arguments = PgArguments::default();
        arguments.bind(endpoint.as_str());
        let since = self.0.names.since();
        let rows = self.read(CONNECTING, &self.0.texts.queue_id, arguments).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let id = row.try_get(0).map_err(|e| self.damaged(CONNECTING, "the list of queues").caused_by(e))?;
        self.0.names.add(since, endpoint.clone(), id);
        Ok(Some(id))
    }

    pub(super) async fn subscribe(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<i64, StoreError> {
        let id = self.queue_of(endpoint).await?;
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
        self.run_on(&self.0.rare, operation, sql, arguments, false).await
    }

    /// The same, on the connection for looks.
    pub(super) async fn read_look(
        &self,
        operation: &'static str,
        arguments: PgArguments,
    ) -> Result<Vec<PgRow>, StoreError> {
        self.run_on(&self.0.looks, operation, &self.0.texts.look, arguments, false).await
    }

    /// A rare statement that writes.
    pub(super) async fn rare(
        &self,
        operation: &'static str,
        sql: &Arc<str>,
        arguments: PgArguments,
    ) -> Result<Vec<PgRow>, StoreError> {
        self.run_on(&self.0.rare, operation, sql, arguments, true).await
    }

    /// On one of the connections. In a task of its own: dropped half-way, it would leave the connection in the middle of it.
    async fn run_on(
        &self,
        wire: &Arc<Mutex<Wire>>,
        operation: &'static str,
        sql: &Arc<str>,
        arguments: PgArguments,
        writes: bool,
    ) -> Result<Vec<PgRow>, StoreError> {
        let (wire, sql) = (wire.clone(), sql.clone());
        let task = self.0.hub.runtime.spawn(async move {
            let mut wire = wire.lock().await;
            if writes { wire.write(&sql, arguments).await } else { wire.read(&sql, arguments).await }
        });
        match task.await {
            Ok(done) => done.map_err(|fault: Fault| fault.store_error(operation, self.place())),
            Err(_) => {
                let why = format!("{}: the runtime that opened the queue is gone: open it again", self.place());
                Err(StoreError::new(ErrorKind::Unavailable, operation, why))
            }
        }
    }
}
