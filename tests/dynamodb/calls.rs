//! What is asked of the service, and what it has to allow.

use std::{collections::BTreeSet, time::Duration};

use hapax::{
    Context, Correlation, DynamoDb, Endpoint, Handle, HandlerError, InProcess, Message, Saga,
    entity::{Entity, Version},
    ids::Scope,
    ports::{DeadLetter, DeadLetters, DedupStore, EntityStore, Finished, Page, Saved},
    time::Timestamp,
};
use hapax_tests::{
    purged,
    samples::{entity, entry_of, mark, outgoing, save},
};
use serde::{Deserialize, Serialize};

use crate::rig::{Rig, key};

#[derive(Serialize, Deserialize)]
pub(crate) struct Add {
    pub(crate) order: String,
}

impl Message for Add {
    const TYPE: &'static str = "shop.add";
}

#[derive(Serialize, Deserialize)]
struct Added {}

impl Message for Added {
    const TYPE: &'static str = "shop.added";
}

#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Order {
    items: u32,
}

impl Saga for Order {
    const NAME: &'static str = "order";
}

impl Handle<Add> for Order {
    fn correlate(add: &Add) -> Correlation<'_> {
        (&add.order).into()
    }

    async fn handle(&mut self, _: Add, cx: &mut Context) -> Result<(), HandlerError> {
        self.items += 1;
        cx.publish(Added {})?;
        Ok(())
    }
}

/// Everything that the store does while messages are handled.
async fn everything(rig: &Rig) {
    let waits = entry_of(vec![outgoing("x")]);
    let version = save(&rig.store, &key("all"), None, &entity("a", std::slice::from_ref(&waits))).await;
    let scope: std::sync::Arc<Scope> = key("all").scope().clone();
    assert_eq!(rig.store.pending(&scope, Duration::ZERO, None, 10).await.unwrap().len(), 1);
    let over = Entity { completed: true, ..Entity::default() };
    let finished = rig.store.finish(&key("all"), &[waits.to_dedup_entry()], Some((&version, &over))).await.unwrap();
    assert!(matches!(finished, Some(Finished::Cleaned(Some(_)))));
    rig.store.load(&key("all"), &[waits.key, mark().key]).await.unwrap();
    rig.store.version(&key("all")).await.unwrap();
    assert_eq!(rig.store.purge(&scope, Duration::ZERO, 10).await.unwrap(), 1);
    let expected = hapax::entity::Expected::Absent;
    let saved = rig.store.save(&key("marked"), &expected, &entity(vec![b'x'; 1_000_000], &[]), &[mark()]).await;
    let Saved::At(version) = saved.unwrap() else { panic!("a conflict") };
    rig.store.load(&key("marked"), &[]).await.unwrap();
    save(&rig.store, &key("marked"), Some(&version), &entity("small", &[])).await;
    rig.store.insert(&[mark()]).await.unwrap();
    rig.store.contains(&[mark().key]).await.unwrap();
    let letter = DeadLetter {
        envelope: outgoing("x").envelope,
        endpoint: "shop".parse().unwrap(),
        saga: None,
        destination: None,
        reason: String::new(),
        attempts: 1,
        time: Timestamp::now(),
    };
    rig.store.add(&letter).await.unwrap();
    rig.store.list(&letter.endpoint, &Page::first(1)).await.unwrap();
}

/// For people who look at what is stored; what the promise rests on is that no two are equal.
#[tokio::test]
async fn versions_of_dynamodb_grow_with_each_save_and_over_a_purge() {
    let rig = Rig::new().await;
    let number = |version: &Version| -> u64 { version.as_text().unwrap().split_once('.').unwrap().0.parse().unwrap() };
    let first = save(&rig.store, &key("grows"), None, &entity("a", &[])).await;
    let over = Entity { completed: true, ..Entity::default() };
    let second = save(&rig.store, &key("grows"), Some(&first), &over).await;
    assert_eq!(purged(&rig.store, key("grows").scope()).await, [1, 0]);
    let third = save(&rig.store, &key("grows"), None, &entity("a", &[])).await;
    let numbers = [first, second, third].map(|version| number(&version));
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
}

#[tokio::test]
async fn what_calls_to_dynamodb_cost_is_counted() {
    let rig = Rig::new().await;
    let before = rig.store.units();
    save(&rig.store, &key("cost"), None, &entity(vec![b'x'; 5000], &[])).await;
    let put = rig.store.units() - before;
    assert!((5.0..=8.0).contains(&put), "{put} units for a write of 5 KB");
    rig.store.load(&key("cost"), &[]).await.unwrap();
    let read = rig.store.units() - before - put;
    assert!((2.0..=3.0).contains(&read), "{read} units for a read of 5 KB");
}

/// What the proxy tells or does: see [`Rig::proxy`](crate::rig::Rig::proxy).
mod dynamodb_proxied {
    use super::*;

    #[tokio::test]
    async fn a_message_costs_four_requests_to_dynamodb() {
        let rig = Rig::new().await;
        let queue = InProcess::new("calls");
        queue.sender().send("shop", &Add { order: "1".into() }).await.unwrap();
        let endpoint = Endpoint::builder("shop").store(rig.store.clone()).transport(queue.clone());
        endpoint.saga::<Order>(|order| order.starts::<Add>()).run_until(queue.idle()).await.unwrap();
        // The sweeper looks into the index every so often, whatever comes.
        let asked: Vec<_> = rig.asked().into_iter().filter(|asked| asked != "Query").collect();
        assert_eq!(asked, ["GetItem", "TransactGetItems", "PutItem", "TransactWriteItems"]);
    }

    #[tokio::test]
    async fn a_load_without_anything_to_check_is_one_request_to_dynamodb() {
        let rig = Rig::new().await;
        save(&rig.plain, &key("quiet"), None, &entity("a", &[])).await;
        rig.store.load(&key("quiet"), &[]).await.unwrap();
        assert_eq!(rig.asked(), ["GetItem"]);
    }

    #[tokio::test]
    async fn the_policy_for_dynamodb_names_what_is_asked_for_and_no_more() {
        let rig = Rig::new().await;
        // An opening of a table that is there, and everything after it.
        rig.table.through(rig.proxy().url()).open().await;
        everything(&rig).await;
        let mut asked: BTreeSet<String> = rig.asked().into_iter().map(|asked| format!("dynamodb:{asked}")).collect();
        // A transaction is allowed by what is in it, here PutItem and DeleteItem, and GetItem.
        assert!(asked.remove("dynamodb:TransactWriteItems") && asked.remove("dynamodb:TransactGetItems"));
        let policy: serde_json::Value =
            serde_json::from_str(&DynamoDb::policy_json("arn:aws:dynamodb:eu:1:table/t")).unwrap();
        let statements = policy["Statement"].as_array().unwrap().iter();
        let actions = statements.flat_map(|statement| statement["Action"].as_array().unwrap());
        let named: BTreeSet<String> = actions.map(|action| action.as_str().unwrap().to_owned()).collect();
        assert_eq!(named, asked);
        assert_eq!(policy["Statement"][1]["Resource"][1], "arn:aws:dynamodb:eu:1:table/t/index/hapax_upkeep");
    }

    /// An entry that a read had missed would be handled again. The index has no consistent reads, and is believed nothing.
    #[tokio::test]
    async fn every_read_of_dynamodb_but_of_the_index_is_strongly_consistent() {
        let rig = Rig::new().await;
        rig.table.through(rig.proxy().url()).open().await;
        everything(&rig).await;
        let mut read = BTreeSet::new();
        for asked in rig.proxy().asked() {
            let body: serde_json::Value = serde_json::from_slice(asked.body()).unwrap();
            let consistent = match asked.operation() {
                Some("BatchGetItem") => body["RequestItems"][rig.table.name()]["ConsistentRead"].clone(),
                Some("GetItem") => body["ConsistentRead"].clone(),
                Some("Query") if body["IndexName"].is_null() => body["ConsistentRead"].clone(),
                _ => continue,
            };
            assert_eq!(consistent, true, "{body}");
            read.insert(asked.operation().unwrap().to_owned());
        }
        assert_eq!(read.len(), 3, "{read:?}");
    }
}
