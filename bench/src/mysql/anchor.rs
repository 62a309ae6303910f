//! The hand-written limits on MariaDB.

use sqlx::{
    AssertSqlSafe, Connection, Executor, MySqlConnection, Row,
    mysql::{MySqlArguments, MySqlRow},
    query::Query,
};

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
        let var = |name: &str| std::env::var(name).unwrap_or_default();
        Ok(Connected { connection, forms: [var("LOOK"), var("WRITE"), var("ONE")] })
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

/// A connection. A batch is one round trip to look, one for all that is written in one commit, and one when it was sent.
pub(crate) struct Connected {
    connection: MySqlConnection,
    forms: [String; 3],
}

fn query(text: String) -> Query<'static, sqlx::MySql, MySqlArguments> {
    sqlx::query(AssertSqlSafe(text))
}

fn marks(text: &mut String, one: &str, count: usize) {
    list(text, 0..count, |text, _| text.push_str(one));
}

impl Connected {
    async fn looked(&mut self, keys: &[&str], ids: &[&[u8]]) -> Result<Vec<MySqlRow>, AnyError> {
        if self.forms[0] == "text" {
            let mut text = LOOK_ACCOUNTS.to_owned();
            for (number, key) in keys.iter().enumerate() {
                if number > 0 {
                    text.push(',');
                }
                push_quoted(&mut text, key.as_bytes())?;
            }
            text.push_str(LOOK_IDS);
            list(&mut text, ids, |text, id| push_hex(text, id));
            text.push(')');
            let mut answers = exchange(&mut self.connection, text).await?;
            return Ok(std::mem::take(&mut answers[0].rows));
        }
        let mut text = LOOK_ACCOUNTS.to_owned();
        marks(&mut text, "?", keys.len());
        text.push_str(LOOK_IDS);
        marks(&mut text, "?", ids.len());
        text.push(')');
        let mut look = query(text);
        for key in keys {
            look = look.bind(key.as_bytes());
        }
        for id in ids {
            look = look.bind(*id);
        }
        Ok(look.fetch_all(&mut self.connection).await?)
    }

    async fn write_prepared(&mut self, batch: Batch<'_>) -> Result<(u64, (u64, i64)), AnyError> {
        let Batch { ids, accounts, outbox } = batch;
        let mut mark = MARK.to_owned();
        marks(&mut mark, "(?)", ids.len());
        let mut save = SAVE.to_owned();
        marks(&mut save, "(?,?,?)", accounts.len());
        save.push_str(IF_SEEN);
        let mut store = STORE.to_owned();
        marks(&mut store, "(?)", outbox.len());
        let mut transaction = self.connection.begin().await?;
        let mut mark = query(mark);
        for id in &ids {
            mark = mark.bind(*id);
        }
        mark.execute(&mut *transaction).await?;
        let mut save = query(save);
        for (key, version, state) in &accounts {
            save = save.bind(key.as_bytes()).bind(version + 1).bind(&state[..]);
        }
        let saved = save.execute(&mut *transaction).await?.rows_affected();
        let mut store = query(store);
        for body in &outbox {
            store = store.bind(&body[..]);
        }
        let stored = store.execute(&mut *transaction).await?.last_insert_id();
        transaction.commit().await?;
        Ok((saved.saturating_sub(accounts.len() as u64), (outbox.len() as u64, stored.try_into()?)))
    }

    async fn write_compound(&mut self, batch: Batch<'_>) -> Result<(u64, (u64, i64)), AnyError> {
        let Batch { ids, accounts, outbox } = batch;
        let mut text = format!("BEGIN NOT ATOMIC START TRANSACTION; {MARK}");
        marks(&mut text, "(?)", ids.len());
        text.push_str("; ");
        text.push_str(SAVE);
        marks(&mut text, "(?,?,?)", accounts.len());
        text.push_str(IF_SEEN);
        text.push_str("; SET @saved = ROW_COUNT(); ");
        text.push_str(STORE);
        marks(&mut text, "(?)", outbox.len());
        text.push_str("; SELECT @saved, LAST_INSERT_ID(); COMMIT; END");
        let mut write = query(text);
        for id in &ids {
            write = write.bind(*id);
        }
        for (key, version, state) in &accounts {
            write = write.bind(key.as_bytes()).bind(version + 1).bind(&state[..]);
        }
        for body in &outbox {
            write = write.bind(&body[..]);
        }
        let rows = write.fetch_all(&mut self.connection).await?;
        let row = rows.first().ok_or("no answer")?;
        let (saved, stored) = (row.try_get_unchecked::<i64, _>(0)?, row.try_get_unchecked::<i64, _>(1)?);
        Ok(((saved as u64).saturating_sub(accounts.len() as u64), (outbox.len() as u64, stored)))
    }
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
        for row in self.looked(keys, ids).await? {
            let bytes: &[u8] = row.try_get(2)?;
            match row.try_get::<Option<&[u8]>, _>(0)? {
                Some(key) => seen(Seen::Account(std::str::from_utf8(key)?, row.try_get(1)?, bytes))?,
                None => seen(Seen::Known(bytes))?,
            }
        }
        Ok(())
    }

    async fn write(&mut self, batch: Batch<'_>) -> Result<(u64, (u64, i64)), AnyError> {
        match self.forms[1].as_str() {
            "text" => {}
            "compound" => return self.write_compound(batch).await,
            _ => return self.write_prepared(batch).await,
        }
        let Batch { ids, accounts, outbox } = batch;
        let mut text = format!("BEGIN; {MARK}");
        list(&mut text, &ids, |text, id| {
            text.push('(');
            push_hex(text, id);
            text.push(')');
        });
        text.push_str("; ");
        text.push_str(SAVE);
        for (number, (key, version, state)) in accounts.iter().enumerate() {
            text.push_str(if number > 0 { ",(" } else { "(" });
            push_quoted(&mut text, key.as_bytes())?;
            text.push(',');
            push_number(&mut text, version + 1);
            text.push(',');
            push_quoted(&mut text, state)?;
            text.push(')');
        }
        text.push_str(IF_SEEN);
        text.push_str("; ");
        text.push_str(STORE);
        for (number, body) in outbox.iter().enumerate() {
            text.push_str(if number > 0 { ",(" } else { "(" });
            push_quoted(&mut text, body)?;
            text.push(')');
        }
        text.push_str("; COMMIT");
        let answers = exchange(&mut self.connection, text).await?;
        let [_, _, saved, stored, _] = &answers[..] else { return Err("an answer is missing".into()) };
        let written = saved.affected.saturating_sub(accounts.len() as u64);
        Ok((written, (outbox.len() as u64, stored.inserted.try_into()?)))
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
        if self.forms[2] == "compound" {
            let text = "BEGIN NOT ATOMIC START TRANSACTION; INSERT INTO dedup VALUES (?); \
                UPDATE account SET version = version + 1, state = ? WHERE `key` = ? AND version = ?; \
                INSERT INTO outbox (body) SELECT ? FROM DUAL WHERE ROW_COUNT() = 1 RETURNING id; COMMIT; END";
            let write = sqlx::query(text).bind(id).bind(state).bind(key.as_bytes()).bind(version).bind(body);
            return Ok(write.fetch_one(&mut self.connection).await?.try_get(0)?);
        }
        if self.forms[2] == "prepared" {
            let mut transaction = self.connection.begin().await?;
            sqlx::query("INSERT INTO dedup VALUES (?)").bind(id).execute(&mut *transaction).await?;
            let save = "UPDATE account SET version = version + 1, state = ? WHERE `key` = ? AND version = ?";
            let save = sqlx::query(save).bind(state).bind(key.as_bytes()).bind(version);
            if save.execute(&mut *transaction).await?.rows_affected() != 1 {
                return Err("an account was changed by somebody else".into());
            }
            let stored = sqlx::query(STORE_ONE).bind(body).execute(&mut *transaction).await?.last_insert_id();
            transaction.commit().await?;
            return Ok(stored.try_into()?);
        }
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
