//! A file of its own for each test, and short ways to make what is stored.
#![allow(dead_code, clippy::unwrap_used, missing_docs, unreachable_pub)]

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use hapax_core::{
    entity::{DedupEntry, Entity, Expected, OutboxEntry, Version},
    envelope::{Destination, Envelope, Outgoing},
    ids::{AttemptId, DedupKey, EntityKey, Fingerprint, MessageId, Scope},
    ports::{EntityStore, Saved, StoreError},
    time::Timestamp,
};
use hapax_stores::Sqlite;
use sqlx::{Connection, SqliteConnection};

/// A directory that is removed with the guard, so that the file, its log and its index go together.
#[derive(Debug)]
pub struct Place(PathBuf);

impl Place {
    pub fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("hapax-sqlite-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        Self(directory)
    }

    pub fn directory(&self) -> &PathBuf {
        &self.0
    }

    pub fn file(&self) -> PathBuf {
        self.0.join("store.db")
    }

    pub async fn open(&self) -> Sqlite {
        Sqlite::open(self.file()).await.unwrap()
    }

    /// A connection beside the store's own, as another program would have it.
    pub async fn beside(&self) -> SqliteConnection {
        SqliteConnection::connect(&format!("sqlite://{}?mode=rwc", self.file().display())).await.unwrap()
    }

    /// Runs SQL beside the store.
    pub async fn run(&self, sql: &str) {
        let mut connection = self.beside().await;
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned())).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    }

    /// One number, asked for beside the store.
    pub async fn number(&self, sql: &str) -> i64 {
        let mut connection = self.beside().await;
        let number = sqlx::query_scalar(sqlx::AssertSqlSafe(sql.to_owned())).fetch_one(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        number
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn scope() -> Arc<Scope> {
    Arc::new(Scope { endpoint: "shop".parse().unwrap(), saga: "order".parse().unwrap() })
}

pub fn entity_key(key: &str) -> EntityKey {
    EntityKey::new(scope(), key.parse().unwrap())
}

pub fn dedup_key(number: u64) -> DedupKey {
    let mut bytes = [7; DedupKey::BYTES];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    DedupKey::from_bytes(bytes)
}

pub fn attempt(number: u64) -> AttemptId {
    let mut bytes = [9; AttemptId::BYTES];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    AttemptId::from_bytes(bytes)
}

pub fn outgoing(body: &str) -> Outgoing {
    let envelope = Envelope::new(MessageId::random(), "shop.added".parse().unwrap(), body.as_bytes().to_vec());
    Outgoing { destination: Destination::Topic("shop.added".parse().unwrap()), envelope: Arc::new(envelope) }
}

pub fn dedup_entry(number: u64) -> DedupEntry {
    DedupEntry {
        key: dedup_key(number),
        attempt: attempt(number),
        fingerprint: Fingerprint::from_bytes([3; 16]),
        reply: None,
        time: Timestamp::from_millis(1_700_000_000_000 + number),
    }
}

pub fn outbox_entry(number: u64) -> Arc<OutboxEntry> {
    Arc::new(OutboxEntry {
        key: dedup_key(number),
        attempt: attempt(number),
        fingerprint: Fingerprint::from_bytes([3; 16]),
        commit: number,
        saved_at: Timestamp::from_millis(5),
        outgoing: vec![outgoing("hello")],
        reply: Some(0),
        reply_sent: false,
    })
}

pub fn entity(state: &str, outbox: &[u64]) -> Entity {
    Entity {
        state: state.as_bytes().to_vec().into(),
        commits: 1,
        outbox: outbox.iter().copied().map(outbox_entry).collect(),
        ..Entity::default()
    }
}

/// Lets the store write down endpoint and saga. From then on, calls that are polled together queue together.
pub async fn name(store: &Sqlite) {
    save(store, &entity_key("named"), Expected::Absent, &Entity::default()).await;
}

/// Saves, and fails the test if that does not win.
pub async fn save(store: &Sqlite, key: &EntityKey, expected: Expected, entity: &Entity) -> Version {
    won(store.save(key, &expected, entity, &[]).await)
}

pub fn won(saved: Result<Saved, StoreError>) -> Version {
    match saved.unwrap() {
        Saved::At(version) => version,
        Saved::Conflict => panic!("it met a conflict"),
    }
}
