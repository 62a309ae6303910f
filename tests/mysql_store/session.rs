//! A session of somebody else at the tables of a store, and what is stored there.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use hapax::{
    MySql,
    entity::{DedupEntry, Entity, Expected, Version},
    ids::{AttemptId, DedupKey, EndpointName, EntityKey, Fingerprint, SagaKey, SagaName, Scope},
    ports::{DedupStore, EntityStore, Saved},
    time::Timestamp,
};
use hapax_tests::MySqlTables;
use sqlx::{AssertSqlSafe, Executor, MySqlConnection, Row, mysql::MySqlRow};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// A session of somebody else, at the tables of a test.
pub(super) struct Session {
    connection: MySqlConnection,
    prefix: String,
}

impl Session {
    pub(super) async fn new(tables: &MySqlTables) -> Self {
        Self { connection: tables.connection().await, prefix: tables.prefix().to_owned() }
    }

    /// Runs some statements; `s.` stands for the prefix.
    pub(super) async fn run(&mut self, sql: &str) {
        let text = sql.replace("s.", &self.prefix);
        self.connection.execute(sqlx::raw_sql(AssertSqlSafe(text))).await.unwrap();
    }

    pub(super) async fn row(&mut self, sql: &str) -> MySqlRow {
        let text = sql.replace("s.", &self.prefix);
        self.connection.fetch_one(AssertSqlSafe(text)).await.unwrap()
    }

    pub(super) async fn number(&mut self, sql: &str) -> i64 {
        self.row(sql).await.get(0)
    }

    /// Until a session has been in a statement with `words` in it, about these tables, for so long that it waits in it. The
    /// server's own list of those who wait is not renewed while it is read all the time.
    pub(super) async fn until_somebody_waits(&mut self, words: &str) {
        let waiting = format!(
            "SELECT COUNT(*) FROM information_schema.processlist \
             WHERE INSTR(info, '{}') AND INSTR(info, '{words}') AND time_ms > 500 AND id <> CONNECTION_ID()",
            self.prefix
        );
        let began = Instant::now();
        while self.number(&waiting).await == 0 {
            assert!(began.elapsed() < PATIENCE, "nobody waits");
            tokio::task::yield_now().await;
        }
    }
}

pub(super) fn key(name: &str) -> EntityKey {
    let scope = Scope { endpoint: EndpointName::parse("e").unwrap(), saga: SagaName::parse("s").unwrap() };
    EntityKey::new(Arc::new(scope), SagaKey::parse(name).unwrap())
}

pub(super) fn mark(number: u8) -> DedupEntry {
    DedupEntry {
        key: DedupKey::from_bytes([number; DedupKey::BYTES]),
        attempt: AttemptId::from_bytes([number; AttemptId::BYTES]),
        fingerprint: Fingerprint::from_bytes([0; Fingerprint::BYTES]),
        reply: None,
        time: Timestamp::from_millis(0),
    }
}

pub(super) fn entity(state: &str) -> Entity {
    Entity { state: state.as_bytes().to_vec().into(), ..Entity::default() }
}

/// A new entity, which nobody else has begun.
pub(super) async fn begin(store: &MySql, key: &EntityKey, entity: &Entity) -> Version {
    match store.save(key, &Expected::Absent, entity, &[]).await.unwrap() {
        Saved::At(version) => version,
        Saved::Conflict => panic!("{key} is there already"),
    }
}

pub(super) async fn knows(store: &MySql, mark: &DedupEntry) -> bool {
    store.contains(&[mark.key]).await.unwrap().entry(&mark.key).is_some()
}
