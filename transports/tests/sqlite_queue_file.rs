//! Which files a queue opens, alone or with a store.
#![allow(clippy::unwrap_used)]
#![cfg(feature = "sqlite")]

mod common;

use std::time::Duration;

use common::*;
use futures_util::future::join_all;
use hapax_core::{
    entity::{Entity, Expected},
    ids::{EntityKey, Scope},
    ports::{DispatchError, Dispatcher, EntityStore, ErrorKind, Saved, Settled, Settlement, StoreError},
};
use hapax_stores::Sqlite;
use hapax_transports::SqliteQueue;

/// The error is of `kind`, in one line, and says each of `words`.
#[track_caller]
fn says(result: Result<SqliteQueue, StoreError>, kind: ErrorKind, words: &[&str]) {
    let error = result.expect_err("it was opened");
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    for word in ["opening the SQLite queue"].iter().chain(words) {
        assert!(text.contains(word), "`{word}` is missing: {text}");
    }
}

fn entity_key(key: &str) -> EntityKey {
    let scope = Scope { endpoint: endpoint("shop"), saga: "order".parse().unwrap() };
    EntityKey::new(scope.into(), key.parse().unwrap())
}

async fn save(store: &Sqlite, key: &str) -> Result<Saved, StoreError> {
    let entity = Entity { state: b"state".to_vec().into(), ..Entity::default() };
    store.save(&entity_key(key), &Expected::Absent, &entity, &[]).await
}

#[tokio::test]
async fn a_file_of_its_own_has_no_other_tables_and_a_store_may_move_in() {
    let place = Place::new();
    let queue = place.open().await;
    let foreign = "SELECT count(*) FROM sqlite_schema WHERE name NOT LIKE 'hapax_queue%' AND name NOT LIKE 'sqlite_%'";
    assert_eq!(place.number(foreign).await, 0);
    assert_eq!(place.number("PRAGMA application_id").await, 0x6861_7078);
    send_bodies(&queue, &["a"]).await;
    queue.close().await;

    let store = Sqlite::open(place.file()).await.unwrap();
    assert!(matches!(save(&store, "a").await.unwrap(), Saved::At(_)));
    let queue = SqliteQueue::on(&store).await.unwrap();
    assert_eq!(bodies(&receive(&shop(&queue).await, 10).await), ["a"]);
    queue.close().await;
    assert!(matches!(save(&store, "b").await.unwrap(), Saved::At(_)), "the queue has closed the store");
}

#[tokio::test]
async fn a_queue_may_move_into_a_stores_file_and_the_store_still_opens_it() {
    let place = Place::new();
    let store = Sqlite::open(place.file()).await.unwrap();
    let refused = SqliteQueue::options().migrate(false).on(&store).await;
    says(refused, ErrorKind::Absent, &["queue.db", "no tables of hapax", "migrate(true)"]);
    for _ in 0..2 {
        send_bodies(&SqliteQueue::on(&store).await.unwrap(), &["a"]).await;
    }
    store.close().await;
    let store = Sqlite::options(place.file()).open().await.unwrap();
    let queue = SqliteQueue::options().migrate(false).on(&store).await.unwrap();
    assert_eq!(queue.messages().await.unwrap(), 2);
}

#[tokio::test]
async fn saves_and_messages_share_commits_and_failures_are_their_own() {
    let place = Place::new();
    let store = Sqlite::open(place.file()).await.unwrap();
    let queue = SqliteQueue::on(&store).await.unwrap();
    let ends = shop(&queue).await;
    assert!(matches!(save(&store, "name").await.unwrap(), Saved::At(_)));
    send_bodies(&queue, &["name"]).await;
    ack(&ends, &next(&ends).await).await;
    place
        .run(
            "CREATE TRIGGER picky BEFORE INSERT ON hapax_queue_message WHEN length(new.envelope) > 1000 \
             BEGIN SELECT raise(ABORT, 'too long for me'); END",
        )
        .await;
    for (round, long) in [(0, false), (1, true)] {
        let before = store.commits();
        let saves = join_all((0..50).map(|number| {
            let store = &store;
            async move { save(store, &format!("{round}-{number}")).await }
        }));
        let sends = join_all((0..50).map(|number| {
            let body = if long && number == 25 { "x".repeat(2000) } else { number.to_string() };
            let queue = &queue;
            async move { queue.dispatch(&[to("shop", envelope(&body))]).await.remove(0) }
        }));
        let (saved, sent) = tokio::join!(saves, sends);
        for saved in saved {
            assert!(matches!(saved.unwrap(), Saved::At(_)));
        }
        for (number, sent) in sent.into_iter().enumerate() {
            match sent {
                Ok(()) => assert!(!long || number != 25),
                Err(DispatchError::Transient(_)) => assert!(long && number == 25),
                Err(e) => panic!("{e:?}"),
            }
        }
        let commits = store.commits() - before;
        assert!(long || commits < 10, "100 writes took {commits} commits");
        assert_eq!(queue.messages().await.unwrap(), 50 + 49 * round);
    }
    for number in 0..50 {
        assert_eq!(save(&store, &format!("1-{number}")).await.unwrap(), Saved::Conflict, "a save was lost");
    }
}

#[tokio::test]
async fn versions_are_told_to_the_right_member_of_a_mixed_group() {
    let place = Place::new();
    let store = Sqlite::open(place.file()).await.unwrap();
    let queue = SqliteQueue::on(&store).await.unwrap();
    let ends = shop(&queue).await;
    assert!(matches!(save(&store, "taken").await.unwrap(), Saved::At(_)));
    send_bodies(&queue, &["1", "2", "3", "4"]).await;
    let given = receive(&ends, 4).await;
    ack(&ends, &given[2]).await;
    let outgoing = [to("shop", envelope("5"))];
    let (new, taken, one, three, twice, sent, two) = tokio::join!(
        save(&store, "new"),
        save(&store, "taken"),
        settle(&ends, &given[0], Settlement::Ack),
        settle(&ends, &given[2], Settlement::Ack),
        settle(&ends, &given[0], Settlement::Ack),
        queue.dispatch(&outgoing),
        settle(&ends, &given[1], retry(Duration::ZERO)),
    );
    assert!(matches!(new.unwrap(), Saved::At(_)));
    assert_eq!(taken.unwrap(), Saved::Conflict);
    assert_eq!((one, three), (Settled::Done, Settled::LeaseLost));
    assert_eq!(twice, Settled::LeaseLost, "one receipt has settled twice");
    assert!(sent[0].is_ok());
    assert_eq!(two, Settled::Done);
    let mut left = bodies(&receive(&ends, 10).await);
    left.sort();
    assert_eq!(left, ["2", "5"]);
}

#[tokio::test]
async fn a_file_of_another_program_is_refused_and_left_as_it_was() {
    let place = Place::new();
    place.run("PRAGMA application_id = 77; CREATE TABLE songs (id INTEGER)").await;
    says(SqliteQueue::open(place.file()).await, ErrorKind::Misconfigured, &["queue.db", "another program"]);
    assert_eq!(place.number("SELECT count(*) FROM sqlite_schema").await, 1);
    place.run(&format!("BEGIN; {} COMMIT", SqliteQueue::schema_sql())).await;
    place.open().await;
}

#[tokio::test]
async fn a_newer_schema_is_refused_alone_and_in_a_stores_file() {
    let place = Place::new();
    let store = Sqlite::open(place.file()).await.unwrap();
    SqliteQueue::on(&store).await.unwrap();
    place.run("INSERT INTO hapax_queue_migration VALUES (99, 'to come', 0)").await;
    place.run("UPDATE hapax_queue_meta SET value = 99").await;
    let words = ["queue.db", "schema 99", "update this program"];
    says(SqliteQueue::on(&store).await, ErrorKind::Malformed, &words);
    says(SqliteQueue::open(place.file()).await, ErrorKind::Malformed, &words);
    Sqlite::open(place.file()).await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_written_is_refused() {
    let place = Place::new();
    says(SqliteQueue::open(place.directory()).await, ErrorKind::Misconfigured, &["is a directory"]);
    says(SqliteQueue::open(":memory:").await, ErrorKind::Misconfigured, &["memory"]);
    place.open().await.close().await;
    let url = format!("sqlite://{}?mode=ro", place.file().display());
    let read_only = SqliteQueue::options().open_database(Sqlite::options(url)).await;
    says(read_only, ErrorKind::Denied, &["queue.db", "read-only"]);
    let mut other = place.beside().await;
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    let impatient = Sqlite::options(place.file()).busy_timeout(Duration::from_millis(50));
    let locked = SqliteQueue::options().open_database(impatient).await;
    says(locked, ErrorKind::Unavailable, &["queue.db", "locked"]);
}

#[tokio::test]
async fn many_may_open_a_new_file_at_once() {
    let place = Place::new();
    let opened = join_all((0..8).map(|_| {
        let file = place.file();
        tokio::spawn(async move { SqliteQueue::open(file).await })
    }))
    .await;
    for queue in opened {
        send_bodies(&queue.unwrap().unwrap(), &["a"]).await;
    }
    assert_eq!(place.number("SELECT count(*) FROM hapax_queue_migration").await, 2);
    assert_eq!(place.number("SELECT count(*) FROM hapax_queue").await, 1);
    assert_eq!(place.open().await.backlog(&endpoint("shop")).await.unwrap(), 8);
}

/// Else each statement that needs it would fail again and again, and nobody would be told why.
#[tokio::test]
async fn a_table_that_was_removed_by_hand_is_named() {
    let place = Place::new();
    place.open().await.close().await;
    place.run("DROP TABLE hapax_queue_subscription").await;
    let words = ["`hapax_queue_subscription`", "missing although the schema was applied", "restore it from a backup"];
    says(SqliteQueue::open(place.file()).await, ErrorKind::Misconfigured, &words);
    let store = Sqlite::open(place.file()).await.unwrap();
    says(SqliteQueue::on(&store).await, ErrorKind::Misconfigured, &words);
}
