//! What is wrong with a file is said when it is opened, in one line.
#![allow(clippy::unwrap_used)]
#![cfg(feature = "sqlite")]

mod common;

use std::time::Duration;

use common::*;
use futures_util::future::join_all;
use hapax_core::{
    entity::Expected,
    ports::{EntityStore, ErrorKind, StoreError},
};
use hapax_stores::{Sqlite, sql::sqlite::Synchronous};

/// The error is of `kind`, in one line, and says each of `words`.
#[track_caller]
fn says(result: Result<Sqlite, StoreError>, kind: ErrorKind, words: &[&str]) {
    let error = result.expect_err("it was opened");
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    for word in words {
        assert!(text.contains(word), "`{word}` is missing: {text}");
    }
}

#[tokio::test]
async fn a_file_of_another_program_is_refused_and_left_as_it_was() {
    let place = Place::new();
    place.run("PRAGMA application_id = 77; CREATE TABLE songs (id INTEGER)").await;
    let before = std::fs::read(place.file()).unwrap();
    says(Sqlite::open(place.file()).await, ErrorKind::Misconfigured, &["store.db", "another program", "0x4d"]);
    assert_eq!(std::fs::read(place.file()).unwrap(), before);
}

#[tokio::test]
async fn a_file_that_holds_anothers_tables_is_refused_and_left_as_it_was() {
    let place = Place::new();
    place.run("CREATE TABLE bookmarks (url TEXT); INSERT INTO bookmarks VALUES ('somewhere')").await;
    let before = std::fs::read(place.file()).unwrap();
    let refusal = ["store.db", "another program", "`bookmarks`", "share_file(true)"];
    says(Sqlite::open(place.file()).await, ErrorKind::Misconfigured, &refusal);
    says(Sqlite::options(place.file()).open().await, ErrorKind::Misconfigured, &refusal);
    assert_eq!(Sqlite::migrate(place.file()).await.unwrap_err().kind(), ErrorKind::Misconfigured);
    assert_eq!(std::fs::read(place.file()).unwrap(), before);
    let files = std::fs::read_dir(place.directory()).unwrap();
    assert_eq!(files.count(), 1, "a log was begun beside it");
    assert_eq!(before[18], 1, "it was switched to a write-ahead log");
}

#[tokio::test]
async fn a_file_of_ours_may_hold_others_tables_without_saying_so() {
    let place = Place::new();
    place.open().await.close().await;
    place.run("CREATE TABLE bookmarks (url TEXT)").await;
    place.open().await.close().await;
    // Also one without our mark, and one of which only the queue's tables are ours.
    place.run("PRAGMA application_id = 77").await;
    place.open().await;
    let place = Place::new();
    place.run("CREATE TABLE bookmarks (url TEXT); CREATE TABLE hapax_queue_of_a_kind (id INTEGER)").await;
    place.open().await;
}

#[tokio::test]
async fn a_file_may_be_shared_with_the_applications_own_tables() {
    let place = Place::new();
    place.run("CREATE TABLE songs (id INTEGER)").await;
    let share = || Sqlite::options(place.file()).share_file(true);
    says(share().open().await, ErrorKind::Absent, &["no tables of hapax", "migrate(true)"]);
    let store = share().migrate(true).open().await.unwrap();
    save(&store, &entity_key("a"), Expected::Absent, &entity("s", &[])).await;
    store.close().await;
    let store = place.open().await; // From then on it is known to be shared.
    assert!(store.load(&entity_key("a"), &[]).await.unwrap().stored.is_some());
    assert_eq!(place.number("SELECT count(*) FROM songs").await, 0);
    assert_eq!(place.number("PRAGMA application_id").await, 0, "the application's own mark was changed");
}

#[tokio::test]
async fn a_new_file_is_marked_as_ours() {
    let place = Place::new();
    place.open().await.close().await;
    assert_eq!(place.number("PRAGMA application_id").await, 0x6861_7078);
}

#[tokio::test]
async fn a_schema_applied_by_hand_is_taken_even_in_another_programs_file() {
    let place = Place::new();
    place.run("PRAGMA application_id = 77; CREATE TABLE songs (id INTEGER)").await;
    for _ in 0..2 {
        place.run(&format!("BEGIN; {} COMMIT", Sqlite::schema_sql())).await;
    }
    let store = Sqlite::options(place.file()).open().await.unwrap();
    save(&store, &entity_key("a"), Expected::Absent, &entity("s", &[])).await;
}

#[tokio::test]
async fn a_newer_schema_is_refused_unless_it_has_only_added_something() {
    let place = Place::new();
    place.open().await.close().await;
    let ours = place.number("SELECT max(version) FROM hapax_migration").await;
    let to_come = |from| {
        format!(
            "INSERT OR REPLACE INTO hapax_meta VALUES ('usable_from', {from}); \
                 INSERT OR REPLACE INTO hapax_migration VALUES (99, 'to come', 0)"
        )
    };
    place.run(&to_come(99)).await;
    says(Sqlite::open(place.file()).await, ErrorKind::Malformed, &["store.db", "schema 99", "update this program"]);
    place.run("DELETE FROM hapax_meta WHERE name = 'usable_from'").await;
    says(Sqlite::open(place.file()).await, ErrorKind::Malformed, &["store.db", "schema 99", "update this program"]);
    // One that has only added something is as good as ours.
    place.run(&to_come(ours)).await;
    save(&place.open().await, &entity_key("a"), Expected::Absent, &entity("s", &[])).await;
    place.run(&to_come(ours + 1)).await;
    says(Sqlite::open(place.file()).await, ErrorKind::Malformed, &["store.db", "schema 99", "update this program"]);
}

#[tokio::test]
async fn an_older_schema_is_refused_unless_migration_is_asked_for() {
    let place = Place::new();
    place.run("").await;
    let open = || Sqlite::options(place.file()).open();
    says(open().await, ErrorKind::Absent, &["store.db", "no tables of hapax", "Sqlite::migrate"]);
    Sqlite::migrate(place.file()).await.unwrap();
    Sqlite::migrate(place.file()).await.unwrap();
    open().await.unwrap();
}

/// Else nothing could be written, or what is new would meet a conflict again and again, and nobody would be told why.
#[tokio::test]
async fn a_table_or_a_row_that_was_removed_by_hand_is_named() {
    let place = Place::new();
    place.open().await.close().await;
    let remedy = ["store.db", "missing although the schema was applied", "restore it from a backup"];
    for table in
        ["meta", "scope", "entity", "generation", "dedup", "dead_letter", "generation_filter", "schedule", "body"]
    {
        let (table, words) =
            (format!("hapax_{table}"), [&*format!("`hapax_{table}`"), remedy[0], remedy[1], remedy[2]]);
        place.run(&format!("PRAGMA legacy_alter_table = ON; ALTER TABLE {table} RENAME TO hapax_gone")).await;
        says(Sqlite::open(place.file()).await, ErrorKind::Misconfigured, &words);
        says(Sqlite::options(place.file()).open().await, ErrorKind::Misconfigured, &words);
        place.run(&format!("PRAGMA legacy_alter_table = ON; ALTER TABLE hapax_gone RENAME TO {table}")).await;
        place.open().await.close().await;
    }
    for (delete, row) in [
        ("DELETE FROM hapax_generation", "every row of `hapax_generation`"),
        ("DELETE FROM hapax_meta WHERE name = 'version_floor'", "the row `version_floor` of `hapax_meta`"),
    ] {
        place.run(delete).await;
        says(Sqlite::open(place.file()).await, ErrorKind::Misconfigured, &[row, remedy[0], remedy[1], remedy[2]]);
    }
}

#[tokio::test]
async fn a_missing_file_is_not_created_unless_asked_for() {
    let place = Place::new();
    let open = Sqlite::options(place.file()).migrate(true).open().await;
    says(open, ErrorKind::Absent, &["store.db", "no such file"]);
    assert!(!place.file().exists());
    Sqlite::options(place.file()).migrate(true).create_if_missing(true).open().await.unwrap();
}

#[tokio::test]
async fn a_file_that_is_not_sqlites_is_refused() {
    let place = Place::new();
    std::fs::write(place.file(), "Dear diary, today I had no idea what to write. ".repeat(100)).unwrap();
    says(Sqlite::open(place.file()).await, ErrorKind::Malformed, &["store.db", "not an SQLite file"]);
}

#[tokio::test]
async fn a_directory_and_a_missing_directory_are_refused() {
    let place = Place::new();
    says(Sqlite::open(place.directory()).await, ErrorKind::Misconfigured, &["is a directory"]);
    let nowhere = place.directory().join("nowhere").join("store.db");
    says(Sqlite::open(nowhere).await, ErrorKind::Misconfigured, &["store.db", "directory does not exist"]);
}

#[tokio::test]
async fn memory_is_refused() {
    for place in [":memory:", "sqlite::memory:", "sqlite://x.db?mode=memory", ""] {
        says(Sqlite::open(place).await, ErrorKind::Misconfigured, &["memory store"]);
    }
    says(Sqlite::open("sqlite://x?mode=odd").await, ErrorKind::Misconfigured, &["mode=odd", "not an SQLite URL"]);
}

#[tokio::test]
async fn a_read_only_file_is_refused() {
    let place = Place::new();
    place.open().await.close().await;
    let url = format!("sqlite://{}?mode=ro", place.file().display());
    says(Sqlite::options(url).open().await, ErrorKind::Denied, &["store.db", "read-only"]);
}

#[tokio::test]
async fn a_url_is_opened_like_a_path() {
    let place = Place::new();
    let store = Sqlite::open(format!("sqlite://{}", place.file().display())).await.unwrap();
    save(&store, &entity_key("a"), Expected::Absent, &entity("s", &[])).await;
    let same = place.open().await;
    assert!(same.load(&entity_key("a"), &[]).await.unwrap().stored.is_some());
}

#[tokio::test]
async fn a_file_that_another_process_keeps_locked_is_named_as_that() {
    let place = Place::new();
    place.open().await.close().await;
    let mut other = place.beside().await;
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    let open = || Sqlite::options(place.file()).busy_timeout(Duration::from_millis(50)).open();
    says(open().await, ErrorKind::Unavailable, &["store.db", "locked", "busy timeout"]);
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();

    // Later too; it is no unknown outcome, and all goes on when the lock is gone.
    let store = open().await.unwrap();
    save(&store, &entity_key("a"), Expected::Absent, &entity("s", &[])).await;
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    for count in [1, 20] {
        let names: Vec<_> = (0..count).map(|n| format!("{count}-{n}")).collect();
        let saved = join_all(names.iter().map(|name| {
            let store = &store;
            async move { store.save(&entity_key(name), &Expected::Absent, &entity("s", &[]), &[]).await }
        }))
        .await;
        for saved in saved {
            assert_eq!(saved.unwrap_err().kind(), ErrorKind::Unavailable);
        }
    }
    assert!(store.load(&entity_key("a"), &[]).await.unwrap().stored.is_some(), "readers are not held up");
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    save(&store, &entity_key("b"), Expected::Absent, &entity("s", &[])).await;
}

#[tokio::test]
async fn a_write_that_takes_too_long_is_an_unknown_outcome() {
    let place = Place::new();
    let version = save(&place.open().await, &entity_key("a"), Expected::Absent, &entity("s", &[])).await;
    let store = Sqlite::options(place.file()).write_limit(Duration::from_millis(30)).open().await.unwrap();
    let mut other = place.beside().await;
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    let late = store.save(&entity_key("a"), &Expected::Version(version), &entity("late", &[]), &[]).await.unwrap_err();
    assert!(late.is_unknown_outcome(), "{late}");
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
}

#[tokio::test]
async fn many_may_open_and_migrate_a_new_file_at_once() {
    for _ in 0..5 {
        let place = Place::new();
        let file = place.file();
        let stores = join_all((0..8).map(|_| {
            let file = file.clone();
            tokio::spawn(async move { Sqlite::open(file).await })
        }))
        .await;
        for store in stores {
            store.unwrap().unwrap();
        }
        let [steps, latest] = ["count(*)", "max(version)"].map(|what| format!("SELECT {what} FROM hapax_migration"));
        assert_eq!(place.number(&steps).await, place.number(&latest).await);
        assert_eq!(place.number("SELECT count(*) FROM hapax_generation").await, 1);
    }
}

#[tokio::test]
async fn normal_synchronous_is_had_only_when_asked_for() {
    let place = Place::new();
    Sqlite::options(place.file())
        .create_if_missing(true)
        .migrate(true)
        .synchronous(Synchronous::Normal)
        .open()
        .await
        .unwrap()
        .close()
        .await;
    place.open().await;
}

#[tokio::test]
async fn a_full_disk_loses_nothing_and_is_gone_with_it() {
    let place = Place::new();
    let mount = place.directory().to_string_lossy().into_owned();
    let run = |command: &str, arguments: &[&str]| {
        std::process::Command::new(command).args(arguments).status().is_ok_and(|status| status.success())
    };
    if !run("mount", &["-t", "tmpfs", "-o", "size=1m", "tmpfs", &mount]) {
        eprintln!("SKIPPED: a small file system cannot be mounted here, so a full disk was not tested");
        return;
    }
    let unmount = Unmount(mount.clone());
    let store = place.open().await;
    let state = "x".repeat(20_000);
    let mut saved = Vec::new();
    let full = loop {
        let name = format!("{}", saved.len());
        match store.save(&entity_key(&name), &Expected::Absent, &entity(&state, &[]), &[]).await {
            Ok(_) => saved.push(name),
            Err(e) => break e,
        }
        assert!(saved.len() < 1000, "the disk was never full");
    };
    assert_eq!(full.kind(), ErrorKind::Unavailable, "{full}");
    assert!(full.to_string().contains("the disk is full"), "{full}");
    // A group as well.
    let grouped = join_all((0..20).map(|n| {
        let (store, state) = (&store, &state);
        async move { store.save(&entity_key(&format!("g{n}")), &Expected::Absent, &entity(state, &[]), &[]).await }
    }))
    .await;
    assert!(grouped.iter().any(Result::is_err));
    for name in &saved {
        assert!(store.load(&entity_key(name), &[]).await.unwrap().stored.is_some());
    }
    assert!(run("mount", &["-o", "remount,size=16m", &mount]));
    save(&store, &entity_key("after"), Expected::Absent, &entity(&state, &[])).await;
    store.close().await;
    drop(unmount);
}

/// A mount must not outlive its test, whatever becomes of that.
struct Unmount(String);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").args(["-l", &self.0]).status();
    }
}

#[tokio::test]
async fn the_tasks_end_with_the_last_handle() {
    let place = Place::new();
    let store = place.open().await;
    save(&store, &entity_key("a"), Expected::Absent, &entity("s", &[])).await;
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = alive();
    assert!(before >= 2);
    drop(store.clone());
    assert_eq!(alive(), before);
    drop(store);
    while alive() > 0 {
        tokio::task::yield_now().await;
    }
}

/// What a program has written and was killed before it was on the disk, the next one is shown: so it puts it there first, which
/// is the beginning of moving the log into the file.
#[tokio::test]
async fn what_is_found_in_the_log_is_on_the_disk_before_it_is_shown() {
    let (place, after, moved) = (Place::new(), Place::new(), Place::new());
    let log = |place: &Place| format!("{}-wal", place.file().display());
    let store = place.open().await;
    save(&store, &entity_key("k"), Expected::Absent, &entity("state", &[])).await;
    // As a kill leaves them, while the store is open.
    std::fs::copy(place.file(), after.file()).unwrap();
    std::fs::copy(log(&place), log(&after)).unwrap();
    std::fs::copy(after.file(), moved.file()).unwrap();
    assert!(!holds(&moved).await, "nothing is left in the log");

    let reopened = after.open().await;
    std::fs::copy(after.file(), moved.file()).unwrap();
    assert!(holds(&moved).await, "what is in the log was not put on the disk");
    reopened.close().await;
    store.close().await;
}

/// Whether there is an entity in the file itself, without its log.
async fn holds(place: &Place) -> bool {
    let store = place.open().await;
    let loaded = store.load(&entity_key("k"), &[]).await.unwrap();
    store.close().await;
    loaded.stored.is_some()
}
