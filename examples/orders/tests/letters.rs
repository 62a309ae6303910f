//! Orders that become dead letters: what is mended is an order like any other, what is discarded has no effect, and the books notice
//! when it is not so. And what was counted meanwhile.
#![allow(clippy::unwrap_used)]

mod folder;

use std::{fs, path::Path};

use clap::Parser;
use folder::Folder;
use orders::{
    Database, Options, Report,
    books::{self, Books},
    input::Input,
};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, SqliteConnection, sqlite::SqliteConnectOptions};

const QUIET: [&str; 4] = ["--duplicates", "0", "--crashes", "0"];

async fn run(arguments: &[&str]) -> Report {
    let options = Options::try_parse_from([&["orders"], arguments].concat()).unwrap();
    orders::run(&options).await.unwrap_or_else(|refusal| panic!("{arguments:?}: {refusal}"))
}

/// The number behind a name in the report.
fn number(report: &str, name: &str) -> u64 {
    let line = report.lines().find_map(|line| line.trim_start().strip_prefix(name)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// An order with a number that is right, one whose number can be mended, one whose number cannot, and one of an issuer that is in no list.
fn numbered(folder: &Folder) -> String {
    let mut lines = vec![json!({"stock": "mug", "quantity": 100}).to_string()];
    for (id, number) in [
        ("good", "4111 1111 1111 1111"),
        ("mend", "4111 1111 111l 1111"),
        ("none", "4111 1111 1111 1112"),
        ("gone", "9000 2261 2965 3194"),
    ] {
        let articles = json!([{"article": "mug", "quantity": 2, "price_cents": 890}]);
        let order = json!({"order": id, "customer": "Zoë", "card": "good", "card_number": number, "lines": articles});
        lines.push(order.to_string());
    }
    let path = folder.path("numbered.jsonl");
    fs::write(&path, lines.join("\n")).unwrap();
    path
}

/// A database whose books balance, and in which nothing was overdue. On a machine that is very busy even a good card may be, so
/// there are several tries.
async fn honest(folder: &Folder, input: &str) -> String {
    const TRIES: u32 = 5;
    for attempt in 0..TRIES {
        let database = folder.path(&format!("honest-{attempt}.db"));
        let report = run(&[&["--input", input, "--store", &database], &QUIET[..]].concat()).await;
        let Books { confirmed, written_off, mended, given_up, charges, .. } = *report.books();
        assert!(report.is_balanced(), "{report}");
        assert_eq!((written_off, mended, given_up), (1, 2, 1), "{report}");
        if (confirmed, charges) == (3, 3) {
            return database;
        }
    }
    panic!("the machine is too busy: {TRIES} runs had payments overdue that should not be");
}

async fn open(path: &str) -> SqliteConnection {
    SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(path)).await.unwrap()
}

/// Changes the state of one saga behind its frame of two bytes.
async fn edit(file: &mut SqliteConnection, key: &str, change: fn(&mut Value)) {
    let select = "SELECT id, state FROM hapax_entity WHERE key = ? AND completed = 0 ORDER BY scope LIMIT 1";
    let found: (i64, Vec<u8>) = sqlx::query_as(select).bind(key).fetch_one(&mut *file).await.unwrap();
    let (id, mut state) = found;
    let mut value = serde_json::from_slice(&state[2..]).unwrap();
    change(&mut value);
    state.truncate(2);
    state.extend(value.to_string().bytes());
    sqlx::query("UPDATE hapax_entity SET state = ? WHERE id = ?").bind(state).bind(id).execute(file).await.unwrap();
}

enum Falsify {
    Sql(&'static str),
    State(&'static str, fn(&mut Value)),
}

/// The record of what was done, and the action there with this number.
fn actions(record: &mut Value) -> &mut Vec<Value> {
    record["actions"].as_array_mut().unwrap()
}

#[tokio::test]
async fn a_mended_order_is_charged_once_and_a_discarded_one_never_and_the_books_notice_if_not() {
    let folder = Folder::new("letters");
    let path = numbered(&folder);
    let honest = honest(&folder, &path).await;
    let input = Input::read(Path::new(&path), None).unwrap();
    let falsifications = [
        (
            Falsify::Sql(
                "INSERT INTO orders_card_ledger SELECT 'x' || key, order_id, cents, answer, refunded, 0 \
                 FROM orders_card_ledger WHERE order_id = 'mend'",
            ),
            "order mend: is Confirmed and was charged 2 times",
        ),
        (
            Falsify::Sql("DELETE FROM orders_card_ledger WHERE order_id = 'mend'"),
            "order mend: is Confirmed and was charged 0",
        ),
        (
            Falsify::Sql("INSERT INTO orders_card_ledger VALUES ('k', 'none', 1780, 'charged', 0, 0)"),
            "order none: is WrittenOff and was charged 1 times, 0 given back",
        ),
        (
            Falsify::Sql("UPDATE orders_card_ledger SET order_id = 'none' WHERE order_id = 'mend'"),
            "order none: is in the ledger under",
        ),
        (Falsify::State("mug", |stock| stock["sold"] = json!(5)), "stock mug: should be"),
        (
            Falsify::State("none", |order| {
                order["lines"] = json!([{"article": "mug", "quantity": 2, "price_cents": 890}])
            }),
            "stock mug: should be",
        ),
        (Falsify::State("none", |order| order["status"] = json!("confirmed")), "order none: has no card number that"),
        (
            Falsify::State("none", |order| order["written_off"]["reason"] = json!("no")),
            "order none: is written off for another",
        ),
        (
            Falsify::State("none", |order| order["written_off"]["letter"] = json!("m-1")),
            "order none: was a dead letter, but",
        ),
        (Falsify::State("none", |order| order["handled"].as_array_mut().unwrap().clear()), "order none: has handled 0"),
        (Falsify::Sql("DELETE FROM hapax_entity WHERE key = 'none'"), "order none: was never handled"),
        (
            Falsify::State("mend", |order| {
                order["written_off"] = json!({"order": "mend", "letter": "m-1", "reason": "no"});
            }),
            "order mend: is written off, but its card number could be mended",
        ),
        (
            Falsify::State("gone", |order| order["given"] = json!(3)),
            "order gone: was given up before its last delivery",
        ),
        (Falsify::State("gone", |order| order["given"] = json!(null)), "order gone: was given up before its last"),
        (
            Falsify::State("gone", |order| {
                order["written_off"] = json!({"order": "gone", "letter": "m-1", "reason": "no"});
            }),
            "order gone: is written off, but its card number could be mended",
        ),
        (
            Falsify::State("good", |order| {
                order["written_off"] = json!({"order": "good", "letter": "m-1", "reason": "no"});
            }),
            "order good: is written off, but its card number is as it should be",
        ),
        (
            Falsify::State("actions", |record| actions(record).retain(|action| action["deed"] != "edited")),
            "order mend: was a dead letter, but that it was edited is not recorded",
        ),
        (
            Falsify::State("actions", |record| actions(record).retain(|action| action["deed"] != "retried")),
            "order mend: was a dead letter, but that it was retried is not recorded",
        ),
        (Falsify::Sql("DELETE FROM hapax_entity WHERE key = 'actions'"), "that it was discarded is not recorded"),
        (
            Falsify::State("actions", |record| {
                let mut more = actions(record)[0].clone();
                more["messages"] = json!(["m-1"]);
                actions(record).push(more);
            }),
            "message m-1: was ",
        ),
        (Falsify::State("actions", |record| actions(record)[0]["by"] = json!("mallory")), "dead letters: mallory has "),
        (
            Falsify::Sql(
                "INSERT INTO hapax_dead_letter \
                 (endpoint, message_id, saga, destination, fingerprint, attempts, time, reason, envelope) \
                 VALUES ('hapax.held/shop', 'm-1', 'order', '', x'00', 1, 1, 'no', x'00')",
            ),
            "message m-1: is a dead letter of order: no",
        ),
    ];
    for (number, (falsify, expected)) in falsifications.into_iter().enumerate() {
        let copy = folder.path(&format!("falsified-{number}.db"));
        fs::copy(&honest, &copy).unwrap();
        let mut file = open(&copy).await;
        match falsify {
            Falsify::Sql(sql) => {
                let done = sqlx::query(AssertSqlSafe(sql)).execute(&mut file).await.unwrap();
                assert!(done.rows_affected() > 0, "{sql} changed nothing");
            }
            Falsify::State(key, change) => edit(&mut file, key, change).await,
        }
        file.close().await.unwrap();
        let findings = books::check(&Database::file(Path::new(&copy)), &input).await.unwrap().findings;
        let said: Vec<_> = findings.iter().map(ToString::to_string).collect();
        assert!(said.iter().any(|said| said.contains(expected)), "{expected:?} was not noticed in {said:#?}");
    }
}

#[tokio::test]
async fn every_letter_is_dealt_with_when_every_pass_may_crash_and_every_message_come_twice() {
    let folder = Folder::new("letters");
    let path = numbered(&folder);
    let report = run(&["--input", &path, "--duplicates", "1", "--crashes", "1", "--seed", "3"]).await;
    let Books { written_off, mended, given_up, .. } = *report.books();
    assert!(report.is_balanced(), "{report}");
    assert_eq!((written_off, mended, given_up), (1, 2, 1), "{report}");
    let said = report.to_string();
    let rows = ["dead letters", "at once", "given up", "mended", "discarded", "written off"];
    assert_eq!(rows.map(|name| number(&said, name)), [3, 2, 1, 2, 1, 1], "{said}");
}

#[tokio::test]
async fn calls_that_the_card_company_declines_are_made_again_by_rule_and_each_order_is_charged_once() {
    let report = run(&["--orders", "200", "--seed", "1"]).await;
    assert!(report.is_balanced(), "{report}");
    assert!(report.declined() > 0, "{report}");
    // Where a pass is dropped after the call, nobody is told of the failure; most are not.
    assert!(2 * report.failed() > report.declined(), "{report}");
    assert!(number(&report.to_string(), "failed and tried again") > 0, "{report}");
}

/// A timeout that rings, retries in place and later, letters at once and after the last delivery: all of it is in the report of the orders that
/// come with the example.
#[tokio::test]
async fn timeouts_retries_of_both_kinds_and_dead_letters_of_both_kinds_are_in_the_report() {
    let report = run(&["--orders", "300", "--seed", "4", "--crashes", "0"]).await;
    assert!(report.is_balanced(), "{report}");
    let said = report.to_string();
    let rows = ["payment overdue", "timeouts cancelled", "tried again at once", "failed and tried again"];
    for row in rows.into_iter().chain(["at once", "given up", "mended", "discarded"]) {
        assert!(number(&said, row) > 0, "{row}: {said}");
    }
    // Nothing else fails in place, and what is garbled twice is asked for twice.
    assert!(report.garbled() > 0 && report.tried_at_once() == report.garbled(), "{report}");
    assert_eq!(report.books().given_up, 3, "{report}");
}

/// The value of a counter, over all its labels.
fn total(metrics: &str, name: &str) -> u64 {
    let values = metrics.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{')?.rsplit_once(' '));
    values.map(|(_, value)| value.parse::<u64>().unwrap()).sum()
}

#[tokio::test]
async fn what_opentelemetry_has_counted_is_what_is_in_the_books() {
    let folder = Folder::new("letters");
    let metrics = folder.path("metrics.txt");
    let report = run(&[&["--orders", "120", "--seed", "2", "--metrics", &metrics], &QUIET[..]].concat()).await;
    let books = report.books();
    assert!(report.is_balanced(), "{report}");
    let text = fs::read_to_string(&metrics).unwrap();
    assert_eq!(total(&text, "hapax_handled_total"), report.handled(), "{text}");
    assert_eq!(report.handled(), books.handled as u64, "{report}");
    assert_eq!(total(&text, "hapax_dead_letters_total"), report.dead_lettered(), "{text}");
    // On a machine that is very busy leases run out: copies of one message are one letter.
    assert!(report.dead_lettered() >= (books.mended + books.written_off) as u64, "{report}");
    assert_eq!(total(&text, "hapax_duplicates_total"), report.duplicates_dropped(), "{text}");
    let retried = text.lines().filter(|line| line.starts_with("messaging_process_duration_seconds_count{"));
    let retried = retried.filter(|line| line.contains("hapax_outcome=\"retried\""));
    let retried: u64 = retried.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum();
    assert_eq!(retried, report.failed(), "{text}");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(name.starts_with("hapax_") || name.starts_with("messaging_"), "{line}");
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
}

#[tokio::test]
async fn metrics_go_behind_the_report_on_request_and_a_file_that_cannot_be_written_is_refused() {
    let report = run(&["--orders", "5", "--metrics", "-"]).await.to_string();
    let (report, metrics) = report.split_once("\n\n").unwrap();
    assert!(report.ends_with("every order charged exactly once"), "{report}");
    assert!(metrics.contains("# TYPE hapax_handled_total counter\n"), "{metrics}");
    let options = Options::try_parse_from(["orders", "--orders", "5", "--metrics", "/nowhere/at/all"]).unwrap();
    let said = orders::run(&options).await.unwrap_err().to_string();
    assert!(said.contains("/nowhere/at/all cannot be written") && said.contains("name another file"), "{said}");
}

#[tokio::test]
async fn a_run_that_is_refused_leaves_the_file_of_the_measurements_as_it_was() {
    let folder = Folder::new("letters");
    let (old, new) = (folder.path("old.txt"), folder.path("new.txt"));
    fs::write(&old, "of an earlier run").unwrap();
    let nowhere = folder.path("no-folder/orders.db");
    for metrics in [&old, &new] {
        let arguments = ["orders", "--orders", "5", "--store", &nowhere, "--metrics", metrics];
        orders::run(&Options::try_parse_from(arguments).unwrap()).await.unwrap_err();
    }
    assert_eq!(fs::read_to_string(&old).unwrap(), "of an earlier run");
    assert!(!fs::exists(&new).unwrap());
    run(&["--orders", "5", "--metrics", &old]).await;
    assert!(fs::read_to_string(&old).unwrap().starts_with("# HELP "));
}
