//! What goes for the store and the queue on either server, whatever the level that transactions begin at.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use hapax::{
    entity::Expected,
    ports::{DedupStore, EntityStore, Saved},
    testing,
};

use hapax_tests::Samples;

/// What both a store and a queue can be opened at.
pub(crate) trait Opens:
    testing::entity_store::Builder + testing::dedup_store::Builder + testing::transport::Builder + Sync
{
    type Store: EntityStore + DedupStore + 'static;

    async fn open(&self) -> Arc<Self::Store>;
}

/// The promises that several processes at once could break.
pub(crate) async fn keeps_its_promises(place: &impl Opens) {
    use testing::{assert_kept, dedup_store, entity_store, transport};
    assert_kept(entity_store::guarded(place).await);
    assert_kept(entity_store::never_again(place).await);
    assert_kept(entity_store::current(place).await);
    assert_kept(entity_store::one_snapshot(place).await);
    assert_kept(entity_store::only_with_the_winner(place).await);
    assert_kept(entity_store::finish_marks_first(place).await);
    assert_kept(entity_store::own_result(place).await);
    assert_kept(entity_store::purge_spares(place).await);
    assert_kept(dedup_store::visible(place).await);
    assert_kept(dedup_store::idempotent(place).await);
    assert_kept(dedup_store::in_the_end(place).await);
    assert_kept(transport::kept_until_settled(place).await);
    assert_kept(transport::hidden_under_a_lease(place).await);
    assert_kept(transport::late_settles_are_refused(place).await);
    assert_kept(transport::own_result(place).await);
}

/// Two stores count up the same entities, each with a message that both have, while a third one closes and empties
/// generations, sweeps and purges. Each step is counted once, and nobody is told of an error.
pub(crate) async fn races<P: Opens>(place: &P) {
    const KEYS: u32 = 10;
    const ROUNDS: u32 = 20;
    let samples = Samples::new("race");
    let [first, second, upkeep] = [place.open().await, place.open().await, place.open().await];
    let end = Arc::new(AtomicBool::new(false));
    let keeping = tokio::spawn({
        let (samples, end) = (samples.clone(), end.clone());
        async move {
            let key = samples.key(0);
            let mut rounds = 0;
            while !end.load(Ordering::Relaxed) {
                upkeep.evict(Duration::from_millis(1)).await.unwrap();
                upkeep.pending(key.scope(), Duration::ZERO, None, 10).await.unwrap();
                upkeep.purge(key.scope(), Duration::ZERO, 10).await.unwrap();
                rounds += 1;
            }
            rounds
        }
    });
    let count = |store: Arc<P::Store>| {
        let samples = samples.clone();
        tokio::spawn(async move {
            let mut wins = vec![0; KEYS as usize];
            for round in 0..ROUNDS {
                let steps = (0..KEYS).map(|number| {
                    let (store, samples) = (&store, &samples);
                    async move {
                        let key = samples.key(number);
                        let stored = store.load(&key, &[]).await.unwrap().stored;
                        let (expected, count) = match stored {
                            Some(stored) => (Expected::Version(stored.version), Samples::number(&stored.entity)),
                            None => (Expected::Absent, 0),
                        };
                        let done = [samples.done(round * KEYS + number)];
                        store.save(&key, &expected, &samples.entity(count + 1), &done).await.unwrap() != Saved::Conflict
                    }
                });
                for (wins, won) in wins.iter_mut().zip(join_all(steps).await) {
                    *wins += u32::from(won);
                }
            }
            wins
        })
    };
    let [one, other] = [count(first.clone()), count(second)];
    let (one, other) = (one.await.unwrap(), other.await.unwrap());
    end.store(true, Ordering::Relaxed);
    assert!(keeping.await.unwrap() > 0);
    for number in 0..KEYS {
        let stored = first.load(&samples.key(number), &[]).await.unwrap().stored.unwrap();
        let wins = one[number as usize] + other[number as usize];
        assert_eq!(Samples::number(&stored.entity), wins, "{number}");
        assert!(wins >= ROUNDS, "{number}: of two that write at once, one wins");
    }
}
