//! Promises about what is listed for the sweeper, and about purging.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use super::{Builder, Checked, HANDS, Kept, PENDING, PURGE_SPARES, hand::Hand};
use crate::{
    entity::{Entity, Expected, OutboxEntry, Version},
    ids::{EntityKey, Scope},
    ports::Pending,
    testing::{
        Broken, samples,
        wait::{eventually, insistently},
    },
};

/// Longer than any run: what is asked for by this age is not there.
const HOUR: Duration = Duration::from_secs(3600);

/// Promise 10. *Pending:* `pending` lists an entity whose entry is older than asked for, sooner or later, also when the
/// entity is saved all the time; younger entries are not listed.
pub async fn pending(builder: &dyn Builder) -> Checked {
    let (hand, asker) = (Hand::new(builder, PENDING).await, Hand::new(builder, PENDING).await);
    let scope = samples::scope();
    // Keys in the order of their bytes, which is not the order of any dictionary.
    let keys: Vec<EntityKey> = ["A", "B b", "Z", "a", "b", "é"].map(|key| samples::entity_key(&scope, key)).into();
    let mut waiting: Vec<(EntityKey, Version, Arc<OutboxEntry>)> = Vec::new();
    for key in keys.iter().rev() {
        let entry = samples::full_entry(1);
        let version = hand.create(key, &samples::entity(1, std::slice::from_ref(&entry))).await?;
        waiting.push((key.clone(), version, entry));
    }
    hand.create(&samples::entity_key(&scope, "nothing waiting"), &samples::entity(1, &[])).await?;
    hand.create(&samples::new_key(), &samples::entity(1, &[samples::entry(1)])).await?;

    if !list(&asker, &scope, HOUR, 2).await?.is_empty() {
        return Err(asker.broken("entries saved a moment ago are listed as older than an hour"));
    }
    expect_listed(&asker, &scope, &keys).await?;
    let listed = list(&asker, &scope, Duration::ZERO, 2).await?;
    for (key, _, entry) in &waiting {
        let attempts: Vec<_> = listed.iter().filter(|p| p.key == *key).flat_map(|p| &p.entries).collect();
        if attempts.len() != 1 || attempts[0].attempt != entry.attempt {
            return Err(asker.broken(format!("of {key} one attempt waits, listed are {attempts:?}")));
        }
    }

    let (cleaned, version, _) = &waiting[0];
    hand.replace(cleaned, version, &samples::entity(2, &[])).await?;
    let left: Vec<EntityKey> = keys.iter().filter(|key| *key != cleaned).cloned().collect();
    expect_listed(&asker, &scope, &left).await?;
    listed_while_busy(&hand, &asker).await
}

async fn expect_listed(asker: &Hand, scope: &Arc<Scope>, keys: &[EntityKey]) -> Result<(), Broken> {
    const PAGE: usize = 2;
    let never = || asker.broken(format!("in pages of {PAGE}, not just {keys:?} were listed, each once and in order"));
    let look = || async {
        let listed = list(asker, scope, Duration::ZERO, PAGE).await?;
        Ok(listed.iter().map(|pending| &pending.key).eq(keys).then_some(()))
    };
    eventually(never, look).await
}

/// All pages.
async fn list(asker: &Hand, scope: &Arc<Scope>, older_than: Duration, page: usize) -> Result<Vec<Pending>, Broken> {
    const PAGES_MAX: usize = 100;
    let mut all: Vec<Pending> = Vec::new();
    for _ in 0..PAGES_MAX {
        let after = all.last().map(|pending| pending.key.clone());
        let listing = || asker.store.pending(scope, older_than, after.as_ref(), page);
        let some = insistently(asker.promise, "listing what is pending", listing).await?;
        let young = some.iter().flat_map(|pending| &pending.entries).any(|entry| entry.age < older_than);
        if some.len() > page || young {
            return Err(asker.broken(format!("a page of {page}, older than {older_than:?}, is {some:?}")));
        }
        if some.is_empty() {
            return Ok(all);
        }
        all.extend(some);
    }
    Err(asker.broken("the pages have no end"))
}

/// An entry that many saves carry along does not become younger by it.
async fn listed_while_busy(hand: &Hand, asker: &Hand) -> Checked {
    const OLD: Duration = Duration::from_millis(200);
    let (key, entry) = (samples::new_key(), samples::entry(1));
    let busy = samples::entity("busy", std::slice::from_ref(&entry));
    let version = tokio::sync::Mutex::new(hand.create(&key, &busy).await?);
    let never = || asker.broken("an entry that waits in an entity that is saved all the time is never listed");
    let look = || async {
        let mut version = version.lock().await;
        *version = hand.replace(&key, &version, &busy).await?;
        let listed = list(asker, key.scope(), OLD, 1).await?;
        Ok(listed.iter().flat_map(|p| &p.entries).any(|old| old.attempt == entry.attempt).then_some(()))
    };
    eventually(never, look).await?;
    Ok(Kept::Shown)
}

/// Promise 11. *Purge spares:* `purge` removes completed entities with an empty outbox only, and only older ones than
/// asked for.
pub async fn purge_spares(builder: &dyn Builder) -> Checked {
    let hand = Hand::new(builder, PURGE_SPARES).await;
    let scope = samples::scope();
    let key = |name: &str| samples::entity_key(&scope, name);
    let unsent = Entity { outbox: vec![samples::entry(2)], ..samples::tombstone() };
    let mut spared = Vec::new();
    for (key, entity) in [
        (key("running"), samples::entity(1, &[])),
        (key("running and unsent"), samples::entity(1, &[samples::entry(1)])),
        (key("completed and unsent"), unsent),
        (samples::new_key(), samples::tombstone()),
    ] {
        let version = hand.create(&key, &entity).await?;
        spared.push((key, version));
    }
    let mut over: BTreeSet<EntityKey> = BTreeSet::new();
    for index in 0..HANDS {
        let key = key(&format!("completed {index}"));
        let version = hand.create(&key, &samples::full_entity("running")).await?;
        let version = hand.put(&key, &Expected::Version(version), &samples::tombstone()).await?;
        hand.load_at(&key, &version).await?;
        over.insert(key);
    }

    if purge(&hand, &scope, HOUR, 100).await? != 0 {
        return Err(hand.broken("tombstones of a moment ago were purged as older than an hour"));
    }
    let left = tokio::sync::Mutex::new(over.len());
    let never = || hand.broken("completed entities with an empty outbox were never purged");
    let look = || async {
        const LIMIT: usize = 1;
        let purged = purge(&hand, &scope, Duration::ZERO, LIMIT).await?;
        let mut left = left.lock().await;
        if purged > LIMIT || purged > *left {
            return Err(hand.broken(format!("a purge of at most {LIMIT}, with {left} to purge, removed {purged}")));
        }
        *left -= purged;
        Ok((*left == 0).then_some(()))
    };
    eventually(never, look).await?;
    for key in &over {
        hand.expect_version(key, None, "after the purge").await?;
    }
    purge(&hand, &scope, Duration::ZERO, 100).await?;
    for (key, version) in &spared {
        hand.expect_version(key, Some(version), &format!("after a purge that was to spare `{}`", key.key())).await?;
    }
    Ok(Kept::Shown)
}

async fn purge(hand: &Hand, scope: &Arc<Scope>, older_than: Duration, limit: usize) -> Result<usize, Broken> {
    insistently(hand.promise, "purging", || hand.store.purge(scope, older_than, limit)).await
}
