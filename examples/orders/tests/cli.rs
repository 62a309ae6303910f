//! The edges of the example: what it refuses, what it sets aside, and whether its books balance, and do not when they
//! should not. Timeouts are real, so each run takes a second or three; every run has a folder of its own.
#![allow(clippy::unwrap_used)]

mod falsify;
mod program;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use clap::Parser;
use falsify::Falsify;
use orders::{
    Database, Options, Report,
    books::{self, Books},
    input::Input,
};
use program::program;
use serde_json::{Value, json};
use sqlx::{Connection, SqliteConnection, sqlite::SqliteConnectOptions};

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("hapax-orders-test-{}", uuid::Uuid::new_v4().simple()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn options(arguments: &[&str]) -> Options {
    Options::try_parse_from([&["orders"], arguments].concat()).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

async fn run(arguments: &[&str]) -> Report {
    orders::run(&options(arguments)).await.unwrap_or_else(|refusal| panic!("{arguments:?}: {refusal}"))
}

/// The one line with which a run is refused.
async fn refusal(arguments: &[&str]) -> String {
    let refusal = orders::run(&options(arguments)).await.unwrap_err();
    assert_eq!(refusal.exit_code(), 2);
    let said = refusal.to_string();
    assert!(!said.contains('\n'), "{said}");
    said
}

fn order(id: &str, card: &str, article: &str) -> String {
    let lines = json!([{"article": article, "quantity": 2, "price_cents": 890}]);
    json!({"order": id, "customer": "Zoë", "card": card, "lines": lines}).to_string()
}

/// One order for each story.
fn every_story() -> String {
    let mut lines = vec![json!({"stock": "mug", "quantity": 100}).to_string()];
    for card in ["good", "refused", "slow", "silent", "lost"] {
        lines.push(order(card, card, "mug"));
    }
    lines.push(order("none", "good", "samovar"));
    lines.join("\n")
}

#[tokio::test]
async fn the_books_balance_under_faults_of_any_seed() {
    let mut dropped = 0;
    for seed in ["1", "2", "3"] {
        let report = run(&["--orders", "60", "--duplicates", "0.5", "--crashes", "0.5", "--seed", seed]).await;
        assert!(report.is_balanced(), "seed {seed}: {report}");
        assert!(report.duplicates_dropped() > 0, "seed {seed}: {report}");
        dropped += report.passes_dropped();
    }
    assert!(dropped > 0);
}

#[tokio::test]
async fn a_quiet_run_drops_no_pass_and_ends_every_story_as_its_card_demands() {
    let folder = Folder::new();
    let input = folder.file("stories.jsonl", every_story());
    let report = run(&["--input", text(&input), "--duplicates", "0", "--crashes", "0"]).await;
    let Books { confirmed, out_of_stock, card_refused, overdue, .. } = *report.books();
    assert!(report.is_balanced(), "{report}");
    assert_eq!(confirmed + card_refused + overdue, 5, "{report}");
    assert_eq!(out_of_stock, 1, "{report}");
    assert!(overdue >= 2, "silent and lost: {report}");
    assert_eq!(report.passes_dropped(), 0);
}

#[tokio::test]
async fn every_pass_may_crash_and_every_message_come_twice() {
    let folder = Folder::new();
    let input = folder.file("stories.jsonl", every_story());
    let report = run(&["--input", text(&input), "--duplicates", "1", "--crashes", "1", "--seed", "7"]).await;
    assert!(report.is_balanced(), "{report}");
}

#[tokio::test]
async fn bad_lines_are_kept_beside_the_input_and_the_rest_goes_on() {
    let folder = Folder::new();
    let good = every_story();
    let mut lines = b"not json\n{\"order\":\"\xff\"}\n".to_vec();
    lines.extend(good.as_bytes());
    lines.extend(format!("\n{}\n", order("good", "good", "mug")).as_bytes());
    let input = folder.file("mixed.jsonl", lines);
    let report = run(&["--input", text(&input), "--seed", "1"]).await;
    assert!(report.is_balanced(), "{report}");
    let kept = fs::read_to_string(folder.0.join("mixed.rejects.jsonl")).unwrap();
    let kept: Vec<Value> = kept.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let numbers: Vec<_> = kept.iter().map(|reject| reject["line"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [1, 2, 3 + good.lines().count() as u64]);
    assert_eq!(kept[0]["text"], "not json");
    assert!(kept[2]["reason"].as_str().unwrap().contains("again"));
}

#[tokio::test]
async fn an_input_without_an_order_is_refused() {
    let folder = Folder::new();
    for (name, content) in [("empty", ""), ("blank", "\n\r\n"), ("stock", r#"{"stock":"mug","quantity":1}"#)] {
        let input = folder.file(name, content);
        let said = refusal(&["--input", text(&input)]).await;
        assert!(said.contains("there is no order in"), "{name}: {said}");
    }
}

#[tokio::test]
async fn an_input_that_cannot_be_read_is_refused() {
    let folder = Folder::new();
    for input in [&folder.0, &folder.0.join("nowhere.jsonl")] {
        let said = refusal(&["--input", text(input)]).await;
        assert!(said.contains("cannot read") && said.contains("name a file of orders"), "{said}");
    }
}

#[tokio::test]
async fn a_store_that_is_no_file_of_ours_is_refused() {
    let folder = Folder::new();
    let read_only = folder.file("read-only.db", "");
    fs::set_permissions(&read_only, readonly(&read_only)).unwrap();
    let notes = folder.file("notes.txt", "not a database, but long enough to be taken for one if nobody looked at it");
    let foreign = folder.0.join("foreign.db");
    let mut file = open(&foreign).await;
    sqlx::query("CREATE TABLE invoices (id INTEGER)").execute(&mut file).await.unwrap();
    file.close().await.unwrap();
    let before = fs::read(&foreign).unwrap();
    for (store, expected) in [
        (&folder.0, "is a directory"),
        (&folder.0.join("nowhere/orders.db"), "folder that does not exist"),
        (&read_only, "is read-only"),
        (&notes, "is not a database"),
        (&foreign, "belongs to another program (it has invoices)"),
    ] {
        let said = refusal(&["--orders", "1", "--store", text(store)]).await;
        assert!(said.contains(expected) && said.contains(text(store)), "{said}");
    }
    assert_eq!(fs::read(&foreign).unwrap(), before);
}

#[tokio::test]
async fn a_pooler_is_refused_but_before_a_postgres_server() {
    for store in [&[][..], &["--store", "orders.db"], &["--store", "postgres:"], &["--store", "mysql://root@db/shop"]] {
        let said = refusal(&[&["--orders", "1", "--pooler", "postgres://shop@db:6432/shop"], store].concat()).await;
        assert!(said.contains("--pooler stands before a PostgreSQL server"), "{store:?}: {said}");
    }
}

/// A slip in a scheme would else be a file of that name, and the server that was meant would never be asked.
#[tokio::test]
async fn a_store_of_a_kind_that_is_not_known_is_refused_with_the_kinds_that_are() {
    for store in ["mysqlx:foo", "mysqlx://shop:secret@db/shop", "postgress:", "MYSQL:", "redis://db", "lite:orders.db"]
    {
        let said = refusal(&["--orders", "1", "--store", store]).await;
        let scheme = store.split_once(':').unwrap().0;
        assert!(said.contains(&format!("{scheme}: is not supported")) && !said.contains("secret"), "{said}");
        for known in ["sqlite:", "postgres:", "postgresql:", "mysql:", "mariadb:", &format!("./{scheme}:")] {
            assert!(said.contains(known), "{known}: {said}");
        }
        assert!(!Path::new(store).exists(), "{store}");
    }
    // A path may have any name.
    let folder = Folder::new();
    let report = run(&["--orders", "3", "--store", text(&folder.0.join("mysqlx:foo"))]).await;
    assert!(report.is_balanced(), "{report}");
    assert!(folder.0.join("mysqlx:foo").exists());
}

fn readonly(path: &Path) -> fs::Permissions {
    let mut permissions = fs::metadata(path).unwrap().permissions();
    permissions.set_readonly(true);
    permissions
}

#[tokio::test]
async fn a_database_that_holds_an_earlier_run_is_refused() {
    let folder = Folder::new();
    let store = format!("sqlite:{}", text(&folder.0.join("shop.db")));
    assert!(run(&["--orders", "5", "--store", &store]).await.is_balanced());
    let said = refusal(&["--orders", "5", "--store", &store]).await;
    assert!(said.contains("holds an earlier run; remove it or name another file"), "{said}");
}

async fn open(path: &Path) -> SqliteConnection {
    SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(path).create_if_missing(true)).await.unwrap()
}

fn one_more(value: &mut Value) {
    *value = json!(value.as_u64().unwrap().wrapping_add(1));
}

/// A database whose books balance, in which every card had the effect it is named for. On a machine that is very busy even
/// a good card may be overdue; so there are several tries.
async fn honest(folder: &Folder, input: &Path) -> PathBuf {
    const TRIES: u32 = 5;
    for number in 0..TRIES {
        let database = folder.0.join(format!("honest-{number}.db"));
        let quiet = ["--duplicates", "0", "--crashes", "0"];
        let report = run(&[&["--input", text(input), "--store", text(&database)], &quiet[..]].concat()).await;
        assert!(report.is_balanced(), "{report}");
        if report.books().confirmed == 1 && report.books().card_refused == 1 && report.books().refunds == 2 {
            return database;
        }
    }
    panic!("the machine is too busy: {TRIES} runs had payments overdue that should not be");
}

#[tokio::test]
async fn the_books_notice_every_falsification() {
    let folder = Folder::new();
    let path = folder.file("stories.jsonl", every_story());
    let honest = honest(&folder, &path).await;
    let input = Input::read(&path, None).unwrap();

    let sql = |text: &'static str| Falsify::Sql(text);
    let state = |saga, key, change: fn(&mut Value)| Falsify::State(saga, key, change);
    let falsifications = [
        (sql("DELETE FROM orders_card_ledger WHERE order_id = 'good'"), "order good: is Confirmed and was charged 0"),
        (
            sql("INSERT INTO orders_card_ledger SELECT 'x' || key, order_id, cents, answer, refunded, 0 \
                 FROM orders_card_ledger WHERE order_id = 'good'"),
            "order good: is Confirmed and was charged 2 times",
        ),
        (
            sql("INSERT INTO orders_card_ledger SELECT 'x' || key, order_id, cents, 'refused', 0, 0 \
                 FROM orders_card_ledger WHERE order_id = 'good'"),
            "order good: is in the ledger under",
        ),
        (
            sql("UPDATE orders_card_ledger SET cents = cents + 1 WHERE order_id = 'good'"),
            "order good: costs 1780 cents",
        ),
        (sql("UPDATE orders_card_ledger SET refunded = 1 WHERE order_id = 'good'"), "order good: is Confirmed"),
        (sql("UPDATE orders_card_ledger SET refunded = 0 WHERE order_id = 'lost'"), "order lost: is PaymentOverdue"),
        (sql("UPDATE orders_card_ledger SET answer = 'charged' WHERE order_id = 'refused'"), "order refused: is Card"),
        (
            sql("UPDATE orders_card_ledger SET key = 'x' WHERE order_id = 'silent'"),
            "order silent: is in the ledger under",
        ),
        (
            sql("INSERT INTO orders_card_ledger VALUES ('k', 'ghost', 1, 'charged', 0, 0)"),
            "order ghost: was never placed",
        ),
        (sql("DELETE FROM hapax_entity WHERE key = 'good'"), "order good: was never handled"),
        (sql("DELETE FROM hapax_entity WHERE key = 'mug'"), "stock mug: has no saga"),
        (sql("UPDATE hapax_entity SET key = 'ghost' WHERE key = 'none'"), "order ghost: was never placed"),
        (sql("UPDATE hapax_entity SET state = x'0101' WHERE key = 'good'"), "order good: has a state that cannot"),
        (sql("UPDATE hapax_entity SET outbox = x'00' WHERE key = 'good'"), "order good: has an outbox that cannot"),
        (sql("UPDATE hapax_entity SET completed = 1 WHERE key = 'mug'"), "stock mug: does not belong here"),
        (Falsify::Outbox, "order good: has 1 outbox entries that nobody has finished"),
        (sql("DELETE FROM hapax_dedup WHERE key = (SELECT min(key) FROM hapax_dedup)"), "dedup entries, but there are"),
        (
            sql("INSERT INTO hapax_dedup SELECT generation, randomblob(24), attempt, fingerprint, time, reply \
                 FROM hapax_dedup LIMIT 1"),
            "dedup entries, but there are",
        ),
        (sql("UPDATE hapax_dedup SET key = randomblob(24)"), "but has no dedup entry"),
        (
            sql("INSERT INTO hapax_dead_letter \
                 (endpoint, message_id, saga, destination, fingerprint, attempts, time, reason, envelope) \
                 VALUES ('shop', 'm-1', 'order', '', x'00', 1, 1, 'no', x'00')"),
            "message m-1: is a dead letter of order: no",
        ),
        (state("stock", "mug", |stock| one_more(&mut stock["sold"])), "stock mug: should be"),
        (state("stock", "mug", |stock| one_more(&mut stock["reserved"])), "stock mug: should be"),
        (state("stock", "mug", |stock| one_more(&mut stock["tally"]["sum"])), "stock mug: should be"),
        (state("stock", "mug", |stock| one_more(&mut stock["tally"]["steps"])), "the sagas have handled"),
        (state("order", "good", |order| order["status"] = json!("paying")), "order good: came to no end"),
        (state("order", "good", |order| order["status"] = json!("payment-overdue")), "order good: is PaymentOverdue"),
        (state("order", "silent", |order| order["status"] = json!("confirmed")), "which a Silent card does not allow"),
        (state("order", "good", |order| order["card"] = json!("slow")), "order good: is not what was ordered"),
        (
            state("order", "good", |order| {
                let first = order["handled"][0].clone();
                order["handled"].as_array_mut().unwrap().push(first);
            }),
            "was handled more than once",
        ),
        (
            state("order", "good", |order| drop(order["handled"].as_array_mut().unwrap().pop())),
            "order good: has handled 2 messages, its story has 3",
        ),
        (state("payment", "lost", |payment| payment["cancelled"] = json!(false)), "order lost: is PaymentOverdue, but"),
        (state("payment", "good", |payment| payment["handled"] = json!([])), "payment that has handled 0 messages"),
    ];
    for (number, (falsify, expected)) in falsifications.into_iter().enumerate() {
        let copy = folder.0.join(format!("falsified-{number}.db"));
        fs::copy(&honest, &copy).unwrap();
        let mut file = open(&copy).await;
        falsify.apply(&mut file).await;
        file.close().await.unwrap();
        let findings = books::check(&Database::file(&copy), &input).await.unwrap().findings;
        let said: Vec<_> = findings.iter().map(ToString::to_string).collect();
        assert!(said.iter().any(|said| said.contains(expected)), "{expected:?} was not noticed in {said:#?}");
    }
}

#[test]
fn the_program_says_that_the_books_balance_and_exits_with_0() {
    let done = program().args(["--orders", "20", "--seed", "4"]).output().unwrap();
    let said = String::from_utf8(done.stdout).unwrap();
    assert!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
    assert!(said.ends_with("every order charged exactly once\n"), "{said}");
    assert!(done.stderr.is_empty(), "no progress bar where there is no terminal");
}

#[test]
fn the_program_refuses_in_one_line_and_exits_with_2() {
    for arguments in [&["--crashes", "2"][..], &["--input", "/nowhere/at/all"], &["--store", "memory:"]] {
        let done = program().args(arguments).output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(2), "{arguments:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
        assert!(done.stdout.is_empty());
    }
}

#[test]
fn the_program_reads_standard_input_and_keeps_its_bad_lines() {
    let mut child = program();
    let mut child = child.args(["--input", "-", "--seed", "5"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = {
        child = child.stderr(Stdio::piped());
        child.spawn().unwrap()
    };
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, format!("rubbish\n{}", every_story()).as_bytes()).unwrap();
    drop(stdin);
    let done = child.wait_with_output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.success(), "{said}");
    assert!(said.contains("line 1: is not a JSON object") && said.contains("1 bad line is kept in "), "{said}");
    let kept = said.split("kept in ").nth(1).unwrap().split(';').next().unwrap();
    assert_eq!(fs::read_to_string(kept).unwrap().lines().count(), 1);
    fs::remove_file(kept).unwrap();
}

#[test]
fn the_program_does_not_panic_when_nobody_reads_what_it_says() {
    let mut child = program().args(["--orders", "3"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
