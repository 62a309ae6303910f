//! Two people act on one dead letter at the same moment, while its endpoint runs: each thing that is done is recorded, the message has its effect at
//! most once, and it is not lost unless somebody has given it up. Method: the two, and the endpoint, are moved on in an order drawn from a seed, each
//! up to its next write or look.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use async_trait::async_trait;
use hapax::{
    Endpoint, InProcess, Memory,
    deliver::{Recoverability, Tries},
    endpoint::{Settings, office::Deed},
    ids::EndpointName,
    ports::{DeadLetter, DeadLetters, Page, StoreError},
};
use tokio::{sync::oneshot, task::yield_now};

use crate::{
    entities::Entities,
    office::{add, all, office},
    work::{Log, Task, Worker, done, endpoint, settings, task},
};

const ORDERS: u64 = 100;

/// A place for letters at which others come in between.
#[derive(Debug, Clone)]
struct Shared(Memory);

#[async_trait]
impl DeadLetters for Shared {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        yield_now().await;
        self.0.add(letter).await?;
        yield_now().await;
        Ok(())
    }

    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        yield_now().await;
        let letters = self.0.list(endpoint, page).await;
        yield_now().await;
        letters
    }

    async fn discard(&self, letters: &[DeadLetter]) -> Result<usize, StoreError> {
        yield_now().await;
        let gone = self.0.discard(letters).await;
        yield_now().await;
        gone
    }
}

/// What somebody does with the letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Retry,
    Discard,
    EditBody,
    EditHeader,
}

impl Act {
    const fn deed(self) -> Deed {
        match self {
            Self::Retry => Deed::Retried,
            Self::Discard => Deed::Discarded,
            Self::EditBody | Self::EditHeader => Deed::Edited,
        }
    }
}

/// Moves one of several futures on at a time, drawn from a seed; the endpoint beside them in between.
struct Drawn<'f> {
    random: fastrand::Rng,
    open: Vec<Pin<Box<dyn Future<Output = ()> + 'f>>>,
}

impl Future for Drawn<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.open.is_empty() {
            return Poll::Ready(());
        }
        let count = self.open.len();
        let drawn = self.random.usize(..count);
        if self.open[drawn].as_mut().poll(cx).is_ready() {
            drop(self.open.swap_remove(drawn));
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// What came of it.
#[derive(Debug)]
struct Seen {
    /// Whether each was told that it is done.
    done: [bool; 2],
    /// What was recorded, with who did it.
    recorded: Vec<(String, Deed)>,
    /// What of the message has taken effect.
    effects: Vec<String>,
    letters: usize,
}

/// `acts` on one letter, of a message that is mended or, `hopeless`, fails again at once.
async fn both(seed: u64, acts: [Act; 2], hopeless: bool) -> Seen {
    let (hub, log) = (InProcess::new("two-desks"), Log::default());
    let entities = Entities { yields: true, ..Entities::default() };
    let store = entities.store.clone();
    let fails = if hopeless { u32::MAX } else { 0 };
    add(&store, [Task { fails, ..task("a", "letter") }]).await;
    let built = || {
        let once = Recoverability { in_place: Tries::NONE, attempts_max: 1, ..Recoverability::default() };
        Endpoint::builder("work")
            .entities(entities.clone())
            .dedup(store.clone())
            .dead_letters(Shared(store.clone()))
            .transport(hub.clone())
            .with(log.clone())
            .settings(Settings { recoverability: once, ..settings() })
            .saga::<Worker>(|worker| worker.starts::<Task>())
    };
    let work = built().start().await.unwrap();
    let (alice, bob) = (work.dead_letter_office("alice"), work.dead_letter_office("bob"));
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(work.run_until(stopped));
    let letter = store.list(&"work".parse().unwrap(), &Page::first(1)).await.unwrap().remove(0);
    let mut done_by = [false; 2];
    {
        let [by_alice, by_bob] = &mut done_by;
        let people = [(alice, acts[0], by_alice), (bob, acts[1], by_bob)];
        let open = people.into_iter().map(|(office, act, told)| {
            let letter = letter.clone();
            Box::pin(async move {
                *told = match act {
                    Act::Retry => office.retry(&[letter]).await.unwrap().done == 1,
                    Act::Discard => office.discard(&[letter]).await.unwrap() == 1,
                    Act::EditBody => {
                        let body = serde_json::to_vec(&Task { fails, ..task("a", "edited") }).unwrap();
                        office.edit(&letter, |envelope| envelope.body = body.into()).await.is_ok()
                    }
                    Act::EditHeader => {
                        let edited = office.edit(&letter, |envelope| envelope.headers.set("looked-at", "yes").unwrap());
                        edited.await.is_ok()
                    }
                };
            }) as Pin<Box<dyn Future<Output = ()>>>
        });
        Drawn { random: fastrand::Rng::with_seed(seed), open: open.collect() }.await;
    }
    hub.idle().await;
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
    let desk = office(&store, hub.clone()).await;
    let recorded = desk.actions().await.unwrap().into_iter().map(|action| (action.by, action.deed)).collect();
    let letters = all(&desk).await.len();
    // Whatever is still there, a person retries in the end.
    for letter in all(&desk).await {
        assert_eq!(desk.retry(&[letter]).await.unwrap().done, 1);
    }
    endpoint(&store, hub.clone(), &log).run_until(hub.idle()).await.unwrap();
    Seen { done: done_by, recorded, effects: done(&store, "worker", "a"), letters }
}

/// What holds whatever the two do: answers how often both, and how often one alone, was told that it is done.
async fn check(acts: [Act; 2], hopeless: bool) -> [u32; 2] {
    let mut told = [0; 2];
    for seed in 0..ORDERS {
        let seen = both(seed, acts, hopeless).await;
        let which = format!("{acts:?}, hopeless: {hopeless}, seed {seed}: {seen:?}");
        for (act, (done, by)) in acts.iter().zip(seen.done.iter().zip(["alice", "bob"])) {
            let recorded = seen.recorded.iter().any(|(who, deed)| who == by && *deed == act.deed());
            assert!(recorded || !done, "{which}");
        }
        let given_up = acts.iter().zip(seen.done).any(|(act, done)| *act == Act::Discard && done);
        if hopeless {
            assert!(seen.letters > 0 || given_up, "{which}");
        } else {
            assert!(seen.effects.len() == 1 || seen.effects.is_empty() && given_up, "{which}");
        }
        match seen.done {
            [true, true] => told[0] += 1,
            [false, false] => panic!("{which}"),
            _ => told[1] += 1,
        }
        if acts == [Act::Retry, Act::Retry] {
            assert_eq!(seen.letters, usize::from(hopeless), "{which}");
        }
    }
    told
}

#[tokio::test(start_paused = true)]
async fn a_letter_that_two_retry_at_once_has_its_effect_once_and_both_are_recorded() {
    for hopeless in [false, true] {
        let [both, one] = check([Act::Retry, Act::Retry], hopeless).await;
        assert!(both > 0 && one > 0, "{both} times both were told that it is done, {one} times one");
    }
}

#[tokio::test(start_paused = true)]
async fn a_letter_that_is_retried_and_discarded_at_once_is_not_lost_unless_it_is_given_up() {
    for hopeless in [false, true] {
        let [both, one] = check([Act::Retry, Act::Discard], hopeless).await;
        assert!(both > 0 && one > 0, "{both} times both were told that it is done, {one} times one");
    }
}

#[tokio::test(start_paused = true)]
async fn a_letter_that_is_edited_and_retried_at_once_has_one_effect_of_the_two() {
    for hopeless in [false, true] {
        for edit in [Act::EditBody, Act::EditHeader] {
            check([edit, Act::Retry], hopeless).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_letter_that_is_edited_and_discarded_or_edited_by_two_at_once_is_not_lost_unless_it_is_given_up() {
    for edit in [Act::EditBody, Act::EditHeader] {
        check([edit, Act::Discard], false).await;
        check([edit, Act::EditBody], false).await;
    }
}
