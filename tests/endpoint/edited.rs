//! A letter that is edited is not lost and not doubled, whatever becomes of the edit: each of its writes is refused, unanswered with and without
//! effect, or the death of who edits, before or after.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    InProcess, Memory,
    envelope::Envelope,
    ids::EndpointName,
    ports::{DeadLetter, DeadLetters, ErrorKind, Page, StoreError},
};
use tokio::time::timeout;

use crate::{
    office::{add, all, office},
    work::{Log, Task, done, endpoint, letters, task},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    Refused,
    AppliedUntold,
    LostUntold,
    DiesBefore,
    DiesAfter,
}

const TROUBLES: [Trouble; 5] =
    [Trouble::Refused, Trouble::AppliedUntold, Trouble::LostUntold, Trouble::DiesBefore, Trouble::DiesAfter];

/// A place for letters with trouble at one of its writes.
#[derive(Debug, Clone)]
struct Place {
    kept: Memory,
    trouble: Trouble,
    at: usize,
    writes: Arc<AtomicUsize>,
}

impl Place {
    async fn write<T>(&self, write: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        if self.writes.fetch_add(1, Ordering::SeqCst) != self.at {
            return write.await;
        }
        if matches!(self.trouble, Trouble::AppliedUntold | Trouble::DiesAfter) {
            write.await?;
        }
        let error = |kind| Err(StoreError::new(kind, "writing letters", "as the test wants it"));
        match self.trouble {
            Trouble::Refused => error(ErrorKind::Unavailable),
            Trouble::AppliedUntold | Trouble::LostUntold => error(ErrorKind::UnknownOutcome),
            Trouble::DiesBefore | Trouble::DiesAfter => pending().await,
        }
    }
}

#[async_trait]
impl DeadLetters for Place {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        self.write(self.kept.add(letter)).await
    }

    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        self.kept.list(endpoint, page).await
    }

    async fn discard(&self, letters: &[DeadLetter]) -> Result<usize, StoreError> {
        self.write(self.kept.discard(letters)).await
    }
}

/// What is changed: so that another letter comes of it, or so that it is the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Body,
    Header,
}

impl Change {
    fn to(self, envelope: &mut Envelope) {
        match self {
            Self::Body => envelope.body = serde_json::to_vec(&task("a", "edited")).unwrap().into(),
            Self::Header => envelope.headers.set("looked-at", "by alice").unwrap(),
        }
    }
}

/// Whether the edit has come to its end, with this trouble at that write.
async fn edited(change: Change, trouble: Trouble, at: usize) -> bool {
    let (store, hub, log) = (Memory::new(), InProcess::new("edited"), Log::default());
    // Only its body says how it ends.
    let hopeless = Task { fails: if change == Change::Body { u32::MAX } else { 0 }, ..task("a", "edited") };
    add(&store, [hopeless, task("b", "other")]).await;
    let place = Place { kept: store.clone(), trouble, at, writes: Arc::default() };
    let troubled = endpoint(&store, hub.clone(), &Log::default()).dead_letters(place.clone());
    let troubled = troubled.start().await.unwrap().dead_letter_office("alice");
    let old = troubled.show(&"edited".parse().unwrap()).await.unwrap().remove(0);
    let ended = timeout(Duration::from_secs(60), troubled.edit(&old, |envelope| change.to(envelope))).await;
    drop(troubled);
    let reached = place.writes.load(Ordering::SeqCst) > at;
    assert_eq!(ended.is_ok_and(|ended| ended.is_ok()), !reached, "{trouble:?} at {at}");

    // What a person does who finds it so.
    let office = office(&store, hub.clone()).await;
    let found = office.show(&"edited".parse().unwrap()).await.unwrap();
    assert!((1..=2).contains(&found.len()), "{trouble:?} at {at}: {found:?}");
    let mut new = (*old.envelope).clone();
    change.to(&mut new);
    let (done_with, olds): (Vec<_>, Vec<_>) = found.into_iter().partition(|letter| *letter.envelope == new);
    if done_with.is_empty() {
        office.edit(&olds[0], |envelope| change.to(envelope)).await.unwrap();
    } else {
        office.discard(&olds).await.unwrap();
    }
    for letter in all(&office).await {
        assert_eq!(office.retry(&[letter]).await.unwrap().done, 1, "{trouble:?} at {at}");
    }
    endpoint(&store, hub.clone(), &log).run_until(hub.idle()).await.unwrap();
    assert_eq!(
        (done(&store, "worker", "a"), done(&store, "worker", "b")),
        (vec!["edited".into()], vec!["other".into()])
    );
    assert_eq!((log.runs("worker", "edited"), letters(&store).await, all(&office).await), (1, vec![], vec![]));
    !reached
}

#[tokio::test(start_paused = true)]
async fn a_letter_whose_edit_fails_or_dies_at_any_write_is_edited_and_handled_once() {
    for (change, writes) in [(Change::Body, 2), (Change::Header, 4)] {
        for trouble in TROUBLES {
            let reached = {
                let mut at = 0;
                while !edited(change, trouble, at).await {
                    at += 1;
                }
                at
            };
            assert!(reached >= writes, "{trouble:?} was met at {reached} writes");
        }
    }
}
