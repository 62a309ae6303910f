//! Ports and managers that do one thing wrong.

use std::{
    collections::HashSet,
    fmt,
    future::{pending, poll_fn},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use async_trait::async_trait;
use hapax_core::{
    HandlerError,
    entity::{DedupEntry, Entity, Expected, Version},
    envelope::{Envelope, Outgoing},
    ids::{AttemptId, DedupKey, EntityKey, Scope, TypeName},
    manager::{Again, Incoming, Outcome, Passes, Passing, Ports, Stores},
    ports::{
        Clock, DedupCapabilities, DedupStore, DispatchError, Dispatcher, EntityStore, Evicted, Finished, Known, Loaded,
        LongMemory, Pending, Receipt, Refused, Saved, StoreCapabilities, StoreError,
    },
};
use hapax_model::explore::{MakeManager, Scenario};

/// What a port does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lie {
    /// No message was ever seen.
    FindsNothing,
    /// Messages were seen, and not what was answered.
    ForgetsAnswers,
    /// A save that has lost is repeated over what is there.
    SavesAnyway,
    /// What an entity is about to send leaves before it is saved.
    SendsFirst,
    /// Each message leaves with another body.
    ChangesBodies,
    /// What was not sent was sent.
    SwallowsSendErrors,
    /// Marks, and leaves the entry.
    NeverCleans,
    /// Removes the entry, then marks.
    CleansFirst,
}

/// All ports of a manager, one of which lies.
#[derive(Debug)]
struct Liar {
    lie: Lie,
    entities: Arc<dyn EntityStore>,
    dedup: Arc<dyn DedupStore>,
    dispatcher: Arc<dyn Dispatcher>,
}

/// `scenario` with lying ports.
pub(crate) fn lying(lie: Lie, scenario: Scenario) -> Scenario {
    Scenario { manager: liar(lie, scenario.manager.clone()), ..scenario }
}

/// `make` with lying ports.
pub(crate) fn liar(lie: Lie, make: MakeManager) -> MakeManager {
    Arc::new(move |ports: Ports, limits| {
        let (entities, dedup) = (ports.stores.entities().clone(), ports.stores.dedup().clone());
        let liar = Arc::new(Liar { lie, entities, dedup, dispatcher: ports.dispatcher.clone() });
        make(Ports { stores: Stores::one(liar.clone()), dispatcher: liar, ..ports }, limits)
    })
}

impl Liar {
    fn found(&self, known: Known, keys: &[DedupKey]) -> Known {
        match self.lie {
            Lie::FindsNothing => Known::default(),
            Lie::ForgetsAnswers => {
                let entries = keys.iter().filter_map(|key| known.entry(key));
                Known::new(entries.map(|entry| DedupEntry { reply: None, ..entry.clone() }).collect())
            }
            _ => known,
        }
    }
}

#[async_trait]
impl EntityStore for Liar {
    fn capabilities(&self) -> StoreCapabilities {
        self.entities.capabilities()
    }

    async fn load(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        let loaded = self.entities.load(key, ids).await?;
        let entries = loaded.stored.iter().flat_map(|stored| &stored.entity.outbox).map(|entry| entry.key);
        let keys: Vec<DedupKey> = ids.iter().copied().chain(entries).collect();
        Ok(Loaded { known: loaded.known.map(|known| self.found(known, &keys)), stored: loaded.stored })
    }

    async fn save(
        &self,
        key: &EntityKey,
        expected: &Expected,
        entity: &Entity,
        processed: &[DedupEntry],
    ) -> Result<Saved, StoreError> {
        if self.lie == Lie::SendsFirst {
            for entry in &entity.outbox {
                drop(self.dispatcher.dispatch(&entry.outgoing).await);
            }
        }
        let saved = self.entities.save(key, expected, entity, processed).await?;
        if self.lie != Lie::SavesAnyway || saved != Saved::Conflict {
            return Ok(saved);
        }
        let current = self.entities.version(key).await?.map_or(Expected::Absent, Expected::Version);
        self.entities.save(key, &current, entity, processed).await
    }

    async fn finish(
        &self,
        key: &EntityKey,
        done: &[DedupEntry],
        clean_up: Option<(&Version, &Entity)>,
    ) -> Result<Option<Finished>, StoreError> {
        match (self.lie, clean_up) {
            (Lie::NeverCleans, _) => {
                self.entities.finish(key, done, None).await?;
                Ok(Some(Finished::Left))
            }
            (Lie::CleansFirst, Some((version, entity))) => {
                drop(self.entities.save(key, &Expected::Version(version.clone()), entity, &[]).await?);
                self.entities.finish(key, done, None).await
            }
            _ => self.entities.finish(key, done, clean_up).await,
        }
    }

    async fn version(&self, key: &EntityKey) -> Result<Option<Version>, StoreError> {
        self.entities.version(key).await
    }

    async fn pending(
        &self,
        scope: &Arc<Scope>,
        older_than: Duration,
        after: Option<&EntityKey>,
        limit: usize,
    ) -> Result<Vec<Pending>, StoreError> {
        self.entities.pending(scope, older_than, after, limit).await
    }

    async fn purge(&self, scope: &Arc<Scope>, older_than: Duration, limit: usize) -> Result<usize, StoreError> {
        self.entities.purge(scope, older_than, limit).await
    }
}

#[async_trait]
impl DedupStore for Liar {
    fn dedup_capabilities(&self) -> DedupCapabilities {
        self.dedup.dedup_capabilities()
    }

    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        Ok(self.found(self.dedup.contains(keys).await?, keys))
    }

    async fn insert(&self, entries: &[DedupEntry]) -> Result<(), StoreError> {
        self.dedup.insert(entries).await
    }

    async fn evict(&self, retention: Duration) -> Result<Evicted, StoreError> {
        self.dedup.evict(retention).await
    }

    fn long_memory(&self) -> Option<&dyn LongMemory> {
        None
    }
}

#[async_trait]
impl Dispatcher for Liar {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        self.dispatcher.check(outgoing)
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        let mut outgoing = outgoing.to_vec();
        if self.lie == Lie::ChangesBodies {
            for one in &mut outgoing {
                Arc::make_mut(&mut one.envelope).body = "changed".into();
            }
        }
        let results = self.dispatcher.dispatch(&outgoing).await;
        match self.lie {
            Lie::SwallowsSendErrors => results.iter().map(|_| Ok(())).collect(),
            _ => results,
        }
    }
}

/// What a manager does wrong.
#[derive(Debug, Clone)]
pub(crate) enum Wrong {
    /// Who has lost a race is done.
    AcksConflicts,
    /// Who has lost a race is set aside.
    SetsConflictsAside,
    /// What could not be sent is set aside.
    SetsUnsentAside,
    /// Nothing is ever decided.
    NeverDecides,
    /// What a message says is lost once it is decoded.
    LosesBodies,
    /// A timeout is like any other message.
    ForgetsTimeouts,
    /// Waits for something that is no port.
    Sleeps,
    /// Gives way and gives way.
    GivesWayForEver,
    /// Looks at the clock every other time.
    AsksByTheWay(Arc<AtomicUsize>),
    /// Keeps in mind what it has handled.
    Remembers,
}

/// `scenario` with a manager that does something wrong around the shipped one.
pub(crate) fn wrong(wrong: Wrong, scenario: Scenario) -> Scenario {
    let make = scenario.manager.clone();
    let manager: MakeManager = Arc::new(move |ports: Ports, limits| {
        let clock = ports.clock.clone();
        Arc::new(Around { wrong: wrong.clone(), clock, seen: Mutex::default(), shipped: make(ports, limits) })
    });
    Scenario { manager, ..scenario }
}

struct Around {
    wrong: Wrong,
    clock: Arc<dyn Clock>,
    seen: Mutex<HashSet<DedupKey>>,
    shipped: Arc<dyn Passes>,
}

impl fmt::Debug for Around {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Around").field("wrong", &self.wrong).finish_non_exhaustive()
    }
}

impl Around {
    async fn begin(&self) {
        match &self.wrong {
            Wrong::Sleeps => pending().await,
            Wrong::GivesWayForEver => {
                poll_fn(|cx| {
                    cx.waker().wake_by_ref();
                    Poll::<()>::Pending
                })
                .await;
            }
            Wrong::AsksByTheWay(runs) if runs.fetch_add(1, Ordering::Relaxed) % 2 == 1 => drop(self.clock.now().await),
            _ => {}
        }
    }

    fn outcome(&self, outcome: Outcome) -> Outcome {
        match (&self.wrong, outcome) {
            (Wrong::AcksConflicts, Outcome::Again(_)) => Outcome::Duplicate,
            (Wrong::SetsConflictsAside, Outcome::Again(_)) => Outcome::DeadLetter("it has lost".into()),
            (Wrong::SetsUnsentAside, Outcome::Unsent(why)) => Outcome::DeadLetter(why),
            (_, outcome) => outcome,
        }
    }
}

impl Passes for Around {
    fn scope(&self) -> &Arc<Scope> {
        self.shipped.scope()
    }

    fn types(&self) -> Vec<TypeName> {
        self.shipped.types()
    }

    fn route(
        &self,
        envelope: &Arc<Envelope>,
        receipt: Receipt,
        attempts: u32,
    ) -> Result<(EntityKey, Incoming), HandlerError> {
        if matches!(self.wrong, Wrong::ForgetsTimeouts) {
            let ordinary = Envelope { timeout: false, ..Envelope::clone(envelope) };
            return self.shipped.route(&Arc::new(ordinary), receipt, attempts);
        }
        let (key, mut incoming) = self.shipped.route(envelope, receipt, attempts)?;
        if matches!(self.wrong, Wrong::LosesBodies) {
            incoming.envelope = Arc::new(Envelope { body: Vec::new().into(), ..Envelope::clone(envelope) });
        }
        Ok((key, incoming))
    }

    fn pass<'p>(&'p self, key: &'p EntityKey, messages: &'p mut [Incoming], sweep: &'p [AttemptId]) -> Passing<'p> {
        Box::pin(async move {
            self.begin().await;
            if matches!(self.wrong, Wrong::NeverDecides) {
                return messages.iter().map(|_| Outcome::Again(Again::Full)).collect();
            }
            let keys: Vec<DedupKey> = messages.iter().map(|message| message.key).collect();
            let remembers = matches!(self.wrong, Wrong::Remembers) && !keys.is_empty();
            if remembers && keys.iter().all(|key| self.seen.lock().unwrap().contains(key)) {
                return keys.iter().map(|_| Outcome::Duplicate).collect();
            }
            let outcomes = self.shipped.pass(key, messages, sweep).await;
            if remembers && outcomes.iter().all(|outcome| matches!(outcome, Outcome::Handled)) {
                self.seen.lock().unwrap().extend(keys);
            }
            outcomes.into_iter().map(|outcome| self.outcome(outcome)).collect()
        })
    }
}
