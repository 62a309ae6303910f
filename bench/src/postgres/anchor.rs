//! The hand-written limits on PostgreSQL.

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row, postgres::PgArguments, query::Query};

use super::server::Schema;
use crate::{
    AnyError,
    sql::anchor::{Anchor, Batch, Hand, One, Seen},
    workload::Account,
};

/// Plans are made once and look into indexes. Left to itself, the server plans while the tables are empty, and then reads
/// all of a table that grows by a thousand rows a second and more for every batch.
pub(super) const PLANS: &str =
    "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_hashjoin = off;
    SET enable_mergejoin = off; SET jit = off";
const TABLES: &str = "
    CREATE SCHEMA {s};
    CREATE TABLE {s}.account (key text COLLATE \"C\" PRIMARY KEY, version bigint NOT NULL, state bytea NOT NULL)
        WITH (fillfactor = 70);
    CREATE TABLE {s}.dedup (id bytea PRIMARY KEY);
    CREATE TABLE {s}.outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body bytea NOT NULL);";
const PRELOAD: &str = "INSERT INTO {s}.account SELECT key, 1, $2 FROM unnest($1::text[]) AS key";
const LOOK: &str = "
    SELECT key, version, state FROM {s}.account WHERE key = ANY($1)
    UNION ALL SELECT NULL, NULL, id FROM {s}.dedup WHERE id = ANY($2)";
const WRITE: &str = "
    WITH d AS (INSERT INTO {s}.dedup SELECT unnest($1::bytea[])),
      u AS (UPDATE {s}.account AS a SET version = a.version + 1, state = r.state
            FROM (SELECT unnest($2::text[]) AS key, unnest($3::bigint[]) AS version, unnest($4::bytea[]) AS state) AS r
            WHERE a.key = r.key AND a.version = r.version RETURNING 1),
      o AS (INSERT INTO {s}.outbox (body) SELECT unnest($5::bytea[]) RETURNING id)
    SELECT (SELECT count(*) FROM u), (SELECT array_agg(id) FROM o)";
const SENT: &str = "DELETE FROM {s}.outbox WHERE id = ANY($1)";
/// Of one message, without arrays.
const LOOK_ONE: &str = "
    SELECT version, state, EXISTS (SELECT FROM {s}.dedup WHERE id = $2) FROM {s}.account WHERE key = $1";
const WRITE_ONE: &str = "
    WITH d AS (INSERT INTO {s}.dedup VALUES ($1) ON CONFLICT DO NOTHING RETURNING 1),
      u AS (UPDATE {s}.account SET version = version + 1, state = $4
            WHERE key = $2 AND version = $3 AND EXISTS (SELECT FROM d) RETURNING 1)
    INSERT INTO {s}.outbox (body) SELECT $5 FROM u RETURNING id";
const SENT_ONE: &str = "DELETE FROM {s}.outbox WHERE id = $1";

/// As a textbook has it.
const LOCK: &str = "SELECT version, state FROM {s}.account WHERE key = $1 FOR UPDATE";
const MARK: &str = "INSERT INTO {s}.dedup VALUES ($1) ON CONFLICT DO NOTHING";
const SAVE: &str = "UPDATE {s}.account SET version = version + 1, state = $2 WHERE key = $1";
const STORE: &str = "INSERT INTO {s}.outbox (body) VALUES ($1)";
/// Of a drain.
const LOOK_OUTBOX: &str = "SELECT id, body FROM {s}.outbox WHERE id > $1 ORDER BY id LIMIT $2";
const SENT_UP_TO: &str = "DELETE FROM {s}.outbox WHERE id > $1 AND id <= $2";
const OUTBOX: &str = "
    CREATE SCHEMA {s};
    CREATE TABLE {s}.outbox (id bigint PRIMARY KEY, body bytea NOT NULL);
    INSERT INTO {s}.outbox SELECT n, convert_to(repeat('n', $length), 'UTF8') FROM generate_series(1, $rows) AS n;
    VACUUM ANALYZE {s}.outbox";

impl Anchor for Schema {
    type Hand = Connected;

    async fn prepare(&self, keys: Vec<String>, state: Vec<u8>) -> Result<(), AnyError> {
        let mut connection = self.connect().await?;
        connection.execute(sqlx::raw_sql(self.text(TABLES))).await?;
        sqlx::query(self.text(PRELOAD)).bind(keys).bind(state).execute(&mut connection).await?;
        connection.execute(sqlx::raw_sql(self.text("VACUUM ANALYZE {s}.account"))).await?;
        Ok(connection.close().await?)
    }

    async fn hand(&self) -> Result<Connected, AnyError> {
        let mut connection = self.connect().await?;
        connection.execute(sqlx::raw_sql(PLANS)).await?;
        let text = |text: &str| self.text(text).0;
        Ok(Connected {
            connection,
            batch: [LOOK, WRITE, SENT].map(text),
            one: [LOOK_ONE, WRITE_ONE, SENT_ONE].map(text),
            classic: [LOCK, MARK, SAVE, STORE].map(text),
            drain: [LOOK_OUTBOX, SENT_UP_TO].map(text),
        })
    }

    async fn audit_by_hand(&self) -> Result<(u64, u64), AnyError> {
        let mut connection = self.connect().await?;
        let row = sqlx::query(self.text("SELECT count(*) FROM {s}.dedup")).fetch_one(&mut connection).await?;
        let distinct = u64::try_from(row.try_get::<i64, _>(0)?)?;
        let mut effects = 0;
        for row in sqlx::query(self.text("SELECT state FROM {s}.account")).fetch_all(&mut connection).await? {
            effects += serde_json::from_slice::<Account>(row.try_get(0)?)?.effects;
        }
        connection.close().await?;
        Ok((distinct, effects))
    }

    async fn fill_outbox(&self, rows: u64, bytes: usize) -> Result<(), AnyError> {
        let mut connection = self.connect().await?;
        let table = OUTBOX.replace("$length", &bytes.to_string()).replace("$rows", &rows.to_string());
        for statement in table.split(';') {
            connection.execute(sqlx::raw_sql(self.text(statement))).await?;
        }
        connection.execute("CHECKPOINT").await?;
        Ok(connection.close().await?)
    }
}

/// A connection, and the texts of its statements.
pub(crate) struct Connected {
    connection: PgConnection,
    batch: [String; 3],
    one: [String; 3],
    classic: [String; 4],
    drain: [String; 2],
}

fn query(text: &str) -> Query<'static, sqlx::Postgres, PgArguments> {
    sqlx::query(AssertSqlSafe(text.to_owned()))
}

impl Hand for Connected {
    type Stored = Vec<i64>;

    async fn look(
        &mut self,
        keys: &[&str],
        ids: &[&[u8]],
        mut seen: impl FnMut(Seen<'_>) -> Result<(), AnyError>,
    ) -> Result<(), AnyError> {
        for row in query(&self.batch[0]).bind(keys).bind(ids).fetch_all(&mut self.connection).await? {
            let bytes: &[u8] = row.try_get(2)?;
            match row.try_get::<Option<&str>, _>(0)? {
                Some(key) => seen(Seen::Account(key, row.try_get(1)?, bytes))?,
                None => seen(Seen::Known(bytes))?,
            }
        }
        Ok(())
    }

    async fn write(&mut self, batch: Batch<'_>) -> Result<(u64, Vec<i64>), AnyError> {
        let Batch { ids, accounts, outbox } = batch;
        let keys: Vec<&str> = accounts.iter().map(|(key, ..)| key.as_str()).collect();
        let versions: Vec<i64> = accounts.iter().map(|(_, version, _)| *version).collect();
        let states: Vec<&[u8]> = accounts.iter().map(|(.., state)| &state[..]).collect();
        let write = query(&self.batch[1]).bind(ids).bind(keys).bind(versions).bind(states).bind(&outbox);
        let row = write.fetch_one(&mut self.connection).await?;
        Ok((row.try_get::<i64, _>(0)?.try_into()?, row.try_get(1)?))
    }

    async fn sent(&mut self, stored: Vec<i64>) -> Result<(), AnyError> {
        query(&self.batch[2]).bind(stored).execute(&mut self.connection).await?;
        Ok(())
    }

    async fn look_one(&mut self, key: &str, id: &[u8]) -> Result<Option<(i64, Account)>, AnyError> {
        let row = query(&self.one[0]).bind(key).bind(id).fetch_one(&mut self.connection).await?;
        if row.try_get(2)? {
            return Ok(None);
        }
        Ok(Some((row.try_get(0)?, serde_json::from_slice(row.try_get(1)?)?)))
    }

    async fn write_one(&mut self, one: One<'_>) -> Result<i64, AnyError> {
        let One { id, key, version, state, body } = one;
        let write = query(&self.one[1]).bind(id).bind(key).bind(version).bind(state).bind(body);
        Ok(write.fetch_one(&mut self.connection).await?.try_get(0)?)
    }

    async fn sent_one(&mut self, number: i64) -> Result<(), AnyError> {
        query(&self.one[2]).bind(number).execute(&mut self.connection).await?;
        Ok(())
    }

    async fn classic(
        &mut self,
        key: &str,
        id: &[u8],
        handled: impl FnOnce(&[u8]) -> Result<(Vec<u8>, Vec<u8>), AnyError>,
    ) -> Result<(), AnyError> {
        let [lock, mark, save, store] = &self.classic;
        let mut transaction = self.connection.begin().await?;
        let row = query(lock).bind(key).fetch_one(&mut *transaction).await?;
        if query(mark).bind(id).execute(&mut *transaction).await?.rows_affected() == 1 {
            let (state, body) = handled(row.try_get(1)?)?;
            query(save).bind(key).bind(state).execute(&mut *transaction).await?;
            query(store).bind(body).execute(&mut *transaction).await?;
        }
        Ok(transaction.commit().await?)
    }

    async fn look_outbox(&mut self, last: i64, max: i64) -> Result<Option<(u64, i64)>, AnyError> {
        let rows = query(&self.drain[0]).bind(last).bind(max).fetch_all(&mut self.connection).await?;
        let Some(end) = rows.last() else { return Ok(None) };
        let end: i64 = end.try_get(0)?;
        std::hint::black_box(rows.iter().map(|row| row.try_get::<&[u8], _>(1)).collect::<Result<Vec<_>, _>>()?);
        Ok(Some((rows.len() as u64, end)))
    }

    async fn sent_up_to(&mut self, last: i64, end: i64) -> Result<(), AnyError> {
        query(&self.drain[1]).bind(last).bind(end).execute(&mut self.connection).await?;
        Ok(())
    }
}
