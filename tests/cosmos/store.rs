//! What is this store's own: places, calls, many at one entity.

use std::sync::Arc;

use hapax::{
    entity::{DedupEntry, Expected},
    ids::{DedupKey, EntityKey, SagaKey, SagaName, Scope},
    ports::{DedupStore, EntityStore, ErrorKind, Finished, Saved},
    stores::cosmos::Layout,
};
use hapax_tests::{
    CosmosDatabase, contended,
    http_faults::{Asked, FaultProxy},
    samples::{attempt, entity, entry, key, mark, won},
};

/// Promise 14 of the entity store, with marks that have come with their entity, as all do here.
#[tokio::test(flavor = "multi_thread")]
async fn load_knows_every_id_asked_for_and_every_entry() {
    let database = CosmosDatabase::new(Layout::Together);
    let (store, other) = (database.open().await, database.open().await);
    let (key, entries) = (key("complete"), [entry(1), entry(2), entry(3)]);
    let Saved::At(_) = store.save(&key, &Expected::Absent, &entity("one", &entries), &[]).await.unwrap() else {
        panic!()
    };
    let other_attempt = DedupEntry { attempt: attempt(), ..entries[1].to_dedup_entry() };
    let (asked, unasked, nobody) = (mark(), mark(), mark());
    let inserted = [entries[0].to_dedup_entry(), other_attempt, asked.clone(), unasked.clone()];
    assert_eq!(store.finish(&key, &inserted, None).await.unwrap(), Some(Finished::Cleaned(None)));

    let known = other.load(&key, &[nobody.key, asked.key]).await.unwrap().known.unwrap();
    for mark in &inserted[..3] {
        assert_eq!(known.entry(&mark.key), Some(mark));
    }
    for key in [nobody.key, entries[2].key, unasked.key] {
        assert_eq!(known.entry(&key), None);
    }
    let keys: Vec<DedupKey> = inserted.iter().map(|mark| mark.key).collect();
    let known = other.contains(&keys).await.unwrap();
    for mark in &inserted {
        assert_eq!(known.entry(&mark.key), Some(mark), "found without its entity, by its key alone");
    }
    let absent = EntityKey::new(key.scope().clone(), SagaKey::parse("absent").unwrap());
    store.finish(&absent, std::slice::from_ref(&nobody), None).await.unwrap();
    assert!(other.load(&absent, &[nobody.key]).await.unwrap().known.unwrap().attempt(&nobody.key, &nobody.attempt));
}

/// The sagas are ordered as their names are, and one name begins with the other.
#[tokio::test(flavor = "multi_thread")]
async fn what_waits_is_of_the_saga_asked_for_also_after_a_key_of_another() {
    let store = CosmosDatabase::new(Layout::Apart).open().await;
    let first = key("1");
    let scope = Scope { endpoint: first.scope().endpoint.clone(), saga: SagaName::parse("order-2").unwrap() };
    let second = EntityKey::new(Arc::new(scope), SagaKey::parse("2").unwrap());
    for key in [&first, &second] {
        let waiting = entity("one", &[entry(1)]);
        assert!(matches!(store.save(key, &Expected::Absent, &waiting, &[]).await.unwrap(), Saved::At(_)));
    }
    let before = EntityKey::new(first.scope().clone(), SagaKey::parse("0").unwrap());
    for (asked, after, listed) in [(&first, &second, 0), (&second, &before, 1), (&first, &before, 1)] {
        let pending = store.pending(asked.scope(), std::time::Duration::ZERO, Some(after), 10).await.unwrap();
        assert_eq!(pending.len(), listed, "{pending:?}");
        assert!(pending.iter().all(|pending| pending.key == *asked), "{pending:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn marks_without_their_entity_are_refused_where_they_are_together() {
    let store = CosmosDatabase::new(Layout::Together).open().await;
    let error = store.insert(&[mark()]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(error.to_string().contains("Layout::Apart"), "{error}");
    store.insert(&[]).await.unwrap();
}

/// Over two clients, as two processes would have them.
async fn fifty_tasks_at_one_entity_count_right(layout: Layout) {
    let database = CosmosDatabase::new(layout);
    let hands = [database.open().await, database.open().await];
    contended(&hands, 50, 2).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_tasks_at_one_entity_count_right_together() {
    fifty_tasks_at_one_entity_count_right(Layout::Together).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_tasks_at_one_entity_count_right_apart() {
    fifty_tasks_at_one_entity_count_right(Layout::Apart).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_messages_go_out_of_one_save() {
    for layout in [Layout::Together, Layout::Apart] {
        let store = CosmosDatabase::new(layout).open().await;
        let (key, entry) = (key("many"), entry(1_000));
        let (many, clean) = (entity("many", std::slice::from_ref(&entry)), entity("many", &[]));
        let version = won(store.save(&key, &Expected::Absent, &many, &[]).await.unwrap());
        let stored = store.load(&key, &[]).await.unwrap().stored.unwrap();
        assert_eq!((stored.entity, &stored.version), (many, &version));
        let done = entry.to_dedup_entry();
        match store.finish(&key, std::slice::from_ref(&done), Some((&version, &clean))).await.unwrap() {
            Some(finished) => assert!(matches!(finished, Finished::Cleaned(Some(_))), "{finished:?}"),
            None => {
                store.insert(std::slice::from_ref(&done)).await.unwrap();
                won(store.save(&key, &Expected::Version(version), &clean, &[]).await.unwrap());
            }
        }
        assert_eq!(store.load(&key, &[]).await.unwrap().stored.unwrap().entity, clean);
        assert_eq!(store.contains(&[done.key]).await.unwrap().entry(&done.key), Some(&done));
    }
}

/// What the manager does for a message that nobody contends: load with check, save, finish.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_costs_four_calls_and_three_when_it_sends_nothing() {
    let is_call = |asked: &Asked| asked.path().contains("/docs");
    let database = CosmosDatabase::new(Layout::Together);
    let proxy = FaultProxy::start(database.url()).unwrap();
    let store = database.through(proxy.url()).open().await;
    let (key, entry) = (key("counted"), entry(2));
    let done = entry.to_dedup_entry();
    proxy.forget();
    let units = store.request_units();

    let loaded = store.load(&key, &[done.key]).await.unwrap();
    assert!(loaded.stored.is_none());
    let Saved::At(version) = store.save(&key, &Expected::Absent, &entity("one", &[entry]), &[]).await.unwrap() else {
        panic!()
    };
    let finished = store.finish(&key, &[done], Some((&version, &entity("one", &[])))).await.unwrap();
    let Some(Finished::Cleaned(Some(version))) = finished else { panic!("{finished:?}") };
    assert_eq!(proxy.count(is_call), 4);
    assert!(store.request_units() > units, "what was charged is counted");

    proxy.forget();
    let quiet = mark();
    store.load(&key, &[quiet.key]).await.unwrap();
    let saved = store.save(&key, &Expected::Version(version), &entity("two", &[]), &[quiet]).await.unwrap();
    assert!(matches!(saved, Saved::At(_)), "{saved:?}");
    assert_eq!(proxy.count(is_call), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn dedup_entries_have_a_time_to_live_and_a_longer_retention_is_refused() {
    const DAY_SECONDS: u64 = 24 * 3600;
    let database = CosmosDatabase::new(Layout::Apart);
    let store = database.open().await;
    let keeps = store.dedup_capabilities().keeps.unwrap();
    let mark = mark();
    store.insert(std::slice::from_ref(&mark)).await.unwrap();
    let (client, id) = (database.client().await, mark.key.to_string());
    let container = client.database_client(database.name().to_owned());
    let container = container.container_client("hapax-dedup", None).await.unwrap();
    let document: serde_json::Value = container.read_item(id.clone(), &id, None).await.unwrap().into_model().unwrap();
    assert_eq!(document["ttl"], keeps.as_secs() + DAY_SECONDS, "beyond any clock and any pass that is under way");
    store.evict(keeps).await.unwrap();
    let error = store.evict(keeps + std::time::Duration::from_secs(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(error.to_string().contains("lower the retention"), "{error}");
}

/// Whoever saves with another attempt's entry there has not known of it: were its state stored, the message would be handled twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_save_with_the_entry_of_another_attempt_is_a_lost_race_and_with_its_own_is_none() {
    let store = CosmosDatabase::new(Layout::Together).open().await;
    let (key, own, other) = (key("raced"), mark(), mark());
    store.finish(&key, &[own.clone(), other.clone()], None).await.unwrap();
    let late = DedupEntry { attempt: attempt(), ..other.clone() };
    let (first, new) = (entity("one", &[]), mark());
    let lost = store.save(&key, &Expected::Absent, &first, &[late, new.clone()]).await.unwrap();
    assert_eq!(lost, Saved::Conflict);
    assert_eq!(store.version(&key).await.unwrap(), None);
    let won = store.save(&key, &Expected::Absent, &first, &[own.clone(), new.clone()]).await.unwrap();
    assert!(matches!(won, Saved::At(_)), "{won:?}");
    let known = store.load(&key, &[own.key, other.key, new.key]).await.unwrap().known.unwrap();
    assert_eq!([&own, &other, &new].map(|mark| known.entry(&mark.key)), [Some(&own), Some(&other), Some(&new)]);
}
