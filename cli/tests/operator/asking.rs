//! What changes something asks: on a terminal, by a question; without one it is refused.

use std::process::{Command, Stdio};

use hapax::{
    Sqlite,
    ports::{DeadLetters, Page},
};

use crate::rig::{Folder, hapax, said, shop_that_could_not_send, shop_that_ran};

#[tokio::test(flavor = "multi_thread")]
async fn each_command_that_changes_something_is_refused_where_nobody_can_be_asked() {
    let folder = Folder::new();
    let file = folder.file();
    shop_that_ran(&file).await;
    shop_that_could_not_send(&file).await;
    assert!(hapax(&["migrate", "--outbox", "--yes", "--store", &file]).status.success());
    // A row that has failed.
    let pool = sqlx::SqlitePool::connect(&format!("sqlite://{file}")).await.unwrap();
    let insert = "INSERT INTO hapax_outbox (id, status, attempts, ready_at, token, stored_at, ended_at, destination, type, content_type, body) \
         VALUES (x'018f0000000070008000000000000001', 2, 1, 0, 0, 0, 0, 'endpoint:stock', 'shop.item-added', 'application/json', x'7b7d')";
    sqlx::query(insert).execute(&pool).await.unwrap();
    let rows = async |of: &str| -> Vec<(String, i64)> {
        let sql = format!("SELECT '{of}', count(*) FROM {of}");
        sqlx::query_as(sqlx::AssertSqlSafe(sql)).fetch_all(&pool).await.unwrap()
    };
    let tables = ["hapax_dead_letter", "hapax_outbox", "hapax_outbox_archive", "hapax_queue_message", "hapax_dedup"];
    let all = async || {
        let mut all = Vec::new();
        for table in tables {
            all.extend(rows(table).await);
        }
        all
    };
    let before = all().await;
    for command in [
        &["migrate"][..],
        &["dead-letters", "discard", "bad-1"],
        &["dead-letters", "discard", "--all"],
        &["dead-letters", "retry", "bad-1"],
        &["dead-letters", "edit", "bad-1", "--never-expires"],
        &["outbox", "retry", "--all"],
        &["outbox", "discard", "--all"],
        &["outbox", "purge", "--older-than", "0s"],
        &["outbox", "archive", "--older-than", "0s"],
        &["sweep", "--older-than", "0s"],
    ] {
        let refused = hapax(&[command, &["--store", &file]].concat());
        assert_eq!(refused.status.code(), Some(2), "{command:?}: {refused:?}");
        let said = said(&refused);
        assert!(said.contains("--yes") && said.trim().lines().count() == 1, "{command:?}: {said}");
    }
    assert_eq!(all().await, before);
    pool.close().await;
}

async fn letters(file: &str) -> usize {
    let store = Sqlite::open(file).await.unwrap();
    let letters = store.list(&"shop".parse().unwrap(), &Page::first(10)).await.unwrap().len();
    store.close().await;
    letters
}

/// A terminal of its own, from `script`, in which `answer` is typed.
fn typed(file: &str, answer: &str) -> Option<String> {
    let line = format!("'{}' dead-letters discard bad-1 --store '{file}'", env!("CARGO_BIN_EXE_hapax"));
    let mut child = Command::new("script")
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    std::io::Write::write_all(&mut child.stdin.take()?, answer.as_bytes()).ok()?;
    let output = child.wait_with_output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_terminal_only_a_yes_is_one() {
    let folder = Folder::new();
    let file = folder.file();
    shop_that_ran(&file).await;
    for answer in ["n\n", "\n", "maybe\n"] {
        let Some(said) = typed(&file, answer) else {
            eprintln!("SKIPPED: there is no program `script`, which makes a terminal: install util-linux");
            return;
        };
        assert!(said.contains("Go on? [y/N]") && said.contains("nothing was done"), "{answer:?}: {said}");
        assert_eq!(letters(&file).await, 1, "{answer:?}");
    }
    let said = typed(&file, "y\n").unwrap();
    assert!(said.contains("1 discarded"), "{said}");
    assert_eq!(letters(&file).await, 0);
}

/// Goal: where nobody has a name, as in a container, the record says more than that. Method: the variables with names are taken away.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn who_has_no_name_is_written_down_by_the_number() {
    let folder = Folder::new();
    let file = folder.file();
    shop_that_ran(&file).await;
    let args = ["dead-letters", "discard", "bad-1", "--yes", "--store", &file];
    let done = crate::rig::program().args(args).env_remove("USER").env_remove("LOGNAME").output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let line: serde_json::Value = serde_json::from_str(said(&done).trim()).unwrap();
    let by = line["by"].as_str().unwrap();
    assert!(by.strip_prefix("uid ").is_some_and(|uid| uid.parse::<u32>().is_ok()), "{line}");
}
