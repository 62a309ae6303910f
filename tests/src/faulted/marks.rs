//! Dedup entries and dead letters.

use hapax::{
    entity::DedupEntry,
    ids::{DedupKey, EntityKey},
    ports::{ErrorKind, Known, Page, StoreError},
};

use super::{Ports, trouble::Armed};
use crate::samples;

/// What a write has said.
#[derive(Debug)]
pub(super) enum Said<T> {
    Done(T),
    /// It may have happened.
    Unknown,
    /// It has not happened and never will.
    Refused(StoreError),
}

impl<T> Said<T> {
    /// Of the kinds of errors those that trouble on the way may have.
    pub(super) fn of(answer: Result<T, StoreError>) -> Result<Self, String> {
        match answer {
            Ok(done) => Ok(Self::Done(done)),
            Err(error) if error.is_unknown_outcome() => Ok(Self::Unknown),
            // What is there, and stops the write, cannot be read.
            Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Malformed) => {
                Ok(Self::Refused(error))
            }
            Err(error) => Err(format!("a write ends with {error:?}")),
        }
    }
}

/// Inserts beside the entity of `key`, where that is where they are.
pub(super) async fn insert_into(plain: &Ports, key: &EntityKey, marks: &[DedupEntry]) -> Result<(), String> {
    let preparing = |error: StoreError| format!("preparing: {error:?}");
    match &plain.entities {
        Some(entities) if entities.capabilities().together => {
            entities.finish(key, marks, None).await.map(drop).map_err(preparing)
        }
        _ => plain.dedup().insert(marks).await.map_err(preparing),
    }
}

/// What is known of `keys` beside the entity of `key`.
pub(super) async fn known(plain: &Ports, key: &EntityKey, keys: &[DedupKey]) -> Result<Known, String> {
    let looking = |error: StoreError| format!("looking at what is known: {error:?}");
    if let Some(entities) = plain.entities.as_ref().filter(|entities| entities.capabilities().together) {
        let loaded = entities.load(key, keys).await.map_err(looking)?;
        return loaded.known.ok_or_else(|| "a load does not say what is known".to_owned());
    }
    plain.dedup().contains(keys).await.map_err(looking)
}

/// How many of `marks` are known as they are.
pub(super) async fn marked(plain: &Ports, key: &EntityKey, marks: &[DedupEntry]) -> Result<usize, String> {
    let keys: Vec<DedupKey> = marks.iter().map(|mark| mark.key).collect();
    let known = known(plain, key, &keys).await?;
    Ok(marks.iter().filter(|mark| known.entry(&mark.key) == Some(mark)).count())
}

pub(super) async fn insert(faulty: &Ports, plain: &Ports, armed: &Armed<'_>, count: usize) -> Result<(), String> {
    let marks: Vec<DedupEntry> = (0..count).map(|_| samples::mark()).collect();
    let nowhere = samples::key("one");
    let said = Said::of(armed.call(faulty.dedup().insert(&marks)).await)?;
    match (said, marked(plain, &nowhere, &marks).await?) {
        (Said::Done(()), marked) if marked < count => return Err(format!("done, and {marked} of {count} are there")),
        (Said::Refused(error), marked @ 1..) => return Err(format!("{error:?}, and {marked} of {count} are there")),
        _ => {}
    }
    plain.dedup().insert(&marks).await.map_err(|error| format!("inserted again: {error:?}"))?;
    match marked(plain, &nowhere, &marks).await? {
        all if all == count => Ok(()),
        some => Err(format!("inserted again, and {some} of {count} are there")),
    }
}

pub(super) async fn insert_known(faulty: &Ports, plain: &Ports, armed: &Armed<'_>) -> Result<(), String> {
    let first = samples::mark();
    plain.dedup().insert(std::slice::from_ref(&first)).await.map_err(|error| format!("preparing: {error:?}"))?;
    let other = DedupEntry { key: first.key, ..samples::mark() };
    // Nothing is written, whatever it says.
    Said::of(armed.call(faulty.dedup().insert(std::slice::from_ref(&other))).await)?;
    plain.dedup().insert(&[other]).await.map_err(|error| format!("inserted again: {error:?}"))?;
    match marked(plain, &samples::key("one"), &[first]).await? {
        1 => Ok(()),
        _ => Err("what was there first is there no more".to_owned()),
    }
}

pub(super) async fn add(faulty: &Ports, plain: &Ports, armed: &Armed<'_>, bytes: usize) -> Result<(), String> {
    let letter = samples::letter(samples::endpoint(), vec![b'b'; bytes]);
    let listed = async || {
        let listed = plain.letters().list(&letter.endpoint, &Page::first(10)).await;
        listed.map_err(|error| format!("listing: {error:?}"))
    };
    let said = Said::of(armed.call(faulty.letters().add(&letter)).await)?;
    let there = listed().await?;
    match said {
        Said::Done(()) if there[..] != [letter.clone()] => return Err(format!("done, and there is {there:?}")),
        Said::Refused(error) if !there.is_empty() => return Err(format!("{error:?}, and it is there")),
        _ => {}
    }
    plain.letters().add(&letter).await.map_err(|error| format!("added again: {error:?}"))?;
    match listed().await? {
        there if there[..] == [letter.clone()] => Ok(()),
        there => Err(format!("added again, and there is {there:?}")),
    }
}

pub(super) async fn discard(faulty: &Ports, plain: &Ports, armed: &Armed<'_>, bytes: usize) -> Result<(), String> {
    let letter = samples::letter(samples::endpoint(), vec![b'b'; bytes]);
    let other = samples::letter(letter.endpoint.clone(), vec![b'c'; bytes]);
    for letter in [&letter, &other] {
        plain.letters().add(letter).await.map_err(|error| format!("preparing: {error:?}"))?;
    }
    let is_there = async || {
        let listed = plain.letters().list(&letter.endpoint, &Page::first(10)).await;
        let listed = listed.map_err(|error| format!("listing: {error:?}"))?;
        if listed.contains(&other) { Ok(listed.contains(&letter)) } else { Err("another is gone".to_owned()) }
    };
    let discarded = std::slice::from_ref(&letter);
    let said = Said::of(armed.call(faulty.letters().discard(discarded)).await)?;
    match (said, is_there().await?) {
        (Said::Done(count), true) => return Err(format!("done, {count} of 1, and it is there")),
        (Said::Done(count @ 2..), false) => return Err(format!("{count} of 1 are discarded")),
        (Said::Refused(error), false) => return Err(format!("{error:?}, and it is gone")),
        _ => {}
    }
    plain.letters().discard(discarded).await.map_err(|error| format!("discarded again: {error:?}"))?;
    if is_there().await? { Err("discarded again, and it is there".to_owned()) } else { Ok(()) }
}
