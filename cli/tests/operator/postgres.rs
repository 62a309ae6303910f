//! The same on PostgreSQL, where `HAPAX_TEST_POSTGRES` names a server.

use std::{sync::Arc, time::Duration};

use hapax::{
    Postgres, PostgresQueue,
    ids::EndpointName,
    ports::{DeadLetters, EntityStore, Page},
};
use sqlx::AssertSqlSafe;

use crate::rig::{AddItem, builder, hapax, json, said, text, until};

#[tokio::test(flavor = "multi_thread")]
async fn the_operators_day_on_postgres() {
    let Ok(url) = std::env::var("HAPAX_TEST_POSTGRES") else {
        eprintln!("SKIPPED: HAPAX_TEST_POSTGRES names no server: set it to postgres://USER@HOST:PORT/DATABASE");
        return;
    };
    let schema = format!("cli_{}", std::process::id());
    let store = ["--store", &url, "--schema", &schema];
    let ask = |args: &[&str], code: i32| json(&[args, &store, &["--json"]].concat(), code);

    let before = hapax(&[&["status"][..], &store].concat());
    assert!(before.status.code() == Some(1) && said(&before).contains("hapax migrate"), "{before:?}");
    ask(&["migrate", "--outbox", "--queues", "--yes"], 0);
    run(&url, &schema).await;

    let status = ask(&["status"], 0);
    let shop = &status["endpoints"][0];
    assert_eq!((&shop["endpoint"], &shop["dead_letters"]["number"]), (&"shop".into(), &1.into()));
    assert_eq!(status["dedup"]["entries"]["number"], 1);
    assert_eq!(shop["queue"]["messages"]["number"], 0);
    assert_eq!(status["outboxes"][0]["waiting"], 0);
    let good = ask(&["message", "good-1"], 0);
    assert_eq!((&good["handled"][0]["key"], &good["handled"][0]["remembered"]), (&"7".into(), &true.into()));
    assert_eq!(ask(&["message", "bad-1"], 0)["dead_letters"][0]["saga"], "order");
    assert_eq!(ask(&["outbox", "list"], 0)["rows"], serde_json::json!([]));
    assert_eq!(ask(&["audit", "--every", "1ms"], 0)["violations"], 0);
    assert_eq!(ask(&["doctor"], 0)["errors"], 0);
    let retried = ask(&["dead-letters", "retry", "bad-1", "--yes"], 0);
    assert_eq!((&retried["done"], &retried["left"]), (&1.into(), &0.into()));
    let queued = ask(&["message", "bad-1"], 0);
    assert_eq!((&queued["queued"][0]["attempts"], &queued["queued"][0]["leased"]), (&0.into(), &false.into()));
    assert_eq!(ask(&["sweep", "--older-than", "0s", "--yes"], 0)["failed"], 0);
    assert!(text(&hapax(&[&["status"][..], &store].concat())).contains("endpoint shop"));

    let pool = sqlx::PgPool::connect(&url).await.unwrap();
    sqlx::query(AssertSqlSafe(format!("DROP SCHEMA {schema} CASCADE"))).execute(&pool).await.unwrap();
}

/// `good-1` is handled and what it sends is in the queue of `stock`; `bad-1` is a dead letter.
async fn run(url: &str, schema: &str) {
    let store = Postgres::options(url).schema(schema).open().await.unwrap();
    let queue = PostgresQueue::on(&store).await.unwrap();
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
}
