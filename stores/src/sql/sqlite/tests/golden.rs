//! What stands in the tables, held still: see [`crate::golden`].

use std::path::Path;

use bytes::Bytes;
use hapax_core::{
    entity::{DedupEntry, Expected},
    ids::{AttemptId, DedupKey},
    ports::{
        Bodies, BodyName, BodyReference, DeadLetters, Got, LongMemory, NewBody, Page, Saved, Schedule, Staged, Take,
    },
};

use super::{generations::Folder, *};
use crate::golden;

/// A file as the first version has made it, with rows.
const FIRST: &str = include_str!("golden/first.sql");
/// Rows that later versions have added, by the schema that they came with.
const LATER: &str = include_str!("golden/later.sql");
/// Of rows, what does not depend on when they were written.
const ROWS: [&str; 6] = [
    "SELECT s.endpoint || ' ' || s.saga || ' ' || e.key || ' ' || e.completed || ' ' || hex(e.outbox) || ' ' || hex(e.state) \
     FROM hapax_entity AS e JOIN hapax_scope AS s ON s.id = e.scope ORDER BY e.key",
    "SELECT e.key || ' ' || p.key || ' ' || (p.value ->> 0) FROM hapax_entity AS e, json_each(e.pending) AS p",
    "SELECT generation || ' ' || hex(key) || ' ' || hex(attempt) || ' ' || hex(fingerprint) || ' ' || time || ' ' || hex(reply) \
     FROM hapax_dedup",
    "SELECT endpoint || ' ' || message_id || ' ' || saga || ' ' || destination || ' ' || hex(fingerprint) || ' ' || attempts || \
     ' ' || time || ' ' || reason || ' ' || hex(envelope) FROM hapax_dead_letter",
    "SELECT endpoint || ' ' || message_id || ' ' || destination || ' ' || due_at || ' ' || hex(envelope) FROM hapax_schedule",
    "SELECT name || ' ' || endpoint || ' ' || staged || ' ' || record || ' ' || hex(body) FROM hapax_body",
];

async fn beside(file: &Path) -> SqliteConnection {
    SqliteConnection::connect(&format!("sqlite://{}?mode=rwc", file.display())).await.unwrap()
}

async fn run(file: &Path, sql: &'static str) {
    let mut connection = beside(file).await;
    connection.execute(sqlx::raw_sql(sql)).await.unwrap();
    connection.close().await.unwrap();
}

async fn rows(file: &Path) -> Vec<String> {
    let (mut connection, mut rows) = (beside(file).await, Vec::<String>::new());
    for sql in ROWS {
        let found: Vec<String> = sqlx::query_scalar(sql).fetch_all(&mut connection).await.unwrap();
        rows.extend(found);
    }
    connection.close().await.unwrap();
    rows
}

fn body() -> NewBody {
    let attempt = AttemptId::from_bytes([0x14; AttemptId::BYTES]);
    let reference =
        BodyReference { message_id: golden::full().message_id, endpoint: "desk".parse().unwrap(), saga: None };
    NewBody {
        staged: Staged { name: BodyName::of(&attempt, 0), entity: golden::key(), attempt },
        references: vec![reference],
        bytes: Bytes::from_static(br#"{"order":"7"}"#),
    }
}

/// Number `number` of a sender.
fn numbered(number: u8) -> DedupKey {
    let mut bytes = [7; DedupKey::BYTES];
    bytes[..4].copy_from_slice(&DedupKey::NUMBERED);
    bytes[16..].copy_from_slice(&u64::from(number).to_be_bytes());
    DedupKey::from_bytes(bytes)
}

/// Of an idempotency key.
fn keyed() -> DedupEntry {
    let mut bytes = [5; DedupKey::BYTES];
    bytes[..4].copy_from_slice(&DedupKey::KEYED);
    DedupEntry { key: DedupKey::from_bytes(bytes), ..golden::mark() }
}

async fn read(store: &Sqlite) {
    let (key, mark) = (golden::key(), golden::mark());
    let loaded = EntityStore::load(store, &key, &[mark.key]).await.unwrap();
    golden::same_read(&loaded.stored.unwrap().entity, &golden::entity());
    golden::same_read(loaded.known.unwrap().entry(&mark.key).unwrap(), &mark);
    let over = EntityKey::new(key.scope().clone(), "8".parse().unwrap());
    let loaded = EntityStore::load(store, &over, &[]).await.unwrap();
    golden::same_read(&loaded.stored.unwrap().entity, &golden::tombstone());
    let waits = store.pending(key.scope(), Duration::ZERO, None, 10).await.unwrap();
    let attempts: Vec<_> = waits.iter().map(|one| (&one.key, one.entries.len(), one.entries[0].attempt)).collect();
    assert_eq!(attempts, [(&key, 1, mark.attempt)]);

    let letters = store.list(&"shop".parse().unwrap(), &Page::first(10)).await.unwrap();
    assert_eq!(letters.len(), 1);
    golden::same_read(&letters[0], &golden::letter());
}

async fn read_later(store: &Sqlite) {
    let endpoint = "shop".parse().unwrap();
    let take = Take { within: Duration::ZERO, max: 10, bytes_max: 1 << 20, lease: Duration::from_secs(60) };
    let due = store.take_due(&endpoint, take).await.unwrap();
    assert_eq!(due.len(), 1);
    let sent = golden::outgoing("endpoint:shop", golden::full());
    assert!(due[0].outgoing == sent, "read: {:+#?}\nkept: {sent:+#?}", due[0].outgoing);

    let keys = [numbered(1), numbered(3), numbered(4), keyed().key];
    let known = store.recall(&keys).await.unwrap();
    assert_eq!([1, 3, 4].map(|number| known.is_folded(&numbered(number))), [true, true, false], "{known:?}");
    golden::same_read(known.entry(&keys[3]).unwrap(), &keyed());

    let body = body();
    assert_eq!(store.staged(&endpoint, Duration::ZERO, 10).await.unwrap(), std::slice::from_ref(&body.staged));
    assert!(store.get(&body.staged.name, None).await.unwrap() == Got::Body(body.bytes));
}

#[tokio::test]
async fn a_file_of_the_first_version_is_read_and_what_is_written_is_the_same() {
    let (old, new) = (Folder::new(), Folder::new());
    let (old, new) = (old.file(), new.file());
    run(&old, FIRST).await;
    let store = Sqlite::open(&old).await.unwrap();
    run(&old, LATER).await;
    let kept = rows(&old).await;
    read(&store).await;
    read_later(&store).await;
    store.close().await;

    let store = Sqlite::open(&new).await.unwrap();
    let (key, sent) = (golden::key(), golden::outgoing("endpoint:shop", golden::full()));
    let over = EntityKey::new(key.scope().clone(), "8".parse().unwrap());
    let saved = store.save(&key, &Expected::Absent, &golden::entity(), &[golden::mark()]).await.unwrap();
    assert!(matches!(saved, Saved::At(_)), "{saved:?}");
    let saved = store.save(&over, &Expected::Absent, &golden::tombstone(), &[]).await.unwrap();
    assert!(matches!(saved, Saved::At(_)), "{saved:?}");
    store.add(&golden::letter()).await.unwrap();
    Schedule::put(&store, &"shop".parse().unwrap(), &[sent]).await.unwrap();
    Bodies::put(&store, &body()).await.unwrap();
    let written = rows(&new).await;
    store.close().await;
    golden::same(&written.join("\n"), &kept.join("\n"));
}
