//! The books of DynamoDB are made by its client library alone: a store that was asked for its own could be wrong about them, too.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use hapax::codec::FRAME_BYTES;
use hapax_tests::DynamoDbTable;

use crate::kills::{Books, Place, everywhere};

type Item = HashMap<String, AttributeValue>;

fn place() -> Place {
    let table = DynamoDbTable::new();
    Place { service: format!("dynamodb {}", table.url()), name: table.name().to_owned() }
}

/// Made by the client library alone.
async fn books(place: &Place) -> Books {
    let table = DynamoDbTable::named(place.service.trim_start_matches("dynamodb "), &place.name);
    let mut pages =
        table.client().scan().table_name(table.name()).consistent_read(true).into_paginator().items().send();
    let mut items: Vec<Item> = Vec::new();
    while let Some(item) = pages.next().await {
        items.push(item.unwrap());
    }
    let of = |prefix: &str| {
        let is_of = |item: &&Item| item["pk"].as_s().unwrap().starts_with(prefix);
        items.iter().filter(is_of).collect::<Vec<_>>()
    };
    let handled = |saga: &str| {
        let entities = of(&format!("e#crashed#{saga}#"));
        let handled = entities.into_iter().flat_map(|item| {
            let state = item["s"].as_b().unwrap().as_ref();
            let state: serde_json::Value = serde_json::from_slice(&state[FRAME_BYTES..]).unwrap();
            serde_json::from_value::<Vec<String>>(state["handled"].clone()).unwrap()
        });
        handled.collect()
    };
    Books {
        steps: handled("tally"),
        notes: handled("notes"),
        dedup_entries: of("d#").len(),
        pending: items.iter().filter(|item| item.contains_key("ipk")).count(),
        dead_letters: of("l#").len(),
    }
}

#[tokio::test]
async fn a_second_process_on_dynamodb_makes_good_what_a_first_left_at_any_call() {
    everywhere("work", &["receive", "load", "save", "dispatch", "finish", "settle"], place, books).await;
}

#[tokio::test]
async fn a_second_process_on_dynamodb_makes_good_what_a_first_left_at_any_step_of_its_own() {
    let calls = ["receive", "load", "contains", "save", "dispatch", "insert", "settle"];
    everywhere("work-in-two", &calls, place, books).await;
}
