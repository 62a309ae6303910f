//! What is sent to the server at once, and what it answers.

use std::sync::Arc;

use futures_util::TryStreamExt;
use sqlx::{
    AssertSqlSafe, Either, Executor, MySqlConnection,
    mysql::{MySqlArguments, MySqlRow},
};

/// What the server answers to one statement.
#[derive(Debug, Default)]
pub struct Answer {
    /// Its rows.
    pub rows: Vec<MySqlRow>,
    /// How many rows it has written or, where it changed nothing in a row that it found, may have: the driver asks for rows
    /// found, not for rows changed.
    pub affected: u64,
    /// The number that the server has given to the first row inserted, where it gives any.
    pub inserted: u64,
}

/// What is sent to the server at once.
#[derive(Debug, Clone)]
pub(super) enum Question {
    Prepared(Arc<str>, Box<MySqlArguments>),
    Text(Arc<str>),
}

impl Question {
    pub(super) async fn run(
        self,
        connection: &mut MySqlConnection,
        answers: &mut Vec<Answer>,
    ) -> Result<(), sqlx::Error> {
        let mut answer = Answer::default();
        let mut events = match self {
            Self::Prepared(sql, arguments) => connection.fetch_many(sqlx::query_with(AssertSqlSafe(sql), *arguments)),
            Self::Text(text) => connection.fetch_many(sqlx::raw_sql(AssertSqlSafe(text))),
        };
        while let Some(event) = events.try_next().await? {
            match event {
                Either::Right(row) => answer.rows.push(row),
                Either::Left(done) => {
                    answer.affected = done.rows_affected();
                    answer.inserted = done.last_insert_id();
                    answers.push(std::mem::take(&mut answer));
                }
            }
        }
        Ok(())
    }
}

/// Runs the statements of `text`. One answer for each of them.
pub(in super::super) async fn ask(connection: &mut MySqlConnection, text: String) -> Result<Vec<Answer>, sqlx::Error> {
    let mut answers = Vec::new();
    Question::Text(text.into()).run(connection, &mut answers).await?;
    Ok(answers)
}
