//! Promises about saves and versions.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{sync::Barrier, task::yield_now};

use super::{Builder, CURRENT, Checked, GUARDED, HANDS, KEPT, Kept, NEVER_AGAIN, WHOLE, hand::Hand};
use crate::{
    entity::{Entity, Expected, LiveTimeout, Version},
    ids::{EntityKey, MessageId},
    ports::Saved,
    testing::{
        Broken, samples,
        wait::{SideBySide, together},
    },
    time::Timestamp,
};

/// Promise 1. *Whole:* state, outbox and timeouts are saved together or not at all.
///
/// An entity with every field set comes back as it was; and readers beside a writer, whose saves have the same number in
/// state, outbox and timeouts, never see two numbers in one entity.
pub async fn whole(builder: &dyn Builder) -> Checked {
    let (writer, reader) = (Hand::new(builder, WHOLE).await, Hand::new(builder, WHOLE).await);
    let key = samples::new_key();
    let mut version = writer.create(&key, &samples::full_entity("first")).await?;
    for entity in [samples::full_entity("second"), samples::tombstone(), Entity::default()] {
        version = writer.replace(&key, &version, &entity).await?;
        let loaded = reader.load_at(&key, &version).await?.entity;
        if loaded != entity {
            return Err(reader.broken(format!("saved was {entity:+?}, loaded is {loaded:+?}")));
        }
    }
    never_torn(builder).await
}

async fn never_torn(builder: &dyn Builder) -> Checked {
    const SAVES: u64 = 100;
    let key = samples::new_key();
    let mut checks = SideBySide::default();
    let done = Arc::new(AtomicBool::new(false));
    for reader in Hand::several(builder, WHOLE, HANDS).await {
        let (key, done) = (key.clone(), done.clone());
        checks.add(async move {
            while !done.load(Ordering::Relaxed) {
                if let Some(stored) = reader.load(&key, &[]).await?.stored
                    && !is_numbered_throughout(&stored.entity)
                {
                    return Err(reader.broken(format!("parts of two saves are in one entity: {:?}", stored.entity)));
                }
                yield_now().await;
            }
            Ok(())
        });
    }
    let writer = Hand::new(builder, WHOLE).await;
    checks.add(async move {
        let written = write_numbered(&writer, &key, SAVES).await;
        done.store(true, Ordering::Relaxed); // Also when it failed, or the readers would not end.
        written
    });
    checks.end().await
}

async fn write_numbered(writer: &Hand, key: &EntityKey, saves: u64) -> Result<(), Broken> {
    let mut expected = Expected::Absent;
    for number in 1..=saves {
        let timeout = LiveTimeout { message_id: MessageId::random(), due: Timestamp::from_millis(number) };
        let entity = Entity { timeouts: vec![timeout], ..samples::entity(number, &[samples::entry(number)]) };
        expected = Expected::Version(writer.put(key, &expected, &entity).await?);
        yield_now().await;
    }
    Ok(())
}

fn is_numbered_throughout(entity: &Entity) -> bool {
    let number = entity.commits;
    entity.state == number.to_string().as_bytes()
        && entity.outbox.iter().all(|entry| entry.commit == number)
        && entity.timeouts.iter().all(|timeout| timeout.due.as_millis() == number)
        && (entity.outbox.len(), entity.timeouts.len()) == (1, 1)
}

/// Promise 2. *Guarded:* of several saves that expect the same, at most one returns [`Saved::At`]; a save that expects a
/// version of an entity that is not there is a conflict (S28, S50).
///
/// One after the other; then handles that race to create an entity; then handles that each write their name into one
/// entity many times, after which it holds every name as often as it was written.
pub async fn guarded(builder: &dyn Builder) -> Checked {
    let hands = Hand::several(builder, GUARDED, HANDS).await;
    let (one, other) = (&hands[0], &hands[1]);
    let key = samples::new_key();
    let (first, second, loser) = (samples::entity(1, &[]), samples::entity(2, &[]), samples::full_entity("loser"));

    let old = one.create(&key, &first).await?;
    other.lose(&key, &Expected::Absent, &loser, "of an entity that is there").await?;
    let current = other.replace(&key, &old, &second).await?;
    one.lose(&key, &Expected::Version(old.clone()), &loser, "that has been replaced").await?;
    if one.load_at(&key, &current).await?.entity != second {
        return Err(one.broken("a save that is a conflict has changed the entity"));
    }

    let missing = samples::entity_key(key.scope(), "missing");
    one.lose(&missing, &Expected::Version(current.clone()), &loser, "of an entity that never was").await?;
    one.expect_version(&missing, None, "after a save that is a conflict").await?;
    let end = one.replace(&key, &current, &samples::tombstone()).await?;
    one.purge(&key).await?;
    for gone in [&current, &end] {
        other.lose(&key, &Expected::Version(gone.clone()), &loser, "of an entity that was purged").await?;
    }
    one.expect_version(&key, None, "after saves that are conflicts").await?;

    race_to_create(&hands).await?;
    count_together(&hands).await
}

async fn race_to_create(hands: &[Hand]) -> Result<(), Broken> {
    const ROUNDS: usize = 20;
    for _ in 0..ROUNDS {
        let key = samples::new_key();
        let start = Arc::new(Barrier::new(hands.len()));
        let saves = hands.iter().cloned().enumerate().map(|(index, hand)| {
            let (key, start) = (key.clone(), start.clone());
            async move {
                start.wait().await;
                hand.save(&key, &Expected::Absent, &samples::entity(index, &[]), &[]).await
            }
        });
        let mut winners = together(saves).await?.into_iter().enumerate().filter_map(|(index, saved)| match saved {
            Saved::At(version) => Some((index, version)),
            Saved::Conflict => None,
        });
        let hand = &hands[0];
        let (winner, version) =
            winners.next().ok_or_else(|| hand.broken("of several saves that expect none, all are conflicts"))?;
        if winners.next().is_some() {
            return Err(hand.broken("of several saves that expect none, more than one won"));
        }
        if hand.load_at(&key, &version).await?.entity != samples::entity(winner, &[]) {
            return Err(hand.broken("what is stored is not what the winner saved"));
        }
    }
    Ok(())
}

async fn count_together(hands: &[Hand]) -> Checked {
    const EACH: usize = 25;
    let key = samples::new_key();
    let version = hands[0].create(&key, &samples::entity("", &[])).await?;
    let mut writers = SideBySide::default();
    for (name, hand) in ('a'..).zip(hands.iter().cloned()) {
        let key = key.clone();
        writers.add(async move {
            for count in 0..EACH {
                append(&hand, &key, &format!("{name}{count} ")).await?;
            }
            Ok(())
        });
    }
    writers.end().await?;

    let hand = &hands[0];
    let last = hand.version(&key).await?.unwrap_or(version);
    let state = hand.load_at(&key, &last).await?.entity.state;
    let words: Vec<&str> = std::str::from_utf8(&state).unwrap_or_default().split_whitespace().collect();
    let distinct = words.iter().collect::<HashSet<_>>().len();
    if (words.len(), distinct) != (EACH * hands.len(), EACH * hands.len()) {
        let (all, written) = (words.len(), EACH * hands.len());
        return Err(
            hand.broken(format!("of {written} confirmed saves the entity holds {distinct}, {all} with repeats"))
        );
    }
    Ok(Kept::Shown)
}

/// Loads, adds a word and saves, until the word is in.
async fn append(hand: &Hand, key: &EntityKey, word: &str) -> Result<(), Broken> {
    loop {
        if let Some(stored) = hand.load(key, &[]).await?.stored {
            let state = [&stored.entity.state[..], word.as_bytes()].concat();
            let longer = Entity { state: state.into(), ..stored.entity };
            yield_now().await;
            if let Saved::At(_) = hand.save(key, &Expected::Version(stored.version), &longer, &[]).await? {
                return Ok(());
            }
        }
        yield_now().await;
    }
}

/// Promise 3. *Never again:* a version is not reused for a key, not even after completion and purge (S49).
pub async fn never_again(builder: &dyn Builder) -> Checked {
    const LIVES: usize = 3;
    let hands = Hand::several(builder, NEVER_AGAIN, HANDS).await;
    let key = samples::new_key();
    let mut seen: Vec<Version> = Vec::new();
    for life in 0..LIVES {
        let hand = &hands[life % hands.len()];
        let mut expected = Expected::Absent;
        for entity in [samples::entity(life, &[]), samples::entity(life, &[]), samples::tombstone()] {
            let version = hand.put(&key, &expected, &entity).await?;
            if seen.contains(&version) {
                return Err(hand.broken(format!("version {version:?} was given twice, in life {life} of the entity")));
            }
            for old in &seen {
                let other = &hands[(life + 1) % hands.len()];
                other.lose(&key, &Expected::Version(old.clone()), &entity, "of long ago").await?;
            }
            seen.push(version.clone());
            expected = Expected::Version(version);
        }
        hand.purge(&key).await?;
    }
    Ok(Kept::Shown)
}

/// Promise 4. *Kept:* what `save` has confirmed is what every later `version` and primary read sees.
pub async fn kept(builder: &dyn Builder) -> Checked {
    const ROUNDS: usize = 20;
    let hands = Hand::several(builder, KEPT, HANDS).await;
    for round in 0..ROUNDS {
        let key = samples::new_key();
        let writer = &hands[round % hands.len()];
        let first = writer.create(&key, &samples::entity(1, &[])).await?;
        let second = writer.replace(&key, &first, &samples::entity(2, &[])).await?;
        for hand in &hands {
            hand.expect_version(&key, Some(&second), "after the save that made it another was confirmed").await?;
            hand.load_at(&key, &second).await?;
        }
        let late = Hand::new(builder, KEPT).await;
        late.expect_version(&key, Some(&second), "on a handle opened after the save was confirmed").await?;
    }
    Ok(Kept::Shown)
}

/// Promise 9. *Current:* `version` answers from the primary, never from a cache or a replica.
///
/// A handle that has asked before, and so could have kept the answer, sees each save, completion and purge at once.
pub async fn current(builder: &dyn Builder) -> Checked {
    const ROUNDS: usize = 20;
    let (writer, asker) = (Hand::new(builder, CURRENT).await, Hand::new(builder, CURRENT).await);
    let key = samples::new_key();
    asker.expect_version(&key, None, "before anything was saved").await?;
    let mut version = writer.create(&key, &samples::entity(0, &[])).await?;
    for round in 0..ROUNDS {
        asker.expect_version(&key, Some(&version), "after a save").await?;
        asker.load(&key, &[]).await?;
        version = writer.replace(&key, &version, &samples::entity(round, &[])).await?;
    }
    version = writer.replace(&key, &version, &samples::tombstone()).await?;
    asker.expect_version(&key, Some(&version), "after completion").await?;
    writer.purge(&key).await?;
    asker.expect_version(&key, None, "after the purge").await?;
    Ok(Kept::Shown)
}
