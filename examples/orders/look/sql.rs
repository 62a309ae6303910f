//! The look at what a database holds, with plain SQL.

use std::collections::HashSet;

use sqlx::{
    AssertSqlSafe, Connection, FromRow, MySqlConnection, PgConnection, SqliteConnection,
    mysql::MySqlRow,
    postgres::PgRow,
    sqlite::{SqliteConnectOptions, SqliteRow},
};

use super::{EntityRow, LetterRow};
use crate::{Refusal, place::Kept};

/// One question, as each database understands it.
struct Text {
    sqlite: &'static str,
    postgres: &'static str,
    /// `hapax.` stands for the prefix of the tables.
    mysql: &'static str,
}

/// An [`EntityRow`] each.
const ENTITIES: Text = Text {
    sqlite: "SELECT s.endpoint, s.saga, e.key, e.completed, e.pending IS NOT NULL, e.outbox, e.state \
             FROM hapax_entity AS e JOIN hapax_scope AS s ON s.id = e.scope",
    postgres: "SELECT s.endpoint, s.saga, e.key, e.completed_at IS NOT NULL, e.pending_since IS NOT NULL, e.outbox, e.state \
               FROM entity AS e JOIN scope AS s ON s.id = e.scope",
    mysql: "SELECT CAST(s.endpoint AS CHAR), CAST(s.saga AS CHAR), CAST(e.`key` AS CHAR), e.completed_at IS NOT NULL, \
            e.pending_since IS NOT NULL, e.outbox, e.state FROM hapax.entity AS e JOIN hapax.scope AS s ON s.id = e.scope",
};

/// Keys of dedup entries. Those of a generation that is gone do not count, and none is gone within the retention.
const DEDUP: Text = Text {
    sqlite: "SELECT d.key FROM hapax_dedup AS d JOIN hapax_generation AS g ON g.id = d.generation",
    postgres: "SELECT d.key FROM (SELECT 0 AS slot, key FROM dedup_0 UNION ALL SELECT 1, key FROM dedup_1 \
               UNION ALL SELECT 2, key FROM dedup_2 UNION ALL SELECT 3, key FROM dedup_3) AS d \
               JOIN generation AS g ON g.slot = d.slot",
    mysql: "SELECT d.`key` FROM (SELECT 0 AS slot, `key` FROM hapax.dedup_0 UNION ALL SELECT 1, `key` FROM hapax.dedup_1 \
            UNION ALL SELECT 2, `key` FROM hapax.dedup_2 UNION ALL SELECT 3, `key` FROM hapax.dedup_3) AS d \
            JOIN hapax.generation AS g ON g.slot = d.slot AND g.dropping = 0",
};

/// Message id, saga and reason.
const DEAD_LETTERS: Text = Text {
    sqlite: "SELECT message_id, saga, reason FROM hapax_dead_letter",
    postgres: "SELECT message_id, saga, reason FROM dead_letter",
    mysql: "SELECT CAST(message_id AS CHAR), CAST(saga AS CHAR), reason FROM hapax.dead_letter",
};

/// Of the orders in a JSON list those that are decided. The state is JSON behind a frame of two bytes.
const DECIDED: Text = Text {
    sqlite: "SELECT e.key FROM json_each(?1) AS asked \
             CROSS JOIN hapax_scope AS s ON s.saga = 'order' \
             CROSS JOIN hapax_entity AS e INDEXED BY hapax_entity_key ON e.scope = s.id AND e.key = asked.value \
             WHERE json_extract(CAST(substr(e.state, 3) AS TEXT), '$.status') NOT IN ('new', 'reserving', 'paying')",
    postgres: "SELECT e.key FROM json_array_elements_text($1::json) AS asked (key) \
               JOIN scope AS s ON s.saga = 'order' \
               JOIN entity AS e ON e.scope = s.id AND e.key = asked.key \
               WHERE convert_from(substr(e.state, 3), 'UTF8')::json ->> 'status' NOT IN ('new', 'reserving', 'paying')",
    mysql: "SELECT CAST(e.`key` AS CHAR) FROM JSON_TABLE(?, '$[*]' COLUMNS (`key` VARCHAR(255) PATH '$')) AS asked \
            JOIN hapax.scope AS s ON s.saga = 'order' \
            JOIN hapax.entity AS e ON e.scope = s.id AND e.`key` = CAST(asked.`key` AS BINARY) \
            WHERE JSON_VALUE(CONVERT(SUBSTR(e.state, 3) USING utf8mb4), '$.status') \
            NOT IN ('new', 'reserving', 'paying')",
};

/// Codes for tables, columns and schemas that are not there: PostgreSQL's, MariaDB's and SQLite's.
const CHANGED: [&str; 6] = ["42P01", "42703", "3F000", "42S02", "42S22", "1"];

/// Looks into the database of a run; connects when it is asked, and anew when its connection was lost.
pub(super) struct Rows {
    kept: Kept,
    open: Option<Open>,
}

enum Open {
    File(SqliteConnection),
    Postgres(PgConnection),
    /// With the prefix of the tables.
    MySql(MySqlConnection, String),
}

impl Rows {
    pub(super) fn of(kept: &Kept) -> Self {
        Self { kept: kept.clone(), open: None }
    }

    pub(super) async fn entities(&mut self) -> Result<Vec<EntityRow>, Refusal> {
        self.all(&ENTITIES, None).await
    }

    pub(super) async fn dedup_keys(&mut self) -> Result<Vec<Vec<u8>>, Refusal> {
        Ok(self.all::<(Vec<u8>,)>(&DEDUP, None).await?.into_iter().map(|(key,)| key).collect())
    }

    pub(super) async fn dead_letters(&mut self) -> Result<Vec<LetterRow>, Refusal> {
        self.all(&DEAD_LETTERS, None).await
    }

    pub(super) async fn decided(&mut self, of: &HashSet<String>) -> Result<Vec<String>, Refusal> {
        let asked = serde_json::to_string(of).unwrap_or_default();
        Ok(self.all::<(String,)>(&DECIDED, Some(&asked)).await?.into_iter().map(|(key,)| key).collect())
    }

    /// All rows of the answer to `text`, asked about `about` where it asks about something.
    async fn all<T>(&mut self, text: &Text, about: Option<&str>) -> Result<Vec<T>, Refusal>
    where
        T: for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> + for<'r> FromRow<'r, MySqlRow> + Send + Unpin,
    {
        let open = match self.open.take() {
            Some(open) => open,
            None => self.connect().await?,
        };
        let (open, rows) = match open {
            Open::File(mut file) => {
                let asked = sqlx::query_as(text.sqlite);
                let asked = if let Some(about) = about { asked.bind(about) } else { asked };
                let rows = asked.fetch_all(&mut file).await;
                (Open::File(file), rows)
            }
            Open::Postgres(mut server) => {
                let asked = sqlx::query_as(text.postgres);
                let asked = if let Some(about) = about { asked.bind(about) } else { asked };
                let rows = asked.fetch_all(&mut server).await;
                (Open::Postgres(server), rows)
            }
            Open::MySql(mut server, prefix) => {
                let asked = sqlx::query_as(AssertSqlSafe(text.mysql.replace("hapax.", &prefix)));
                let asked = if let Some(about) = about { asked.bind(about) } else { asked };
                let rows = asked.fetch_all(&mut server).await;
                (Open::MySql(server, prefix), rows)
            }
        };
        let rows = rows.map_err(|e| self.unreadable(&e))?;
        self.open = Some(open);
        Ok(rows)
    }

    async fn connect(&self) -> Result<Open, Refusal> {
        Ok(match &self.kept {
            Kept::File(path) => {
                let file = SqliteConnectOptions::new().filename(path).read_only(true);
                Open::File(SqliteConnection::connect_with(&file).await.map_err(|e| self.unreadable(&e))?)
            }
            Kept::Postgres(schema) => {
                let server = PgConnection::connect_with(&schema.options()?).await;
                Open::Postgres(server.map_err(|e| self.unreadable(&e))?)
            }
            Kept::MySql(tables) => {
                let server = MySqlConnection::connect_with(&tables.options()?).await;
                Open::MySql(server.map_err(|e| self.unreadable(&e))?, tables.prefix().to_owned())
            }
            Kept::Service(service) => return Err(Refusal::new(format!("{service} has no rows"))),
        })
    }

    /// A server that was killed comes back; tables that somebody has changed stay as they are.
    fn unreadable(&self, error: &sqlx::Error) -> Refusal {
        let kept = &self.kept;
        let Some(said) = error.as_database_error() else {
            return Refusal::new(format!("{kept}: {error}; see whether it is still there")).passing();
        };
        let (code, words) = (said.code().unwrap_or_default(), said.message());
        if CHANGED.contains(&&*code) {
            return Refusal::new(format!("{kept}: {words}; leave its tables alone until the run has ended"));
        }
        Refusal::new(format!("{kept}: {words}; mend that")).passing()
    }
}
