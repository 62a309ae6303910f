//! Books: what a file holds when all is over, read from the file itself and not through the store.

use std::{path::Path, time::Duration};

use sqlx::{ConnectOptions, Connection, SqliteConnection, sqlite::SqliteConnectOptions};

use crate::AnyError;

/// How long to wait for a lock of who writes.
const BUSY: Duration = Duration::from_secs(30);

/// A connection beside those of the store.
pub(super) async fn beside(file: &Path) -> Result<SqliteConnection, AnyError> {
    let options = SqliteConnectOptions::new().filename(file).busy_timeout(BUSY).disable_statement_logging();
    Ok(SqliteConnection::connect_with(&options).await?)
}

/// Moves all of the log into the file, which whoever was last to close it may have left undone.
pub(super) async fn write_back(file: &Path) -> Result<(), AnyError> {
    let mut connection = beside(file).await?;
    sqlx::raw_sql("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut connection).await?;
    Ok(connection.close().await?)
}

/// The first number that `sql` gives.
pub(super) async fn number(file: &Path, sql: &'static str) -> Result<u64, AnyError> {
    let mut connection = beside(file).await?;
    let number: i64 = sqlx::query_scalar(sql).fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(u64::try_from(number)?)
}

/// Whether every one of `messages`, each for an entity of its own, was handled, had one effect, and is over.
pub(super) async fn each_once(file: &Path, messages: u64) -> Result<(), AnyError> {
    // One effect is one save of an entity that was not there.
    let effects = number(file, "SELECT coalesce(sum(version), 0) FROM hapax_entity").await?;
    let entities = number(file, "SELECT count(*) FROM hapax_entity").await?;
    let over = number(file, "SELECT count(*) FROM hapax_dedup").await?;
    let left = number(file, "SELECT count(*) FROM hapax_queue_message").await?;
    if [effects, entities, over, left] == [messages, messages, messages, 0] {
        Ok(())
    } else {
        Err(format!(
            "the books do not add up: of {messages} messages, {entities} had an effect, {effects} effects in all, {over} are \
             over, {left} are left"
        )
        .into())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use hapax::{Message, MessageId};
    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::{Scratch, service::worker::open};

    #[derive(Serialize, Deserialize)]
    struct Note;

    impl Message for Note {
        const TYPE: &'static str = "bench.note";
    }

    /// Goal: books that do not add up are an error. Method: a message is sent, and nobody handles it.
    #[test]
    fn a_message_that_nobody_handled_is_missed() {
        let name = format!("hapax-bench-counted-{}", MessageId::random());
        let dir = Scratch::create(std::env::temp_dir().join(name)).unwrap();
        let file = dir.0.join("books.db");
        crate::service::runtime().unwrap().block_on(async {
            let (store, queue) = open(&file).await.unwrap();
            each_once(&file, 0).await.unwrap();
            queue.sender().send("nobody", &Note).await.unwrap();
            store.close().await;
            for messages in [0, 1] {
                let problem = each_once(&file, messages).await.unwrap_err().to_string();
                assert!(problem.ends_with("1 are left"), "{problem}");
            }
        });
    }
}
