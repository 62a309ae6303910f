//! Rounds of calls that overlap.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use hapax::{
    Memory,
    entity::{Expected, Version},
    ports::Saved,
};
use hapax_tests::Backend;
use tokio::sync::Barrier;

use crate::{
    history::{Call, History, Met, Moments, Record, kind},
    lying::{Lie, Lying},
    names::Names,
    reference::{Content, Key, Mark, Message},
    stores::{Place, on_every_store},
};

const KEYS: [Key; 2] = [Key { scope: 0, name: 0 }, Key { scope: 1, name: 0 }];
/// Messages of each entity.
const MESSAGES: u8 = 3;
const TASKS: usize = 4;
/// By each task, over all entities: so that no entity has more than a check can take.
const CALLS: usize = 7;

/// On one place, which is not to grow beyond what a test needs: the smallest generations become many.
const ROUNDS: u64 = 100;

/// A handle that tasks share.
#[derive(Debug, Clone)]
struct Hand<B> {
    store: B,
    /// Its client library may repeat a write that was done, and take it for another's.
    repeats: bool,
}

impl<B> Hand<B> {
    const fn new(store: B) -> Self {
        Self { store, repeats: false }
    }
}

/// One task's view of the store and of what it has been told.
struct Task<B> {
    number: usize,
    hand: B,
    repeats: bool,
    names: Names,
    moments: Arc<Moments>,
    tags: Arc<AtomicU32>,
    random: fastrand::Rng,
    /// What was last seen of each entity.
    seen: [Option<(Version, Content)>; KEYS.len()],
    records: Vec<Record>,
    /// Some calls are dropped before they are answered.
    hasty: bool,
}

impl<B: Backend> Task<B> {
    async fn run(mut self, barrier: Arc<Barrier>) -> Vec<Record> {
        barrier.wait().await;
        for _ in 0..CALLS {
            if self.random.bool() {
                tokio::task::yield_now().await;
            }
            self.call().await;
        }
        self.records
    }

    fn marks(&mut self, entity: usize, max: usize) -> Vec<Mark> {
        let mut messages = messages(entity);
        self.random.shuffle(&mut messages);
        messages.truncate(self.random.usize(..=max));
        messages.sort_unstable();
        messages.into_iter().map(|message| Mark { message, attempt: u8::try_from(self.number).unwrap() }).collect()
    }

    /// The answer, unless the caller loses patience first.
    async fn wait<T>(&mut self, call: impl Future<Output = T>) -> Option<T> {
        if self.random.u8(..4) == 0 {
            tokio::task::yield_now().await; // So that others call meanwhile, however fast the store is.
        }
        if !self.hasty || self.random.u8(..4) > 0 {
            return Some(call.await);
        }
        let patience = Duration::from_micros(self.random.u64(..1500));
        tokio::time::timeout(patience, call).await.ok()
    }

    async fn call(&mut self) {
        let entity = self.random.usize(..KEYS.len());
        let together = self.hand.capabilities().together;
        let (invoked, call) = match self.random.u8(..12) {
            0..=2 => self.load(entity).await,
            3..=6 => self.save(entity).await,
            7 | 8 if together => self.finish(entity).await,
            // The caller takes the two steps of a finish by itself.
            7 => self.clean_up(entity).await,
            9 => self.contains(entity).await,
            8 | 10 => self.insert(entity).await,
            _ => self.version(entity).await,
        };
        let returned = self.moments.now();
        let (task, repeats) = (self.number, self.repeats);
        self.records.push(Record { key: KEYS[entity], task, repeats, invoked, returned, call });
    }

    async fn load(&mut self, entity: usize) -> (u64, Call) {
        let (hand, names) = (self.hand.clone(), self.names.clone());
        let ids = messages(entity)[..self.random.usize(..=usize::from(MESSAGES))].to_vec();
        let (key, keys) = (names.key(KEYS[entity]), ids.iter().map(|id| names.id(*id)).collect::<Vec<_>>());
        let invoked = self.moments.now();
        let loaded = self.wait(hand.load(&key, &keys)).await.map(|loaded| loaded.map_err(kind));
        if let Some(Ok(loaded)) = &loaded {
            let stored = loaded.stored.as_ref();
            self.seen[entity] =
                stored.and_then(|stored| Some((stored.version.clone(), names.content(&stored.entity)?)));
        }
        (invoked, Call::Load(ids, loaded))
    }

    async fn save(&mut self, entity: usize) -> (u64, Call) {
        let adds = self.marks(entity, 1);
        let (expected, mut outbox) = match &self.seen[entity] {
            Some((version, content)) => (Some(version.clone()), content.outbox.clone()),
            None => (None, Vec::new()),
        };
        outbox.retain(|kept| adds.iter().all(|added| added.message != kept.message));
        outbox.extend(adds);
        outbox.sort_unstable();
        let tag = self.tags.fetch_add(1, Ordering::Relaxed);
        let (content, mut processed) = (Content { tag, completed: false, outbox }, self.marks(entity, 1));
        if !self.hand.capabilities().together {
            processed.clear();
        }
        self.put(entity, expected, content, processed).await
    }

    /// A clean-up by a save, of what is known of.
    async fn clean_up(&mut self, entity: usize) -> (u64, Call) {
        match self.seen[entity].clone() {
            Some((version, content)) if !content.outbox.is_empty() => {
                let cleaned = Content { outbox: content.outbox[1..].to_vec(), ..content };
                self.put(entity, Some(version), cleaned, Vec::new()).await
            }
            _ => self.version(entity).await,
        }
    }

    async fn put(
        &mut self,
        entity: usize,
        expected: Option<Version>,
        content: Content,
        processed: Vec<Mark>,
    ) -> (u64, Call) {
        let (hand, key) = (self.hand.clone(), self.names.key(KEYS[entity]));
        let expects = expected.clone().map_or(Expected::Absent, Expected::Version);
        let (real, marks) = (self.names.entity(&content), self.names.marks(&processed));
        let invoked = self.moments.now();
        let saved = self.wait(hand.save(&key, &expects, &real, &marks)).await.map(|saved| saved.map_err(kind));
        if let Some(Ok(Saved::At(version))) = &saved {
            self.seen[entity] = Some((version.clone(), content.clone()));
        }
        (invoked, Call::Save((expected, content), processed, saved))
    }

    async fn finish(&mut self, entity: usize) -> (u64, Call) {
        let (done, clean_up) = match self.seen[entity].clone() {
            Some((version, content)) if !content.outbox.is_empty() => {
                let cleaned = Content { outbox: content.outbox[1..].to_vec(), ..content };
                (vec![content.outbox[0]], Some((version, cleaned)))
            }
            _ => (self.marks(entity, 2), None),
        };
        self.finish_with(entity, done, clean_up).await
    }

    async fn finish_with(
        &mut self,
        entity: usize,
        done: Vec<Mark>,
        clean_up: Option<(Version, Content)>,
    ) -> (u64, Call) {
        let (hand, key, marks) = (self.hand.clone(), self.names.key(KEYS[entity]), self.names.marks(&done));
        let real = clean_up.as_ref().map(|(version, cleaned)| (version, self.names.entity(cleaned)));
        let asked = real.as_ref().map(|(version, cleaned)| (*version, cleaned));
        let invoked = self.moments.now();
        let finished = self.wait(hand.finish(&key, &marks, asked)).await.map(|finished| finished.map_err(kind));
        let saving = clean_up.map(|(version, cleaned)| (Some(version), cleaned));
        (invoked, Call::Finish(done, saving, finished))
    }

    async fn contains(&mut self, entity: usize) -> (u64, Call) {
        let (hand, ids) = (self.hand.clone(), messages(entity));
        let keys: Vec<_> = ids.iter().map(|id| self.names.id(*id)).collect();
        let invoked = self.moments.now();
        let known = self.wait(hand.contains(&keys)).await.map(|known| known.map_err(kind));
        (invoked, Call::Contains(ids, known))
    }

    /// Of marks, with their entity where they are not taken alone.
    async fn insert(&mut self, entity: usize) -> (u64, Call) {
        let (hand, done) = (self.hand.clone(), self.marks(entity, 2));
        if !hand.dedup_capabilities().alone {
            return self.finish_with(entity, done, None).await;
        }
        let marks = self.names.marks(&done);
        let invoked = self.moments.now();
        let inserted = self.wait(hand.insert(&marks)).await.map(|inserted| inserted.map_err(kind));
        (invoked, Call::Insert(done, inserted))
    }

    async fn version(&mut self, entity: usize) -> (u64, Call) {
        let (hand, key) = (self.hand.clone(), self.names.key(KEYS[entity]));
        let invoked = self.moments.now();
        let version = self.wait(hand.version(&key)).await.map(|version| version.map_err(kind));
        (invoked, Call::Version(version))
    }
}

/// Those of an entity, which no other has.
fn messages(entity: usize) -> Vec<Message> {
    let first = u8::try_from(entity).unwrap() * MESSAGES;
    (first..first + MESSAGES).collect()
}

/// Everybody calls at once; in the end, somebody looks at it all.
async fn round<B: Backend>(hands: &[Hand<B>], run: u64, seed: u64, hasty: bool) -> History {
    let (names, moments, tags) = (Names::new(run), Arc::<Moments>::default(), Arc::new(AtomicU32::new(1)));
    let barrier = Arc::new(Barrier::new(TASKS));
    let task = |number: usize| Task {
        number,
        hand: hands[number % hands.len()].store.clone(),
        repeats: hands[number % hands.len()].repeats,
        names: names.clone(),
        moments: moments.clone(),
        tags: tags.clone(),
        random: fastrand::Rng::with_seed(seed.wrapping_add(run << 8).wrapping_add(number as u64)),
        seen: [None, None],
        records: Vec::new(),
        hasty,
    };
    let tasks: Vec<_> = (0..TASKS).map(|number| tokio::spawn(task(number).run(barrier.clone()))).collect();
    let mut records = Vec::new();
    for task in tasks {
        records.extend(task.await.unwrap());
    }
    for (entity, key) in KEYS.into_iter().enumerate() {
        let (ids, real) = (messages(entity), names.key(key));
        let keys: Vec<_> = ids.iter().map(|id| names.id(*id)).collect();
        let invoked = moments.now();
        let loaded = hands[0].store.load(&real, &keys).await.map_err(kind);
        let call = Call::Load(ids.clone(), Some(loaded));
        records.push(Record { key, task: TASKS, repeats: false, invoked, returned: moments.now(), call });
        let invoked = moments.now();
        let call = Call::Contains(ids, Some(hands[0].store.contains(&keys).await.map_err(kind)));
        records.push(Record { key, task: TASKS, repeats: false, invoked, returned: moments.now(), call });
    }
    History { names, records }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Rounds on one place, and what they have met; the first that cannot have happened is an error.
async fn rounds<B: Backend>(hands: &[Hand<B>], rounds: u64, seed: u64, hasty: bool) -> Result<Met, String> {
    let mut met = Met::default();
    for run in 1..=rounds {
        let history = round(hands, run, seed, hasty).await;
        met.add(history.check().map_err(|why| format!("round {run} of seed {seed}: {why}"))?);
    }
    Ok(met)
}

/// Whatever was told can have happened.
fn check<P: Place>(name: &str) {
    let many = std::env::var_os("HAPAX_THOROUGH").is_some();
    let count = match (name, many) {
        ("memory", false) => 1000,
        (_, false) if P::SLOW => 100,
        (_, false) => 200,
        (_, true) => 4_000,
    };
    let (seed, begun) = (fastrand::u64(..), Instant::now());
    let (mut met, mut has_hasty) = (Met::default(), false);
    for place in 0..count / ROUNDS {
        let made = runtime().block_on(async {
            let seed = seed.wrapping_add(place << 32);
            let place = P::new();
            let mut hands = vec![Hand::new(place.open().await), Hand::new(place.open().await)];
            let hasty = place.open_hasty().await;
            has_hasty |= hasty.is_some();
            hands.extend(hasty.map(|store| Hand { store, repeats: P::REPEATS }));
            rounds(&hands, ROUNDS, seed, true).await
        });
        met.add(made.unwrap_or_else(|why| panic!("{name}: {why}")));
    }
    println!("{name}: {count} rounds, {met:?}, {:.1?}", begun.elapsed());
    assert!(met.overlapping > met.calls / 20 && met.conflicts > 0, "void: {met:?}");
    assert!(met.unknown > 0 || !has_hasty, "void: no outcome was unknown");
}

mod what_tasks_are_told_can_have_happened_one_after_the_other {
    super::on_every_store!(super::check);
}

/// The rounds find a lie.
fn found_out(lie: Lie) -> String {
    const ROUNDS_MAX: u64 = 2000;
    let why = runtime().block_on(async {
        let memory = Memory::new();
        let hands: Vec<_> = (0..TASKS).map(|_| Hand::new(Lying::new(memory.clone(), lie))).collect();
        rounds(&hands, ROUNDS_MAX, 1, false).await
    });
    let why = why.expect_err("the checker must not take a lie");
    println!("{lie:?}: {why}");
    why
}

#[test]
fn the_wrapper_of_the_lies_is_linearizable_without_one() {
    let memory = Memory::new();
    let hands: Vec<_> = (0..TASKS).map(|_| Hand::new(Lying::new(memory.clone(), Lie::None))).collect();
    runtime().block_on(rounds(&hands, 100, 1, false)).unwrap();
}

macro_rules! lies {
    ($($test:ident: $lie:ident;)+) => {
        $(
            #[test]
            fn $test() {
                let why = found_out(Lie::$lie);
                assert!(why.contains("not in any order"), "{why}");
            }
        )+
    };
}

lies! {
    not_seen_from_a_cache_is_found_out: RemembersNotSeen;
    a_save_that_wins_whatever_it_expects_is_found_out: SavesBlindly;
    a_save_that_looks_first_and_writes_then_is_found_out: LooksThenSaves;
    an_insert_confirmed_before_it_is_visible_is_found_out: InsertsLater;
    marks_of_a_save_that_lost_are_found_out: MarksLosers;
    a_mark_that_replaces_another_is_found_out: LastMarkWins;
    a_version_from_a_cache_is_found_out: RemembersVersions;
    marks_looked_for_before_the_entity_are_found_out: LooksForMarksFirst;
    a_save_that_is_made_although_it_was_refused_is_found_out: RefusesAndSaves;
}
