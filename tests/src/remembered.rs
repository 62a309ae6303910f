//! A test of rights makes a store do all that it does, by an account that may do what is documented and no more. This is the long memory's part.

use std::time::{Duration, Instant};

use hapax::{
    entity::DedupEntry,
    ids::DedupKey,
    ports::{DedupStore, Keep, LongMemory, Passed},
};

use crate::samples;

const PATIENCE: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3600);

/// Has a store that nobody else evicts from fold a number, put an idempotency key by and keep an id until it may go, and forget what
/// it waited for: all that a long memory does with its tables.
///
/// # Panics
/// Where it does not.
pub async fn remembered(store: &(impl DedupStore + LongMemory)) {
    let of = |kind: [u8; 4]| {
        let mut bytes = *samples::dedup_key().as_bytes();
        bytes[..4].copy_from_slice(&kind);
        DedupEntry { key: DedupKey::from_bytes(bytes), ..samples::mark() }
    };
    let (number, keyed, id) = (of(DedupKey::NUMBERED), of(DedupKey::KEYED), samples::mark());
    let endpoint = samples::endpoint();
    let keep = Keep { endpoint: &endpoint, retention: Duration::ZERO, keys: HOUR, fold: true, passed: Passed::Waits };
    store.evict_keeping(&keep).await.expect("an eviction");
    store.insert(&[number.clone(), keyed.clone(), id.clone()]).await.expect("an insert");
    let gone = async |keep: Option<&Keep<'_>>, keys: &[DedupKey]| {
        let begun = Instant::now();
        loop {
            let evicted = match keep {
                Some(keep) => store.evict_keeping(keep).await,
                None => store.evict(Duration::ZERO).await,
            };
            evicted.expect("an eviction");
            let known = store.contains(keys).await.expect("a check");
            if keys.iter().all(|key| known.entry(key).is_none()) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "an entry stays");
            tokio::time::sleep(Duration::from_millis(1)).await; // The time of the store's own clock.
        }
    };
    gone(Some(&keep), &[number.key, keyed.key]).await;
    let known = store.recall(&[number.key, keyed.key]).await.expect("what is remembered");
    assert!(known.is_folded(&number.key) && known.entry(&keyed.key) == Some(&keyed));
    assert!(store.contains(&[id.key]).await.expect("a check").entry(&id.key).is_some());
    store.moment().await.expect("a time");
    store.withdraw(&endpoint).await.expect("a withdrawal");
    gone(None, &[id.key]).await;
}
