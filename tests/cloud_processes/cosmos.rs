//! The books of Cosmos DB are made by its client library alone: a store that was asked for its own could be wrong about them, too.

use azure_data_cosmos::{FeedScope, Query};
use base64::{Engine, prelude::BASE64_STANDARD as BASE64};
use futures_util::TryStreamExt;
use hapax::{codec::FRAME_BYTES, stores::cosmos::Layout};
use hapax_tests::CosmosDatabase;
use serde_json::Value;

use crate::kills::{Books, Place, everywhere};

fn place() -> Place {
    let database = CosmosDatabase::new(Layout::Together);
    Place { service: format!("cosmos {}", database.url()), name: database.name().to_owned() }
}

/// Made by the client library alone.
async fn books(place: &Place, containers: &[&str]) -> Books {
    let url = place.service.trim_start_matches("cosmos ");
    let database = CosmosDatabase::named(url, &place.name, Layout::Together);
    let client = database.client().await;
    let mut documents: Vec<Value> = Vec::new();
    for name in containers {
        let container = client.database_client(place.name.clone()).container_client((*name).to_owned(), None).await;
        let (query, scope) = (Query::from("SELECT * FROM c".to_owned()), FeedScope::full_container());
        let pages = container.unwrap().query_items::<Value>(query, scope, None).await.unwrap().into_pages();
        let pages: Vec<_> = pages.try_collect().await.unwrap();
        documents.extend(pages.into_iter().flat_map(|page| page.into_items()));
    }
    let handled = |saga: &str| {
        let prefix = format!("crashed {saga} ");
        let is_of = |document: &&Value| {
            document["id"] == "entity" && document["pk"].as_str().is_some_and(|pk| pk.starts_with(&prefix))
        };
        let handled = documents.iter().filter(is_of).flat_map(|document| {
            let state = BASE64.decode(document["state"].as_str().unwrap()).unwrap();
            let state: Value = serde_json::from_slice(&state[FRAME_BYTES..]).unwrap();
            serde_json::from_value::<Vec<String>>(state["handled"].clone()).unwrap()
        });
        handled.collect()
    };
    let count = |field: &str| documents.iter().filter(|document| !document[field].is_null()).count();
    Books {
        steps: handled("tally"),
        notes: handled("notes"),
        dedup_entries: count("fingerprint"),
        pending: count("waits"),
        dead_letters: count("envelope"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_on_cosmos_makes_good_what_a_first_left_at_any_call() {
    let calls = ["receive", "load", "save", "dispatch", "finish", "settle"];
    everywhere("work", &calls, place, async |place| books(place, &["hapax"]).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_on_cosmos_makes_good_what_a_first_left_at_any_step_of_its_own() {
    let calls = ["receive", "load", "contains", "save", "dispatch", "insert", "settle"];
    everywhere("work-in-two", &calls, place, async |place| books(place, &["hapax", "hapax-dedup"]).await).await;
}
