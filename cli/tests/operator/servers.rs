//! The same on database servers, where `HAPAX_TEST_POSTGRES` and `HAPAX_TEST_MYSQL` name them.

use std::{sync::Arc, time::Duration};

use hapax::{
    MySql, MySqlQueue, Postgres, PostgresOutbox, PostgresQueue,
    ids::EndpointName,
    ports::{DeadLetters, EntityStore, Page},
    stores::mysql::outbox::MySqlOutbox,
};
use serde_json::Value;
use sqlx::AssertSqlSafe;

use crate::rig::{AddItem, ItemAdded, builder, hapax, json, said, text, until};

/// Who makes the tables, or looks at them, has not decided for the program whether they keep order.
pub(crate) const DECIDED: &str = "the command has decided that the outbox keeps no order";

/// `good-1` is handled and what it sends is in the queue of `stock`; `bad-1` is a dead letter.
macro_rules! shop_that_ran {
    ($store:expr, $queue:expr) => {{
        let (store, queue) = ($store, $queue);
        let shop = builder(store.clone(), queue.clone()).start().await.unwrap();
        let running = tokio::spawn(shop.run_until(std::future::pending::<()>()));
        for (id, item) in [("good-1", "tea"), ("bad-1", "bad"), ("good-1", "tea")] {
            let add = AddItem { order: "7".to_owned(), item: item.to_owned() };
            queue.sender().send_as(id.parse().unwrap(), "shop", &add).await.unwrap();
        }
        let (shop, stock) = ("shop".parse::<EndpointName>().unwrap(), "stock".parse::<EndpointName>().unwrap());
        let settled = || async {
            let letters = store.list(&shop, &Page::first(10)).await.unwrap().len();
            (letters, queue.backlog(&shop).await.unwrap(), queue.backlog(&stock).await.unwrap()) == (1, 0, 1)
        };
        until("the shop has handled all", settled).await;
        let scope = Arc::new(hapax::ids::Scope { endpoint: shop.clone(), saga: "order".parse().unwrap() });
        let clean = || async { store.pending(&scope, Duration::ZERO, None, 10).await.unwrap().is_empty() };
        until("it is cleaned up", clean).await;
        running.abort();
        let _ = running.await;
        queue.close().await;
        store.close().await;
    }};
}

fn server(variable: &str, is_built: bool) -> Option<String> {
    let url = std::env::var(variable).ok().filter(|_| is_built);
    if url.is_none() {
        eprintln!("SKIPPED: {variable} names no server, or the program was built without it: set it to its URL");
    }
    url
}

fn ask(place: &[&str], args: &[&str], code: i32) -> Value {
    json(&[args, place, &["--json"]].concat(), code)
}

/// Before there is anything.
fn makes_the_tables(place: &[&str]) {
    let before = hapax(&[&["status"][..], place].concat());
    assert!(before.status.code() == Some(1) && said(&before).contains("hapax migrate"), "{before:?}");
    for state in ["made", "found"] {
        let told = ask(place, &["migrate", "--outbox", "--queues", "--yes"], 0);
        let tables = told["tables"].as_array().unwrap();
        let is_told = |table: &Value| table["state"] == state && !table["names"].as_array().unwrap().is_empty();
        assert!(tables.len() == 3 && tables.iter().all(is_told), "{state}: {told}");
    }
    ask(place, &["status"], 0);
}

/// What an operator sees of the shop, and does.
fn looks_after_the_shop(place: &[&str]) {
    let status = ask(place, &["status"], 0);
    let shop = &status["endpoints"][0];
    assert_eq!((&shop["endpoint"], &shop["dead_letters"]["number"]), (&"shop".into(), &1.into()));
    assert_eq!(status["dedup"]["entries"]["number"], 1);
    assert_eq!((&shop["queue"]["messages"]["number"], &shop["schedule"]["messages"]["number"]), (&0.into(), &0.into()));
    assert_eq!(status["outboxes"][0]["waiting"], 0);
    let good = ask(place, &["message", "good-1"], 0);
    assert_eq!((&good["handled"][0]["key"], &good["handled"][0]["remembered"]), (&"7".into(), &true.into()));
    assert_eq!(ask(place, &["message", "bad-1"], 0)["dead_letters"][0]["saga"], "order");
    assert_eq!(ask(place, &["outbox", "list"], 0)["rows"], serde_json::json!([]));
    let id = "01a22852-1004-7128-825b-d48b34de7053";
    assert_eq!(ask(place, &["message", id], 1)["outbox_rows"], serde_json::json!([]));
    for status in ["waits", "sent", "failed", "expired"] {
        assert_eq!(ask(place, &["outbox", "list", "--status", status], 0)["rows"], serde_json::json!([]));
    }
    assert_eq!(ask(place, &["audit", "--every", "1ms"], 0)["violations"], 0);
    assert_eq!(ask(place, &["doctor"], 0)["errors"], 0);
    let retried = ask(place, &["dead-letters", "retry", "bad-1", "--yes"], 0);
    assert_eq!((&retried["done"], &retried["left"]), (&1.into(), &0.into()));
    let queued = ask(place, &["message", "bad-1"], 0);
    assert_eq!((&queued["queued"][0]["attempts"], &queued["queued"][0]["leased"]), (&0.into(), &false.into()));
    let shop = &ask(place, &["status"], 0)["endpoints"][0];
    assert_eq!((&shop["queue"]["messages"]["number"], &shop["queue"]["leased"]["number"]), (&1.into(), &0.into()));
    assert_eq!(ask(place, &["sweep", "--older-than", "0s", "--yes"], 0)["failed"], 0);
    assert_eq!(ask(place, &["outbox", "purge", "--yes"], 0)[0]["rows"], 0);
    assert!(text(&hapax(&[&["status"][..], place].concat())).contains("endpoint shop"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operators_day_on_postgres() {
    let Some(url) = server("HAPAX_TEST_POSTGRES", cfg!(feature = "postgres")) else { return };
    let schema = format!("cli_{}", std::process::id());
    let place = ["--store", &url, "--schema", &schema];
    makes_the_tables(&place);
    let database = Postgres::options(&url).schema(&schema);
    PostgresOutbox::options().ordered_keys(true).open_database(database.clone()).await.expect(DECIDED);
    let store = database.open().await.unwrap();
    shop_that_ran!(store.clone(), PostgresQueue::on(&store).await.unwrap());
    looks_after_the_shop(&place);
    let pool = sqlx::PgPool::connect(&url).await.unwrap();
    sqlx::query(AssertSqlSafe(format!("DROP SCHEMA {schema} CASCADE"))).execute(&pool).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outbox_that_debezium_sends_is_looked_at_and_brought_up_to_date() {
    let Some(url) = server("HAPAX_TEST_POSTGRES", cfg!(feature = "postgres")) else { return };
    let schema = format!("cli_debezium_{}", std::process::id());
    let place = ["--store", &url, "--schema", &schema];
    ask(&place, &["migrate", "--outbox", "--yes"], 0);
    let database = Postgres::options(&url).schema(&schema);
    let outbox = PostgresOutbox::options().debezium(true).open_database(database).await.unwrap();
    let pool = sqlx::PgPool::connect(&url).await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    let message = outbox.outgoing(&ItemAdded { order: "7".to_owned() }).unwrap();
    let ticket = outbox.enqueue_all(&mut tx, &[message]).await.unwrap();
    outbox.commit(tx, ticket).await.unwrap();
    assert_eq!(ask(&place, &["status"], 0)["outboxes"][0]["waiting"], 1);
    let found = ask(&place, &["doctor"], 0);
    assert_eq!(found["errors"], 0, "a relay is asked for, which would be refused: {found}");
    assert!(found["findings"].to_string().contains("Debezium sends"), "{found}");
    ask(&place, &["migrate", "--outbox", "--yes"], 0);
    sqlx::query(AssertSqlSafe(format!("DROP SCHEMA {schema} CASCADE"))).execute(&pool).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operators_day_on_mariadb() {
    let Some(url) = server("HAPAX_TEST_MYSQL", cfg!(feature = "mysql")) else { return };
    let prefix = format!("cli_{}_", std::process::id());
    let place = ["--store", &url, "--table-prefix", &prefix];
    makes_the_tables(&place);
    let database = MySql::options(&url).table_prefix(&prefix);
    MySqlOutbox::options().ordered_keys(true).open_database(database.clone()).await.expect(DECIDED);
    let store = database.open().await.unwrap();
    shop_that_ran!(store.clone(), MySqlQueue::on(&store).await.unwrap());
    looks_after_the_shop(&place);
    let pool = sqlx::MySqlPool::connect(&url).await.unwrap();
    let listed = "SELECT CAST(table_name AS CHAR) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name LIKE ?";
    let tables: Vec<(String,)> = sqlx::query_as(listed).bind(format!("{prefix}%")).fetch_all(&pool).await.unwrap();
    for (table,) in tables {
        sqlx::query(AssertSqlSafe(format!("DROP TABLE `{table}`"))).execute(&pool).await.unwrap();
    }
}
