//! A real store, asked what the reference was asked.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    time::{Duration, Instant},
};

use hapax::{
    entity::{DedupEntry, Entity, Expected, Version},
    ids::{AttemptId, DedupKey, EntityKey},
    ports::{ErrorKind, Finished, Known, Saved, StoreError},
};
use hapax_tests::Backend;

use crate::{
    calls::{Asked, Call, KEYS, MESSAGES, State, Step, messages_of},
    names::Names,
    reference::{Content, Key, Mark, Message, Number},
};

/// Longer than any run.
const HOUR: Duration = Duration::from_secs(3600);

pub(crate) struct Subject<B> {
    hands: Vec<B>,
    /// How long may pass until a store lists or removes what it must in the end.
    patience: Duration,
    names: Names,
    versions: BTreeMap<(Key, Number), Version>,
}

fn failed(error: StoreError) -> String {
    format!("{error:?}, although nothing is wrong")
}

/// Broken, unless the store has refused what it says it does not do.
fn refused<T: Debug>(what: &str, answer: Result<T, StoreError>) -> Result<(), String> {
    match answer {
        Err(error) if error.kind() == ErrorKind::Misconfigured => Ok(()),
        other => Err(format!("{what} ends with {other:?}, and should be refused")),
    }
}

/// Broken, unless both are the same.
fn same<T: PartialEq + Debug>(what: &str, is: &T, should: &T) -> Result<(), String> {
    if is == should { Ok(()) } else { Err(format!("{what} is {is:?}, and should be {should:?}")) }
}

impl<B: Backend> Subject<B> {
    pub(crate) fn new(hands: Vec<B>, patience: Duration) -> Self {
        Self { hands, patience, names: Names::new(1), versions: BTreeMap::new() }
    }

    /// Does what was `asked` by `step`, with the reference at `state` after it.
    pub(crate) async fn step(&mut self, step: &Step, asked: &Asked, state: &State) -> Result<(), String> {
        let hand = self.hands[usize::from(step.hand)].clone();
        match (&step.call, asked) {
            (Call::Load { key, ids }, _) => self.load(&hand, *key, ids, state).await,
            (Call::Version { key }, _) => self.version(&hand, *key, state).await,
            (Call::Contains { ids }, _) => self.contains(&hand, ids, state).await,
            (_, Asked::Save { .. }) => self.save(&hand, asked).await,
            (_, Asked::Finish { .. }) => self.finish(&hand, asked).await,
            (Call::SaveTooMuch { key, processed, .. }, _) => {
                let entity =
                    Entity { state: vec![0; hand.capabilities().entity_bytes_max + 1].into(), ..Entity::default() };
                let expected = state.stored.rows.get(key).and_then(|row| row.version);
                let processed = if hand.capabilities().together { self.names.marks(processed) } else { Vec::new() };
                let saved = hand.save(&self.names.key(*key), &self.expected(*key, expected), &entity, &processed).await;
                match saved {
                    Err(error) if error.kind() == ErrorKind::TooLarge => Ok(()),
                    other => Err(format!("a save of too much ends with {other:?}")),
                }
            }
            (Call::Insert { key, marks }, _) => self.insert(&hand, *key, &self.names.marks(marks)).await,
            (Call::Pending { scope, after, limit }, _) => self.pending(&hand, *scope, *after, *limit, state).await,
            (Call::PendingForAnHour { scope }, _) => {
                let old = hand.pending(self.names.scope(*scope), HOUR, None, 100).await.map_err(failed)?;
                same("what has been pending for an hour", &old, &Vec::new())
            }
            (Call::Purge { scope }, Asked::Purge { gone }) => self.purge(&hand, *scope, *gone).await,
            (Call::PurgeAfterAnHour { scope }, _) => {
                let purged = hand.purge(self.names.scope(*scope), HOUR, 100).await.map_err(failed)?;
                same("what is purged after an hour", &purged, &0)
            }
            (Call::Evict, Asked::Evict { gone }) => self.evict(&hand, *gone, state).await,
            (Call::EvictAfterAnHour, _) => {
                let evicted = hand.evict(HOUR).await.map_err(failed)?;
                same("what is evicted after an hour", &evicted.entries, &0)
            }
            (call, asked) => Err(format!("{call:?} was taken for {asked:?}")),
        }
    }

    /// Everything there is, through every handle.
    pub(crate) async fn check_all(&mut self, state: &State) -> Result<(), String> {
        for hand in self.hands.clone() {
            for key in KEYS {
                self.version(&hand, key, state).await?;
                self.load(&hand, key, messages_of(key), state).await?;
            }
            self.contains(&hand, &MESSAGES, state).await?;
        }
        Ok(())
    }

    fn expected(&self, key: Key, number: Option<Number>) -> Expected {
        number.map_or(Expected::Absent, |number| Expected::Version(self.versions[&(key, number)].clone()))
    }

    /// Writes down the version of a save.
    fn given(&mut self, key: Key, number: Number, version: Version) -> Result<(), String> {
        let again = self.versions.iter().find(|((of, _), known)| *of == key && **known == version);
        if let Some(((_, before), _)) = again {
            return Err(format!("the version {version:?} of save {number} was given before, for save {before}"));
        }
        self.versions.insert((key, number), version);
        Ok(())
    }

    async fn load(&self, hand: &B, key: Key, ids: &[Message], state: &State) -> Result<(), String> {
        let keys: Vec<DedupKey> = ids.iter().map(|id| self.names.id(*id)).collect();
        let loaded = hand.load(&self.names.key(key), &keys).await.map_err(failed)?;
        let wanted = state.stored.rows.get(&key);
        let version = wanted.and_then(|row| row.version).map(|number| &self.versions[&(key, number)]);
        same("the loaded version", &loaded.stored.as_ref().map(|stored| &stored.version), &version)?;
        let entity = wanted.map(|row| self.names.entity(&row.content));
        same("the loaded entity", &loaded.stored.map(|stored| stored.entity), &entity)?;
        let outbox = wanted.into_iter().flat_map(|row| &row.content.outbox).map(|mark| mark.message);
        let asked: BTreeSet<Message> = ids.iter().copied().chain(outbox).collect();
        match loaded.known {
            Some(known) => self.known(&known, &asked, state),
            None if hand.capabilities().together => Err("a load says nothing of dedup entries".into()),
            None => Ok(()),
        }
    }

    /// Answers for all that was asked, and of the rest nothing wrong.
    fn known(&self, known: &Known, asked: &BTreeSet<Message>, state: &State) -> Result<(), String> {
        for message in MESSAGES {
            let attempt = state.stored.marks.get(&message);
            let mark = attempt.map(|attempt| self.names.mark(Mark { message, attempt: *attempt }));
            let found: Option<&DedupEntry> = known.entry(&self.names.id(message));
            if asked.contains(&message) || found.is_some() {
                same(&format!("the mark of message {message}"), &found, &mark.as_ref())?;
            }
        }
        Ok(())
    }

    async fn version(&self, hand: &B, key: Key, state: &State) -> Result<(), String> {
        let version = hand.version(&self.names.key(key)).await.map_err(failed)?;
        let wanted = state.stored.rows.get(&key).and_then(|row| row.version);
        same("the version", &version.as_ref(), &wanted.map(|number| &self.versions[&(key, number)]))
    }

    async fn contains(&self, hand: &B, ids: &[Message], state: &State) -> Result<(), String> {
        let keys: Vec<DedupKey> = ids.iter().map(|id| self.names.id(*id)).collect();
        let known = hand.contains(&keys).await.map_err(failed)?;
        self.known(&known, &ids.iter().copied().collect(), state)
    }

    async fn save(&mut self, hand: &B, asked: &Asked) -> Result<(), String> {
        let Asked::Save { key, expected, content, processed, at } = asked else { return Err(format!("{asked:?}")) };
        let expected = self.expected(*key, *expected);
        let (real, entity, mut processed) =
            (self.names.key(*key), self.names.entity(content), self.names.marks(processed));
        if !hand.capabilities().together && !processed.is_empty() {
            let saved = hand.save(&real, &expected, &entity, &processed).await;
            refused("a save of marks by a store that keeps none", saved)?;
            processed.clear();
        }
        let saved = hand.save(&real, &expected, &entity, &processed).await;
        match (saved.map_err(failed)?, at) {
            (Saved::At(version), Some(at)) => self.given(*key, *at, version),
            (Saved::Conflict, None) => Ok(()),
            (saved, at) => Err(format!("a save that expects {expected:?} ends with {saved:?}, and should with {at:?}")),
        }
    }

    async fn finish(&mut self, hand: &B, asked: &Asked) -> Result<(), String> {
        let Asked::Finish { key, done, clean_up, at } = asked else { return Err(format!("{asked:?}")) };
        let done = self.names.marks(done);
        let real = |(number, content): &(Number, Content)| {
            (self.versions[&(*key, *number)].clone(), self.names.entity(content))
        };
        let clean_up = clean_up.as_ref().map(real);
        let by_reference = clean_up.as_ref().map(|(version, entity)| (version, entity));
        let finished = match hand.finish(&self.names.key(*key), &done, by_reference).await.map_err(failed)? {
            Some(finished) if hand.capabilities().together => finished,
            None if !hand.capabilities().together => self.in_two_steps(hand, *key, &done, by_reference).await?,
            finished => return Err(format!("a finish ends with {finished:?}, and the store says otherwise")),
        };
        match (finished, at) {
            (Finished::Cleaned(Some(version)), Some(at)) => self.given(*key, *at, version),
            (Finished::Cleaned(None), None) if clean_up.is_none() => Ok(()),
            (Finished::Left, None) if clean_up.is_some() => Ok(()),
            (finished, at) => Err(format!("a finish ends with {finished:?}, and should with {at:?}")),
        }
    }

    /// What a caller does for a store that has left all of a finish to it.
    async fn in_two_steps(
        &self,
        hand: &B,
        key: Key,
        done: &[DedupEntry],
        clean_up: Option<(&Version, &Entity)>,
    ) -> Result<Finished, String> {
        self.insert(hand, key, done).await?;
        let Some((version, entity)) = clean_up else { return Ok(Finished::Cleaned(None)) };
        let expected = Expected::Version(version.clone());
        Ok(match hand.save(&self.names.key(key), &expected, entity, &[]).await.map_err(failed)? {
            Saved::At(version) => Finished::Cleaned(Some(version)),
            Saved::Conflict => Finished::Left,
        })
    }

    /// Alone, or with their entity where they are not taken alone.
    async fn insert(&self, hand: &B, key: Key, marks: &[DedupEntry]) -> Result<(), String> {
        if hand.dedup_capabilities().alone {
            return hand.insert(marks).await.map_err(failed);
        }
        if !marks.is_empty() {
            refused("an insert without an entity", hand.insert(marks).await)?;
        }
        let finished = hand.finish(&self.names.key(key), marks, None).await.map_err(failed)?;
        same("a finish without a clean-up", &finished, &Some(Finished::Cleaned(None)))
    }

    async fn pending(
        &self,
        hand: &B,
        scope: u8,
        after: Option<Key>,
        limit: usize,
        state: &State,
    ) -> Result<(), String> {
        let after_key = after.map(|after| self.names.key(after));
        let wanted = state.pending(scope, after, limit).into_iter();
        let wanted: Vec<(EntityKey, BTreeSet<AttemptId>)> = wanted
            .map(|(key, waits)| (self.names.key(key), waits.iter().map(|mark| self.names.attempt(*mark)).collect()))
            .collect();
        let begun = Instant::now();
        loop {
            let scope = self.names.scope(scope);
            let pending = hand.pending(scope, Duration::ZERO, after_key.as_ref(), limit).await.map_err(failed)?;
            let pending = pending.into_iter();
            let listed: Vec<(EntityKey, BTreeSet<AttemptId>)> =
                pending.map(|p| (p.key, p.entries.iter().map(|entry| entry.attempt).collect())).collect();
            if listed == wanted || begun.elapsed() > self.patience {
                return same("what is pending", &listed, &wanted);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn purge(&self, hand: &B, scope: u8, gone: usize) -> Result<(), String> {
        let (begun, scope) = (Instant::now(), self.names.scope(scope));
        let mut purged = 0;
        while purged < gone && begun.elapsed() < self.patience {
            let one = hand.purge(scope, Duration::ZERO, 1).await.map_err(failed)?;
            if one > 1 {
                return Err(format!("{one} are purged, and 1 was asked for"));
            }
            purged += one;
            tokio::time::sleep(Duration::from_millis(u64::from(one == 0))).await;
        }
        purged += hand.purge(scope, Duration::ZERO, 100).await.map_err(failed)?;
        same("the number of the purged", &purged, &gone)
    }

    async fn evict(&self, hand: &B, gone: usize, state: &State) -> Result<(), String> {
        let (begun, mut evicted) = (Instant::now(), 0);
        loop {
            evicted += hand.evict(Duration::ZERO).await.map_err(failed)?.entries;
            let all = self.contains(hand, &MESSAGES, state).await;
            if all.is_err() && begun.elapsed() < self.patience {
                tokio::time::sleep(Duration::from_millis(1)).await;
                continue;
            }
            all?;
            let enough = evicted >= gone as u64;
            return if enough { Ok(()) } else { Err(format!("{evicted} are said to be evicted, but {gone} are gone")) };
        }
    }
}
