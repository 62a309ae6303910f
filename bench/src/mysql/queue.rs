//! The queue on MariaDB, and a table by hand.

use hapax::{MySql, MySqlQueue};
use sqlx::{Connection, Executor, MySqlConnection, Row};

use super::{
    anchor::SESSION,
    server::Database,
    text::{exchange, list, push_hex, push_number, push_quoted},
};
use crate::{
    AnyError,
    sql::{
        Address,
        queue::{HandQueue, Queues},
    },
};

/// Times in microseconds by the server's clock, as numbers: a lease is compared whole.
const TABLE: &str = "
    CREATE TABLE message (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, message_id BINARY(16) NOT NULL,
        leased_until BIGINT NOT NULL DEFAULT 0, body BLOB NOT NULL) ENGINE = InnoDB";
const NOW: &str = "CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)";
/// As long as hapax's, in the same unit.
const LEASE: i64 = 30_000_000;

impl Queues for Database {
    type Queue = MySqlQueue;
    type HandQueue = Table;

    async fn open_queue(at: &Address) -> Result<MySqlQueue, AnyError> {
        let database = MySql::options(&at.url).migrate(true);
        Ok(MySqlQueue::options().migrate(true).open_database(database).await?)
    }

    async fn close_queue(queue: &MySqlQueue) -> Result<u64, AnyError> {
        let left = queue.messages().await?;
        queue.close().await;
        Ok(left)
    }

    async fn prepare_queue(&self) -> Result<(), AnyError> {
        let mut connection = self.connect().await?;
        connection.execute(TABLE).await?;
        Ok(connection.close().await?)
    }

    async fn hand_queue(&self) -> Result<Table, AnyError> {
        let mut connection = self.connect().await?;
        connection.execute(SESSION).await?;
        Ok(Table { connection })
    }

    async fn left_by_hand(&self) -> Result<u64, AnyError> {
        let mut connection = self.connect().await?;
        let left = sqlx::query("SELECT COUNT(*) FROM message").fetch_one(&mut connection).await?;
        connection.close().await?;
        Ok(left.try_get::<i64, _>(0)?.try_into()?)
    }
}

/// A connection. A take is a transaction of two round trips; what is sent or settled is one.
pub(crate) struct Table {
    connection: MySqlConnection,
}

impl HandQueue for Table {
    /// Numbers, and until when they are held.
    type Lease = (Vec<i64>, i64);

    async fn send(&mut self, ids: &[&[u8]], bodies: &[&[u8]]) -> Result<(), AnyError> {
        let mut text = "INSERT INTO message (message_id, body) VALUES ".to_owned();
        for (number, (id, body)) in ids.iter().zip(bodies).enumerate() {
            text.push_str(if number > 0 { ",(" } else { "(" });
            push_hex(&mut text, id);
            text.push(',');
            push_quoted(&mut text, body)?;
            text.push(')');
        }
        exchange(&mut self.connection, text).await?;
        Ok(())
    }

    async fn take(&mut self, max: usize) -> Result<Option<(Vec<[u8; 16]>, Self::Lease)>, AnyError> {
        let take = format!(
            "BEGIN; SELECT id, message_id, body, {NOW} + {LEASE} FROM message WHERE leased_until <= {NOW} \
             ORDER BY id LIMIT {max} FOR UPDATE SKIP LOCKED"
        );
        let answers = exchange(&mut self.connection, take).await?;
        let rows = answers.last().map(|answer| &answer.rows[..]).unwrap_or_default();
        let Some(until) = rows.first().map(|row| row.try_get::<i64, _>(3)).transpose()? else {
            exchange(&mut self.connection, "COMMIT".to_owned()).await?;
            return Ok(None);
        };
        let mut given = Vec::with_capacity(rows.len());
        let mut numbers: Vec<i64> = Vec::with_capacity(rows.len());
        for row in rows {
            std::hint::black_box(row.try_get::<&[u8], _>(2)?);
            given.push(row.try_get::<&[u8], _>(1)?.try_into()?);
            numbers.push(row.try_get(0)?);
        }
        let mut hold = format!("UPDATE message SET leased_until = {until} WHERE id IN (");
        list(&mut hold, &numbers, |text, number| push_number(text, *number));
        hold.push_str("); COMMIT");
        exchange(&mut self.connection, hold).await?;
        Ok(Some((given, (numbers, until))))
    }

    async fn settle(&mut self, (numbers, until): Self::Lease) -> Result<u64, AnyError> {
        let mut settle = "DELETE FROM message WHERE id IN (".to_owned();
        list(&mut settle, &numbers, |text, number| push_number(text, *number));
        settle.push_str(&format!(") AND leased_until = {until}"));
        let answers = exchange(&mut self.connection, settle).await?;
        Ok(answers.first().map(|answer| answer.affected).unwrap_or_default())
    }
}
