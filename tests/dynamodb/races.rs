//! What others do between two requests of one call.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use hapax::{
    entity::{Entity, OutboxEntry},
    ports::{EntityStore, Finished},
};
use hapax_tests::{
    http_faults::{Fault, Gate},
    samples::{entity, entry_of, outgoing, save},
};

use crate::rig::{Rig, key};

const LARGE: usize = 500_000;

/// Were it asked for first, it would not be over yet, and would not wait any more when the entity is read.
#[tokio::test]
async fn a_load_from_dynamodb_asks_what_is_over_when_the_entity_is_here() {
    let rig = Rig::new().await;
    let (key, waits) = (key("order"), entry_of(vec![outgoing("x")]));
    let version = save(&rig.plain, &key, None, &entity("a", std::slice::from_ref(&waits))).await;
    let (gate, reads) = (Gate::new(), AtomicUsize::new(0));
    let is_second = move |_: &_| reads.fetch_add(1, Ordering::SeqCst) == 1;
    let held = rig.proxy().first(1, is_second, Fault::Hold(gate.clone()));
    let (store, asked_of, id) = (rig.store.clone(), key.clone(), waits.key);
    let loading = tokio::spawn(async move { store.load(&asked_of, &[id]).await });
    held.until_matched(1).await;
    let finished = rig.plain.finish(&key, &[waits.to_dedup_entry()], Some((&version, &entity("a", &[])))).await;
    assert!(matches!(finished, Ok(Some(Finished::Cleaned(Some(_))))), "{finished:?}");
    gate.open();
    let loaded = loading.await.unwrap().unwrap();
    assert!(loaded.known.unwrap().attempt(&waits.key, &waits.attempt));
}

/// A state in a chunk of its own, beside an entry that stays.
fn saved(number: u8, waits: &Arc<OutboxEntry>) -> Entity {
    Entity { commits: number.into(), ..entity(vec![number; 200_000], std::slice::from_ref(waits)) }
}

#[tokio::test]
async fn an_entity_that_is_saved_in_dynamodb_between_its_item_and_its_chunks_is_read_again() {
    let rig = Rig::new().await;
    let (key, waits) = (key("torn"), entry_of(vec![outgoing(vec![b'e'; LARGE])]));
    let first = save(&rig.plain, &key, None, &saved(1, &waits)).await;
    let gate = Gate::new();
    let held = rig.proxy().first(1, |asked| asked.operation() == Some("BatchGetItem"), Fault::Hold(gate.clone()));
    let (store, asked_of) = (rig.store.clone(), key.clone());
    let loading = tokio::spawn(async move { store.load(&asked_of, &[]).await });
    held.until_matched(1).await;
    let second = save(&rig.plain, &key, Some(&first), &saved(2, &waits)).await;
    gate.open();
    let stored = loading.await.unwrap().unwrap().stored.unwrap();
    assert_eq!((stored.entity.commits, stored.entity.state[0], &stored.version), (2, 2, &second));
    assert_eq!(stored.entity, saved(2, &waits));
}

/// The index is behind, so what it tells is a hint.
#[tokio::test]
async fn a_tombstone_that_was_saved_in_dynamodb_since_it_was_listed_stays() {
    for (bytes, deletion) in [(0, "DeleteItem"), (LARGE, "TransactWriteItems")] {
        let rig = Rig::new().await;
        let (key, over) = (key("saved again"), Entity { completed: true, ..entity(vec![b'x'; bytes], &[]) });
        let first = save(&rig.store, &key, None, &over).await;
        let gate = Gate::new();
        let held = rig.proxy().first(1, move |asked| asked.operation() == Some(deletion), Fault::Hold(gate.clone()));
        let (store, scope) = (rig.store.clone(), key.scope().clone());
        let purging = tokio::spawn(async move { store.purge(&scope, Duration::ZERO, 10).await });
        held.until_matched(1).await;
        let second = save(&rig.plain, &key, Some(&first), &Entity { commits: 2, ..over }).await;
        gate.open();
        assert_eq!(purging.await.unwrap().unwrap(), 0);
        assert_eq!(rig.plain.version(&key).await.unwrap(), Some(second));
    }
}
