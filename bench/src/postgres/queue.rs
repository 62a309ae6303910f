//! The queue on PostgreSQL, and a table by hand.

use hapax::{Postgres, PostgresQueue};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};

use super::{anchor::PLANS, server::Schema};
use crate::{
    AnyError,
    sql::{
        Address,
        queue::{HandQueue, Queues},
    },
};

/// As long as hapax's.
const LEASE: &str = "30 seconds";
const TABLE: &str = "
    CREATE SCHEMA {s};
    CREATE TABLE {s}.message (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, message_id bytea NOT NULL,
        leased_until timestamptz NOT NULL DEFAULT '-infinity', body bytea NOT NULL) WITH (fillfactor = 50,
        autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);";
const SEND: &str = "INSERT INTO {s}.message (message_id, body) SELECT * FROM unnest($1::bytea[], $2::bytea[])";
const TAKE: &str = "
    UPDATE {s}.message AS m SET leased_until = now() + $2::interval
    FROM (SELECT id FROM {s}.message WHERE leased_until <= now() ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED) AS t
    WHERE m.id = t.id RETURNING m.id, m.message_id, m.body, m.leased_until::text";
const SETTLE: &str = "DELETE FROM {s}.message WHERE id = ANY($1) AND leased_until = $2::timestamptz";

impl Queues for Schema {
    type Queue = PostgresQueue;
    type HandQueue = Table;

    async fn open_queue(at: &Address) -> Result<PostgresQueue, AnyError> {
        let database = Postgres::options(&at.url).schema(&at.name).migrate(true);
        Ok(PostgresQueue::options().migrate(true).open_database(database).await?)
    }

    async fn close_queue(queue: &PostgresQueue) -> Result<u64, AnyError> {
        let left = queue.messages().await?;
        queue.close().await;
        Ok(left)
    }

    async fn prepare_queue(&self) -> Result<(), AnyError> {
        let mut connection = self.connect().await?;
        connection.execute(sqlx::raw_sql(self.text(TABLE))).await?;
        Ok(connection.close().await?)
    }

    async fn hand_queue(&self) -> Result<Table, AnyError> {
        let mut connection = self.connect().await?;
        connection.execute(sqlx::raw_sql(PLANS)).await?;
        Ok(Table { connection, texts: [SEND, TAKE, SETTLE].map(|text| self.text(text).0) })
    }

    async fn left_by_hand(&self) -> Result<u64, AnyError> {
        let mut connection = self.connect().await?;
        let left = sqlx::query(self.text("SELECT count(*) FROM {s}.message")).fetch_one(&mut connection).await?;
        connection.close().await?;
        Ok(left.try_get::<i64, _>(0)?.try_into()?)
    }
}

/// A connection, and the texts of its statements.
pub(crate) struct Table {
    connection: PgConnection,
    texts: [String; 3],
}

impl HandQueue for Table {
    /// Numbers, and until when they are held.
    type Lease = (Vec<i64>, String);

    async fn send(&mut self, ids: &[&[u8]], bodies: &[&[u8]]) -> Result<(), AnyError> {
        let send = sqlx::query(AssertSqlSafe(self.texts[0].clone())).bind(ids).bind(bodies);
        send.execute(&mut self.connection).await?;
        Ok(())
    }

    async fn take(&mut self, max: usize) -> Result<Option<(Vec<[u8; 16]>, Self::Lease)>, AnyError> {
        let take = sqlx::query(AssertSqlSafe(self.texts[1].clone())).bind(i64::try_from(max)?).bind(LEASE);
        let rows = take.fetch_all(&mut self.connection).await?;
        let Some(lease) = rows.first().map(|row| row.try_get::<String, _>(3)).transpose()? else { return Ok(None) };
        let mut given = Vec::with_capacity(rows.len());
        let mut numbers: Vec<i64> = Vec::with_capacity(rows.len());
        for row in &rows {
            std::hint::black_box(row.try_get::<&[u8], _>(2)?);
            given.push(row.try_get::<&[u8], _>(1)?.try_into()?);
            numbers.push(row.try_get(0)?);
        }
        Ok(Some((given, (numbers, lease))))
    }

    async fn settle(&mut self, (numbers, lease): Self::Lease) -> Result<u64, AnyError> {
        let settle = sqlx::query(AssertSqlSafe(self.texts[2].clone())).bind(numbers).bind(lease);
        Ok(settle.execute(&mut self.connection).await?.rows_affected())
    }
}
