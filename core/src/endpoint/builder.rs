//! How an endpoint is put together. What is missing or would break the promise is found at `start`, before a message is taken.

mod around;
mod checks;
mod declared;
mod seen;
mod settings;
mod start;
mod types;

use std::{fmt, sync::Arc, time::Duration};

use around::Given;
pub(crate) use checks::check_timers;
pub use settings::Settings;

#[cfg(feature = "cron")]
use super::recurring::Recurrences;
use super::{Audit, Evict, SystemClock};
use crate::{
    around::{Layer, Only},
    codec::Codec,
    context::Services,
    enqueued::Nobody,
    ids::{EndpointName, InvalidId, SagaName, TypeName},
    inbox::{self, InTransaction, Inbox, TransactionHandler},
    manager::{Passes, Ports, SagaManager, Stores},
    metrics::{Metrics, NoMetrics},
    ports::{Backoff, Bodies, Clock, DeadLetters, DedupStore, EntityStore, Schedule, Transport},
    registry::{Registry, stateless},
    saga::{Handler, Message, Needs, Saga},
    seal::Seals,
    trace::Traces,
};

type MakeManager = Box<dyn FnOnce(&EndpointName, Ports, Given) -> Result<Arc<dyn Passes>, InvalidId> + Send>;

struct SagaParts {
    make: MakeManager,
    needs: Needs,
    /// Its name and the messages it knows, or what is wrong with them.
    known: Result<(SagaName, Vec<TypeName>), InvalidId>,
    messages: Vec<Only>,
    /// What it has around its own handlers.
    layers: Vec<Layer>,
    /// It is hapax's own: no middleware stands around it.
    own: bool,
    /// It keeps something in the endpoint's stores.
    stores: bool,
    /// It handles nothing.
    enqueued: bool,
}

/// Puts an endpoint together.
#[must_use]
pub struct EndpointBuilder {
    name: String,
    entities: Option<Arc<dyn EntityStore>>,
    dedup: Option<Arc<dyn DedupStore>>,
    both: Option<Stores>,
    dead_letters: Option<Arc<dyn DeadLetters>>,
    pub(super) transport: Option<Arc<dyn Transport>>,
    pub(super) schedule: Option<Arc<dyn Schedule>>,
    /// And above how many bytes a body goes there.
    pub(super) bodies: Option<(Arc<dyn Bodies>, usize)>,
    sagas: Vec<SagaParts>,
    layers: Vec<Layer>,
    seals: Seals,
    inboxes: Vec<Evict>,
    evidence: bool,
    /// The time of [`Eviction::After`](super::Eviction::After).
    evicts_after: Option<Duration>,
    numbers: bool,
    services: Services,
    #[cfg(feature = "cron")]
    pub(super) recurrences: Recurrences,
    pub(super) settings: Settings,
    codec: Codec,
    metrics: Arc<dyn Metrics>,
    audit: Option<Audit>,
    traces: Option<Arc<dyn Traces>>,
    pub(super) backoff: Option<Arc<dyn Backoff>>,
    pub(super) clock: Arc<dyn Clock>,
    /// With circuit breakers, which wait in real time.
    pub(super) breaks: bool,
    #[cfg(feature = "testing")]
    pub(super) drops: Option<crate::testing::Drops>,
}

impl EndpointBuilder {
    pub(super) fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            entities: None,
            dedup: None,
            both: None,
            dead_letters: None,
            transport: None,
            schedule: None,
            bodies: None,
            sagas: Vec::new(),
            layers: Vec::new(),
            seals: Seals::default(),
            inboxes: Vec::new(),
            evidence: false,
            evicts_after: None,
            numbers: false,
            services: Services::default(),
            #[cfg(feature = "cron")]
            recurrences: Recurrences::default(),
            settings: Settings::default(),
            codec: Codec::default(),
            metrics: Arc::new(NoMetrics),
            audit: None,
            traces: None,
            backoff: None,
            clock: Arc::new(SystemClock::default()),
            breaks: true,
            #[cfg(feature = "testing")]
            drops: None,
        }
    }

    /// One store for entities, dedup entries and dead letters.
    pub fn store<S: EntityStore + DedupStore + DeadLetters + 'static>(mut self, store: S) -> Self {
        let store = Arc::new(store);
        self.both = Some(Stores::one(store.clone()));
        self.dead_letters = Some(store);
        self
    }

    /// Where entities are kept, if not in [`store`](Self::store).
    pub fn entities(mut self, entities: impl EntityStore + 'static) -> Self {
        self.entities = Some(Arc::new(entities));
        self
    }

    /// Where dedup entries are kept, if not in [`store`](Self::store). It must be strongly consistent.
    pub fn dedup(mut self, dedup: impl DedupStore + 'static) -> Self {
        self.dedup = Some(Arc::new(dedup));
        self
    }

    /// Where dead letters are kept, if not in [`store`](Self::store); without either, in the broker's own place.
    pub fn dead_letters(mut self, dead_letters: impl DeadLetters + 'static) -> Self {
        self.dead_letters = Some(Arc::new(dead_letters));
        self
    }

    /// Where messages come from and go to.
    pub fn transport(mut self, transport: impl Transport + 'static) -> Self {
        self.transport = Some(Arc::new(transport));
        self
    }

    /// Adds a saga; the closure says which messages it knows.
    pub fn saga<T: Saga>(mut self, messages: impl FnOnce(Registry<T>) -> Registry<T>) -> Self {
        self.add(messages(Registry::new()), T::needs());
        self
    }

    /// Adds a stateless handler of messages of type `M`.
    pub fn handler<M: Message>(mut self, handler: impl Handler<M>) -> Self {
        let needs = needs_of(&handler);
        self.add(stateless::<M, _>(handler), needs);
        self
    }

    /// Sends what transactions of your own have stored for this endpoint to send: see [`Enqueued`](crate::Enqueued). Its sweeper does it, and
    /// looks for them every [`enqueued_interval`](Settings::enqueued_interval). Where several processes run the endpoint, each may send a
    /// message before one of them has cleaned up: under the same id, as after a crash.
    pub fn sends_enqueued(mut self) -> Self {
        let make: MakeManager = Box::new(move |endpoint, ports, Given { limits, codec, services, .. }| {
            let manager = SagaManager::new(endpoint, Registry::<Nobody>::new(), ports, limits, codec)?;
            Ok(Arc::new(manager.with_services(services)))
        });
        self.sagas.push(SagaParts {
            make,
            needs: Needs::default(),
            known: SagaName::parse(Nobody::NAME).map(|name| (name, Vec::new())),
            messages: Vec::new(),
            layers: Vec::new(),
            own: true,
            stores: true,
            enqueued: true,
        });
        self
    }

    fn add<T: Saga>(&mut self, registry: Registry<T>, needs: Needs) {
        let known = registry.check();
        let (messages, layers) = (registry.messages().collect(), registry.layers.clone());
        let make: MakeManager = Box::new(move |endpoint, ports, given| {
            let Given { limits, codec, services, seals, spill, layers } = given;
            let registry = registry.within(&layers).limited(limits.deadline);
            let manager = SagaManager::new(endpoint, registry, ports, limits, codec)?;
            Ok(Arc::new(manager.with_services(services).with_seals(seals).with_spill(spill)))
        });
        self.sagas.push(SagaParts { make, needs, known, messages, layers, own: false, stores: true, enqueued: false });
    }

    /// Adds a handler of messages of type `M` that works in transactions of `inbox`'s database. An endpoint that has only such
    /// handlers needs no [`store`](Self::store).
    pub fn in_transaction<M, I, H>(mut self, inbox: &Arc<I>, handler: H) -> Self
    where
        M: Message,
        I: Inbox,
        H: TransactionHandler<M, I>,
    {
        let (entered, evicted) = (inbox.clone(), inbox.clone());
        let make: MakeManager = Box::new(move |endpoint, ports, given| {
            let Given { limits, codec, services, seals, layers, .. } = given;
            let manager = InTransaction::<M, I, H>::new(endpoint, entered, handler, ports, limits, codec, services)?;
            Ok(Arc::new(manager.within(&layers)?.with_seals(seals)))
        });
        self.sagas.push(SagaParts {
            make,
            needs: H::needs(),
            known: inbox::known::<M, I, H>(),
            messages: vec![Only::of::<M>()],
            layers: Vec::new(),
            own: false,
            stores: false,
            enqueued: false,
        });
        self.inboxes.push(Arc::new(move |retention| {
            let inbox = evicted.clone();
            Box::pin(async move { inbox.evict(retention).await })
        }));
        self
    }

    /// A service for handlers, who [`get`](crate::Context::get) it by type.
    pub fn with<C: Send + Sync + 'static>(mut self, service: C) -> Self {
        self.services.insert(service);
        self
    }

    /// Bounds and intervals.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// How state and outgoing messages are encoded. What is stored in another codec is still read.
    pub fn codec(mut self, codec: Codec) -> Self {
        self.codec = codec;
        self
    }

    /// Looks at a sample of what the endpoint keeps, whether the promise holds: see [`Audit`]. Off without it.
    pub fn audit(mut self, audit: Audit) -> Self {
        self.audit = Some(audit);
        self
    }

    /// Drops passes at random awaits, as a crash would: for tests and demonstrations.
    #[cfg(feature = "testing")]
    pub fn drops(mut self, drops: crate::testing::Drops) -> Self {
        self.drops = Some(drops);
        self
    }
}

fn needs_of<M: Message, H: Handler<M>>(_: &H) -> Needs {
    H::needs()
}

impl fmt::Debug for EndpointBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointBuilder").field("name", &self.name).finish_non_exhaustive()
    }
}
