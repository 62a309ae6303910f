//! Dead letters that people delete.

use aws_sdk_dynamodb::types::AttributeValue;
use hapax::{
    ids::EndpointName,
    ports::{DeadLetter, DeadLetters, ErrorKind, Page},
};
use hapax_tests::{
    LogLines,
    http_faults::{Fault, Gate},
    samples,
};

use crate::rig::{Rig, next};

fn letter() -> DeadLetter {
    samples::letter("shop".parse().unwrap(), "x")
}

async fn listed(rig: &Rig, letter: &DeadLetter) -> Vec<DeadLetter> {
    rig.plain.list(&letter.endpoint, &Page::first(10)).await.unwrap()
}

/// The items of a partition.
async fn items(rig: &Rig, partition: &str) -> Vec<String> {
    let client = rig.table.client();
    let query = client.query().table_name(rig.table.name()).consistent_read(true);
    let query = query.key_condition_expression("pk = :pk");
    let found = query.expression_attribute_values(":pk", AttributeValue::S(partition.into())).send().await.unwrap();
    found.items().iter().map(|item| item["sk"].as_s().unwrap().clone()).collect()
}

/// As a person does in the console.
async fn delete(rig: &Rig, partition: &str) {
    for order in items(rig, partition).await {
        let request = rig.table.client().delete_item().table_name(rig.table.name());
        let request = request.key("pk", AttributeValue::S(partition.into())).key("sk", AttributeValue::S(order));
        request.send().await.unwrap();
    }
}

#[tokio::test]
async fn a_letter_in_dynamodb_that_was_deleted_is_kept_again_when_its_message_fails_again() {
    let rig = Rig::new().await;
    let letter = letter();
    for _ in 0..2 {
        rig.store.add(&letter).await.unwrap();
        rig.store.add(&letter).await.unwrap();
        assert_eq!(listed(&rig, &letter).await, std::slice::from_ref(&letter));
        delete(&rig, "l#shop").await;
        assert_eq!(listed(&rig, &letter).await, []);
    }
    assert_eq!(items(&rig, "c#shop").await.len(), 1, "a cause is taken over");
    // Whoever deletes the cause alone gets the letter twice and loses none.
    rig.store.add(&letter).await.unwrap();
    delete(&rig, "c#shop").await;
    rig.store.add(&letter).await.unwrap();
    assert_eq!(listed(&rig, &letter).await, [letter.clone(), letter]);
}

#[tokio::test]
async fn a_letter_in_dynamodb_that_cannot_be_read_hides_no_other() {
    let rig = Rig::new().await;
    let endpoint: EndpointName = "shop".parse().unwrap();
    // One of them in chunks, which a person has tidied away.
    let letters = [500_000, 1, 1].map(|bytes| samples::letter(endpoint.clone(), vec![b'x'; bytes]));
    for letter in &letters {
        rig.plain.add(letter).await.unwrap();
    }
    let scan = rig.table.client().scan().table_name(rig.table.name()).send().await.unwrap();
    let chunk = scan.items().iter().find(|item| item["pk"].as_s().unwrap().starts_with("b#")).unwrap();
    let gone = rig.table.client().delete_item().table_name(rig.table.name());
    gone.key("pk", chunk["pk"].clone()).key("sk", chunk["sk"].clone()).send().await.unwrap();
    let logged = LogLines::here();
    assert_eq!(rig.plain.list(&endpoint, &Page::first(10)).await.unwrap(), letters[1..]);
    assert_eq!(logged.with("is left out").len(), 1);
    // Nor does a whole page: it has what is behind it.
    assert_eq!(rig.plain.list(&endpoint, &Page::first(1)).await.unwrap(), letters[1..2]);
    assert_eq!(logged.with("is left out").len(), 2);
    for page in [Page { skip: 3, ..Page::first(1) }, Page::first(0)] {
        assert_eq!(rig.plain.list(&endpoint, &page).await.unwrap(), [], "{page:?}");
    }
}

/// What the proxy tells or does: see [`Rig::proxy`](crate::rig::Rig::proxy).
mod dynamodb_proxied {
    use super::*;

    #[tokio::test]
    async fn a_deleted_letter_in_dynamodb_that_several_keep_again_is_there_once() {
        let rig = Rig::new().await;
        let letter = letter();
        rig.plain.add(&letter).await.unwrap();
        delete(&rig, "l#shop").await;
        // One has seen that it is gone when another takes the cause over.
        let gate = Gate::new();
        let held = rig.proxy().first(1, |asked| asked.operation() == Some("GetItem"), Fault::HoldAnswer(gate.clone()));
        let late = tokio::spawn({
            let (store, letter) = (rig.store.clone(), letter.clone());
            async move { store.add(&letter).await }
        });
        held.until_served(1).await;
        rig.plain.add(&letter).await.unwrap();
        gate.open();
        late.await.unwrap().unwrap();
        assert_eq!(listed(&rig, &letter).await, [letter]);
    }

    #[tokio::test]
    async fn a_letter_in_dynamodb_whose_cause_cannot_be_looked_up_is_an_error() {
        let rig = Rig::new().await;
        let letter = letter();
        rig.plain.add(&letter).await.unwrap();
        delete(&rig, "l#shop").await;
        next(rig.proxy(), 100, "GetItem", Fault::DropAnswer);
        let error = rig.store.add(&letter).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert_eq!(listed(&rig, &letter).await, []);
    }
}
