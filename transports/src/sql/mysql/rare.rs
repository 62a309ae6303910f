//! What is no part of a group: looks, on a connection of their own, and what is rare, on another: names of queues,
//! subscriptions, whatever is asked for by itself.

use std::sync::Arc;

use hapax_core::{
    ids::{EndpointName, TypeName},
    ports::{ErrorKind, StoreError},
};
use hapax_stores::sql::mysql::wire::{Answer, Fault, Server, Wire};
use sqlx::{
    Row,
    mysql::{MySqlArguments, MySqlRow},
};
use tokio::sync::Mutex;

use super::{
    super::served::writer::RACES_MAX,
    CONNECTING, MySqlQueue,
    arguments::{Bind, rows, text},
    statements,
};

/// Most queues in a schema: far above the endpoints of any company, and a bound for names that come from outside, as the
/// addresses of replies.
const QUEUES_MAX: i64 = 10_000;

impl MySqlQueue {
    /// The number of `endpoint`'s queue, written if it is new.
    pub(super) async fn queue_of(&self, endpoint: &EndpointName) -> Result<i64, StoreError> {
        if let Some(id) = self.0.names.get(endpoint) {
            return Ok(id);
        }
        let since = self.0.names.since();
        let id = match self.find_queue(endpoint).await? {
            Some(id) => id,
            None => self.add_queue(endpoint).await?,
        };
        // Another process may have written it just now. Were it gone after a crash, the next queue would get its number.
        self.settle_shown().await?;
        self.0.names.add(since, endpoint.clone(), id);
        Ok(id)
    }

    async fn add_queue(&self, endpoint: &EndpointName) -> Result<i64, StoreError> {
        let mut arguments = MySqlArguments::default();
        arguments.bind(endpoint.as_str().as_bytes()).bind(QUEUES_MAX);
        let added = self.rare(CONNECTING, &self.0.texts.queue_add, arguments).await;
        added.map_err(|e| self.nothing_else_written(e))?;
        let full = || {
            let why = format!("{}: it has {QUEUES_MAX} queues, and {endpoint} is one too many", self.place());
            StoreError::new(ErrorKind::Unavailable, CONNECTING, why)
        };
        self.find_queue(endpoint).await?.ok_or_else(full)
    }

    async fn find_queue(&self, endpoint: &EndpointName) -> Result<Option<i64>, StoreError> {
        let mut arguments = MySqlArguments::default();
        arguments.bind(endpoint.as_str().as_bytes());
        let rows = self.read(CONNECTING, &self.0.texts.queue_id, arguments).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        row.try_get(0).map(Some).map_err(|e| self.damaged(CONNECTING, "the list of queues").caused_by(e))
    }

    /// Waits until all that the server has shown is on its disk: it shows what others commit before it is. What is confirmed
    /// later is there with all that came before it, so a change is made.
    async fn settle_shown(&self) -> Result<(), StoreError> {
        self.transaction(CONNECTING, Vec::new()).await.map(drop).map_err(|e| self.nothing_else_written(e))
    }

    /// Whatever became of what failed, what was to be written after it was not.
    fn nothing_else_written(&self, e: StoreError) -> StoreError {
        if !e.is_unknown_outcome() {
            return e;
        }
        let why = format!("{}: what comes before it was not confirmed in time: try again", self.place());
        StoreError::new(ErrorKind::Unavailable, CONNECTING, why).caused_by(e)
    }

    pub(super) async fn subscribe(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<i64, StoreError> {
        let id = self.queue_of(endpoint).await?;
        if !types.is_empty() {
            let types: Vec<&str> = types.iter().map(TypeName::as_str).collect();
            self.transaction(CONNECTING, vec![statements::subscribe(id, &types)]).await?;
        }
        Ok(id)
    }

    /// A statement that reads.
    pub(super) async fn read(
        &self,
        operation: &'static str,
        sql: &Arc<str>,
        arguments: MySqlArguments,
    ) -> Result<Vec<MySqlRow>, StoreError> {
        Ok(rows(self.run_on(&self.0.rare, operation, Rare::Read(sql.clone(), arguments)).await?))
    }

    /// The same with its values in it, on the connection for looks.
    pub(super) async fn read_look(&self, operation: &'static str, sql: String) -> Result<Vec<MySqlRow>, StoreError> {
        Ok(rows(self.run_on(&self.0.looks, operation, Rare::ReadText(sql)).await?))
    }

    /// A rare statement that writes. How many rows.
    pub(super) async fn rare(
        &self,
        operation: &'static str,
        sql: &Arc<str>,
        arguments: MySqlArguments,
    ) -> Result<u64, StoreError> {
        let answers = self.run_on(&self.0.rare, operation, Rare::Write(sql.clone(), arguments)).await?;
        Ok(answers.first().map_or(0, |answer| answer.affected))
    }

    /// Rare statements that write, in one transaction. What they find done by others is on the disk as well once it is
    /// confirmed.
    pub(super) async fn transaction(
        &self,
        operation: &'static str,
        mut statements: Vec<String>,
    ) -> Result<Vec<Answer>, StoreError> {
        statements.extend(statements::change(self.0.hub.token()));
        self.run_on(&self.0.rare, operation, Rare::Transaction(statements)).await
    }

    /// On one of the connections. In a task of its own: dropped half-way, it would leave the connection in the middle of it.
    async fn run_on(
        &self,
        wire: &Arc<Mutex<Wire>>,
        operation: &'static str,
        rare: Rare,
    ) -> Result<Vec<Answer>, StoreError> {
        let (wire, server) = (wire.clone(), self.0.server.clone());
        let task = self.0.hub.runtime.spawn(async move {
            let mut wire = wire.lock().await;
            let mut races = 0;
            loop {
                match rare.run(&mut wire, &server).await {
                    Err(fault) if fault.is_of_a_race() && races < RACES_MAX => races += 1,
                    done => return done,
                }
            }
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

enum Rare {
    Read(Arc<str>, MySqlArguments),
    ReadText(String),
    Write(Arc<str>, MySqlArguments),
    Transaction(Vec<String>),
}

impl Rare {
    async fn run(&self, wire: &mut Wire, server: &Server) -> Result<Vec<Answer>, Fault> {
        let read = |rows| vec![Answer { rows, ..Answer::default() }];
        match self {
            Self::Read(sql, arguments) => wire.read(sql, arguments.clone()).await.map(read),
            Self::ReadText(sql) => wire.read_text(text(server, std::slice::from_ref(sql))).await.map(read),
            Self::Write(sql, arguments) => wire.write(sql, arguments.clone()).await.map(|answer| vec![answer]),
            Self::Transaction(statements) => wire.transaction(text(server, statements)).await,
        }
    }
}
