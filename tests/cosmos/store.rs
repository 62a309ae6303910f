//! What is this store's own: places, limits, calls.

use std::sync::Arc;

use hapax::{
    CosmosDb,
    entity::{DedupEntry, Entity, Expected, OutboxEntry},
    envelope::{Destination, Envelope, Outgoing},
    ids::{AttemptId, DedupKey, EndpointName, EntityKey, Fingerprint, MessageId, SagaKey, SagaName, Scope, TypeName},
    ports::{DedupStore, EntityStore, ErrorKind, Finished, Saved},
    stores::cosmos::Layout,
    time::Timestamp,
};
use hapax_tests::{
    CosmosDatabase,
    http_faults::{Asked, FaultProxy},
};

/// A key that no other test uses.
pub(super) fn key(name: &str) -> EntityKey {
    let endpoint = EndpointName::parse(format!("shop-{:016x}", fastrand::u64(..))).unwrap();
    let scope = Scope { endpoint, saga: SagaName::parse("order").unwrap() };
    EntityKey::new(Arc::new(scope), SagaKey::parse(name).unwrap())
}

fn attempt() -> AttemptId {
    AttemptId::from_bytes(fastrand::u128(..).to_be_bytes())
}

fn envelope(body: Vec<u8>) -> Envelope {
    Envelope::new(MessageId::random(), TypeName::parse("shop.added").unwrap(), body)
}

pub(super) fn entry(messages: usize) -> Arc<OutboxEntry> {
    let outgoing = |_| Outgoing {
        destination: Destination::Endpoint(EndpointName::parse("mail").unwrap()),
        envelope: Arc::new(envelope(b"a body".to_vec())),
    };
    let mut bytes = [0; DedupKey::BYTES];
    bytes.fill_with(|| fastrand::u8(..));
    Arc::new(OutboxEntry {
        key: DedupKey::from_bytes(bytes),
        attempt: attempt(),
        fingerprint: Fingerprint::of(&envelope(Vec::new())),
        commit: 1,
        saved_at: Timestamp::now(),
        outgoing: (0..messages).map(outgoing).collect(),
        reply: None,
    })
}

pub(super) fn mark() -> DedupEntry {
    entry(1).to_dedup_entry()
}

pub(super) fn entity(state: &str, outbox: &[Arc<OutboxEntry>]) -> Entity {
    Entity { state: state.to_owned().into(), commits: 1, outbox: outbox.to_vec(), ..Entity::default() }
}

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

#[tokio::test(flavor = "multi_thread")]
async fn marks_without_their_entity_are_refused_where_they_are_together() {
    let store = CosmosDatabase::new(Layout::Together).open().await;
    let error = store.insert(&[mark()]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(error.to_string().contains("Layout::Apart"), "{error}");
    store.insert(&[]).await.unwrap();
}

/// Fifty tasks add one to one entity until each has won ten times.
#[tokio::test(flavor = "multi_thread")]
async fn fifty_tasks_at_one_entity_count_right() {
    const TASKS: usize = 50;
    const EACH: usize = 4;
    let store = CosmosDatabase::new(Layout::Together).open().await;
    let key = key("contended");
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (store, key) = (store.clone(), key.clone());
            tokio::spawn(async move {
                for _ in 0..EACH {
                    while !add_one(&store, &key).await {}
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let stored = store.load(&key, &[]).await.unwrap().stored.unwrap();
    assert_eq!(stored.entity.commits, (TASKS * EACH) as u64);
}

async fn add_one(store: &CosmosDb, key: &EntityKey) -> bool {
    let stored = store.load(key, &[]).await.unwrap().stored;
    let (expected, commits) = match stored {
        Some(stored) => (Expected::Version(stored.version), stored.entity.commits),
        None => (Expected::Absent, 0),
    };
    let next = Entity { commits: commits + 1, ..entity("counted", &[]) };
    match store.save(key, &expected, &next, &[]).await {
        Ok(Saved::At(_)) => true,
        Ok(Saved::Conflict) => false,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
            false
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_messages_go_out_of_one_save() {
    let store = CosmosDatabase::new(Layout::Together).open().await;
    let (key, entry) = (key("many"), entry(1_000));
    let many = entity("many", std::slice::from_ref(&entry));
    let Saved::At(version) = store.save(&key, &Expected::Absent, &many, &[]).await.unwrap() else { panic!() };
    let stored = store.load(&key, &[]).await.unwrap().stored.unwrap();
    assert_eq!((stored.entity, &stored.version), (many, &version));
    let done = entry.to_dedup_entry();
    let finished = store.finish(&key, &[done], Some((&version, &entity("many", &[])))).await.unwrap();
    assert!(matches!(finished, Some(Finished::Cleaned(Some(_)))), "{finished:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn entities_below_at_and_above_the_limit() {
    let store = CosmosDatabase::new(Layout::Together).open().await;
    let max = store.capabilities().entity_bytes_max;
    let of = |bytes: usize| Entity { state: vec![b'x'; bytes - Entity::default().size()].into(), ..Entity::default() };
    for bytes in [max - 1, max] {
        let saved = store.save(&key("large"), &Expected::Absent, &of(bytes), &[]).await.unwrap();
        assert!(matches!(saved, Saved::At(_)), "{saved:?}");
    }
    let key = key("too large");
    let error = store.save(&key, &Expected::Absent, &of(max + 1), &[]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert_eq!(store.version(&key).await.unwrap(), None);
}

/// The service takes a hundred writes in a batch, one of which is the entity's.
#[tokio::test(flavor = "multi_thread")]
async fn marks_go_with_a_save_up_to_ninety_nine_and_with_a_finish_without_end() {
    let store = CosmosDatabase::new(Layout::Together).open().await;
    let (key, refused) = (key("marks"), key("too many marks"));
    let marks: Vec<DedupEntry> = (0..250).map(|_| mark()).collect();
    let error = store.save(&refused, &Expected::Absent, &entity("one", &[]), &marks[..100]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert_eq!(store.version(&refused).await.unwrap(), None);
    let saved = store.save(&key, &Expected::Absent, &entity("one", &[]), &marks[..99]).await.unwrap();
    let Saved::At(version) = saved else { panic!("{saved:?}") };
    // Some of them are there already.
    let finished = store.finish(&key, &marks, Some((&version, &entity("two", &[])))).await.unwrap();
    assert!(matches!(finished, Some(Finished::Cleaned(Some(_)))), "{finished:?}");
    let keys: Vec<DedupKey> = marks.iter().map(|mark| mark.key).collect();
    let known = store.load(&key, &keys).await.unwrap().known.unwrap();
    assert!(marks.iter().all(|mark| known.entry(&mark.key) == Some(mark)));
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
    let store = CosmosDatabase::new(Layout::Apart).open().await;
    let keeps = store.dedup_capabilities().keeps.unwrap();
    store.evict(keeps).await.unwrap();
    let error = store.evict(keeps + std::time::Duration::from_secs(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(error.to_string().contains("lower the retention"), "{error}");
}
