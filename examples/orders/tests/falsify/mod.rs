//! Changes of a database that its books must notice.

use std::sync::Arc;

use hapax::{
    codec::record::encode_outbox,
    entity::{Entity, OutboxEntry},
    ids::{AttemptId, DedupKey, Fingerprint},
    time::Timestamp,
};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Row, SqliteConnection};

pub(crate) enum Falsify {
    Sql(&'static str),
    State(&'static str, &'static str, fn(&mut Value)),
    Outbox,
}

impl Falsify {
    pub(crate) async fn apply(self, file: &mut SqliteConnection) {
        match self {
            Self::Sql(sql) => {
                let done = sqlx::query(AssertSqlSafe(sql)).execute(file).await.unwrap();
                assert!(done.rows_affected() > 0, "{sql} changed nothing");
            }
            Self::State(saga, key, change) => edit(file, saga, key, change).await,
            Self::Outbox => {
                let sql = "UPDATE hapax_entity SET outbox = ? WHERE key = 'good' AND scope = \
                           (SELECT id FROM hapax_scope WHERE saga = 'order')";
                sqlx::query(sql).bind(unfinished()).execute(file).await.unwrap();
            }
        }
    }
}

/// Changes the state of one saga behind its frame of two bytes.
async fn edit(file: &mut SqliteConnection, saga: &str, key: &str, change: impl FnOnce(&mut Value)) {
    let sql = "SELECT e.id, e.state FROM hapax_entity AS e JOIN hapax_scope AS s ON s.id = e.scope \
               WHERE s.saga = ? AND e.key = ?";
    let row = sqlx::query(sql).bind(saga).bind(key).fetch_one(&mut *file).await.unwrap();
    let (id, mut state): (i64, Vec<u8>) = (row.get(0), row.get(1));
    let mut value = serde_json::from_slice(&state[2..]).unwrap();
    change(&mut value);
    state.truncate(2);
    state.extend(value.to_string().bytes());
    sqlx::query("UPDATE hapax_entity SET state = ? WHERE id = ?").bind(state).bind(id).execute(file).await.unwrap();
}

/// An outbox in which something is left.
fn unfinished() -> Vec<u8> {
    let entry = OutboxEntry {
        key: DedupKey::from_bytes([7; DedupKey::BYTES]),
        attempt: AttemptId::from_bytes([7; AttemptId::BYTES]),
        fingerprint: Fingerprint::from_bytes([7; Fingerprint::BYTES]),
        commit: 1,
        saved_at: Timestamp::from_millis(1),
        outgoing: Vec::new(),
        reply: None,
        reply_sent: false,
    };
    encode_outbox(&Entity { outbox: vec![Arc::new(entry)], ..Entity::default() }).unwrap()
}
