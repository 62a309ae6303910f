//! A run that is interrupted leaves nothing behind, whoever interrupts it: a person, a terminal that is closed, or what ends
//! processes.
#![allow(clippy::unwrap_used)]
#![cfg(unix)]

mod program;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use program::program;
use rustix::process::{Pid, Signal, kill_process};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

/// Where the tests' server is: set by `cargo xtask test`, which finds or starts one.
const SERVER: &str = "HAPAX_TEST_POSTGRES";
const SIGNALS: [(Signal, i32); 3] = [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)];
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);

/// More orders than it could take in time.
fn begin(temporary: &Path, store: &[&str]) -> Child {
    let mut command = program();
    command.args(["--orders", "100000"]).args(store).env("TMPDIR", temporary);
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

fn send(signal: Signal, to: &Child) {
    kill_process(Pid::from_raw(i32::try_from(to.id()).unwrap()).unwrap(), signal).unwrap();
}

fn folder() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("hapax-orders-interrupted-{}", uuid::Uuid::new_v4().simple()));
    fs::create_dir(&folder).unwrap();
    folder
}

fn left(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// What a run makes in its temporary folder once it takes orders.
fn has_begun(folder: &Path, file: &str) -> bool {
    left(folder).iter().any(|run| fs::metadata(run.join(file)).is_ok_and(|file| file.len() > 0))
}

#[track_caller]
fn ended(run: Child, expected: i32) {
    let ended = run.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(expected), "{said}");
    assert_eq!(said.trim(), "orders: interrupted; the database is not checked");
}

#[test]
fn an_interrupted_run_takes_its_temporary_file_with_it() {
    let folder = folder();
    for workers in [&[][..], &["--workers", "2"]] {
        for (signal, code) in SIGNALS {
            let run = begin(&folder, workers);
            let begun = Instant::now();
            while !has_begun(&folder, "orders.db-wal") {
                assert!(begun.elapsed() < PATIENCE, "it does not begin");
                std::thread::sleep(LOOK); // Another process: there is nothing to wait for but a look at it.
            }
            send(signal, &run);
            ended(run, code);
            assert!(left(&folder).is_empty(), "{signal:?}: {:?}", left(&folder));
        }
    }
    fs::remove_dir(&folder).unwrap();
}

#[tokio::test]
async fn an_interrupted_run_takes_its_schema_with_it() {
    let server = std::env::var(SERVER).unwrap_or_else(|_| panic!("no PostgreSQL to test with: run `cargo xtask test`"));
    let (folder, name) = (folder(), format!("orders_{}", uuid::Uuid::new_v4().simple()));
    let mut administration = PgConnection::connect(&server).await.unwrap();
    administration.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
    let url = format!("{}/{name}", server.rsplit_once('/').unwrap().0);
    let mut own = PgConnection::connect(&url).await.unwrap();
    let mut tables = async || -> i64 {
        let sql = "SELECT count(*) FROM pg_class JOIN pg_namespace AS n ON n.oid = relnamespace \
                   WHERE nspname LIKE 'orders%' AND relname IN ('entity', 'queue_message')";
        sqlx::query_scalar(sql).fetch_one(&mut own).await.unwrap()
    };
    for (signal, code) in SIGNALS {
        let run = begin(&folder, &["--store", &url]);
        let begun = Instant::now();
        while tables().await < 2 {
            assert!(begun.elapsed() < PATIENCE, "it does not begin");
            tokio::time::sleep(LOOK).await; // Another process, as above.
        }
        send(signal, &run);
        ended(run, code);
        assert_eq!(tables().await, 0, "{signal:?}: its schema is still there");
        assert!(left(&folder).is_empty(), "{signal:?}: {:?}", left(&folder));
    }
    own.close().await.unwrap();
    administration.execute(AssertSqlSafe(format!("DROP DATABASE {name} WITH (FORCE)"))).await.unwrap();
    fs::remove_dir(&folder).unwrap();
}

/// Who starts it with `nohup` wants it to go on.
#[test]
fn a_run_that_was_told_to_outlive_its_terminal_goes_on() {
    let folder = folder();
    let mut shell = Command::new("sh");
    shell
        .args(["-c", r#"trap "" HUP; exec "$0" "$@""#])
        .arg(program().get_program())
        .args(["--orders", "50"])
        .env("TMPDIR", &folder);
    let run = shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    while !has_begun(&folder, "orders.db-wal") {
        assert!(begun.elapsed() < PATIENCE, "it does not begin");
        std::thread::sleep(LOOK);
    }
    send(Signal::HUP, &run);
    let ended = run.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    fs::remove_dir(&folder).unwrap();
}
