//! What a store is asked for once it was opened, and what it says if it was not: the same on both servers.

use std::time::{Duration, Instant};

use hapax::{
    entity::{Entity, Expected},
    ports::{DeadLetters, DedupStore, EntityStore, ErrorKind, LongMemory, Page, Saved, Schedule, StoreError},
};
use hapax_tests::Samples;

/// One line that says all of `words`.
pub(crate) fn says(error: &StoreError, kind: ErrorKind, words: &[&str]) {
    let line = error.to_string();
    assert_eq!(error.kind(), kind, "{error:?}");
    assert!(!line.contains('\n'), "{line}");
    for word in words {
        assert!(line.contains(word), "`{word}` is missing: {line}");
    }
}

/// Everything that a store does, once.
pub(crate) async fn works<S>(store: &S, name: &str)
where
    S: EntityStore + DedupStore + DeadLetters + LongMemory + Schedule,
{
    let samples = Samples::new(name);
    let (key, entry) = (samples.key(0), samples.entry(0));
    let waiting = samples.entity_with(0, entry.clone());
    let saved = store.save(&key, &Expected::Absent, &waiting, &[]).await.unwrap();
    let Saved::At(version) = saved else { panic!("{saved:?}") };
    let pending = store.pending(key.scope(), Duration::ZERO, None, 10).await.unwrap();
    assert_eq!(pending.len(), 1);
    let over = Entity { completed: true, ..samples.entity(0) };
    store.finish(&key, &[entry.to_dedup_entry()], Some((&version, &over))).await.unwrap();
    let loaded = store.load(&key, &[entry.key]).await.unwrap();
    assert!(loaded.known.unwrap().entry(&entry.key).is_some());
    assert_eq!(loaded.stored.unwrap().entity, over);
    // So many that they go as groups too.
    let many = (10..60).map(|number| {
        let (key, entity) = (samples.key(number), samples.entity(number));
        let done = samples.entry(number).to_dedup_entry();
        async move { store.save(&key, &Expected::Absent, &entity, &[done]).await }
    });
    for saved in futures_util::future::join_all(many).await {
        assert!(matches!(saved.unwrap(), Saved::At(_)));
    }
    evicts(store, &samples).await;
    let letter = samples.letter();
    store.add(&letter).await.unwrap();
    let page = Page { message_id: None, limit: 10, skip: 0 };
    assert_eq!(store.list(&letter.endpoint, &page).await.unwrap(), std::slice::from_ref(&letter));
    assert_eq!(store.discard(&[letter]).await.unwrap(), 1);
    hapax_tests::scheduled(store).await;
    hapax_tests::remembered(store).await;
    assert_eq!(hapax_tests::purged(store, key.scope()).await, [1, 0]);
    assert!(store.load(&key, &[]).await.unwrap().stored.is_none());
}

/// Until the entry is gone, through a rotation.
async fn evicts(store: &impl DedupStore, samples: &Samples) {
    let entry = samples.entry(0).to_dedup_entry();
    store.insert(std::slice::from_ref(&entry)).await.unwrap();
    let began = Instant::now();
    while store.contains(&[entry.key]).await.unwrap().entry(&entry.key).is_some() {
        store.evict(Duration::from_millis(1)).await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(30), "nothing is evicted");
    }
}
