//! One run of the explorer on a real store.

use std::{collections::HashMap, fmt::Debug, sync::Arc};

use hapax::{
    entity::{DedupEntry, Entity, Expected, OutboxEntry, Version},
    ids::{DedupKey, EndpointName, EntityKey, Scope},
    ports::{DeadLetter, Finished, Known, Page, Saved, StoreError},
};
use hapax_model::explore::{Asked, Trace, What};
use hapax_tests::Backend;

/// A run under names that no other run on the same store has.
pub(crate) struct Replay<'h, B> {
    hands: &'h [B],
    run: u64,
    /// The store's versions, by the model's.
    versions: HashMap<(EntityKey, Version), Version>,
    letters: Vec<DeadLetter>,
}

fn failed(error: StoreError) -> String {
    format!("{error:?}, although nothing is wrong")
}

/// Broken, unless both are the same.
fn same<T: PartialEq + Debug>(what: &str, is: &T, should: &T) -> Result<(), String> {
    if is == should { Ok(()) } else { Err(format!("{what} is {is:?}, and should be {should:?}")) }
}

impl<'h, B: Backend> Replay<'h, B> {
    pub(crate) fn new(hands: &'h [B], run: u64) -> Self {
        Self { hands, run, versions: HashMap::new(), letters: Vec::new() }
    }

    /// Asks the store what was asked of the model's world. An answer that nobody was told is looked at all the same: here
    /// it has not got lost.
    pub(crate) async fn ask(&mut self, asked: &Asked) -> Result<(), String> {
        let hand = self.hands[asked.worker % self.hands.len()].clone();
        match &asked.what {
            What::Load { key, ids, answer } => {
                let loaded = hand.load(&self.key(key), &self.ids(ids)).await.map_err(failed)?;
                let version = answer.stored.as_ref().map(|stored| self.version(key, &stored.version));
                same("the loaded version", &loaded.stored.as_ref().map(|stored| stored.version.clone()), &version)?;
                let entity = answer.stored.as_ref().map(|stored| self.entity(&stored.entity));
                same("the loaded entity", &loaded.stored.map(|stored| stored.entity), &entity)?;
                let entries = answer.stored.iter().flat_map(|stored| &stored.entity.outbox).map(|entry| entry.key);
                let all: Vec<DedupKey> = ids.iter().copied().chain(entries).collect();
                match (loaded.known, &answer.known) {
                    (Some(known), Some(should)) => self.known(&all, &known, should),
                    // Where the model has two stores, the marks are asked for by themselves.
                    _ => Ok(()),
                }
            }
            What::Contains { ids, answer } => {
                let known = hand.contains(&self.ids(ids)).await.map_err(failed)?;
                self.known(ids, &known, answer)
            }
            What::Version { key, answer } => {
                let version = hand.version(&self.key(key)).await.map_err(failed)?;
                same("the version", &version, &answer.as_ref().map(|version| self.version(key, version)))
            }
            What::Save { key, expected, entity, processed, answer } => {
                let expected = match expected {
                    Expected::Absent => Expected::Absent,
                    Expected::Version(version) => Expected::Version(self.version(key, version)),
                };
                let processed = self.marks(processed);
                let saved = hand.save(&self.key(key), &expected, &self.entity(entity), &processed).await;
                match (saved.map_err(failed)?, answer) {
                    (Saved::At(version), Saved::At(number)) => self.given(key, number, version),
                    (Saved::Conflict, Saved::Conflict) => Ok(()),
                    (saved, answer) => Err(format!("a save ends with {saved:?}, and should with {answer:?}")),
                }
            }
            What::Finish { key, done, clean_up, answer } => {
                let done = self.marks(done);
                let clean_up =
                    clean_up.as_ref().map(|(version, entity)| (self.version(key, version), self.entity(entity)));
                let by_reference = clean_up.as_ref().map(|(version, entity)| (version, entity));
                let finished = hand.finish(&self.key(key), &done, by_reference).await.map_err(failed)?;
                match (finished, answer) {
                    (Some(Finished::Cleaned(Some(version))), Some(Finished::Cleaned(Some(number)))) => {
                        self.given(key, number, version)
                    }
                    (Some(Finished::Cleaned(None)), Some(Finished::Cleaned(None))) => Ok(()),
                    (Some(Finished::Left), Some(Finished::Left)) => Ok(()),
                    (finished, answer) => Err(format!("a finish ends with {finished:?}, and should with {answer:?}")),
                }
            }
            What::Insert(done) => hand.insert(&self.marks(done)).await.map_err(failed),
            What::SetAside(letter) => {
                let letter = DeadLetter { endpoint: self.endpoint(&letter.endpoint), ..(**letter).clone() };
                hand.add(&letter).await.map_err(failed)?;
                if !self.letters.iter().any(|known| known.is_same(&letter)) {
                    self.letters.push(letter);
                }
                Ok(())
            }
        }
    }

    /// What is there at the end, through every handle.
    pub(crate) async fn rest(&self, trace: &Trace) -> Result<(), String> {
        let all: Vec<DedupKey> = trace.marks.iter().map(|mark| mark.key).collect();
        let should = Known::new(trace.marks.clone());
        for hand in self.hands {
            for (key, version, entity) in &trace.entities {
                let stored = hand.load(&self.key(key), &[]).await.map_err(failed)?.stored;
                let stored = stored.map(|stored| (stored.version, stored.entity));
                same("the entity", &stored, &Some((self.version(key, version), self.entity(entity))))?;
            }
            self.known(&all, &hand.contains(&self.ids(&all)).await.map_err(failed)?, &should)?;
            for letter in &self.letters {
                const ALL: usize = 1000;
                let listed = hand.list(&letter.endpoint, &Page::first(ALL)).await.map_err(failed)?;
                let of_endpoint = self.letters.iter().filter(|other| other.endpoint == letter.endpoint).count();
                same("the number of letters", &listed.len(), &of_endpoint)?;
                same("that a letter is there", &listed.iter().any(|other| other.is_same(letter)), &true)?;
            }
        }
        Ok(())
    }

    fn known(&self, ids: &[DedupKey], known: &Known, should: &Known) -> Result<(), String> {
        for id in ids {
            let should = should.entry(id).map(|mark| self.mark(mark));
            same("a mark", &known.entry(&self.id(id)), &should.as_ref())?;
        }
        Ok(())
    }

    /// Writes down the version of a save.
    fn given(&mut self, key: &EntityKey, number: &Version, version: Version) -> Result<(), String> {
        if self.versions.iter().any(|((of, _), known)| of == key && *known == version) {
            return Err(format!("the version {version:?} of {key} was given before"));
        }
        self.versions.insert((key.clone(), number.clone()), version);
        Ok(())
    }

    /// The store's version; one that is none where the store has given none.
    fn version(&self, key: &EntityKey, number: &Version) -> Version {
        let known = self.versions.get(&(key.clone(), number.clone()));
        known.cloned().unwrap_or_else(|| Version::text("never given"))
    }

    fn endpoint(&self, endpoint: &EndpointName) -> EndpointName {
        format!("run-{}-{endpoint}", self.run).parse().unwrap()
    }

    fn key(&self, key: &EntityKey) -> EntityKey {
        let Scope { endpoint, saga } = &**key.scope();
        EntityKey::new(Arc::new(Scope { endpoint: self.endpoint(endpoint), saga: saga.clone() }), key.key().clone())
    }

    fn id(&self, id: &DedupKey) -> DedupKey {
        let mut bytes = *id.as_bytes();
        for (byte, of_run) in bytes.iter_mut().zip(self.run.to_be_bytes()) {
            *byte ^= of_run;
        }
        DedupKey::from_bytes(bytes)
    }

    fn ids(&self, ids: &[DedupKey]) -> Vec<DedupKey> {
        ids.iter().map(|id| self.id(id)).collect()
    }

    fn mark(&self, mark: &DedupEntry) -> DedupEntry {
        DedupEntry { key: self.id(&mark.key), ..mark.clone() }
    }

    fn marks(&self, marks: &[DedupEntry]) -> Vec<DedupEntry> {
        marks.iter().map(|mark| self.mark(mark)).collect()
    }

    fn entity(&self, entity: &Entity) -> Entity {
        let entry = |entry: &Arc<OutboxEntry>| Arc::new(OutboxEntry { key: self.id(&entry.key), ..(**entry).clone() });
        Entity { outbox: entity.outbox.iter().map(entry).collect(), ..entity.clone() }
    }
}
