//! Promises about calls that share a commit.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::{sync::Barrier, time::sleep};

use super::{
    Builder, Checked, HONEST_ERRORS, Kept, ONLY_WITH_THE_WINNER, OWN_RESULT,
    hand::{Hand, Marks},
};
use crate::{
    entity::{DedupEntry, Entity, Expected, Version},
    ids::EntityKey,
    ports::{EntityStore, ErrorKind, Saved, StoreError},
    testing::{Broken, samples, wait::together},
};

/// Saves that each round begins at once, per key. The store may put them into one commit.
const RIVALS: usize = 4;
/// Keys in one round.
const KEYS: usize = 8;

/// How long a write that was refused for sure is given to come all the same.
const LATE: Duration = Duration::from_millis(200);

/// Promise 8. *Own result:* a call that shares a commit with others is told its own result, also when others use the same
/// key.
///
/// Through one handle and at once: for each of several keys, saves that expect what is stored, one that expects what was
/// stored before, and one that expects nothing; each with a mark where the store keeps both. One of the first wins and is
/// what is stored; all others are told that they have lost, and have left no mark; and no loser spoils the commit of a
/// winner.
pub async fn own_result(builder: &dyn Builder) -> Checked {
    const ROUNDS: usize = 10;
    let hand = Hand::new(builder, OWN_RESULT).await;
    let marks = Marks::of(builder, ONLY_WITH_THE_WINNER).await;
    let scope = samples::scope();
    let mut rounds: Vec<_> = Vec::with_capacity(KEYS);
    for index in 0..KEYS {
        let key = samples::entity_key(&scope, &format!("key {index}"));
        let old = hand.create(&key, &samples::entity("old", &[])).await?;
        let current = hand.replace(&key, &old, &samples::entity("current", &[])).await?;
        rounds.push((key, old, current));
    }
    for _ in 0..ROUNDS {
        let start = Arc::new(Barrier::new(KEYS * (RIVALS + 2)));
        let calls =
            rounds.iter().flat_map(|(key, old, current)| one_key(&hand, &start, key, old, current, marks.is_some()));
        let answers = together(calls.collect::<Vec<_>>()).await?;
        for ((key, old, current), answers) in rounds.iter_mut().zip(answers.chunks(RIVALS + 2)) {
            let winner = only_winner(&hand, key, answers).await?;
            for answer in answers {
                expect_own_marks(marks.as_ref(), answer).await?;
            }
            *old = std::mem::replace(current, winner);
        }
    }
    Ok(Kept::Shown)
}

/// What one save of a round was about, and what it was told.
struct Answer {
    saved: Saved,
    entity: Entity,
    processed: Vec<DedupEntry>,
    may_win: bool,
}

fn one_key(
    hand: &Hand,
    start: &Arc<Barrier>,
    key: &EntityKey,
    old: &Version,
    current: &Version,
    marked: bool,
) -> Vec<impl Future<Output = Result<Answer, Broken>> + Send + use<>> {
    let rivals = (0..RIVALS).map(|_| (Expected::Version(current.clone()), true));
    let losers = [(Expected::Version(old.clone()), false), (Expected::Absent, false)];
    let calls = rivals.chain(losers).map(|(expected, may_win)| {
        let (hand, start, key) = (hand.clone(), start.clone(), key.clone());
        async move {
            let entity = samples::entity("rival", &[samples::entry(1)]);
            let processed: Vec<DedupEntry> = marked.then(samples::mark).into_iter().collect();
            start.wait().await;
            let saved = hand.save(&key, &expected, &entity, &processed).await?;
            Ok(Answer { saved, entity, processed, may_win })
        }
    });
    calls.collect()
}

async fn only_winner(hand: &Hand, key: &EntityKey, answers: &[Answer]) -> Result<Version, Broken> {
    let mut winner = None;
    for answer in answers {
        let Saved::At(version) = &answer.saved else { continue };
        if !answer.may_win {
            return Err(hand.broken("a save that expected what was not stored was told that it won"));
        }
        if winner.replace((version, &answer.entity)).is_some() {
            return Err(hand.broken("two saves of one key that expected the same were both told that they won"));
        }
    }
    let Some((version, entity)) = winner else {
        return Err(hand.broken("of several saves that expect what is stored, none was told that it won"));
    };
    hand.expect_version(key, Some(version), "after a save that was told another").await?;
    if hand.load_at(key, version).await?.entity != *entity {
        return Err(hand.broken("what is stored is not what the save that was told it won has saved"));
    }
    Ok(version.clone())
}

async fn expect_own_marks(marks: Option<&Marks>, answer: &Answer) -> Result<(), Broken> {
    let Some(marks) = marks else { return Ok(()) };
    for mark in &answer.processed {
        match answer.saved {
            Saved::At(_) => marks.expect(mark, "of a save that was told that it won").await?,
            Saved::Conflict => marks.expect_none(mark, "of a save that lost beside others in one commit").await?,
        }
    }
    Ok(())
}

/// Promise 13. *Honest errors:* an error of any kind but [`ErrorKind::UnknownOutcome`] means that nothing was written and
/// nothing will be.
///
/// Judged on the errors of [`Builder::faulty`]: what was refused for sure is not there, neither at once nor when all
/// calls have ended; what was confirmed is. A conflict may be the call's own write, repeated by a client library, and
/// says nothing either way.
pub async fn honest_errors(builder: &dyn Builder) -> Checked {
    const CALLS: usize = 100;
    let Some(faulty) = builder.faulty().await else {
        return Ok(Kept::NotClaimed("the builder has no faulty handle"));
    };
    let hand = Hand::new(builder, HONEST_ERRORS).await;
    let marks = Marks::of(builder, HONEST_ERRORS).await;
    let mut refused = Refused::default();
    let mut errors = 0_usize;
    for number in 0..CALLS {
        let key = samples::new_key();
        let saved = faulty.save(&key, &Expected::Absent, &samples::entity(number, &[]), &[]).await;
        errors += usize::from(saved.is_err());
        let version = match saved {
            Ok(Saved::At(version)) => {
                hand.expect_version(&key, Some(&version), "after a confirmed save").await?;
                version
            }
            Ok(Saved::Conflict) => continue,
            Err(e) => {
                if is_definite(&e) {
                    refused.entities.push((key, None));
                    refused.expect_nothing(&hand, marks.as_ref(), 1).await?;
                }
                continue;
            }
        };
        errors += update(&*faulty, key, version, &mut refused, marks.is_some()).await;
        refused.expect_nothing(&hand, marks.as_ref(), 1).await?;
    }
    sleep(LATE).await;
    refused.expect_nothing(&hand, marks.as_ref(), usize::MAX).await?;
    if errors == 0 {
        return Err(hand.broken("the faulty handle gave no error in all its calls, so this has shown nothing"));
    }
    if refused.entities.is_empty() {
        return Ok(Kept::NotClaimed("the faulty handle gave unknown outcomes only"));
    }
    Ok(Kept::Shown)
}

/// A second save, and a finish where the store has both; answers how many of them failed.
async fn update(
    faulty: &dyn EntityStore,
    key: EntityKey,
    version: Version,
    refused: &mut Refused,
    finishes: bool,
) -> usize {
    let entity = samples::entity("updated", &[]);
    if !finishes {
        let saved = faulty.save(&key, &Expected::Version(version.clone()), &entity, &[]).await;
        let failed = usize::from(saved.is_err());
        if saved.is_err_and(|e| is_definite(&e)) {
            refused.entities.push((key, Some(version)));
        }
        return failed;
    }
    let mark = samples::mark();
    let finished = faulty.finish(&key, std::slice::from_ref(&mark), Some((&version, &entity))).await;
    let failed = usize::from(finished.is_err());
    if finished.is_err_and(|e| is_definite(&e)) {
        refused.entities.push((key, Some(version)));
        refused.marks.push(mark);
    }
    failed
}

fn is_definite(error: &StoreError) -> bool {
    error.kind() != ErrorKind::UnknownOutcome
}

/// What must not have been written.
#[derive(Default)]
struct Refused {
    /// With the version that is still to be there.
    entities: Vec<(EntityKey, Option<Version>)>,
    marks: Vec<DedupEntry>,
}

impl Refused {
    /// Looks at the newest.
    async fn expect_nothing(&self, hand: &Hand, marks: Option<&Marks>, newest: usize) -> Result<(), Broken> {
        for (key, version) in self.entities.iter().rev().take(newest) {
            hand.expect_version(key, version.as_ref(), "although the write was refused for sure").await?;
        }
        if let Some(marks) = marks {
            for mark in self.marks.iter().rev().take(newest) {
                marks.expect_none(mark, "although the finish was refused for sure").await?;
            }
        }
        Ok(())
    }
}
