//! What is no part of a group: looks, on a connection of their own, and what is rare, on another: names of queues,
//! subscriptions, whatever is asked for by itself.

use std::sync::Arc;

use async_trait::async_trait;
use hapax_core::{
    ids::{EndpointName, TypeName},
    ports::StoreError,
};
use hapax_stores::sql::{
    mysql::wire::{Answer, Fault, Server, Wire},
    numbers::Numbers,
    races::Races,
};
use sqlx::{
    Row,
    mysql::{MySqlArguments, MySqlRow},
};
use tokio::sync::Mutex;

use super::{
    super::marks::{ASKING, MARKING},
    super::served::{
        Hub, Queues, Seen,
        rare::{CONNECTING, QUEUES_MAX, queue_of},
        receiver::RECEIVING,
        signals::{Position, Signal},
    },
    MySqlQueue, REASON_BYTES_MAX,
    arguments::{Bind, rows, text},
    statements,
};

#[async_trait]
impl Queues for MySqlQueue {
    fn hub(&self) -> &Hub<Self> {
        &self.0.hub
    }

    fn names(&self) -> &Numbers<EndpointName> {
        &self.0.names
    }

    async fn find_queue(&self, endpoint: &EndpointName) -> Result<Option<i64>, StoreError> {
        let mut arguments = MySqlArguments::default();
        arguments.bind(endpoint.as_str().as_bytes());
        let rows = self.read(CONNECTING, &self.0.texts.queue_id, arguments).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        row.try_get(0).map(Some).map_err(|e| self.0.hub.damaged(CONNECTING, "the list of queues").caused_by(e))
    }

    async fn add_queue(&self, endpoint: &EndpointName) -> Result<(), StoreError> {
        let mut arguments = MySqlArguments::default();
        arguments.bind(endpoint.as_str().as_bytes()).bind(QUEUES_MAX);
        self.rare(CONNECTING, &self.0.texts.queue_add, arguments).await.map(drop)
    }

    /// It shows what others commit before it is on its disk. Were a queue that was shown gone after a crash, the next one would
    /// get its number. What is confirmed later is there with all that came before it, so a change is made.
    async fn settle_shown(&self) -> Result<(), StoreError> {
        self.transaction(CONNECTING, Vec::new()).await.map(drop)
    }

    async fn count_up_to(&self, _most: u64) -> Result<u64, StoreError> {
        self.messages().await
    }

    async fn newest(&self) -> Result<i64, StoreError> {
        let rows = self.read(MARKING, &self.0.texts.newest, MySqlArguments::default()).await?;
        self.only(MARKING, &rows)
    }

    async fn is_left(&self, queue: i64, last: i64) -> Result<bool, StoreError> {
        let mut arguments = MySqlArguments::default();
        arguments.bind(queue).bind(last);
        let rows = self.read(ASKING, &self.0.texts.is_left, arguments).await?;
        let left = self.only(ASKING, &rows)? != 0;
        if !left {
            self.settle_shown().await?; // Else a crash might bring back what was seen to be gone.
        }
        Ok(left)
    }

    async fn look(&self, waiting: &[(Arc<Signal>, Position)]) -> Result<Vec<Seen>, StoreError> {
        if waiting.is_empty() {
            return Ok(Vec::new());
        }
        let queues: Vec<(i64, Position)> = waiting.iter().map(|(signal, from)| (signal.queue, *from)).collect();
        let rows = self.read_look(RECEIVING, statements::look(&queues)).await?;
        let damaged = |e: sqlx::Error| self.0.hub.damaged(RECEIVING, "a queue").caused_by(e);
        rows.iter().map(|row| seen(row).map_err(damaged)).collect()
    }

    fn sent(&self, _queues: &[i64]) {}

    fn reason(&self, mut reason: String) -> String {
        reason.truncate(reason.floor_char_boundary(REASON_BYTES_MAX));
        reason
    }
}

fn seen(row: &MySqlRow) -> Result<Seen, sqlx::Error> {
    Ok(Seen {
        queue: row.try_get(0)?,
        is_there: row.try_get::<i64, _>(1)? != 0,
        due: row.try_get(2)?,
        now: row.try_get(3)?,
    })
}

impl MySqlQueue {
    /// What the one row of an answer says.
    fn only(&self, operation: &'static str, rows: &[MySqlRow]) -> Result<i64, StoreError> {
        let said = rows.first().and_then(|row| row.try_get(0).ok());
        said.ok_or_else(|| self.0.hub.damaged(operation, "a number"))
    }

    pub(super) async fn subscribe(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<i64, StoreError> {
        let id = queue_of(self, endpoint).await?;
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

    /// On one of the connections.
    async fn run_on(
        &self,
        wire: &Arc<Mutex<Wire>>,
        operation: &'static str,
        rare: Rare,
    ) -> Result<Vec<Answer>, StoreError> {
        let (wire, server) = (wire.clone(), self.0.server.clone());
        let work = async move {
            let mut wire = wire.lock().await;
            let mut races = Races::default();
            loop {
                match rare.run(&mut wire, &server).await {
                    Err(fault) if fault.is_of_a_race() && races.allow(fault.is_of_a_wait()) => {}
                    done => return done,
                }
            }
        };
        self.0.hub.run(operation, work).await
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
