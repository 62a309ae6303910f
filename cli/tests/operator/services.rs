//! The same on stores of clouds, which know an endpoint only when it is named, on the emulators that `HAPAX_TEST_DYNAMODB` and `HAPAX_TEST_COSMOS`
//! name. The queues are in a file.

use std::time::Duration;

use hapax::{
    SqliteQueue,
    ids::{EndpointName, Scope},
    ports::{DeadLetters, DedupStore, EntityStore, Page},
};
use serde_json::Value;

use crate::rig::{AddItem, Folder, builder, hapax, json, said, until};

/// The address of the emulator, as the tool takes it.
fn emulator(variable: &str) -> Option<String> {
    let url = std::env::var(variable).ok();
    if url.is_none() {
        eprintln!("SKIPPED: {variable} names no emulator: `cargo xtask test` starts one");
    }
    url.map(|url| url.trim_start_matches("http://").trim_end_matches('/').to_owned())
}

/// `good-1` is handled and what it sends is in the queue of `stock`; `bad-1` is a dead letter.
async fn shop_that_ran<S>(store: S, file: &str)
where
    S: EntityStore + DedupStore + DeadLetters + Clone + 'static,
{
    let queue = SqliteQueue::open(file).await.unwrap();
    let shop = builder(store.clone(), queue.clone()).start().await.unwrap();
    let running = tokio::spawn(shop.run_until(std::future::pending::<()>()));
    for (id, item) in [("good-1", "tea"), ("bad-1", "bad"), ("good-1", "tea")] {
        let add = AddItem { order: "7".to_owned(), item: item.to_owned() };
        queue.sender().send_as(id.parse().unwrap(), "shop", &add).await.unwrap();
    }
    let [shop, stock] = ["shop", "stock"].map(|name| name.parse::<EndpointName>().unwrap());
    let settled = || async {
        let letters = store.list(&shop, &Page::first(10)).await.unwrap().len();
        (letters, queue.backlog(&shop).await.unwrap(), queue.backlog(&stock).await.unwrap()) == (1, 0, 1)
    };
    until("the shop has handled all", settled).await;
    let scope = Scope { endpoint: shop.clone(), saga: "order".parse().unwrap() }.into();
    let clean = || async { store.pending(&scope, Duration::ZERO, None, 10).await.unwrap().is_empty() };
    until("it is cleaned up", clean).await;
    running.abort();
    let _ = running.await;
    queue.close().await;
}

/// Before there is anything.
fn makes_the_store(store: &str) {
    let before = hapax(&["status", "--store", store]);
    assert!(before.status.code() == Some(1) && said(&before).contains("hapax migrate"), "{before:?}");
    for state in ["made", "found"] {
        let told = json(&["migrate", "--yes", "--json", "--store", store], 0);
        assert_eq!((&told["tables"][0]["of"], &told["tables"][0]["state"]), (&"store".into(), &state.into()), "{told}");
    }
}

/// What an operator sees of the shop, and does, once it is named.
fn looks_after_the_shop(store: &str, file: &str) {
    let ask =
        |args: &[&str]| -> Value { json(&[args, &["--store", store, "--transport", file, "--json"]].concat(), 0) };
    let [endpoint, saga] = [["--endpoint", "shop"], ["--saga", "order"]];
    let named = |args: &[&str]| ask(&[args, &endpoint, &saga].concat());
    // Nobody was named, and nothing is taken for a zero.
    assert!(ask(&["status"])["endpoints"]["unknown"].is_string());
    let nobody = hapax(&["dead-letters", "list", "--store", store]);
    assert!(nobody.status.code() == Some(1) && said(&nobody).contains("--endpoint"), "{nobody:?}");

    let status = named(&["status"]);
    let shop = &status["endpoints"][0];
    assert_eq!((&shop["endpoint"], &shop["dead_letters"]["number"]), (&"shop".into(), &1.into()), "{status}");
    assert_eq!(shop["queue"]["messages"]["number"], 0, "{status}");
    assert_eq!(named(&["doctor"])["errors"], 0);
    let listed = ask(&["dead-letters", "list", "--endpoint", "shop"]);
    assert_eq!((&listed[0]["message"]["message_id"], &listed[0]["saga"]), (&"bad-1".into(), &"order".into()));
    let shown = ask(&["dead-letters", "show", "bad-1", "--endpoint", "shop"]);
    assert!(shown.to_string().contains("no such item"), "{shown}");
    let good = named(&["message", "good-1", "--key", "7"]);
    assert_eq!((&good["handled"][0]["key"], &good["handled"][0]["remembered"]), (&"7".into(), &true.into()), "{good}");
    let audit = named(&["audit", "--every", "1ms"]);
    assert_eq!(audit["violations"], 0, "{audit}");
    let retried = ask(&["dead-letters", "retry", "bad-1", "--yes", "--endpoint", "shop"]);
    assert_eq!((&retried["done"], &retried["left"]), (&1.into(), &0.into()), "{retried}");
    assert_eq!(named(&["status"])["endpoints"][0]["queue"]["messages"]["number"], 1);
    assert_eq!(ask(&["dead-letters", "list", "--endpoint", "shop"]), serde_json::json!([]));
    assert_eq!(named(&["sweep", "--older-than", "0s", "--yes"])["failed"], 0);
}

#[cfg(feature = "dynamodb")]
#[tokio::test(flavor = "multi_thread")]
async fn the_operators_day_on_dynamodb() {
    let Some(host) = emulator("HAPAX_TEST_DYNAMODB") else { return };
    let (folder, table) = (Folder::new(), format!("cli-{}", std::process::id()));
    let store = format!("dynamodb://{host}/{table}");
    makes_the_store(&store);
    let client = hapax::DynamoDb::local_client(&format!("http://{host}"));
    shop_that_ran(hapax::DynamoDb::options(client, table).open().await.unwrap(), &folder.file()).await;
    looks_after_the_shop(&store, &folder.file());
}

#[cfg(feature = "cosmos")]
#[tokio::test(flavor = "multi_thread")]
async fn the_operators_day_on_cosmos() {
    use azure_core::credentials::Secret;
    use azure_data_cosmos::{AccountReference, CosmosClient, RoutingStrategy, options::Region};

    let Some(host) = emulator("HAPAX_TEST_COSMOS") else { return };
    let (folder, database) = (Folder::new(), format!("cli-{}", std::process::id()));
    let store = format!("cosmos://{host}/{database}");
    makes_the_store(&store);
    let account =
        AccountReference::with_authentication_key(format!("http://{host}/").parse().unwrap(), Secret::new("aGFwYXg="));
    let client = CosmosClient::builder().build(account, RoutingStrategy::ProximityTo(Region::EAST_US)).await.unwrap();
    shop_that_ran(hapax::CosmosDb::options(client, database).open().await.unwrap(), &folder.file()).await;
    looks_after_the_shop(&store, &folder.file());
}
