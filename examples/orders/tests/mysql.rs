//! The job on a MariaDB server: the user's, and one of its own that is killed.
//!
//! The test that leaves something has a database of its own on the tests' server.
#![allow(clippy::unwrap_used)]

mod program;

use std::{fs, path::PathBuf};

use hapax_servers::free_port;
use orders::{Database, books, input::Input};
use program::{orders, words};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection};

/// Where the tests' server is: set by `cargo xtask test`, which finds or starts one.
const SERVER: &str = "HAPAX_TEST_MYSQL";

/// The number behind a name in the report.
fn number(report: &str, name: &str) -> u32 {
    let line = report.lines().find_map(|line| line.trim_start().strip_prefix(name)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// A database of one test's own, which goes with it.
struct Own {
    server: String,
    name: String,
}

impl Own {
    async fn new() -> Self {
        let server =
            std::env::var(SERVER).unwrap_or_else(|_| panic!("no MariaDB to test with: run `cargo xtask test`"));
        let own = Self { server, name: format!("orders_{}", uuid::Uuid::new_v4().simple()) };
        own.on_server(&format!("CREATE DATABASE {}", own.name)).await;
        own
    }

    async fn on_server(&self, sql: &str) {
        let mut server = MySqlConnection::connect(&self.server).await.unwrap();
        server.execute(AssertSqlSafe(sql.to_owned())).await.unwrap();
        server.close().await.unwrap();
    }

    fn url(&self) -> String {
        format!("{}/{}", self.server.rsplit_once('/').unwrap().0, self.name)
    }

    /// The prefixes of the tables that runs have left.
    async fn left(&self) -> Vec<String> {
        let mut server = MySqlConnection::connect(&self.url()).await.unwrap();
        let sql = "SELECT CAST(table_name AS CHAR) FROM information_schema.tables \
                   WHERE table_schema = DATABASE() AND table_name LIKE 'orders%_entity'";
        let left: Vec<String> = sqlx::query_scalar(sql).fetch_all(&mut server).await.unwrap();
        server.close().await.unwrap();
        left.into_iter().map(|table| table.strip_suffix("entity").unwrap().to_owned()).collect()
    }

    async fn remove(self) {
        self.on_server(&format!("DROP DATABASE {}", self.name)).await;
    }
}

#[test]
fn every_order_is_charged_once_while_workers_and_their_mysql_are_killed() {
    let mut arguments = vec!["--store", "mysql:", "--workers", "3", "--kill-every", "500ms", "--kill-server", "1s"];
    arguments.extend(["--orders", "200", "--seed", "5"]);
    let ended = orders(&arguments);
    let said = words(&ended);
    assert_eq!(ended.status.code(), Some(0), "{said}");
    assert!(said.contains("every order charged exactly once"), "{said}");
    assert!(number(&said, "server killed") > 1 && number(&said, "killed") > 0, "{said}");
    assert_eq!(["dead letters", "mended", "discarded"].map(|name| number(&said, name)), [6, 5, 1], "{said}");
}

#[tokio::test]
async fn a_run_on_a_mysql_server_leaves_nothing_there_unless_it_is_told_to() {
    let own = Own::new().await;
    let url = own.url();
    let ended = orders(&["--store", &url, "--workers", "2", "--orders", "30"]);
    assert_eq!(ended.status.code(), Some(0), "{}", words(&ended));
    assert!(own.left().await.is_empty());
    let ended = orders(&["--store", &url, "--workers", "2", "--orders", "30", "--kill-every", "300ms", "--keep"]);
    let said = words(&ended);
    assert_eq!(ended.status.code(), Some(0), "{said}");
    let left = own.left().await;
    assert_eq!(left.len(), 1, "{said}");
    assert!(said.contains(&format!("tables {}* at ", left[0])), "{said}");
    // The control: the books of what is there balance, and do not when it is falsified.
    let ledger = PathBuf::from(said.split("ledger ").nth(1).unwrap().lines().next().unwrap());
    let database = Database::mysql(&url, &left[0], &ledger);
    let input = Input::bundled(Some(30));
    assert_eq!(books::check(&database, &input).await.unwrap().findings, []);
    for (sql, expected) in [
        ("DELETE FROM hapax.dedup_0 LIMIT 1", "dedup entries, but there are"),
        ("UPDATE hapax.entity SET pending_since = 1 ORDER BY `key` LIMIT 1", "outbox entries that nobody"),
        ("UPDATE hapax.entity SET `key` = 'ghost' ORDER BY `key` DESC LIMIT 1", "ghost"),
    ] {
        let mut server = MySqlConnection::connect(&url).await.unwrap();
        let falsified = server.execute(AssertSqlSafe(sql.replace("hapax.", &left[0]))).await.unwrap();
        assert!(falsified.rows_affected() > 0, "{sql}");
        let findings = books::check(&database, &input).await.unwrap().findings;
        let said: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert!(said.iter().any(|said| said.contains(expected)), "{expected:?} was not noticed in {said:#?}");
    }
    fs::remove_dir_all(ledger.parent().unwrap()).unwrap();
    own.remove().await;
}

#[tokio::test]
async fn a_mysql_server_that_cannot_be_used_is_refused_in_one_line_with_a_remedy() {
    let own = Own::new().await;
    let nobody = format!("mysql://shop@127.0.0.1:{}/shop", free_port().unwrap());
    let no_such = own.url().replace(&own.name, "there_is_none");
    let stranger = own.url().replace("root@", "somebody_unknown:secret@");
    for (store, expected) in [
        (nobody.as_str(), "no MariaDB answers"),
        (&no_such, "create it (CREATE DATABASE)"),
        (&stranger, "correct user and password in --store"),
        ("mysql://shop@db.example", "no database is named; write mysql://USER:PASSWORD@HOST:PORT/DATABASE"),
        ("mysql://shop@db:port/shop", "write mysql://USER:PASSWORD@HOST:PORT/DATABASE"),
    ] {
        let ended = orders(&["--orders", "1", "--store", store]);
        let said = words(&ended);
        assert_eq!(ended.status.code(), Some(2), "{store}: {said}");
        assert_eq!(said.lines().count(), 1, "{store}: {said}");
        assert!(said.contains(expected) && !said.contains("secret"), "{store}: {said}");
    }
    own.remove().await;
}
