//! Reads: the truth or an error, and that one of those that say nothing.

use std::{fmt::Debug, time::Duration};

use hapax::{
    entity::{DedupEntry, Expected, Version},
    ids::{DedupKey, EntityKey},
    ports::{ErrorKind, Page, Saved, StoreError, Stored},
};

use super::{Ports, marks::insert_into, trouble::Armed};
use crate::samples;

/// What a read may say where things go wrong.
fn judge<T: Debug>(answer: Result<T, StoreError>, is_true: impl FnOnce(&T) -> bool) -> Result<(), String> {
    match answer {
        Ok(answer) if is_true(&answer) => Ok(()),
        Ok(answer) => Err(format!("it answers {answer:?}")),
        Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Malformed) => Ok(()),
        Err(error) => Err(format!("a read ends with {error:?}")),
    }
}

/// The same for one that nothing goes wrong with.
fn judge_plain<T: Debug>(answer: Result<T, StoreError>, is_true: impl FnOnce(&T) -> bool) -> Result<(), String> {
    match answer {
        Ok(answer) if is_true(&answer) => Ok(()),
        other => Err(format!("asked again, it answers {other:?}")),
    }
}

/// Saves what is not there.
pub(super) async fn prepared(
    plain: &Ports,
    key: &EntityKey,
    entity: &hapax::entity::Entity,
) -> Result<Version, String> {
    match plain.entities().save(key, &Expected::Absent, entity, &[]).await {
        Ok(Saved::At(version)) => Ok(version),
        other => Err(format!("preparing: {other:?}")),
    }
}

pub(super) async fn load(faulty: &Ports, plain: &Ports, armed: &Armed<'_>, bytes: usize) -> Result<(), String> {
    let (key, waits) = (samples::key("one"), samples::entry(1));
    let entity = samples::entity(samples::state(bytes), std::slice::from_ref(&waits));
    let version = prepared(plain, &key, &entity).await?;
    let (mark, absent) = (samples::mark(), samples::dedup_key());
    insert_into(plain, &key, &[mark.clone(), waits.to_dedup_entry()]).await?;
    let stored = Stored { version, entity };
    let ids = [mark.key, absent];
    let is_true = |loaded: &hapax::ports::Loaded| {
        let is_known = loaded.known.as_ref().is_none_or(|known| {
            let is_over = |entry: &DedupEntry| known.entry(&entry.key) == Some(entry);
            is_over(&mark) && is_over(&waits.to_dedup_entry()) && known.entry(&absent).is_none()
        });
        loaded.stored.as_ref() == Some(&stored) && is_known
    };
    judge(armed.call(faulty.entities().load(&key, &ids)).await, is_true)?;
    judge_plain(plain.entities().load(&key, &ids).await, is_true)
}

pub(super) async fn version(faulty: &Ports, plain: &Ports, armed: &Armed<'_>) -> Result<(), String> {
    let key = samples::key("one");
    let version = Some(prepared(plain, &key, &samples::entity(samples::state(0), &[])).await?);
    judge(armed.call(faulty.entities().version(&key)).await, |answer| *answer == version)?;
    judge_plain(plain.entities().version(&key).await, |answer| *answer == version)
}

pub(super) async fn pending(faulty: &Ports, plain: &Ports, armed: &Armed<'_>) -> Result<(), String> {
    let (key, waits) = (samples::key("one"), samples::entry(1));
    prepared(plain, &key, &samples::entity(samples::state(0), std::slice::from_ref(&waits))).await?;
    let is_true = |listed: &Vec<hapax::ports::Pending>| match &listed[..] {
        [pending] => pending.key == key && pending.entries.iter().all(|entry| entry.attempt == waits.attempt),
        _ => false,
    };
    let scope = key.scope();
    // A hint: what is not listed now is listed the next time.
    let may_be = |listed: &Vec<hapax::ports::Pending>| listed.is_empty() || is_true(listed);
    judge(armed.call(faulty.entities().pending(scope, Duration::ZERO, None, 10)).await, may_be)?;
    judge_plain(plain.entities().pending(scope, Duration::ZERO, None, 10).await, is_true)
}

pub(super) async fn contains(faulty: &Ports, plain: &Ports, armed: &Armed<'_>, count: usize) -> Result<(), String> {
    let marks: Vec<DedupEntry> = (0..count).map(|_| samples::mark()).collect();
    insert_into(plain, &samples::key("one"), &marks).await?;
    let mut keys: Vec<DedupKey> = marks.iter().map(|mark| mark.key).collect();
    let absent = samples::dedup_key();
    if count > 1 {
        keys.push(absent);
    }
    let is_true = |known: &hapax::ports::Known| {
        known.entry(&absent).is_none() && marks.iter().all(|mark| known.entry(&mark.key) == Some(mark))
    };
    judge(armed.call(faulty.dedup().contains(&keys)).await, is_true)?;
    judge_plain(plain.dedup().contains(&keys).await, is_true)
}

pub(super) async fn list(faulty: &Ports, plain: &Ports, armed: &Armed<'_>, bytes: usize) -> Result<(), String> {
    let letter = samples::letter(samples::endpoint(), vec![b'b'; bytes]);
    plain.letters().add(&letter).await.map_err(|error| format!("preparing: {error:?}"))?;
    let is_true = |listed: &Vec<hapax::ports::DeadLetter>| listed[..] == [letter.clone()];
    let page = Page::first(10);
    judge(armed.call(faulty.letters().list(&letter.endpoint, &page)).await, is_true)?;
    judge_plain(plain.letters().list(&letter.endpoint, &page).await, is_true)
}
