//! What goes wrong around a run is told in one line that names it and the remedy, and soon: never that the books do not
//! balance.
#![allow(clippy::unwrap_used)]

mod folder;
mod program;

use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use folder::Folder;
use hapax_servers::free_port;
use program::{orders, program};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

/// The only line that it says, as a refusal.
#[track_caller]
fn refusal(ended: &Output) -> String {
    let said = String::from_utf8(ended.stderr.clone()).unwrap();
    assert_eq!(ended.status.code(), Some(2), "{said}{}", String::from_utf8_lossy(&ended.stdout));
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

fn server(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| panic!("no server to test with: run `cargo xtask test`"))
}

/// Runs it with files of at most this many KiB: a disk that becomes full, for which nobody need be root.
fn with_little_room(kib: u32, folder: &Folder, arguments: &[&str]) -> Output {
    // Unless a process ignores the signal for a file that is too large, it is its end. `exec` keeps that. Blocks have 512 bytes.
    let limited = format!(r#"trap "" XFSZ; ulimit -f {}; exec "$0" "$@""#, 2 * kib);
    let mut shell = Command::new("sh");
    shell.args(["-c", &limited]).arg(program().get_program()).args(arguments).env("TMPDIR", &folder.0).output().unwrap()
}

/// Orders of which none is ever charged, so that the card company never writes and the shop is alone with its disk.
fn all_out_of_stock(folder: &Folder) -> String {
    const ORDERS: usize = 3000;
    let path = folder.path("nothing.jsonl");
    let mut file = fs::File::create(&path).unwrap();
    for number in 0..ORDERS {
        let lines = format!(r#"[{{"article":"none-{number}","quantity":1,"price_cents":5}}]"#);
        writeln!(file, r#"{{"order":"o-{number}","customer":"Zoë","card":"good","lines":{lines}}}"#).unwrap();
    }
    path
}

#[test]
fn a_disk_that_becomes_full_is_told_and_not_that_the_books_do_not_balance() {
    const SOON: Duration = Duration::from_secs(80); // With the filling of the disk, on a machine that is very busy.
    let folder = Folder::new("told");
    let input = all_out_of_stock(&folder);
    for (name, workers) in [("alone.db", &[][..]), ("workers.db", &["--workers", "2"])] {
        let (store, begun) = (folder.path(name), Instant::now());
        let ended = with_little_room(800, &folder, &[&["--input", &input, "--store", &store], workers].concat());
        let said = refusal(&ended);
        assert!(said.contains(&format!("{store} cannot be written: ")) && said.contains("see to its disk"), "{said}");
        assert!(begun.elapsed() < SOON, "{name}: it took {:?}", begun.elapsed());
    }
}

#[test]
fn a_full_disk_under_the_card_ledger_is_told_within_seconds() {
    const SOON: Duration = Duration::from_secs(100); // With the starting of everything, on a machine that is very busy.
    let folder = Folder::new("told");
    for variable in ["HAPAX_TEST_POSTGRES", "HAPAX_TEST_MYSQL"] {
        let begun = Instant::now();
        let ended = with_little_room(150, &folder, &["--orders", "3000", "--store", &server(variable)]);
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(2), "{said}");
        assert!(said.contains("cards.db cannot be written: ") && said.contains("or TMPDIR"), "{said}");
        assert!(begun.elapsed() < SOON, "it took {:?}", begun.elapsed());
    }
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0, "something is left of a run");
}

/// A file system in memory over a folder: dedup entries are small files, which a limit on the size of files does not stop. It must
/// not outlive its test, whatever becomes of that.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(folder: &Path, kib: u32) -> Option<Self> {
        let size = format!("size={kib}k");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(folder).output();
        mounted.is_ok_and(|mounted| mounted.status.success()).then(|| Self(folder.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_under_the_dedup_entries_is_told_within_seconds() {
    const SOON: Duration = Duration::from_secs(80); // With the filling of the disk, on a machine that is very busy.
    let folder = Folder::new("told");
    for kib in [400, 4] {
        let dedup = folder.path(&format!("dedup-{kib}"));
        fs::create_dir(&dedup).unwrap();
        let Some(_disk) = SmallDisk::mount(dedup.as_ref(), kib) else {
            eprintln!(
                "SKIPPED: a small file system cannot be mounted here, so a full disk was not tested: run as root"
            );
            return;
        };
        let begun = Instant::now();
        let said = refusal(&orders(&["--orders", "60", "--workers", "2", "--dedup", &dedup]));
        for words in [&*format!("{dedup} cannot be written: "), "make room on its disk", "(--dedup)"] {
            assert!(said.contains(words), "`{words}` is missing: {said}");
        }
        assert!(begun.elapsed() < SOON, "it took {:?}", begun.elapsed());
    }
}

/// Answers whoever connects with `words`, and ends the connection; to who waits to be spoken to it says nothing.
fn stranger(words: &'static str) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let _ = client.read(&mut [0; 64]);
            let _ = client.write_all(words.as_bytes());
        }
    });
    port
}

#[test]
fn who_else_listens_where_a_server_should_be_is_told_and_not_to_start_it() {
    let (web, mute) = (stranger("HTTP/1.1 400 Bad Request\r\n\r\n"), stranger(""));
    let without_tls = stranger("N"); // As a PostgreSQL server says it.
    let nobody = free_port().unwrap();
    let mysql = server("HAPAX_TEST_MYSQL");
    let as_postgres = mysql.replace("mysql://", "postgres://");
    for (store, expected) in [
        (format!("postgres://shop@127.0.0.1:{web}/shop"), "does not speak as a PostgreSQL server does"),
        (format!("postgres://shop@127.0.0.1:{mute}/shop"), "does not speak as a PostgreSQL server does"),
        (format!("mysql://shop@127.0.0.1:{web}/shop"), "no answer of a MariaDB server within 10s"),
        (as_postgres, "does not speak as a PostgreSQL server does: it sent something else"),
        (
            format!("postgres://shop@127.0.0.1:{without_tls}/shop?sslmode=require"),
            "--store asks for TLS, and there is none",
        ),
        (format!("postgres://shop@127.0.0.1:{nobody}/shop"), "no PostgreSQL answers: Connection refused"),
        (format!("mysql://shop@127.0.0.1:{nobody}/shop"), "no MariaDB answers: Connection refused"),
    ] {
        let said = refusal(&orders(&["--orders", "1", "--store", &store]));
        assert!(said.contains(expected), "{store}: {said}");
        assert_eq!(said.contains("start it"), expected.contains("refused"), "{store}: {said}");
    }
    let told = orders(&["--orders", "1", "--store", &format!("{mysql}?ssl-mode=required")]);
    if told.status.success() {
        println!("not tested: the MariaDB server of the tests has TLS");
    } else {
        assert!(refusal(&told).contains("--store asks for TLS, and there is none"));
    }
}

#[test]
fn a_pooler_that_cannot_be_used_is_named_and_not_the_database() {
    let (store, nobody) = (server("HAPAX_TEST_POSTGRES"), free_port().unwrap());
    let elsewhere = format!("{}/postgres", store.rsplit_once('/').unwrap().0);
    for (pooler, expected) in [
        (format!("postgres://shop:secret@127.0.0.1:{nobody}/shop"), "no pgbouncer answers"),
        (
            format!("postgres://shop@127.0.0.1:{}/shop", stranger("HTTP/1.1 400")),
            "does not speak as a pgbouncer server",
        ),
        ("postgres://shop@db:port/shop".into(), "write postgres://USER:PASSWORD@HOST:PORT/DATABASE"),
        ("mysql://root@db/shop".into(), "write postgres://USER:PASSWORD@HOST:PORT/DATABASE"),
        (store.replace("postgres@", "somebody_unknown@"), "correct user and password in --pooler"),
        (elsewhere, "--pooler leads to another database than --store"),
        ("  ".into(), "--pooler is blank"),
    ] {
        let said = refusal(&orders(&["--orders", "1", "--store", &store, "--pooler", &pooler]));
        assert!(said.contains("--pooler") && said.contains(expected) && !said.contains("secret"), "{pooler}: {said}");
        assert!(!said.contains("cannot be used"), "{said}");
    }
}

#[test]
fn a_value_that_is_blank_or_far_too_long_is_refused_in_a_line_that_can_be_read() {
    const READABLE: usize = 2200;
    for store in ["", "  ", "\t", "sqlite:", "sqlite: "] {
        let said = refusal(&orders(&["--orders", "1", "--store", store]));
        let blank = if store.starts_with("sqlite") { "the books are checked from a file" } else { "--store is blank" };
        assert!(said.contains(blank), "{store:?}: {said}");
    }
    assert!(refusal(&orders(&["--input", " "])).contains("--input is blank"));
    let (long, spaced) = ("x".repeat(100_000), "x ".repeat(50_000));
    for (option, value) in [("--store", &long), ("--store", &spaced), ("--input", &long), ("--seed", &long)] {
        let said = refusal(&orders(&["--orders", "1", option, value]));
        assert!(said.len() < READABLE, "{option}: {} bytes", said.len());
        assert!(said.contains("xxx") || said.contains("x x x"), "{option}: {said}");
        assert!(said.contains("characters..]"), "{option}: {said}");
    }
}

/// Else it would say in which line of the server's source the error was raised.
#[tokio::test]
async fn a_table_that_somebody_drops_under_a_run_is_told_in_words_for_users() {
    const PATIENCE: Duration = Duration::from_secs(60);
    let name = format!("orders_{}", uuid::Uuid::new_v4().simple());
    let mut administration = PgConnection::connect(&server("HAPAX_TEST_POSTGRES")).await.unwrap();
    administration.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
    let url = format!("{}/{name}", server("HAPAX_TEST_POSTGRES").rsplit_once('/').unwrap().0);
    let mut own = PgConnection::connect(&url).await.unwrap();
    let mut run = program();
    let run = run
        .args(["--orders", "100000", "--workers", "1", "--store", &url])
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let run = run.spawn().unwrap();
    let begun = Instant::now();
    let find = "SELECT min(schemaname::text) FROM pg_stat_user_tables WHERE relname = 'entity' AND n_tup_ins > 0";
    let schema = loop {
        // Only workers write entities, so that the one that there is has started.
        if let Some(schema) = sqlx::query_scalar::<_, Option<String>>(find).fetch_one(&mut own).await.unwrap() {
            break schema;
        }
        assert!(begun.elapsed() < PATIENCE, "it does not begin");
        tokio::time::sleep(Duration::from_millis(20)).await; // Another process: it can only be looked at.
    };
    own.execute(AssertSqlSafe(format!("DROP TABLE {schema}.entity"))).await.unwrap();
    let said = refusal(&run.wait_with_output().unwrap());
    for words in ["which orders are decided cannot be read", &schema, "does not exist", "until the run has ended"] {
        assert!(said.contains(words), "`{words}` is missing: {said}");
    }
    assert!(!said.contains(" at line "), "{said}");
    own.close().await.unwrap();
    administration.execute(AssertSqlSafe(format!("DROP DATABASE {name} WITH (FORCE)"))).await.unwrap();
}
