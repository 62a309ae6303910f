//! Promises about entities and dedup entries together.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use tokio::task::yield_now;

use super::{
    Builder, COMPLETE, Checked, FINISH_MARKS_FIRST, HANDS, Kept, NOT_TOGETHER, ONE_SNAPSHOT, ONLY_WITH_THE_WINNER,
    hand::{Hand, Marks},
};
use crate::{
    entity::{DedupEntry, Entity, Expected, OutboxEntry, Version},
    ids::{DedupKey, EntityKey},
    ports::{Finished, Saved},
    testing::{
        Broken, samples,
        wait::{SideBySide, eventually, together},
    },
};

/// Promise 5. *One snapshot:* where `load` answers `known`, entity and dedup entries are of one instant, or the dedup
/// entries of a later one; it takes no lock for it.
///
/// A writer handles messages one after the other: saved with an entry and then finished, or saved with their mark.
/// Whatever instant a reader sees, a message that the entity counts as handled has its entry or its mark. A reader that
/// looked for marks first, or that waited for a lock between the two, finds neither and would handle it again (S01).
pub async fn one_snapshot(builder: &dyn Builder) -> Checked {
    const MESSAGES: u64 = 150;
    if Marks::of(builder, ONE_SNAPSHOT).await.is_none() {
        return Ok(Kept::NotClaimed(NOT_TOGETHER));
    }
    let entries: Arc<[_]> = (1..=MESSAGES).map(samples::entry).collect();
    let key = samples::new_key();
    let (done, readers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut checks = SideBySide::default();
    for reader in Hand::several(builder, ONE_SNAPSHOT, HANDS).await {
        let (key, entries, done, readers) = (key.clone(), entries.clone(), done.clone(), readers.clone());
        checks.add(async move {
            let ids: Vec<DedupKey> = entries.iter().map(|entry| entry.key).collect();
            readers.fetch_add(1, Ordering::Relaxed);
            // At least once after everything is written: a reader may have had no turn before.
            loop {
                let last = done.load(Ordering::Relaxed);
                expect_entry_or_mark(&reader, &key, &ids, &entries).await?;
                if last {
                    return Ok(());
                }
                yield_now().await;
            }
        });
    }
    let writer = Hand::new(builder, ONE_SNAPSHOT).await;
    checks.add(async move {
        while readers.load(Ordering::Relaxed) < HANDS {
            yield_now().await; // Nobody has looked yet.
        }
        let written = handle_all(&writer, &key, &entries).await;
        done.store(true, Ordering::Relaxed); // Also when it failed, or the readers would not end.
        written
    });
    checks.end().await
}

async fn expect_entry_or_mark(
    reader: &Hand,
    key: &EntityKey,
    ids: &[DedupKey],
    entries: &[Arc<OutboxEntry>],
) -> Result<(), Broken> {
    let loaded = reader.load(key, ids).await?;
    let Some(stored) = loaded.stored else { return Ok(()) };
    let known = loaded.known.ok_or_else(|| reader.broken("`load` does not answer `known` although it says it does"))?;
    for entry in entries.iter().take_while(|entry| entry.commit <= stored.entity.commits) {
        if stored.entity.entry(&entry.key).is_none() && !known.attempt(&entry.key, &entry.attempt) {
            let (commit, commits) = (entry.commit, stored.entity.commits);
            return Err(reader.broken(format!(
                "the entity has handled {commits} messages, but of number {commit} there is neither entry nor mark"
            )));
        }
    }
    Ok(())
}

async fn handle_all(writer: &Hand, key: &EntityKey, entries: &[Arc<OutboxEntry>]) -> Result<(), Broken> {
    let mut expected = Expected::Absent;
    for entry in entries {
        let mark = entry.to_dedup_entry();
        let handled = Entity { commits: entry.commit, ..samples::entity(entry.commit, &[]) };
        let version = if entry.commit % 2 == 0 {
            match writer.save(key, &expected, &handled, &[mark]).await? {
                Saved::At(version) => version,
                Saved::Conflict => return Err(writer.broken("the only writer's save is a conflict")),
            }
        } else {
            let waiting = Entity { outbox: vec![entry.clone()], ..handled.clone() };
            let version = writer.put(key, &expected, &waiting).await?;
            yield_now().await;
            match writer.finish_together(key, &[mark], Some((&version, &handled))).await? {
                Finished::Cleaned(Some(version)) => version,
                // What is saved next may meet the clean-up on its way.
                Finished::Later => cleaned_later(writer, key, (&version, &handled)).await?,
                other => return Err(writer.broken(format!("the only writer's finish is {other:?}"))),
            }
        };
        expected = Expected::Version(version);
        yield_now().await;
    }
    Ok(())
}

/// Promise 6. *Only with the winner:* `processed` is stored in the same commit as the entity and only if that save wins.
/// A store that keeps entities only refuses it before it writes.
pub async fn only_with_the_winner(builder: &dyn Builder) -> Checked {
    let hands = Hand::several(builder, ONLY_WITH_THE_WINNER, HANDS).await;
    let hand = &hands[0];
    let Some(marks) = Marks::of(builder, ONLY_WITH_THE_WINNER).await else { return refuses_processed(hand).await };

    let (key, entity) = (samples::new_key(), samples::entity(1, &[]));
    let old = hand.create(&key, &entity).await?;
    hand.replace(&key, &old, &entity).await?;
    let missing = samples::entity_key(key.scope(), "missing");
    let stale = Expected::Version(old);
    for (key, expected) in [(&key, &stale), (&key, &Expected::Absent), (&missing, &stale)] {
        let mark = samples::mark();
        if let Saved::At(_) = hand.save(key, expected, &entity, std::slice::from_ref(&mark)).await? {
            return Err(hand.broken("a save that expects what is not stored won"));
        }
        marks.expect_none(&mark, "of a save that is a conflict").await?;
    }

    const ROUNDS: usize = 20;
    for _ in 0..ROUNDS {
        race_with_marks(&hands, &marks).await?;
    }
    Ok(Kept::Shown)
}

async fn race_with_marks(racers: &[Hand], marks: &Marks) -> Result<(), Broken> {
    let key = samples::new_key();
    let saves = racers.iter().cloned().map(|hand| {
        let (key, mark) = (key.clone(), samples::full_mark());
        async move {
            let saved = hand.save(&key, &Expected::Absent, &samples::entity(1, &[]), std::slice::from_ref(&mark)).await;
            Ok((saved?, mark))
        }
    });
    for (saved, mark) in together(saves).await? {
        match saved {
            Saved::At(_) => marks.expect(&mark, "of a save that won").await?,
            Saved::Conflict => marks.expect_none(&mark, "of a save that lost a race").await?,
        }
    }
    Ok(())
}

async fn refuses_processed(hand: &Hand) -> Checked {
    let (key, mark) = (samples::new_key(), samples::mark());
    let saved = hand.store.save(&key, &Expected::Absent, &samples::entity(1, &[]), &[mark]).await;
    if saved.is_ok() {
        return Err(hand.broken("a store that keeps entities only has taken `processed`"));
    }
    hand.expect_version(&key, None, "after `processed` was refused").await?;
    Ok(Kept::Shown)
}

/// Promise 7. *Finish marks first:* after `finish` has returned `Some`, every entry of `done` is in the dedup store,
/// whether the clean-up won or not. A store that keeps entities only answers `None` and does nothing.
pub async fn finish_marks_first(builder: &dyn Builder) -> Checked {
    let hand = Hand::new(builder, FINISH_MARKS_FIRST).await;
    let key = samples::new_key();
    let entries = [samples::full_entry(1), samples::entry(2)];
    let waiting = samples::entity("waiting", &entries);
    let clean = Entity { outbox: Vec::new(), ..waiting.clone() };
    let done: Vec<DedupEntry> = entries.iter().map(|entry| entry.to_dedup_entry()).collect();
    let version = hand.create(&key, &waiting).await?;
    let Some(marks) = Marks::of(builder, FINISH_MARKS_FIRST).await else {
        if hand.finish(&key, &done, Some((&version, &clean))).await?.is_some() {
            return Err(hand.broken("`finish` answers although the store keeps entities only"));
        }
        hand.expect_version(&key, Some(&version), "after a finish that is `None`").await?;
        return Ok(Kept::Shown);
    };

    let finished = hand.finish_together(&key, &done, Some((&version, &clean))).await?;
    for mark in &done {
        marks.expect(mark, "after a finish").await?;
    }
    let cleaned = match finished {
        Finished::Cleaned(Some(cleaned)) => cleaned,
        Finished::Later => cleaned_later(&hand, &key, (&version, &clean)).await?,
        other => return Err(hand.broken(format!("a finish that nobody raced is {other:?}"))),
    };
    hand.expect_version(&key, Some(&cleaned), "after a finish that answered another").await?;
    if cleaned == version || hand.load_at(&key, &cleaned).await?.entity != clean {
        return Err(hand.broken("a finish that says it has cleaned up has not, or kept the version"));
    }

    let missing = samples::entity_key(key.scope(), "missing");
    for (key, now) in [(&key, Some(&cleaned)), (&missing, None)] {
        let mark = samples::mark();
        expect_left(&hand, &marks, key, (&version, &clean), mark).await?;
        hand.expect_version(key, now, "after a clean-up that lost").await?;
    }
    only_marks(&hand, &marks, &key, &cleaned).await
}

/// The version of an entity whose clean-up the store has left for later, once it is made.
async fn cleaned_later(hand: &Hand, key: &EntityKey, (before, clean): (&Version, &Entity)) -> Result<Version, Broken> {
    let never = || hand.broken("a clean-up that was left for later is never made");
    eventually(never, || async {
        let stored = hand.load(key, &[]).await?.stored;
        let stored = stored.ok_or_else(|| hand.broken("an entity is gone whose clean-up was left for later"))?;
        let is_made = stored.version != *before;
        if is_made && stored.entity != *clean {
            return Err(hand.broken("a clean-up that was left for later has made the entity another one"));
        }
        Ok(is_made.then_some(stored.version))
    })
    .await
}

async fn expect_left(
    hand: &Hand,
    marks: &Marks,
    key: &EntityKey,
    stale: (&Version, &Entity),
    mark: DedupEntry,
) -> Result<(), Broken> {
    let finished = hand.finish_together(key, std::slice::from_ref(&mark), Some(stale)).await?;
    // One that is left for later has not met what is stored, and loses when it does.
    if !matches!(finished, Finished::Left | Finished::Later) {
        return Err(hand.broken(format!("a finish whose clean-up has to lose is {finished:?}")));
    }
    marks.expect(&mark, "after a finish whose clean-up lost").await
}

async fn only_marks(hand: &Hand, marks: &Marks, key: &EntityKey, version: &Version) -> Checked {
    let mark = samples::mark();
    for time in ["first", "second"] {
        let finished = hand.finish_together(key, std::slice::from_ref(&mark), None).await?;
        if finished != Finished::Cleaned(None) {
            return Err(hand.broken(format!("a {time} finish with nothing to clean up is {finished:?}")));
        }
        marks.expect(&mark, "after a finish with nothing to clean up").await?;
    }
    hand.expect_version(key, Some(version), "after finishes with nothing to clean up").await?;
    Ok(Kept::Shown)
}

/// Promise 14. *Complete:* where `load` answers `known`, it answers for every id asked for and for the key of every
/// entry in the entity, also when the dedup entry is of another attempt than the outbox entry; and it knows nothing that
/// was not inserted.
pub async fn complete(builder: &dyn Builder) -> Checked {
    let hand = Hand::new(builder, COMPLETE).await;
    let Some(marks) = Marks::of(builder, COMPLETE).await else { return Ok(Kept::NotClaimed(NOT_TOGETHER)) };
    let entries: Vec<_> = (1..=3).map(samples::full_entry).collect();
    let key = samples::new_key();
    hand.create(&key, &samples::entity(1, &entries)).await?;

    let same_attempt = entries[0].to_dedup_entry();
    let other_attempt = DedupEntry { attempt: samples::attempt(), ..entries[1].to_dedup_entry() };
    let (asked, unasked) = (samples::full_mark(), samples::full_mark());
    let inserted = [same_attempt, other_attempt, asked, unasked];
    let absent = samples::entity_key(key.scope(), "absent");
    if marks.alone() {
        marks.insert(&inserted).await?;
    } else {
        for (key, marks) in [(&key, &inserted[..3]), (&absent, &inserted[3..])] {
            let finished = hand.finish_together(key, marks, None).await?;
            if finished != Finished::Cleaned(None) {
                return Err(hand.broken(format!("a finish with nothing to clean up is {finished:?}")));
            }
        }
    }
    let nobody = samples::dedup_key();
    let never = || hand.broken("`known` never showed all that was inserted, of ids and of entries in the entity");
    let look = || async {
        let known = hand.load(&key, &[nobody, inserted[2].key]).await?.known;
        let known = known.ok_or_else(|| hand.broken("`load` does not answer `known` although it says it does"))?;
        if known.entry(&nobody).or_else(|| known.entry(&entries[2].key)).is_some() {
            return Err(hand.broken("`load` knows a message that is not over"));
        }
        let all = inserted[..3].iter().all(|mark| known.entry(&mark.key).is_some_and(|found| is_whole(found, mark)));
        Ok(all.then_some(()))
    };
    eventually(never, look).await?;

    let never = || hand.broken("`known` never showed an inserted mark beside an entity that is not there");
    let look = || async {
        let known = hand.load(&absent, &[inserted[3].key]).await?.known;
        Ok(known.filter(|known| known.attempt(&inserted[3].key, &inserted[3].attempt)))
    };
    eventually(never, look).await?;
    Ok(Kept::Shown)
}

/// Whether all that counts came back.
pub(crate) fn is_whole(found: &DedupEntry, inserted: &DedupEntry) -> bool {
    DedupEntry { time: inserted.time, ..found.clone() } == *inserted
}
