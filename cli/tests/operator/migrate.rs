//! Tables that are missing.

use std::{
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use hapax::SqliteOutbox;

use crate::{
    rig::{Folder, hapax, json, said, text},
    servers::DECIDED,
};

#[test]
fn a_store_is_made_and_made_again_without_harm() {
    let folder = Folder::new();
    let file = folder.file();
    let before = hapax(&["status", "--store", &file]);
    assert_eq!(before.status.code(), Some(1), "{before:?}");
    assert!(said(&before).contains("hapax migrate"), "{before:?}");
    assert!(!std::path::Path::new(&file).exists(), "a look has made a file");
    for _ in 0..2 {
        let made = hapax(&["migrate", "--outbox", "--queues", "--yes", "--store", &file]);
        assert!(made.status.success(), "{made:?}");
    }
    let status = json(&["status", "--store", &file, "--json"], 0);
    assert_eq!((&status["endpoints"], &status["outboxes"][0]["waiting"]), (&serde_json::json!([]), &0.into()));
    assert!(text(&hapax(&["status", "--store", &file])).contains("no endpoint has left anything"));
}

/// Goal: who migrates hears what was there. Method: nothing, then a part of it, then tables whose last steps are not on record.
#[tokio::test]
async fn which_tables_were_made_updated_or_found_is_said() {
    let folder = Folder::new();
    let file = folder.file();
    let migrate = |more: &[&str]| {
        let told = json(&[&["migrate", "--yes", "--json", "--store", &file][..], more].concat(), 0);
        let tables = told["tables"].as_array().unwrap().iter();
        let word = |table: &serde_json::Value, name: &str| table[name].as_str().unwrap().to_owned();
        tables.map(|table| format!("{} {}", word(table, "of"), word(table, "state"))).collect::<Vec<_>>()
    };
    assert_eq!(migrate(&["--queues"]), ["store made", "queues made"]);
    assert_eq!(migrate(&["--outbox", "--queues"]), ["store found", "outbox made", "queues found"]);
    let pool = sqlx::SqlitePool::connect(&format!("sqlite://{file}")).await.unwrap();
    sqlx::query("DELETE FROM hapax_migration WHERE version > 1").execute(&pool).await.unwrap();
    pool.close().await;
    assert_eq!(migrate(&["--outbox"]), ["store updated", "outbox found"]);
    let told = text(&hapax(&["migrate", "--outbox", "--yes", "--store", &file]));
    assert!(told.contains("\n  store: found hapax_migration, hapax_meta, "), "{told}");
    assert!(told.contains("\n  outbox: found hapax_outbox_migration, "), "{told}");
}

#[tokio::test]
async fn whether_an_outbox_keeps_order_is_left_to_its_program() {
    let folder = Folder::new();
    let file = folder.file();
    assert!(hapax(&["migrate", "--outbox", "--yes", "--store", &file]).status.success());
    json(&["status", "--store", &file, "--json"], 0);
    SqliteOutbox::options().ordered_keys(true).open(&file).await.expect(DECIDED);
    let status = json(&["status", "--store", &file, "--json"], 0);
    assert_eq!(status["outboxes"][0]["waiting"], 0);
    SqliteOutbox::options().open(&file).await.expect_err("a look has decided anew");
}

#[test]
fn the_schema_is_printed_and_nothing_is_made() {
    let folder = Folder::new();
    let file = folder.file();
    let sql = text(&hapax(&["migrate", "--sql", "--outbox", "--store", &file]));
    assert!(sql.contains("CREATE TABLE IF NOT EXISTS hapax_entity") && sql.contains("hapax_outbox"), "{sql}");
    let sql = text(&hapax(&["migrate", "--sql", "--schema", "own", "--store", "postgres://nobody@nowhere/none"]));
    assert!(sql.contains("\"own\".entity"), "{sql}");
    let dry = hapax(&["migrate", "--dry-run", "--store", &file]);
    assert!(dry.status.success() && said(&dry).contains("nothing was done"), "{dry:?}");
    let dry = json(&["migrate", "--dry-run", "--store", &file, "--json"], 0);
    assert!(dry["dry_run"] == true && dry["would"].as_str().unwrap().contains("tables"), "{dry}");
    assert!(!std::path::Path::new(&file).exists());
}

#[tokio::test]
async fn another_programs_file_is_given_tables_only_where_that_is_asked_for() {
    let folder = Folder::new();
    let file = folder.file();
    let other = sqlx::SqlitePool::connect(&format!("sqlite://{file}?mode=rwc")).await.unwrap();
    sqlx::raw_sql("CREATE TABLE bookmarks (url TEXT)").execute(&other).await.unwrap();
    let refused = hapax(&["migrate", "--yes", "--store", &file]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(said(&refused).contains("bookmarks") && said(&refused).contains("--share-file"), "{refused:?}");
    let tables = "SELECT count(*) FROM sqlite_schema WHERE type = 'table'";
    assert_eq!(sqlx::query_scalar::<_, i64>(tables).fetch_one(&other).await.unwrap(), 1);
    let made = hapax(&["migrate", "--yes", "--share-file", "--store", &file]);
    assert!(made.status.success(), "{made:?}");
    json(&["status", "--store", &file, "--json"], 0);
}

#[tokio::test]
async fn an_outbox_or_queues_alone_are_put_into_another_programs_file_only_where_that_is_asked_for() {
    for part in ["--outbox", "--queues"] {
        let folder = Folder::new();
        let file = folder.file();
        let other = sqlx::SqlitePool::connect(&format!("sqlite://{file}?mode=rwc")).await.unwrap();
        sqlx::raw_sql("CREATE TABLE bookmarks (url TEXT)").execute(&other).await.unwrap();
        let make = ["migrate", "--no-store", part, "--yes", "--store", &file];
        let refused = hapax(&make);
        assert_eq!(refused.status.code(), Some(1), "{part}: {refused:?}");
        assert!(said(&refused).contains("bookmarks") && said(&refused).contains("--share-file"), "{part}: {refused:?}");
        let tables = "SELECT count(*) FROM sqlite_schema WHERE type = 'table'";
        assert_eq!(sqlx::query_scalar::<_, i64>(tables).fetch_one(&other).await.unwrap(), 1, "{part}");
        let made = hapax(&[&make[..], &["--share-file"]].concat());
        assert!(made.status.success(), "{part}: {made:?}");
        // It is shared from now on.
        let again = hapax(&make);
        assert!(again.status.success(), "{part}: {again:?}");
    }
}

#[tokio::test]
async fn what_was_made_before_something_has_failed_is_written_down() {
    let folder = Folder::new();
    let file = folder.file();
    assert!(hapax(&["migrate", "--no-store", "--outbox", "--yes", "--store", &file]).status.success());
    // The outbox is of a hapax that is yet to come.
    let pool = sqlx::SqlitePool::connect(&format!("sqlite://{file}")).await.unwrap();
    for sql in [
        "INSERT INTO hapax_outbox_migration (version, name) VALUES (99, 'later')",
        "INSERT INTO hapax_outbox_meta (name, value) VALUES ('usable_from', 99)",
    ] {
        sqlx::query(sql).execute(&pool).await.unwrap();
    }
    pool.close().await;
    let made = hapax(&["migrate", "--outbox", "--queues", "--yes", "--by", "alice", "--store", &file]);
    assert_eq!(made.status.code(), Some(1), "{made:?}");
    let said = said(&made);
    let (line, failure) = said.trim_end().split_once('\n').unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!((&line["by"], &line["of"], &line["count"]), (&"alice".into(), &"a store".into(), &1.into()));
    assert!(failure.contains("update this program"), "{failure}");
    json(&["dead-letters", "list", "--store", &file, "--json"], 0);
}

#[test]
fn a_file_that_is_no_database_is_left_as_it_was() {
    let folder = Folder::new();
    let file = folder.file();
    std::fs::write(&file, b"no database at all, but long enough to be looked at as one by whoever opens it").unwrap();
    let refused = hapax(&["migrate", "--yes", "--store", &file]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert_eq!(said(&refused).trim().lines().count(), 1, "{refused:?}");
    assert!(std::fs::read(&file).unwrap().starts_with(b"no database"));
}

/// Goal: a server that is away is waited for once, whatever is to be made there. Method: one that hangs up on whoever comes, and counts them.
#[test]
fn a_server_that_is_away_is_tried_once_for_all_that_is_to_be_made() {
    for (is_built, scheme) in [(cfg!(feature = "postgres"), "postgres"), (cfg!(feature = "mysql"), "mysql")] {
        if !is_built {
            continue;
        }
        let server = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let place = server.local_addr().unwrap().to_string();
        let came = Arc::new(AtomicUsize::new(0));
        let counted = came.clone();
        thread::spawn(move || {
            for line in server.incoming() {
                counted.fetch_add(1, Ordering::Relaxed); // Before whoever came hears of it.
                drop(line);
            }
        });
        let url = format!("{scheme}://shop:s3cret@{place}/shop");
        let ran = hapax(&["migrate", "--outbox", "--queues", "--yes", "--store", &url]);
        assert_eq!(ran.status.code(), Some(1), "{ran:?}");
        let why = said(&ran);
        for part in [&*place, "opening the", "store", "cannot be reached"] {
            assert!(why.contains(part), "{part}: {why}");
        }
        assert!(why.trim().lines().count() == 1 && !why.contains("s3cret"), "{why}");
        assert_eq!(came.load(Ordering::Relaxed), 1, "{scheme}: {why}");
    }
}
