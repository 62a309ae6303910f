//! Each way to a server, tried with stub programs on a path of the test's own: real processes, no real server.
//!
//! No test here bears the name of a backend: it would count as one of the backend's own.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::mysql::{MySql, Place};
use super::objects::AzureBlob;
use super::postgres::Postgres;
use super::server::{Lack, SEARCH, Server, provide, shown};
use super::*;
use crate::lines::Runner;
use crate::workspace::Package;

/// A folder of stub programs, and what they may call: nothing of what is installed here.
struct Stubs(PathBuf);

impl Stubs {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("hapax-stubs-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let stubs = Self(std::env::temp_dir().join(name));
        std::fs::create_dir_all(stubs.0.join("bin")).unwrap();
        stubs.with("id", "echo 1000")
    }

    /// Adds a program. Written by a process of its own: a file that is open for writing in a thread cannot be run by
    /// another one.
    fn with(self, program: &str, script: &str) -> Self {
        let mut sh = Command::new("sh");
        sh.args(["-c", "cat >\"$1\" && chmod 755 \"$1\"", "sh"]).arg(self.0.join("bin").join(program));
        let mut child = sh.stdin(Stdio::piped()).spawn().unwrap();
        // What the stubs say about themselves goes to the files beside them.
        let script = format!("#!/bin/sh\nstubs='{}'\n{script}\n", self.0.display());
        child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
        self
    }

    /// A server that answers at once when it has been started: the client looks for its port.
    fn with_maria(self) -> Self {
        let stubs = self.with("mariadb-install-db", "mkdir -p data");
        let stubs =
            stubs.with("mariadbd", "echo $$ >\"$stubs/server\"; echo \"$*\" >\"$stubs/args\"; exec tail -f /dev/null");
        stubs.with("mariadb", "test -e \"$stubs/args\" || exit 1; echo 10.11.19-MariaDB")
    }

    fn machine(&self, variables: &[(&str, &str)]) -> Machine {
        let variables: BTreeMap<String, String> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let (places, target) = (vec![self.0.join("servers")], self.0.join("target"));
        Machine { path: vec![self.0.join("bin")], variables, places, target }
    }

    fn said(&self, file: &str) -> String {
        std::fs::read_to_string(self.0.join(file)).unwrap_or_default().trim().to_owned()
    }
}

impl Drop for Stubs {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0); // What stays is where temporary files are.
    }
}

fn missing(server: &dyn Server, machine: &Machine) -> String {
    match provide(server, machine) {
        Err(Lack::Missing(why)) => why,
        other => panic!("not missing: {other:?}"),
    }
}

fn lives(pid: &str) -> bool {
    Command::new("sh").args(["-c", "kill -0 \"$1\"", "sh", pid]).stderr(Stdio::null()).status().unwrap().success()
}

#[test]
fn a_server_that_is_named_is_used_as_it_is() {
    let stubs = Stubs::new().with("psql", "echo '16.1|'");
    let url = "postgres://me:secret@db.example.org:6000/x";
    let provided = provide(&Postgres, &stubs.machine(&[("HAPAX_TEST_POSTGRES", url)])).unwrap();
    assert_eq!(provided.url, url);
    assert_eq!(provided.how, "PostgreSQL 16.1, named by HAPAX_TEST_POSTGRES");
}

#[test]
fn a_server_that_is_named_and_does_not_answer_is_an_error_without_its_password() {
    let stubs = Stubs::new().with("psql", "echo 'no route' >&2; exit 2");
    let url = "postgres://me:secret@db.example.org:6000/x";
    let Err(Lack::Wrong(why)) = provide(&Postgres, &stubs.machine(&[("HAPAX_TEST_POSTGRES", url)])) else {
        panic!("it was taken")
    };
    assert_eq!(why, "HAPAX_TEST_POSTGRES=postgres://me@db.example.org:6000/x does not do: no route");
}

#[test]
fn a_server_that_runs_is_found_at_the_first_usual_place_that_answers() {
    let answers = "case \"$*\" in *//guest@127.0.0.1:5432/postgres) echo '15.20 (Debian 15.20-0)|';; *) exit 2;; esac";
    let stubs = Stubs::new().with("psql", answers);
    let provided = provide(&Postgres, &stubs.machine(&[("USER", "guest")])).unwrap();
    assert_eq!(provided.url, "postgres://guest@127.0.0.1:5432/postgres");
    assert!(missing(&Postgres, &stubs.machine(&[("USER", "guest"), (SEARCH, "off")])).contains("initdb is not"));
    assert!(missing(&Postgres, &stubs.machine(&[])).contains("initdb is not"), "another user");
}

#[test]
fn a_server_that_tests_cannot_use_is_not_taken() {
    for answer in ["13.22|", "15.20|it is a standby", "15.20", "|", ""] {
        let stubs = Stubs::new().with("psql", &format!("echo '{answer}'"));
        assert!(missing(&Postgres, &stubs.machine(&[])).contains("initdb is not"), "{answer}");
    }
}

#[test]
fn a_server_of_our_own_serves_on_a_port_of_its_own_and_ends_with_its_handle() {
    let stubs = Stubs::new().with_maria();
    let provided = provide(&MySql, &stubs.machine(&[])).unwrap();
    let (server, args) = (stubs.said("server"), stubs.said("args"));
    let port = args.split("--port=").nth(1).unwrap().split(' ').next().unwrap();
    assert_eq!(provided.url, format!("mysql://root@127.0.0.1:{port}/test"));
    assert!(provided.how.starts_with(&format!("MariaDB 10.11.19, started on port {port} in ")), "{}", provided.how);
    assert!(lives(&server));
    assert_eq!(std::fs::read_dir(stubs.0.join("servers")).unwrap().count(), 1);
    drop(provided);
    assert!(!lives(&server));
    assert_eq!(std::fs::read_dir(stubs.0.join("servers")).unwrap().count(), 0, "its files are gone");
}

#[test]
fn a_server_that_does_not_start_says_why() {
    let stubs =
        Stubs::new().with_maria().with("mariadbd", "echo run >>\"$stubs/runs\"; echo 'no disk left' >&2; exit 1");
    let why = missing(&MySql, &stubs.machine(&[]));
    assert_eq!(why, "MariaDB ended: no disk left; mend that, or set HAPAX_TEST_MYSQL to the URL of another one");
    assert_eq!(stubs.said("runs").lines().count(), 3, "another port may be free");
}

#[test]
fn root_installs_what_is_missing_and_nobody_else_does() {
    let stubs = Stubs::new().with("apt-get", "echo \"$DEBIAN_FRONTEND $*\" >>\"$stubs/apt\"; test \"$1\" = update");
    assert!(missing(&MySql, &stubs.machine(&[])).contains("`apt-get install mariadb-server`"));
    assert_eq!(stubs.said("apt"), "");
    let stubs = stubs.with("id", "echo 0");
    let why = missing(&MySql, &stubs.machine(&[]));
    assert!(why.starts_with("no MariaDB answers, and mariadb-install-db is not installed; apt-get install"), "{why}");
    let install = "noninteractive install --yes --no-install-recommends mariadb-server";
    assert_eq!(stubs.said("apt"), format!("{install}\nnoninteractive update\n{install}"));
}

#[test]
fn a_server_that_is_made_is_made_once_and_as_whoever_calls() {
    let npm = "echo \"$*\" >>\"$stubs/npm\"
        for it; do test \"$before\" = --prefix && folder=$it; before=$it; done
        mkdir -p \"$folder/node_modules/.bin\"
        printf '#!/bin/sh\\necho \"$*\" >>%s/args; echo no port; exit 1' \"$stubs\" >\"$folder/node_modules/.bin/azurite-blob\"
        chmod 755 \"$folder/node_modules/.bin/azurite-blob\"";
    let mkdir = "exec /bin/mkdir \"$@\"";
    let stubs = Stubs::new().with("npm", npm).with("id", "echo 0").with("mkdir", mkdir);
    for _ in 0..2 {
        let why = missing(&AzureBlob, &stubs.machine(&[]));
        assert_eq!(why, "Azurite ended: no port; mend that, or set HAPAX_TEST_AZURE_BLOB to the URL of another one");
    }
    assert_eq!(stubs.said("npm").lines().count(), 1);
    assert_eq!(stubs.said("args").lines().count(), 6, "another port may be free");
}

#[test]
fn a_server_that_cannot_be_made_is_missing_with_a_remedy_and_tried_again() {
    let none = missing(&AzureBlob, &Stubs::new().machine(&[]));
    assert_eq!(none, "there is no npm: `apt-get install npm`, or set HAPAX_TEST_AZURE_BLOB");
    let stubs = Stubs::new().with("npm", "echo run >>\"$stubs/npm\"; exit 1");
    for runs in 1..3 {
        let why = missing(&AzureBlob, &stubs.machine(&[]));
        assert!(why.ends_with("exit status: 1: `apt-get install npm`, or set HAPAX_TEST_AZURE_BLOB"), "{why}");
        assert_eq!(stubs.said("npm").lines().count(), runs);
    }
}

#[test]
fn an_emulator_is_started_by_the_name_of_its_backend() {
    let why = emulate("mysql").unwrap_err();
    assert_eq!(why, "`mysql` has no emulator: there are those of kafka, dynamodb, cosmos, azure-blob, s3, sqs");
}

#[test]
fn a_password_is_not_shown() {
    assert_eq!(shown("mysql://a:p@ss@h:1/d"), "mysql://a@h:1/d");
    assert_eq!(shown("mysql://a@h:1/d"), "mysql://a@h:1/d");
    assert_eq!(shown("nonsense"), "nonsense");
}

#[test]
fn the_parts_of_a_url_are_found() {
    let place = Place::parse("mysql://r%40t:p%3As@h:33/d?ssl-mode=disabled").unwrap();
    assert_eq!(format!("{place:?}"), r#"Place { user: "r@t", password: "p:s", host: "h", port: "33", database: "d" }"#);
    assert_eq!(Place::parse("mysql://r@h/d"), Place::parse("mysql://r:@h:3306/d"));
    for url in ["postgres://r@h/d", "mysql://r@h", "mysql://h/d", "mysql://r@h/"] {
        assert_eq!(Place::parse(url), None, "{url}");
    }
}

/// A tree whose packages have these features.
fn tree(packages: &[(&str, &[&str])]) -> Workspace {
    let packages = packages.iter().map(|(name, features)| Package {
        name: (*name).to_owned(),
        version: "1.0.0".to_owned(),
        source: None,
        licence: None,
        rust_version: None,
        features: features.iter().map(|f| (*f).to_owned()).collect(),
        dependencies: Vec::new(),
    });
    Workspace { packages: packages.collect(), targets: Vec::new() }
}

#[test]
fn a_backend_with_a_server_is_listed_when_its_feature_is_there() {
    let names = |tree: &Workspace| listed(tree).iter().map(|backend| backend.name).collect::<Vec<_>>();
    let embedded = ["memory", "sqlite", "in-process", "partitioned-log", "sqlite-queue", "object"];
    assert_eq!(names(&tree(&[])), embedded, "what is embedded must be there");
    let tree = tree(&[("hapax-stores", &["postgres"]), ("hapax-transports", &["mysql"])]);
    assert_eq!(names(&tree), [&embedded[..], &["postgres", "mysql-queue"]].concat());
}

#[test]
fn two_backends_share_a_server_and_their_tests_are_told_where_it_is() {
    let stubs = Stubs::new().with("mariadb", "echo one >>\"$stubs/asked\"; echo 11.4.2-MariaDB");
    let tree = tree(&[("hapax-stores", &["mysql"]), ("hapax-transports", &["mysql"])]);
    let served: Vec<_> = listed(&tree).into_iter().filter(|backend| backend.server.is_some()).collect();
    let backends = Backends::from(&tree, &served, BTreeSet::new(), &stubs.machine(&[])).unwrap();
    assert_eq!(stubs.said("asked"), "one");
    let variables: Vec<_> = backends.variables().collect();
    assert_eq!(variables, [("HAPAX_TEST_MYSQL", "mysql://root@127.0.0.1:3306/test")]);
    assert!(backends.left_out().is_empty() && backends.rows.len() == 2);
    let none = Backends::from(&tree, &served, BTreeSet::new(), &Stubs::new().machine(&[])).unwrap();
    assert_eq!((none.variables().count(), none.left_out()), (0, vec!["mysql".to_owned(), "mysql_queue".to_owned()]));
}

/// What it is is not in this test's name, for it would count as one that needs it.
#[test]
fn what_is_not_there_for_tests_that_kill_a_broker_leaves_them_out_and_is_a_row() {
    let row = |stubs: &Stubs, server: Result<String, String>| {
        Row::apart(&kafka::Kafka, &server, &stubs.machine(&[])).unwrap()
    };
    let there: Result<String, String> = Ok("there".to_owned());
    let rows = vec![row(&Stubs::new(), there.clone())];
    let none = Backends { rows, required: BTreeSet::new(), servers: Vec::new(), real: Vec::new() };
    assert_eq!(none.left_out(), ["kfake"]);
    let mut report = Report::default();
    none.report(&Seen::default(), true, &mut report);
    let table = report.to_string();
    assert!(table.contains("backend kfake") && table.contains("SKIPPED  there is no Go"), "{table}");
    let stubs = Stubs::new().with("go", "touch kfake");
    assert!(row(&stubs, there).provided.is_ok());
    assert_eq!(row(&stubs, Err("no broker".to_owned())).provided, Err("no broker".to_owned()));
    assert!(Row::apart(&Postgres, &Ok(String::new()), &stubs.machine(&[])).is_none());
}

#[test]
fn what_only_some_tests_need_can_be_required() {
    let all = listed(&tree(&[("hapax-transports", &["kafka"])]));
    assert_eq!(required("kfake,kafka", &all).unwrap().len(), 2);
    assert!(required("kfake", &listed(&tree(&[]))).is_err());
}

fn run(required: &[&str], provided: Result<String, String>, output: &str, complete: bool) -> Report {
    let mut seen = Seen::default();
    output.lines().for_each(|line| seen.line(Runner::Nextest, line));
    let required = required.iter().map(|name| (*name).to_owned()).collect();
    let mut report = Report::default();
    let rows = vec![Row { name: "in-process", provided, needs_server: false }];
    Backends { rows, required, servers: Vec::new(), real: Vec::new() }.report(&seen, complete, &mut report);
    report
}

#[test]
fn a_backend_was_tested_when_a_test_of_its_name_passed() {
    let output = "PASS [ 0.1s] (1/1) hapax-transports in_process::tests::a_copy_comes_twice";
    let report = run(&["in-process"], Ok("embedded".into()), output, true);
    assert!(!report.has_failed());
    assert!(report.to_string().contains("1 tests passed"));
}

#[test]
fn a_test_of_a_backend_with_a_longer_name_is_not_one_of_the_shorter() {
    let names = ["sqlite", "sqlite-queue"];
    for test in ["sqlite_queue::letters", "hapax-tests::sqlite-queue whole"] {
        assert!(bears(test, "sqlite-queue", &names) && !bears(test, "sqlite", &names), "{test}");
    }
    assert!(bears("hapax-tests::sqlite_queue sqlite::letters", "sqlite", &names));
}

#[test]
fn a_required_backend_that_nothing_tested_is_a_failure() {
    assert!(run(&["in-process"], Ok("embedded".into()), "", true).has_failed());
    assert!(run(&["in-process"], Err("not there".into()), "", true).has_failed());
    assert!(!run(&["in-process"], Ok("embedded".into()), "", false).has_failed(), "only some tests were asked for");
}

#[test]
fn a_backend_that_nobody_requires_is_skipped_aloud() {
    let report = run(&[], Err("not there: start it".into()), "", true);
    assert!(!report.has_failed());
    assert!(report.to_string().contains("SKIPPED  not there: start it"));
}

#[test]
fn a_required_backend_must_be_one_that_exists() {
    let all = listed(&tree(&[]));
    assert_eq!(required(" memory, in-process,", &all).unwrap().len(), 2);
    assert!(required("", &all).unwrap().is_empty());
    assert!(required("sqllite", &all).unwrap_err().contains("`sqllite`"));
}

/// What a run says of a service and of its emulator, which is there.
fn run_real(real: &'static Real, asked: Option<&str>, output: &str) -> (Vec<String>, Report) {
    let variables: Vec<(&str, &str)> = asked.map(|value| (real.variable, value)).into_iter().collect();
    let asked = real.is_asked(&Stubs::new().machine(&variables));
    let mut seen = Seen::default();
    output.lines().for_each(|line| seen.line(Runner::Nextest, line));
    let mut report = Report::default();
    let rows = vec![Row { name: real.backend, provided: Ok("an emulator".into()), needs_server: true }];
    let backends = Backends { rows, required: BTreeSet::new(), servers: Vec::new(), real: vec![(real, asked)] };
    let left_out = backends.left_out();
    backends.report(&seen, true, &mut report);
    (left_out, report)
}

/// A passed test of that service.
fn passed(real: &Real) -> String {
    let name = real.backend.replace('-', "_");
    format!("PASS [ 0.1s] (1/1) hapax-tests::{} {name}::a_copy_comes_twice", real.program)
}

#[test]
fn a_service_that_nobody_asks_for_is_skipped_aloud_with_how_to_ask() {
    for real in &REAL {
        for asked in [None, Some(""), Some("0")] {
            let (left_out, report) = run_real(real, asked, &passed(real));
            assert!(left_out.is_empty() && !report.has_failed());
            let (table, name) = (report.to_string(), real.backend);
            let how = format!("`{}=1 cargo xtask test {name}`", real.variable);
            assert!(table.contains(&format!("backend {name} (real)")) && table.contains(&how), "{table}");
            assert!(table.contains("an emulator, 1 tests passed"), "{table}");
        }
    }
}

#[test]
fn a_service_that_is_asked_for_takes_the_place_of_its_emulator() {
    for real in &REAL {
        let (left_out, report) = run_real(real, Some("1"), &passed(real));
        let table = report.to_string();
        assert!(table.contains("the service itself") && table.contains("1 tests passed"), "{table}");
        assert!(table.contains(&format!("unset {}", real.variable)) && !table.contains("an emulator"), "{table}");
        assert_eq!(left_out, real.left_out().map(str::to_owned).into_iter().collect::<Vec<_>>());
        let (_, report) = run_real(real, Some("1"), "");
        assert!(report.has_failed(), "asked for, and nothing tested it: {report}");
    }
}
