//! What waits, and what is over: found through the index.

use std::{collections::HashSet, sync::Arc, time::Duration};

use aws_sdk_dynamodb::types::AttributeValue;
use futures_util::{StreamExt, stream};
use hapax::{
    DynamoDb,
    entity::Entity,
    ids::{EntityKey, Scope},
    ports::EntityStore,
};
use hapax_tests::{
    DynamoDbTable, LogLines,
    http_faults::{Fault, Gate},
    samples::{entity, entry_of, outgoing, save},
};

use crate::rig::{Rig, error, key};

const MINUTE: Duration = Duration::from_secs(60);

fn scope() -> Arc<Scope> {
    key("x").scope().clone()
}

/// A store that waits for a busy emulator.
async fn patient(table: &DynamoDbTable) -> DynamoDb {
    table.options().call_limit(MINUTE).attempt_limit(MINUTE).open().await.unwrap()
}

/// Saves so many entities, and answers their keys in order. The clocks of two stores may be a second apart.
async fn save_all(store: &DynamoDb, entities: usize, of: impl Fn() -> Entity) -> Vec<EntityKey> {
    let mut keys: Vec<EntityKey> = (0..entities).map(|number| key(&format!("number-{number}"))).collect();
    let saves = keys.iter().map(|key| {
        let entity = of();
        async move { save(store, key, None, &entity).await }
    });
    stream::iter(saves.collect::<Vec<_>>()).buffer_unordered(16).collect::<Vec<_>>().await;
    keys.sort_unstable();
    keys
}

fn over() -> Entity {
    Entity { completed: true, ..Entity::default() }
}

#[tokio::test]
async fn a_purge_in_dynamodb_removes_no_more_than_it_is_asked_for() {
    let rig = Rig::new().await;
    let store = patient(&rig.table).await;
    save_all(&store, 60, over).await;
    let mut left = 60;
    while left > 0 {
        let purged = store.purge(&scope(), Duration::ZERO, 25).await.unwrap();
        assert_eq!(purged, left.min(25));
        left -= purged;
    }
}

/// As a restored table, a newer program or a person has left it.
async fn damage(rig: &Rig, key: &EntityKey) {
    let text = |text: String| AttributeValue::S(text);
    let place = format!("e#{}#{}#{}", key.scope().endpoint, key.scope().saga, key.key());
    let update = rig.table.client().update_item().table_name(rig.table.name());
    let update = update.key("pk", text(place)).key("sk", text("e".into())).update_expression("SET v = :v");
    update.expression_attribute_values(":v", text("not one of ours".into())).send().await.unwrap();
}

#[tokio::test]
async fn an_entity_that_cannot_be_read_holds_up_no_other_in_dynamodbs_upkeep() {
    let rig = Rig::new().await;
    let waits = || entity("a", &[entry_of(vec![outgoing("x")])]);
    let store = patient(&rig.table).await;
    let keys = save_all(&store, 40, waits).await;
    // In more than one partition, the first and the last in order among them.
    let damaged = [0, 7, 20, 39];
    for number in damaged {
        damage(&rig, &keys[number]).await;
    }
    let logged = LogLines::here();
    let sound = keys.iter().enumerate().filter(|(number, _)| !damaged.contains(number)).map(|(_, key)| key);
    let pending = store.pending(&scope(), Duration::ZERO, None, 100).await.unwrap();
    assert!(pending.iter().map(|pending| &pending.key).eq(sound));
    assert_eq!(logged.with("is left out").len(), damaged.len());

    let rig = Rig::new().await;
    let store = patient(&rig.table).await;
    let keys = save_all(&store, 40, over).await;
    for number in damaged {
        damage(&rig, &keys[number]).await;
    }
    assert_eq!(store.purge(&scope(), Duration::ZERO, 100).await.unwrap(), keys.len() - damaged.len());
    assert_eq!(logged.with("is left out").len(), 2 * damaged.len());
}

/// What the proxy tells or does: see [`Rig::proxy`](crate::rig::Rig::proxy).
mod dynamodb_proxied {
    use super::*;

    #[tokio::test]
    async fn tombstones_of_dynamodb_are_removed_sixteen_at_a_time_and_all_of_them() {
        const TOMBSTONES: usize = 400; // In each of the eight partitions more than are removed at a time.
        let rig = Rig::new().await;
        let store = patient(&rig.table.through(rig.proxy().url())).await;
        save_all(&store, TOMBSTONES, over).await;
        let gate = Gate::new();
        let held = rig.proxy().every(|asked| asked.operation() == Some("DeleteItem"), Fault::Hold(gate.clone()));
        let purges = store.clone();
        let purging = tokio::spawn(async move { purges.purge(&scope(), Duration::ZERO, TOMBSTONES).await });
        tokio::time::timeout(MINUTE / 2, held.until_matched(16)).await.expect("sixteen at a time");
        assert_eq!(held.matched(), 16, "and no more");
        gate.open();
        assert_eq!(purging.await.unwrap().unwrap(), TOMBSTONES);
        assert_eq!(store.purge(&scope(), Duration::ZERO, TOMBSTONES).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_purge_in_dynamodb_that_has_removed_something_tells_how_much_though_it_cannot_go_on() {
        let rig = Rig::new().await;
        let store = patient(&rig.table.through(rig.proxy().url())).await;
        save_all(&store, 100, over).await;
        // The second partition that it looks into, and each after that, cannot be listed.
        let lists = |asked: &hapax_tests::http_faults::Asked| asked.operation() == Some("Query");
        let first = rig.proxy().first(1, lists, Fault::AskWith(Vec::new()));
        let failing = rig.proxy().every(lists, error(400, "AccessDeniedException"));
        let purged = store.purge(&scope(), Duration::ZERO, 100).await.unwrap();
        assert_eq!((first.served(), failing.matched()), (1, 1));
        assert!((1..100).contains(&purged), "{purged} in one of eight partitions");
        // Where it has removed nothing, it says why.
        store.purge(&scope(), Duration::ZERO, 100).await.unwrap_err();
        failing.end();
        assert_eq!(store.purge(&scope(), Duration::ZERO, 100).await.unwrap(), 100 - purged);
    }

    #[tokio::test]
    async fn purges_in_dynamodb_begin_anywhere() {
        let rig = Rig::new().await;
        let mut first = HashSet::new();
        for _ in 0..40 {
            rig.proxy().forget();
            rig.store.purge(&scope(), Duration::ZERO, 10).await.unwrap();
            let asked = rig.proxy().asked();
            let query: serde_json::Value = serde_json::from_slice(asked[0].body()).unwrap();
            first.insert(query["ExpressionAttributeValues"][":pk"]["S"].as_str().unwrap().to_owned());
        }
        assert!(first.len() > 1, "{first:?}"); // Eight ways, forty times: the same by chance in no test of anybody's.
    }

    #[tokio::test]
    async fn what_waits_in_dynamodb_is_listed_page_by_page_and_read_about_once() {
        const ENTITIES: usize = 400;
        const PAGE: usize = 64;
        let rig = Rig::new().await;
        let keys =
            save_all(&patient(&rig.table).await, ENTITIES, || entity("a", &[entry_of(vec![outgoing("x")])])).await;
        let (mut listed, mut read) = (Vec::<EntityKey>::new(), 0);
        loop {
            rig.proxy().forget();
            let page = rig.store.pending(&scope(), Duration::ZERO, listed.last(), PAGE).await.unwrap();
            let limit =
                |body: &[u8]| serde_json::from_slice::<serde_json::Value>(body).unwrap()["Limit"].as_u64().unwrap();
            read += rig.proxy().asked().iter().map(|asked| limit(asked.body())).sum::<u64>();
            listed.extend(page.iter().map(|pending| pending.key.clone()));
            if page.len() < PAGE {
                break;
            }
        }
        assert_eq!(listed, keys);
        assert!(read < 3 * ENTITIES as u64, "{read} asked for, to list {ENTITIES}");
    }

    #[tokio::test]
    async fn what_is_too_young_is_read_from_dynamodb_in_pages_that_grow() {
        let rig = Rig::new().await;
        save_all(&patient(&rig.table).await, 400, || entity("a", &[entry_of(vec![outgoing("x")])])).await;
        assert_eq!(rig.store.pending(&scope(), Duration::from_secs(3600), None, 10).await.unwrap(), []);
        // Some 50 in each of eight partitions, of which 10 are wanted in all.
        let asked = rig.asked().len();
        assert!((8..=48).contains(&asked), "{asked} requests");
    }
}
