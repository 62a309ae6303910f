//! Checks that a [`Survey`] keeps its promises, each by a function of the promise's name.
//!
//! ```ignore
//! hapax_core::survey_suite!(MyBuilder::new()); // one test for each promise
//! ```
//!
//! or, in a test of your own, [`check_all`]`(&builder).await.assert()`. What a store says it cannot tell is not tried.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;

use super::{Broken, Checked, Kept, Report, report::run, samples, wait::insistently};
use crate::{
    entity::Expected,
    envelope::{Envelope, Outgoing},
    ids::{EndpointName, EntityKey, SagaKey, Scope},
    ports::{Answer, Count, DeadLetters, DedupStore, EntityStore, Page, Saved, Schedule, StoreError, Survey},
    time::Timestamp,
};

const NAMED: &str = "survey 1, named";
const COUNTED: &str = "survey 2, counted";
const FOUND: &str = "survey 3, found";
const READ_ONLY: &str = "survey 4, read only";
const HONEST: &str = "survey 5, honest";

/// More than any check stores.
const ALL: u64 = 1_000;
/// More than a database that tests share has.
const SCOPES: usize = 1_000_000;

/// Opens the store under test.
#[async_trait]
pub trait Builder: fmt::Debug + Send + Sync {
    /// A store with what it shows.
    async fn surveyed(&self) -> Surveyed;
}

/// The ports of one store.
#[derive(Debug, Clone)]
pub struct Surveyed {
    /// What is checked.
    pub survey: Arc<dyn Survey>,
    /// What it shows.
    pub entities: Arc<dyn EntityStore>,
    /// What it counts.
    pub dedup: Arc<dyn DedupStore>,
    /// What it counts, too.
    pub letters: Arc<dyn DeadLetters>,
    /// Where it keeps one.
    pub schedule: Option<Arc<dyn Schedule>>,
}

impl Surveyed {
    /// One that is all of these but a schedule.
    pub fn of<S: Survey + EntityStore + DedupStore + DeadLetters + 'static>(store: &Arc<S>) -> Self {
        Self {
            survey: store.clone(),
            entities: store.clone(),
            dedup: store.clone(),
            letters: store.clone(),
            schedule: None,
        }
    }
}

/// Checks every promise.
pub async fn check_all(builder: &dyn Builder) -> Report {
    crate::survey_suite!(@run [builder all])
}

/// Checks the promises one by one and ends at the first that is broken: for tests that a suite has teeth.
pub async fn first_broken(builder: &dyn Builder) -> Option<Broken> {
    crate::survey_suite!(@run [builder first_broken])
}

/// One test for each promise of [`Survey`], named as the promise. The argument is an expression for a [`Builder`], made anew in each test;
/// the crate needs tokio with `macros` and `rt-multi-thread`.
#[macro_export]
macro_rules! survey_suite {
    (@run [$($args:tt)*]) => { $crate::survey_suite!(@each [run] [$($args)*]) };
    (@each [$($each:tt)*] [$($args:tt)*]) => {
        $($each)*! {
            [$($args)*]
            NAMED named
            COUNTED counted
            FOUND found
            READ_ONLY read_only
            HONEST honest
        }
    };
    ($builder:expr) => { $crate::survey_suite!(@each [$crate::suite_tests] [survey $builder]); };
}

struct Hand {
    of: Surveyed,
    promise: &'static str,
}

impl Hand {
    async fn new(builder: &dyn Builder, promise: &'static str) -> Self {
        Self { of: builder.surveyed().await, promise }
    }

    fn broken(&self, what: impl Into<String>) -> Broken {
        Broken::new(self.promise, what)
    }

    async fn ask<T, F>(&self, doing: &str, call: impl FnMut() -> F) -> Result<T, Broken>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        insistently(self.promise, doing, call).await
    }

    async fn save(&self, key: &EntityKey) -> Result<(), Broken> {
        let entity = samples::entity("here", &[]);
        let save = || self.of.entities.save(key, &Expected::Absent, &entity, &[]);
        match self.ask("saving an entity", save).await? {
            Saved::At(_) => Ok(()),
            Saved::Conflict => Err(self.broken("a new entity conflicts")),
        }
    }

    async fn set_aside(&self, endpoint: &EndpointName, letters: usize) -> Result<(), Broken> {
        for _ in 0..letters {
            let letter = samples::letter(endpoint);
            self.ask("setting a letter aside", || self.of.letters.add(&letter)).await?;
        }
        Ok(())
    }

    fn expect<T: PartialEq + fmt::Debug>(&self, what: &str, seen: &T, expected: &T) -> Result<(), Broken> {
        if seen == expected {
            return Ok(());
        }
        Err(self.broken(format!("{what}: {expected:?} was to be told, {seen:?} is")))
    }
}

fn due_in(millis: i64) -> Outgoing {
    let now = Timestamp::now().as_millis();
    let due = Timestamp::from_millis(now.saturating_add_signed(millis));
    samples::outgoing(&samples::endpoint(), Envelope { due: Some(due), ..samples::envelope("due") })
}

/// Promise 1. *Named:* `scopes` lists each endpoint and saga of which an entity was saved, once; `lettered` each endpoint with a dead letter,
/// once; `entity_keys` lists the keys of a scope in their order, each once, beginning behind `after`.
pub async fn named(builder: &dyn Builder) -> Checked {
    let hand = Hand::new(builder, NAMED).await;
    let endpoint = samples::endpoint();
    let scope = |saga: &str| Arc::new(Scope { endpoint: endpoint.clone(), saga: samples::saga(saga) });
    let (first, second) = (scope("first"), scope("second"));
    let key = |scope: &Arc<Scope>, key: &str| {
        EntityKey::new(scope.clone(), SagaKey::parse(key).expect("a key of the suite's own"))
    };
    let keys: Vec<EntityKey> = ["a", "a b", "b", "z", "\u{e9}"].iter().map(|name| key(&first, name)).collect();
    for key in keys.iter().rev().chain([&key(&second, "a")]) {
        hand.save(key).await?;
    }
    let Answer::Is(scopes) = hand.ask("listing scopes", || hand.of.survey.scopes(SCOPES)).await? else {
        return Ok(Kept::NotClaimed("the store lists no names"));
    };
    for scope in [&first, &second] {
        let times = scopes.iter().filter(|listed| **listed == **scope).count();
        hand.expect(&format!("how often {scope:?} is listed"), &times, &1)?;
    }
    let silent = samples::endpoint();
    hand.set_aside(&silent, 2).await?;
    let lettered = || hand.of.survey.lettered(SCOPES);
    if let Answer::Is(lettered) = hand.ask("listing endpoints with letters", lettered).await? {
        let times = |name: &EndpointName| lettered.iter().filter(|listed| *listed == name).count();
        hand.expect("how often an endpoint with letters is listed", &times(&silent), &1)?;
        hand.expect("how often one without letters is", &times(&endpoint), &0)?;
    }
    let (mut listed, mut after) = (Vec::new(), None);
    loop {
        let page = || hand.of.survey.entity_keys(&first, after.as_ref(), 2);
        let Answer::Is(page) = hand.ask("listing entities", page).await? else {
            return Err(hand.broken("names are listed and entities are not"));
        };
        if page.is_empty() {
            break;
        }
        after = page.last().cloned();
        listed.extend(page);
    }
    hand.expect("entities", &listed, &keys)?;
    Ok(Kept::Shown)
}

/// Promise 2. *Counted:* a number below its limit is exact, and of this endpoint alone where one is asked for; at the limit there may be more.
pub async fn counted(builder: &dyn Builder) -> Checked {
    let hand = Hand::new(builder, COUNTED).await;
    let (endpoint, other) = (samples::endpoint(), samples::endpoint());
    hand.set_aside(&endpoint, 3).await?;
    hand.set_aside(&other, 1).await?;
    for (limit, expected) in [(ALL, Count::exactly(3)), (2, Count { number: 2, at_least: true })] {
        let told = hand.ask("counting letters", || hand.of.survey.dead_letter_count(&endpoint, limit)).await?;
        if let Answer::Is(count) = told {
            hand.expect("dead letters", &count, &expected)?;
        }
    }
    if let Some(schedule) = &hand.of.schedule {
        let messages = [due_in(-60_000), due_in(3_600_000), due_in(7_200_000)];
        hand.ask("scheduling", || schedule.put(&endpoint, &messages)).await?;
        let told = hand.ask("counting what is scheduled", || hand.of.survey.scheduled(&endpoint, ALL)).await?;
        let told = told.map(|scheduled| (scheduled.messages, scheduled.overdue));
        hand.expect("the schedule", &told, &Answer::Is((Count::exactly(3), Count::exactly(1))))?;
    }
    if hand.of.dedup.dedup_capabilities().alone {
        let marks = [samples::mark(), samples::mark()];
        hand.ask("inserting dedup entries", || hand.of.dedup.insert(&marks)).await?;
        let one = hand.ask("counting dedup entries", || hand.of.survey.dedup_count(1)).await?;
        let all = hand.ask("counting dedup entries", || hand.of.survey.dedup_count(u64::MAX)).await?;
        if let (Answer::Is(one), Answer::Is(all)) = (one, all) {
            hand.expect("dedup entries up to one", &one.count, &Count { number: 1, at_least: true })?;
            if all.count.number < 2 || all.count.at_least {
                return Err(hand.broken(format!("two dedup entries were inserted, {} are counted", all.count)));
            }
        }
    }
    Ok(Kept::Shown)
}

/// Promise 3. *Found:* `scheduled_message` shows where a message that was put into the schedule is to go and when it is due, and no other.
pub async fn found(builder: &dyn Builder) -> Checked {
    let hand = Hand::new(builder, FOUND).await;
    let Some(schedule) = &hand.of.schedule else { return Ok(Kept::NotClaimed("the store keeps no schedule")) };
    let endpoint = samples::endpoint();
    let messages = [due_in(3_600_000), due_in(7_200_000)];
    hand.ask("scheduling", || schedule.put(&endpoint, &messages)).await?;
    for message in &messages {
        let id = &message.envelope.message_id;
        let told = hand.ask("looking for a message", || hand.of.survey.scheduled_message(&endpoint, id)).await?;
        let told = told.map(|found| found.into_iter().map(|one| (one.destination, Some(one.due))).collect::<Vec<_>>());
        let expected = vec![(message.destination.clone(), message.envelope.due)];
        hand.expect("a scheduled message", &told, &Answer::Is(expected))?;
    }
    let elsewhere = samples::endpoint();
    let id = &messages[0].envelope.message_id;
    let told = hand.ask("looking for a message", || hand.of.survey.scheduled_message(&elsewhere, id)).await?;
    hand.expect("a message of another endpoint", &told, &Answer::Is(Vec::new()))?;
    Ok(Kept::Shown)
}

/// Promise 4. *Read only:* no call changes what any other port of the store answers.
pub async fn read_only(builder: &dyn Builder) -> Checked {
    let hand = Hand::new(builder, READ_ONLY).await;
    let key = samples::new_key();
    let entity = samples::entity("waits", &[samples::entry(1)]);
    let save = || hand.of.entities.save(&key, &Expected::Absent, &entity, &[]);
    let Saved::At(_) = hand.ask("saving an entity", save).await? else {
        return Err(hand.broken("a new entity conflicts"));
    };
    let endpoint = key.scope().endpoint.clone();
    hand.set_aside(&endpoint, 1).await?;
    let before = answers(&hand, &key).await?;
    every_call(&hand, &key).await?;
    hand.expect("what the other ports answer", &answers(&hand, &key).await?, &before)?;
    Ok(Kept::Shown)
}

/// Promise 5. *Honest:* what the store cannot tell is said with the reason, and never an empty list or a zero.
pub async fn honest(builder: &dyn Builder) -> Checked {
    let hand = Hand::new(builder, HONEST).await;
    let key = samples::new_key();
    hand.save(&key).await?;
    let endpoint = key.scope().endpoint.clone();
    hand.set_aside(&endpoint, 1).await?;
    for why in every_call(&hand, &key).await? {
        if why.trim().len() < "why".len() {
            return Err(hand.broken(format!("something is not known, and why is not said: {why:?}")));
        }
    }
    let survey = &hand.of.survey;
    let scopes = hand.ask("listing scopes", || survey.scopes(SCOPES)).await?;
    let entities = hand.ask("listing entities", || survey.entity_keys(key.scope(), None, 10)).await?;
    let lettered = hand.ask("listing endpoints with letters", || survey.lettered(SCOPES)).await?;
    let letters = hand.ask("counting letters", || survey.dead_letter_count(&endpoint, ALL)).await?;
    let is_empty = [
        scopes.is().is_some_and(Vec::is_empty),
        entities.is().is_some_and(Vec::is_empty),
        lettered.is().is_some_and(Vec::is_empty),
        letters.is().is_some_and(|count| count.number == 0),
    ];
    hand.expect("what is there is told as if it were not", &is_empty, &[false; 4])?;
    Ok(Kept::Shown)
}

/// Asks for everything; answers why some of it is not known.
async fn every_call(hand: &Hand, key: &EntityKey) -> Result<Vec<String>, Broken> {
    fn why<T>(answer: Answer<T>) -> Option<String> {
        match answer {
            Answer::Is(_) => None,
            Answer::Unknown { why } => Some(why),
        }
    }
    let (survey, scope) = (&hand.of.survey, key.scope());
    let endpoint = &scope.endpoint;
    let id = &samples::envelope("").message_id;
    Ok([
        why(hand.ask("listing scopes", || survey.scopes(10)).await?),
        why(hand.ask("listing entities", || survey.entity_keys(scope, None, 10)).await?),
        why(hand.ask("listing endpoints with letters", || survey.lettered(10)).await?),
        why(hand.ask("counting dedup entries", || survey.dedup_count(ALL)).await?),
        why(hand.ask("counting letters", || survey.dead_letter_count(endpoint, ALL)).await?),
        why(hand.ask("counting what is scheduled", || survey.scheduled(endpoint, ALL)).await?),
        why(hand.ask("looking for a message", || survey.scheduled_message(endpoint, id)).await?),
    ]
    .into_iter()
    .flatten()
    .collect())
}

/// What the other ports show.
async fn answers(hand: &Hand, key: &EntityKey) -> Result<String, Broken> {
    let version = hand.ask("reading a version", || hand.of.entities.version(key)).await?;
    let pending = || hand.of.entities.pending(key.scope(), Duration::ZERO, None, 10);
    let pending: Vec<EntityKey> =
        hand.ask("listing what waits", pending).await?.into_iter().map(|one| one.key).collect();
    let page = Page::first(10);
    let letters = hand.ask("listing letters", || hand.of.letters.list(&key.scope().endpoint, &page)).await?;
    Ok(format!("{version:?} {pending:?} {letters:?}"))
}
