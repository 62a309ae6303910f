//! What makes no sense, is not there or cannot be read: one clear line with the remedy, and never a panic.

use std::{fs, process::Stdio};

use crate::rig::{Folder, hapax, program, said, shop_that_ran, text};

/// What is done with the letters about a message.
const DEEDS: [&[&str]; 4] = [
    &["show", "nobody"],
    &["retry", "nobody", "--yes"],
    &["discard", "nobody", "--yes"],
    &["edit", "nobody", "--never-expires", "--yes"],
];

/// One line that says what is wrong, with nothing on the standard output.
#[track_caller]
fn refused(args: &[&str], code: i32, part: &str) {
    let output = hapax(args);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
    assert!(said.starts_with("hapax: ") && said.trim_end().lines().count() == 1, "{args:?}: {said}");
    assert!(said.contains(part), "{args:?}: {said}");
    assert!(!said.contains("panicked") && !said.contains('\u{1b}') && !said.contains("s3cret"), "{args:?}: {said}");
    assert!(output.stdout.is_empty(), "{args:?}: {output:?}");
}

#[test]
fn what_cannot_be_parsed_is_named_with_where_to_look() {
    for (args, part) in [
        (&["statu"][..], "'status'"),
        (&["status", "--endpiont", "shop"], "'--endpoint'"),
        (&["status", "more"], "more"),
        (&["status", "--fast"], "--fast"),
        (&["status"], "--store"),
        (&["status", "--store"], "--store"),
        (&["status", "--store", "x.db", "--limit", "0"], "--limit"),
        (&["status", "--store", "x.db", "--every", "5"], "500ms"),
        (&["status", "--store", "x.db", "--endpoint", "a b"], "endpoint"),
        (&["status", "--store", "x.db", "--endpoint", ""], "endpoint"),
        (&["status", "--store", "x.db", "--schema", "s"], "--schema"),
        (&["status", "--store", "ftp://a/b"], "no store"),
        (&["status", "--store", "ftp://shop:s3cret@a/b"], "no store"),
        (&["status", "--store", "ftp://a/b?password=s3cret"], "no store"),
        (&["status", "--store", "ftp://shop:it's s3cret@a/b"], "no store"),
        (&["message"], "ID"),
        (&["message", ""], "message id"),
        (&["message", "a\tb", "--store", "x.db"], "control character"),
        (&["message", &"x".repeat(300), "--store", "x.db"], "300 bytes"),
        (&["message", &"x".repeat(100_000), "--store", "x.db"], "xxx…' for '<ID>': message id has 100000 bytes"),
        (&["message", "m", "--key", "", "--store", "x.db"], "saga key"),
        (&["dead-letters"], "--help"),
        (&["dead-letters", "lst"], "lst"),
        (&["dead-letters", "show"], "ID"),
        (&["dead-letters", "retry", "--store", "x.db"], "IDS"),
        (&["dead-letters", "discard", "m", "--all", "--store", "x.db"], "--all"),
        (&["dead-letters", "list", "--since", "yesterday"], "neither a time"),
        (&["dead-letters", "list", "--limit", "0", "--store", "x.db"], "--limit"),
        (&["outbox", "list", "--limit", "0", "--store", "x.db"], "--limit"),
        (&["message", "m", "--limit", "0", "--store", "x.db"], "--limit"),
        (&["sweep", "--limit", "0", "--store", "x.db"], "--limit"),
        (&["dead-letters", "edit", "m", "--header", "x"], "NAME=VALUE"),
        // Which would be two hours ago.
        (&["dead-letters", "edit", "m", "--expires", "2h", "--store", "x.db"], "2026-11-29T12:00:00Z"),
        (&["outbox"], "--help"),
        (&["outbox", "list", "--status", "lost"], "waits, sent"),
        (&["outbox", "purge", "--older-than", "-1s", "--store", "x.db"], "-1"),
        (&["outbox", "retry", "--store", "x.db"], "IDS"),
        (&["sweep", "--older-than", "soon"], "500ms"),
        (&["audit", "--looks", "0"], "--looks"),
        (&["doctor", "--redelivery", "9"], "500ms"),
        (&["completion", "tcsh"], "bash"),
        (&["migrate", "--no-store", "--store", "x.db"], "nothing is left"),
        (&["migrate", "--sql", "--json", "--store", "x.db"], "leave --json out"),
        (&["outbox", "debezium", "postgres://db/orders", "--expand-payload", "--sql", "--json"], "leave --json out"),
        (&["completion", "bash", "--json"], "leave --json out"),
    ] {
        refused(args, 2, part);
    }
}

#[test]
fn a_store_that_is_not_there_is_said_with_what_to_do() {
    let folder = Folder::new();
    let none = folder.path().join("none.db");
    let none = none.to_str().unwrap();
    let within = folder.path().join("no/such/folder.db");
    for command in [
        &["status"][..],
        &["message", "m"],
        &["dead-letters", "list"],
        &["dead-letters", "retry", "--all", "--yes"],
        &["outbox", "list"],
        &["outbox", "purge", "--yes"],
        &["sweep", "--yes"],
        &["audit"],
    ] {
        refused(&[command, &["--store", none]].concat(), 1, "hapax migrate");
        refused(&[command, &["--store", within.to_str().unwrap()]].concat(), 1, "create it");
        refused(&[command, &["--store", folder.path().to_str().unwrap()]].concat(), 1, "directory");
    }
    assert!(!folder.path().join("none.db").exists());
    let empty = folder.file();
    fs::write(&empty, "").unwrap();
    for part in ["has no tables of hapax", "hapax migrate"] {
        refused(&["status", "--store", &empty], 1, part);
    }
}

#[test]
fn a_server_that_does_not_answer_is_said_without_its_password() {
    for (is_built, url) in [
        (cfg!(feature = "postgres"), "postgres://shop:s3cret@127.0.0.1:1/shop"),
        (cfg!(feature = "mysql"), "mysql://shop:s3cret@127.0.0.1:1/shop"),
    ] {
        if is_built {
            refused(&["status", "--store", url], 1, "127.0.0.1:1");
        }
    }
}

/// No server is asked: what a URL says is enough.
#[test]
fn a_server_elsewhere_that_shows_nothing_is_refused_with_what_takes_it() {
    for (is_built, url) in [
        (cfg!(feature = "postgres"), "postgres://shop:s3cret@db.example.org/shop?sslmode=require"),
        (cfg!(feature = "mysql"), "mysql://shop:s3cret@db.example.org/shop?ssl-mode=required"),
    ] {
        if is_built {
            refused(&["status", "--store", url], 1, "`--danger-unverified-tls`");
            let found = hapax(&["doctor", "--store", url]);
            assert_eq!(found.status.code(), Some(1), "{found:?}");
            assert!(text(&found).contains("`--danger-unverified-tls`"), "{found:?}");
            assert!(
                !text(&found).contains("danger_unverified_tls(true)") && !text(&found).contains("s3cret"),
                "{found:?}"
            );
            let sql = hapax(&["migrate", "--sql", "--danger-unverified-tls", "--store", url]);
            assert!(sql.status.success(), "{sql:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transport_that_does_not_answer_is_said_too() {
    let folder = Folder::new();
    let file = folder.file();
    shop_that_ran(&file).await;
    let url = "redis://shop:s3cret@127.0.0.1:1";
    if cfg!(feature = "redis") {
        refused(&["dead-letters", "retry", "--all", "--yes", "--store", &file, "--transport", url], 1, "127.0.0.1:1");
    }
    refused(&["status", "--store", &file, "--transport", "carrier-pigeon://loft"], 2, "no transport");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_has_no_letter_is_said_whatever_was_to_be_done_with_it() {
    let folder = Folder::new();
    let file = folder.file();
    shop_that_ran(&file).await;
    for deed in DEEDS.into_iter().chain([&["discard", "bad-1", "nobody", "--yes"][..]]) {
        let command = [&["dead-letters"][..], deed, &["--store", &file]].concat();
        refused(&command, 1, "dead letter about message nobody");
    }
    // Nor was one touched that was named with it.
    assert!(hapax(&["dead-letters", "show", "bad-1", "--store", &file]).status.success());
}

/// Goal: a letter that is not there is told in the same way where nothing is, and not as a mistake in how it was asked for. Method: a store that
/// was made a moment ago.
#[test]
fn a_message_that_has_no_letter_is_said_in_an_empty_store_too() {
    let folder = Folder::new();
    let file = folder.file();
    let made = hapax(&["migrate", "--queues", "--yes", "--store", &file]);
    assert!(made.status.success(), "{made:?}");
    for deed in DEEDS {
        let command = [&["dead-letters"][..], deed, &["--store", &file]].concat();
        refused(&command, 1, "dead letter about message nobody");
    }
}

#[test]
fn a_file_that_is_damaged_newer_or_another_programs_is_not_touched() {
    let folder = Folder::new();
    let file = folder.file();
    fs::write(&file, [0xff; 8192]).unwrap();
    refused(&["status", "--store", &file], 1, "shop.db");
    assert_eq!(fs::read(&file).unwrap(), [0xff; 8192]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_a_newer_hapax_is_refused_with_what_to_do() {
    let folder = Folder::new();
    let file = folder.file();
    shop_that_ran(&file).await;
    let pool = sqlx::SqlitePool::connect(&format!("sqlite://{file}")).await.unwrap();
    for sql in [
        "INSERT INTO hapax_migration (version, name, applied_at) VALUES (99, 'later', 0)",
        "UPDATE hapax_meta SET value = 99 WHERE name = 'usable_from'",
    ] {
        sqlx::query(sql).execute(&pool).await.unwrap();
    }
    pool.close().await;
    refused(&["status", "--store", &file], 1, "update this program");
}

#[cfg(unix)]
#[test]
fn what_is_not_utf8_is_refused_wherever_it_stands() {
    use std::os::unix::ffi::OsStrExt;
    let bad = std::ffi::OsStr::from_bytes(b"\xff");
    for args in [&["message"][..], &["status", "--store"], &["dead-letters", "show"], &[]] {
        let output = program().args(args).arg(bad).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr).trim_end().lines().count(), 1, "{args:?}: {output:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_has_gone_is_no_error_of_any_command() {
    let folder = Folder::new();
    let file = folder.file();
    shop_that_ran(&file).await;
    for args in [
        &["status"][..],
        &["status", "--json"],
        &["message", "good-1"],
        &["dead-letters", "list"],
        &["dead-letters", "show", "bad-1"],
        &["outbox", "list"],
        &["doctor"],
        &["audit", "--looks", "1"],
        &["--help"],
        &["completion", "bash"],
    ] {
        let mut child = program()
            .env("HAPAX_STORE", &file)
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {output:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_cannot_be_written_is_found_out_before_anything_is_done() {
    let folder = Folder::new();
    let file = folder.file();
    shop_that_ran(&file).await;
    let log = folder.path().join("no/such/folder.log");
    let args = ["dead-letters", "discard", "bad-1", "--yes", "--store", &file, "--log", log.to_str().unwrap()];
    refused(&args, 1, "nothing was done");
    assert!(hapax(&["dead-letters", "show", "bad-1", "--store", &file]).status.success());
}

#[test]
fn a_password_is_shown_nowhere_whatever_stands_in_the_url() {
    for store in [
        "postgres://shop:s3 cret@127.0.0.1:1/orders",
        "postgres://shop:s3'cret@127.0.0.1:1/orders",
        "postgres://shop:s3\ncret@127.0.0.1:1/orders",
        "postgres://127.0.0.1:1/orders?user=shop&password=cret",
        "mysql://shop@127.0.0.1:1/orders?password=cret",
        "postgres:shop:cret@127.0.0.1:1/orders",
        "postgres//shop:cret@127.0.0.1:1/orders",
        "host=127.0.0.1 user=shop password=cret dbname=orders",
    ] {
        for command in [&["status"][..], &["migrate", "--dry-run"], &["migrate"], &["dead-letters", "list"]] {
            let ran = hapax(&[command, &["--store", store]].concat());
            assert!(!said(&ran).contains("cret") && !text(&ran).contains("cret"), "{command:?} {store}: {ran:?}");
        }
    }
}
