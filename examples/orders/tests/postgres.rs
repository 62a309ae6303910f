//! The job on a PostgreSQL server: the user's, and one of its own that is killed.
//!
//! Each test that leaves something has a database of its own on the tests' server.
#![allow(clippy::unwrap_used)]

mod program;

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use hapax_servers::{Pgbouncer, PostgresServer, find, free_port};
use orders::{Database, books, input::Input};
use program::{orders, words};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, postgres::PgConnectOptions};

/// Where the tests' server is: set by `cargo xtask test`, which finds or starts one.
const SERVER: &str = "HAPAX_TEST_POSTGRES";

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
            std::env::var(SERVER).unwrap_or_else(|_| panic!("no PostgreSQL to test with: run `cargo xtask test`"));
        let name = format!("orders_{}", uuid::Uuid::new_v4().simple());
        let own = Self { server, name };
        own.on_server(&format!("CREATE DATABASE {}", own.name)).await;
        own
    }

    async fn on_server(&self, sql: &str) {
        let mut server = PgConnection::connect(&self.server).await.unwrap();
        server.execute(AssertSqlSafe(sql.to_owned())).await.unwrap();
        server.close().await.unwrap();
    }

    fn login(&self) -> &str {
        self.server.split_once("://").unwrap().1.split_once('@').unwrap().0
    }

    /// Its URL, for `user` if one is given.
    fn url(&self, user: Option<&str>) -> String {
        let (login, rest) = self.server.split_once("://").unwrap().1.split_once('@').unwrap();
        let (host, _) = rest.split_once('/').unwrap();
        format!("postgres://{}@{host}/{}", user.unwrap_or(login), self.name)
    }

    /// The schemas that runs have left.
    async fn left(&self) -> Vec<String> {
        let mut server = PgConnection::connect(&self.url(None)).await.unwrap();
        let sql = "SELECT nspname::text FROM pg_namespace WHERE nspname LIKE 'orders%'";
        let left = sqlx::query_scalar(sql).fetch_all(&mut server).await.unwrap();
        server.close().await.unwrap();
        left
    }

    async fn remove(self) {
        self.on_server(&format!("DROP DATABASE {} WITH (FORCE)", self.name)).await;
    }
}

#[test]
fn every_order_is_charged_once_while_workers_and_their_postgres_are_killed() {
    let mut arguments = vec!["--store", "postgres:", "--workers", "3", "--kill-every", "500ms", "--kill-server", "1s"];
    arguments.extend(["--orders", "200", "--seed", "5"]);
    let ended = orders(&arguments);
    let said = words(&ended);
    assert_eq!(ended.status.code(), Some(0), "{said}");
    assert!(said.contains("every order charged exactly once"), "{said}");
    assert!(number(&said, "server killed") > 1 && number(&said, "killed") > 0, "{said}");
    assert_eq!(["dead letters", "mended", "discarded"].map(|name| number(&said, name)), [6, 5, 1], "{said}");
}

/// Two sessions for all of them, each transaction in the one that is free; those of the killed are found out by the pooler.
#[tokio::test]
async fn every_order_is_charged_once_behind_a_pooler_of_postgres_while_workers_are_killed() {
    const WORKERS: usize = 3;
    let own = Own::new().await;
    let url = own.url(None);
    let folder = Folder::new();
    let Some(pooler) = pooler(&url, &folder).await else { return own.remove().await };
    let pooled = format!("postgres://{}@127.0.0.1:{}/{}", own.login(), pooler.port(), own.name);
    let mut arguments = vec!["--store", &url, "--pooler", &pooled, "--workers", "3", "--kill-every", "300ms"];
    arguments.extend(["--stall-every", "2s", "--orders", "200", "--seed", "5"]);
    let ended = orders(&arguments);
    let said = words(&ended);
    assert_eq!(ended.status.code(), Some(0), "{said}");
    assert!(said.contains("every order charged exactly once"), "{said}");
    assert!(number(&said, "killed") > 0, "{said}");
    // Each opens a few connections, and none of them is the server's own.
    let entered = pooler.log().matches("login attempt").count();
    assert!(entered > WORKERS * 3, "{entered} connections went through the pooler");
    assert!(own.left().await.is_empty());
    own.remove().await;
}

/// pgbouncer before the server of `url`, once it answers. `None`, said aloud, where it is not installed.
async fn pooler(url: &str, folder: &Folder) -> Option<Pgbouncer> {
    const PATIENCE: Duration = Duration::from_secs(30);
    if find("pgbouncer").is_none() {
        eprintln!("SKIPPED: there is no pgbouncer to test with: `apt-get install pgbouncer`");
        return None;
    }
    let server: PgConnectOptions = url.parse().unwrap();
    let place = (server.get_host(), server.get_port());
    let pooler = Pgbouncer::run(&folder.0, place, server.get_username(), &["default_pool_size = 2"]).unwrap();
    let begun = Instant::now();
    let behind = server.host("127.0.0.1").port(pooler.port()).extra_float_digits(None);
    while let Err(why) = PgConnection::connect_with(&behind).await {
        assert!(begun.elapsed() < PATIENCE, "{why}: {}", pooler.log());
        tokio::time::sleep(Duration::from_millis(20)).await; // Another process: it can only be asked.
    }
    Some(pooler)
}

#[tokio::test]
async fn a_run_on_a_postgres_server_leaves_nothing_there_unless_it_is_told_to() {
    let own = Own::new().await;
    let url = own.url(None);
    let ended = orders(&["--store", &url, "--workers", "2", "--orders", "30"]);
    assert_eq!(ended.status.code(), Some(0), "{}", words(&ended));
    assert!(own.left().await.is_empty());
    let ended = orders(&["--store", &url, "--workers", "2", "--orders", "30", "--kill-every", "300ms", "--keep"]);
    let said = words(&ended);
    assert_eq!(ended.status.code(), Some(0), "{said}");
    let left = own.left().await;
    assert_eq!(left.len(), 1, "{said}");
    assert!(said.contains(&format!("schema {} at ", left[0])), "{said}");
    // The control: the books of what is there balance, and do not when it is falsified.
    let ledger = PathBuf::from(said.split("ledger ").nth(1).unwrap().lines().next().unwrap());
    let database = Database::postgres(&url, &left[0], &ledger);
    let input = Input::bundled(Some(30));
    assert_eq!(books::check(&database, &input).await.unwrap().findings, []);
    for (sql, expected) in [
        ("DELETE FROM dedup_0 WHERE key = (SELECT key FROM dedup_0 LIMIT 1)", "dedup entries, but there are"),
        ("UPDATE entity SET pending_since = 1 WHERE key = (SELECT min(key) FROM entity)", "outbox entries that nobody"),
        (
            "INSERT INTO dead_letter (endpoint, message_id, saga, destination, fingerprint, attempts, time, reason, envelope) \
             VALUES ('shop', 'm-1', 'order', '', '', 1, 1, 'no', '')",
            "message m-1: is a dead letter of order: no",
        ),
        ("UPDATE entity SET key = 'ghost' WHERE key = (SELECT max(key) FROM entity)", "ghost"),
    ] {
        let mut server = PgConnection::connect(&url).await.unwrap();
        server.execute(AssertSqlSafe(format!("SET search_path = {}", left[0]))).await.unwrap();
        assert!(server.execute(sql).await.unwrap().rows_affected() > 0, "{sql}");
        let findings = books::check(&database, &input).await.unwrap().findings;
        let said: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert!(said.iter().any(|said| said.contains(expected)), "{expected:?} was not noticed in {said:#?}");
    }
    fs::remove_dir_all(ledger.parent().unwrap()).unwrap();
    own.remove().await;
}

#[tokio::test]
async fn a_postgres_server_that_cannot_be_used_is_refused_in_one_line_with_a_remedy() {
    let own = Own::new().await;
    let role = format!("r_{}", own.name);
    own.on_server(&format!("CREATE ROLE {role} LOGIN")).await;
    let nobody = format!("postgres://shop@127.0.0.1:{}/shop", free_port().unwrap());
    let no_such = own.url(None).replace(&own.name, "there_is_none");
    let locked = Locked::start().await;
    let with_password = locked.server.url().replace("postgres@", "postgres:secret@");
    for (store, expected) in [
        (nobody.as_str(), "no PostgreSQL answers"),
        (&no_such, "create it (`CREATE DATABASE there_is_none`)"),
        (&own.url(Some(&role)), "GRANT CREATE ON DATABASE"),
        (&own.url(Some("somebody_unknown")), "correct user and password in --store"),
        (&with_password, "correct user and password in --store, or set PGPASSWORD"),
        ("postgres://shop@db:port/shop", "write postgres://USER:PASSWORD@HOST:PORT/DATABASE"),
    ] {
        let ended = orders(&["--orders", "1", "--store", store]);
        let said = words(&ended);
        assert_eq!(ended.status.code(), Some(2), "{store}: {said}");
        assert_eq!(said.lines().count(), 1, "{store}: {said}");
        assert!(said.contains(expected) && !said.contains("secret"), "{store}: {said}");
    }
    own.on_server(&format!("DROP ROLE {role}")).await;
    own.remove().await;
}

/// A server that asks for passwords, and knows none.
struct Locked {
    // Before its folder.
    server: PostgresServer,
    _folder: Folder,
}

impl Locked {
    async fn start() -> Self {
        const PATIENCE: Duration = Duration::from_secs(30);
        let folder = Folder::new();
        let mut server = PostgresServer::create(&folder.0, &[]).unwrap();
        fs::write(folder.0.join("data/pg_hba.conf"), "host all all 127.0.0.1/32 scram-sha-256").unwrap();
        let begun = Instant::now();
        loop {
            server.run().unwrap();
            match PgConnection::connect(&server.url()).await {
                Err(sqlx::Error::Database(e)) if e.code().is_some_and(|code| code == "28P01") => break,
                answer => assert!(begun.elapsed() < PATIENCE, "{answer:?}: {}", server.log()),
            }
            tokio::time::sleep(Duration::from_millis(20)).await; // Another process: it can only be asked.
        }
        Self { server, _folder: folder }
    }
}

/// It goes with this.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("hapax-orders-postgres-{}", uuid::Uuid::new_v4().simple()));
        fs::create_dir(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all::<&Path>(self.0.as_ref());
    }
}
