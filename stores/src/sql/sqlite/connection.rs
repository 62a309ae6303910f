//! One connection, and one hand-over of statements to it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use futures_util::TryStreamExt;
use sqlx::{
    Connection, Either, Executor, Row, SqlSafeStr, SqliteConnection,
    sqlite::{SqliteArguments, SqliteConnectOptions, SqliteRow},
};

use super::error::{Failure, Place};

/// A connection that is opened again after it has failed.
#[derive(Debug)]
pub(super) struct Link {
    options: SqliteConnectOptions,
    open: Option<SqliteConnection>,
    commits: Arc<AtomicU64>,
}

/// What the statements of one text did.
#[derive(Debug, Default)]
pub(super) struct Ran {
    pub(super) rows: Vec<SqliteRow>,
    /// Rows changed by each statement; of no meaning after one that changes nothing.
    pub(super) changed: Vec<u64>,
    /// How many of the rows there were when each statement ended.
    pub(super) ends: Vec<usize>,
}

impl Link {
    pub(super) fn new(options: SqliteConnectOptions, open: SqliteConnection) -> Self {
        Self { options, open: Some(open), commits: Arc::default() }
    }

    /// Opened when it is first used.
    pub(super) fn closed(options: SqliteConnectOptions) -> Self {
        Self { options, open: None, commits: Arc::default() }
    }

    /// How many writes have been committed: it goes on counting.
    pub(super) fn commits(&self) -> Arc<AtomicU64> {
        self.commits.clone()
    }

    /// Runs a text of `statements` statements, the last of which is `COMMIT` if there are several.
    ///
    /// All rows are taken: sqlx resets a statement that is left early, and an error of its commit would go unseen.
    pub(super) async fn write(
        &mut self,
        sql: impl SqlSafeStr,
        statements: usize,
        arguments: SqliteArguments,
    ) -> Result<Ran, Failure> {
        let place = |done: usize| match statements {
            1 => Place::Either,
            _ if done + 1 < statements => Place::Before,
            _ => Place::Commit,
        };
        let ran = self.run(sql, statements, arguments, place).await;
        if ran.is_ok() {
            self.commits.fetch_add(1, Ordering::Relaxed);
        }
        if let Err(failure) = &ran
            && !(statements == 1 && failure.is_of_a_statement())
        {
            // A transaction may still be open in it. Closing ends that, whatever state it is in.
            self.close().await;
        }
        ran
    }

    /// Runs a text that writes nothing.
    pub(super) async fn read(
        &mut self,
        sql: impl SqlSafeStr,
        arguments: SqliteArguments,
    ) -> Result<Vec<SqliteRow>, Failure> {
        let ran = self.run(sql, 1, arguments, |_| Place::Before).await;
        if let Err(failure) = &ran
            && !failure.is_of_a_statement()
        {
            self.close().await;
        }
        ran.map(|ran| ran.rows)
    }

    async fn run(
        &mut self,
        sql: impl SqlSafeStr,
        statements: usize,
        arguments: SqliteArguments,
        place: impl Fn(usize) -> Place,
    ) -> Result<Ran, Failure> {
        let connection = self.connection().await?;
        let mut ran = Ran::default();
        let mut answers = connection.fetch_many(sqlx::query_with(sql, arguments));
        loop {
            match answers.try_next().await {
                Ok(Some(Either::Right(row))) => ran.rows.push(row),
                Ok(Some(Either::Left(done))) => {
                    ran.changed.push(done.rows_affected());
                    ran.ends.push(ran.rows.len());
                }
                Ok(None) if ran.changed.len() >= statements => return Ok(ran),
                Ok(None) => return Err(Failure::new(sqlx::Error::WorkerCrashed, place(ran.changed.len()))),
                Err(e) => return Err(Failure::new(e, place(ran.changed.len()))),
            }
        }
    }

    /// The connection itself, for what is no text of statements.
    pub(super) async fn connection(&mut self) -> Result<&mut SqliteConnection, sqlx::Error> {
        Ok(match &mut self.open {
            Some(connection) => connection,
            none => none.insert(SqliteConnection::connect_with(&self.options).await?),
        })
    }

    pub(super) async fn close(&mut self) {
        if let Some(connection) = self.open.take()
            && let Err(error) = connection.close().await
        {
            tracing::debug!(%error, "closing a connection that had failed");
        }
    }
}

/// Runs one statement that gives one number.
pub(super) async fn number(connection: &mut SqliteConnection, sql: &'static str) -> Result<i64, sqlx::Error> {
    connection.fetch_one(sql).await?.try_get(0)
}
