//! The hand-written limits on MariaDB.

use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, Row, mysql::MySqlArguments, query::Query};

use super::{
    server::{Database, clean},
    text::{exchange, list, push_hex, push_number, push_quoted},
};
use crate::{
    AnyError,
    sql::anchor::{Anchor, Batch, Hand, One, Seen},
    workload::Account,
};

/// Rows are locked and never the gaps between them.
pub(super) const SESSION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";
const TABLES: &str = "
    CREATE TABLE account (`key` VARBINARY(64) NOT NULL PRIMARY KEY, version BIGINT NOT NULL, state BLOB NOT NULL)
        ENGINE = InnoDB;
    CREATE TABLE dedup (id BINARY(16) NOT NULL PRIMARY KEY) ENGINE = InnoDB;
    CREATE TABLE outbox (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, body BLOB NOT NULL) ENGINE = InnoDB";
/// Accounts of one statement when they are put in.
const PRELOADED: usize = 1000;

const LOOK_ACCOUNTS: &str = "SELECT `key`, version, state FROM account WHERE `key` IN (";
const LOOK_IDS: &str = ") UNION ALL SELECT NULL, NULL, id FROM dedup WHERE id IN (";
const MARK: &str = "INSERT INTO dedup VALUES ";
const SAVE: &str = "INSERT INTO account VALUES ";
/// Only over the version that was seen: two rows affected for each that is written, one for each that is not.
const IF_SEEN: &str = " ON DUPLICATE KEY UPDATE state = IF(version = VALUES(version) - 1, VALUES(state), state), \
     version = IF(version = VALUES(version) - 1, VALUES(version), version)";
const STORE: &str = "INSERT INTO outbox (body) VALUES ";

const LOOK_ONE: &str = "SELECT version, state, EXISTS (SELECT 1 FROM dedup WHERE id = ?) FROM account WHERE `key` = ?";
const SENT_ONE: &str = "DELETE FROM outbox WHERE id = ?";

const LOCK: &str = "SELECT version, state FROM account WHERE `key` = ? FOR UPDATE";
const MARK_ONE: &str = "INSERT IGNORE INTO dedup VALUES (?)";
const SAVE_ONE: &str = "UPDATE account SET version = version + 1, state = ? WHERE `key` = ?";
const STORE_ONE: &str = "INSERT INTO outbox (body) VALUES (?)";

const LOOK_OUTBOX: &str = "SELECT id, body FROM outbox WHERE id > ? ORDER BY id LIMIT ?";
const SENT_UP_TO: &str = "DELETE FROM outbox WHERE id > ? AND id <= ?";

impl Anchor for Database {
    type Hand = Connected;

    async fn prepare(&self, keys: Vec<String>, state: Vec<u8>) -> Result<(), AnyError> {
        let mut connection = self.connect().await?;
        connection.execute(sqlx::raw_sql(TABLES)).await?;
        for keys in keys.chunks(PRELOADED) {
            let mut text = SAVE.to_owned();
            for (number, key) in keys.iter().enumerate() {
                text.push_str(if number > 0 { ",(" } else { "(" });
                push_quoted(&mut text, key.as_bytes())?;
                text.push_str(",1,");
                push_quoted(&mut text, &state)?;
                text.push(')');
            }
            exchange(&mut connection, text).await?;
        }
        connection.execute(sqlx::raw_sql("ANALYZE TABLE account")).await?;
        Ok(connection.close().await?)
    }

    async fn hand(&self) -> Result<Connected, AnyError> {
        let mut connection = self.connect().await?;
        connection.execute(SESSION).await?;
        Ok(Connected { connection })
    }

    async fn audit_by_hand(&self) -> Result<(u64, u64), AnyError> {
        let mut connection = self.connect().await?;
        let row = sqlx::query("SELECT COUNT(*) FROM dedup").fetch_one(&mut connection).await?;
        let distinct = u64::try_from(row.try_get::<i64, _>(0)?)?;
        let mut effects = 0;
        for row in sqlx::query("SELECT state FROM account").fetch_all(&mut connection).await? {
            effects += serde_json::from_slice::<Account>(row.try_get(0)?)?.effects;
        }
        connection.close().await?;
        Ok((distinct, effects))
    }

    async fn fill_outbox(&self, rows: u64, bytes: usize) -> Result<(), AnyError> {
        let mut connection = self.connect().await?;
        let table = format!(
            "CREATE TABLE outbox (id BIGINT NOT NULL PRIMARY KEY, body BLOB NOT NULL) ENGINE = InnoDB;
             INSERT INTO outbox SELECT seq, REPEAT('n', {bytes}) FROM seq_1_to_{rows}"
        );
        exchange(&mut connection, table).await?;
        clean(&mut connection).await?;
        Ok(connection.close().await?)
    }
}

/// A connection.
///
/// What was tried for a batch, with the CPU of both sides for a message beside other work: looks as a text with the keys in it
/// 31 to 34 µs, prepared 34 to 36 µs, since their lengths are many; writes prepared, one statement for each kind, 31 to 36 µs,
/// all of them prepared as one block (`BEGIN NOT ATOMIC`) 33 to 36 µs, as texts in one round trip 36 to 43 µs: the server reads
/// a hundred bytes of text in a microsecond. States by the upsert, which checks versions: 3.0 ms for a batch on the server;
/// `REPLACE`, which does not, 3.0 ms, `UPDATE` of a join with a list 5.2 ms, by `CASE` 3.6 ms. More than four connections made
/// no message cheaper. One message: as texts in one round trip 343 to 549 µs, as a prepared block 315 to 434 µs, prepared one by
/// one 356 to 549 µs; the first is the fastest by a hair, and not MariaDB's alone.
pub(crate) struct Connected {
    connection: MySqlConnection,
}

fn query(text: String) -> Query<'static, sqlx::MySql, MySqlArguments> {
    sqlx::query(AssertSqlSafe(text))
}

/// `start`, `row` so many times, and `end`. There are as many texts as there are counts: each is prepared once.
fn rows(start: &str, row: &str, count: usize, end: &str) -> Query<'static, sqlx::MySql, MySqlArguments> {
    let mut text = start.to_owned();
    list(&mut text, 0..count, |text, _| text.push_str(row));
    text.push_str(end);
    query(text)
}

impl Hand for Connected {
    /// How many, and the number of the first: rows of one statement have numbers one after the other.
    type Stored = (u64, i64);

    async fn look(
        &mut self,
        keys: &[&str],
        ids: &[&[u8]],
        mut seen: impl FnMut(Seen<'_>) -> Result<(), AnyError>,
    ) -> Result<(), AnyError> {
        let mut text = LOOK_ACCOUNTS.to_owned();
        list(&mut text, keys, |text, key| push_hex(text, key.as_bytes()));
        text.push_str(LOOK_IDS);
        list(&mut text, ids, |text, id| push_hex(text, id));
        text.push(')');
        let answers = exchange(&mut self.connection, text).await?;
        for row in answers.iter().flat_map(|answer| &answer.rows) {
            let bytes: &[u8] = row.try_get(2)?;
            match row.try_get::<Option<&[u8]>, _>(0)? {
                Some(key) => seen(Seen::Account(std::str::from_utf8(key)?, row.try_get(1)?, bytes))?,
                None => seen(Seen::Known(bytes))?,
            }
        }
        Ok(())
    }

    async fn write(&mut self, batch: Batch<'_>) -> Result<(u64, (u64, i64)), AnyError> {
        let Batch { ids, accounts, outbox } = batch;
        let mut transaction = self.connection.begin().await?;
        let mark = rows(MARK, "(?)", ids.len(), "");
        ids.iter().fold(mark, |mark, id| mark.bind(*id)).execute(&mut *transaction).await?;
        let mut save = rows(SAVE, "(?,?,?)", accounts.len(), IF_SEEN);
        for (key, version, state) in &accounts {
            save = save.bind(key.as_bytes()).bind(version + 1).bind(&state[..]);
        }
        let saved = save.execute(&mut *transaction).await?.rows_affected();
        let written = saved.saturating_sub(accounts.len() as u64);
        let store = rows(STORE, "(?)", outbox.len(), "");
        let store = outbox.iter().fold(store, |store, body| store.bind(&body[..]));
        let first = store.execute(&mut *transaction).await?.last_insert_id();
        if written == accounts.len() as u64 {
            transaction.commit().await?; // Else it is undone, and the run with it.
        }
        Ok((written, (outbox.len() as u64, first.try_into()?)))
    }

    async fn sent(&mut self, (count, first): (u64, i64)) -> Result<(), AnyError> {
        self.sent_up_to(first - 1, first - 1 + i64::try_from(count)?).await
    }

    async fn look_one(&mut self, key: &str, id: &[u8]) -> Result<Option<(i64, Account)>, AnyError> {
        let row = sqlx::query(LOOK_ONE).bind(id).bind(key.as_bytes()).fetch_one(&mut self.connection).await?;
        if row.try_get_unchecked::<i64, _>(2)? != 0 {
            return Ok(None);
        }
        Ok(Some((row.try_get(0)?, serde_json::from_slice(row.try_get(1)?)?)))
    }

    async fn write_one(&mut self, one: One<'_>) -> Result<i64, AnyError> {
        let One { id, key, version, state, body } = one;
        let mut text = format!("BEGIN; {MARK}(");
        push_hex(&mut text, id);
        text.push_str("); UPDATE account SET version = version + 1, state = ");
        push_quoted(&mut text, &state)?;
        text.push_str(" WHERE `key` = ");
        push_quoted(&mut text, key.as_bytes())?;
        text.push_str(" AND version = ");
        push_number(&mut text, version);
        text.push_str("; INSERT INTO outbox (body) SELECT ");
        push_quoted(&mut text, &body)?;
        text.push_str(" FROM DUAL WHERE ROW_COUNT() = 1; COMMIT");
        let answers = exchange(&mut self.connection, text).await?;
        let [_, _, _, stored, _] = &answers[..] else { return Err("an answer is missing".into()) };
        if stored.affected != 1 {
            return Err("an account was changed by somebody else".into());
        }
        Ok(stored.inserted.try_into()?)
    }

    async fn sent_one(&mut self, number: i64) -> Result<(), AnyError> {
        sqlx::query(SENT_ONE).bind(number).execute(&mut self.connection).await?;
        Ok(())
    }

    async fn classic(
        &mut self,
        key: &str,
        id: &[u8],
        handled: impl FnOnce(&[u8]) -> Result<(Vec<u8>, Vec<u8>), AnyError>,
    ) -> Result<(), AnyError> {
        let mut transaction = self.connection.begin().await?;
        let row = sqlx::query(LOCK).bind(key.as_bytes()).fetch_one(&mut *transaction).await?;
        if sqlx::query(MARK_ONE).bind(id).execute(&mut *transaction).await?.rows_affected() == 1 {
            let (state, body) = handled(row.try_get(1)?)?;
            sqlx::query(SAVE_ONE).bind(state).bind(key.as_bytes()).execute(&mut *transaction).await?;
            sqlx::query(STORE_ONE).bind(body).execute(&mut *transaction).await?;
        }
        Ok(transaction.commit().await?)
    }

    async fn look_outbox(&mut self, last: i64, max: i64) -> Result<Option<(u64, i64)>, AnyError> {
        let rows = sqlx::query(LOOK_OUTBOX).bind(last).bind(max).fetch_all(&mut self.connection).await?;
        let Some(end) = rows.last() else { return Ok(None) };
        let end: i64 = end.try_get(0)?;
        std::hint::black_box(rows.iter().map(|row| row.try_get::<&[u8], _>(1)).collect::<Result<Vec<_>, _>>()?);
        Ok(Some((rows.len() as u64, end)))
    }

    async fn sent_up_to(&mut self, last: i64, end: i64) -> Result<(), AnyError> {
        sqlx::query(SENT_UP_TO).bind(last).bind(end).execute(&mut self.connection).await?;
        Ok(())
    }
}
