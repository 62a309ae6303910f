//! What others do between two requests of one call, and answers in several pages.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use hapax::{
    CosmosDb,
    entity::{DedupEntry, Entity, Expected, Version},
    ids::{DedupKey, EntityKey, SagaKey},
    ports::{EntityStore, Finished, Saved},
    stores::cosmos::Layout,
};
use hapax_tests::{
    CosmosDatabase,
    http_faults::{Asked, Fault, FaultProxy, Gate},
    samples::{entity, entry, key, mark},
};

/// A store behind a proxy, and one on the same database that is not.
async fn two() -> (FaultProxy, CosmosDb, CosmosDb) {
    let database = CosmosDatabase::new(Layout::Together);
    let plain = database.open().await;
    let proxy = FaultProxy::start(database.url()).unwrap();
    let store = database.through(proxy.url()).open().await;
    (proxy, store, plain)
}

async fn save(store: &CosmosDb, key: &EntityKey, before: Option<&Version>, entity: &Entity) -> Version {
    let expected = before.map_or(Expected::Absent, |version| Expected::Version(version.clone()));
    match store.save(key, &expected, entity, &[]).await.unwrap() {
        Saved::At(version) => version,
        Saved::Conflict => panic!("a conflict"),
    }
}

/// Were it asked for first, it would not be over yet, and would not wait any more when the entity is read.
#[tokio::test(flavor = "multi_thread")]
async fn a_load_asks_what_is_over_when_the_entity_is_here() {
    let (proxy, store, plain) = two().await;
    let (key, waits) = (key("order"), entry(1));
    let version = save(&plain, &key, None, &entity("a", std::slice::from_ref(&waits))).await;
    let (gate, reads) = (Gate::new(), AtomicUsize::new(0));
    let is_second = move |asked: &Asked| {
        let is_read = asked.method() == "GET" && asked.path().contains("/docs/");
        is_read && reads.fetch_add(1, Ordering::SeqCst) == 1
    };
    let held = proxy.first(1, is_second, Fault::Hold(gate.clone()));
    let (asked_of, id) = (key.clone(), waits.key);
    let loading = tokio::spawn(async move { store.load(&asked_of, &[id]).await });
    held.until_matched(1).await;
    let finished = plain.finish(&key, &[waits.to_dedup_entry()], Some((&version, &entity("a", &[])))).await;
    assert!(matches!(finished, Ok(Some(Finished::Cleaned(Some(_))))), "{finished:?}");
    gate.open();
    let loaded = loading.await.unwrap().unwrap();
    assert!(loaded.known.unwrap().attempt(&waits.key, &waits.attempt));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tombstone_that_was_saved_since_it_was_listed_stays() {
    let (proxy, store, plain) = two().await;
    let (key, over) = (key("saved again"), Entity { completed: true, ..entity("a", &[]) });
    let first = save(&plain, &key, None, &over).await;
    let gate = Gate::new();
    let held = proxy.first(1, |asked| asked.method() == "DELETE", Fault::Hold(gate.clone()));
    let scope = key.scope().clone();
    let purging = tokio::spawn(async move { store.purge(&scope, Duration::ZERO, 10).await });
    held.until_matched(1).await;
    let second = save(&plain, &key, Some(&first), &Entity { commits: 2, ..over }).await;
    gate.open();
    assert_eq!(purging.await.unwrap().unwrap(), 0);
    assert_eq!(plain.version(&key).await.unwrap(), Some(second));
}

/// The service ends a page where it likes, also with nothing in it.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_in_several_pages_is_read_to_its_end() {
    let (proxy, store, plain) = two().await;
    let is_query = |asked: &Asked| asked.header("x-ms-documentdb-isquery").is_some();
    let paged = proxy.every(is_query, Fault::ask_with(&[("x-ms-max-item-count", "1")]));
    let (key, marks) = (key("pages"), [(); 5].map(|()| mark()));
    assert_eq!(plain.finish(&key, &marks, None).await.unwrap(), Some(Finished::Cleaned(None)));
    let ids: Vec<DedupKey> = marks.iter().map(|mark| mark.key).collect();
    let known = store.load(&key, &ids).await.unwrap().known.unwrap();
    assert!(marks.iter().all(|mark: &DedupEntry| known.entry(&mark.key) == Some(mark)), "{known:?}");
    assert!(paged.matched() >= 5, "{} pages", paged.matched());

    for name in ["a", "b", "c"] {
        let key = EntityKey::new(key.scope().clone(), SagaKey::parse(name).unwrap());
        save(&plain, &key, None, &entity("a", &[entry(1)])).await;
    }
    let pending = store.pending(key.scope(), Duration::ZERO, None, 10).await.unwrap();
    assert_eq!(pending.len(), 3, "{pending:?}");
}
