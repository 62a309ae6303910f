mod around;
mod checks;
mod seen;
mod settings;
mod types;

use std::{
    fmt,
    sync::{Arc, atomic::AtomicU64},
};

use around::{Given, check_layers};
pub(crate) use checks::check_timers;
use checks::{check_delays, check_promise, check_rests, check_scopes};
pub use settings::Settings;
use types::{all_types, shared_type, takers_by_type};

#[cfg(feature = "cron")]
use super::recurring::Recurrences;
use super::{
    Audit, Endpoint, EndpointHandle, Error, ErrorKind, Evict, SystemClock,
    audit::{Audited, Auditor},
    circuit::Circuit,
    handle::Ended,
    history::History,
    joint::Joint,
    nothing::Nothing,
    outlets::Outlets,
    schedule::Departures,
    system::RandomIds,
};
use crate::{
    around::{Layer, Only},
    codec::Codec,
    context::Services,
    deliver::Deliver,
    enqueued::Nobody,
    ids::{EndpointName, InvalidId, SagaName, Scope, TypeName},
    inbox::{self, InTransaction, Inbox, TransactionHandler},
    manager::{Passes, Ports, SagaManager, Stores},
    metrics::{Event, Metrics, NoMetrics},
    ports::{Backoff, Clock, DeadLetters, DedupStore, Delays, Dispatcher, EntityStore, Schedule, Transport},
    registry::{Registry, stateless},
    saga::{Handler, Message, Needs, Saga},
    seal::Seals,
    trace::{Sends, Spans, Traces},
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
    sagas: Vec<SagaParts>,
    layers: Vec<Layer>,
    seals: Seals,
    inboxes: Vec<Evict>,
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
            sagas: Vec::new(),
            layers: Vec::new(),
            seals: Seals::default(),
            inboxes: Vec::new(),
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
            let Given { limits, codec, services, seals, layers } = given;
            let manager = SagaManager::new(endpoint, registry.within(&layers), ports, limits, codec)?;
            Ok(Arc::new(manager.with_services(services).with_seals(seals)))
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
            let Given { limits, codec, services, seals, layers } = given;
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

    /// Another way to wait between tries than [`Settings::backoff`].
    pub fn backoff(mut self, backoff: impl Backoff + 'static) -> Self {
        self.backoff = Some(Arc::new(backoff));
        self
    }

    /// Drops passes at random awaits, as a crash would: for tests and demonstrations.
    #[cfg(feature = "testing")]
    pub fn drops(mut self, drops: crate::testing::Drops) -> Self {
        self.drops = Some(drops);
        self
    }

    /// Checks everything that can be known before the first message, and connects. What needs no connection is checked
    /// before there is one.
    ///
    /// # Errors
    /// [`Error`] that names what is missing or breaks the promise, and the remedy.
    pub async fn start(self) -> Result<Endpoint, Error> {
        #[cfg(feature = "cron")]
        let this = self.with_recurrences();
        #[cfg(not(feature = "cron"))]
        let this = self;
        this.start_whole().await
    }

    async fn start_whole(self) -> Result<Endpoint, Error> {
        let misconfigured = |why: String| Error::new(ErrorKind::Misconfigured, why);
        let invalid = |e: InvalidId| Error::new(ErrorKind::Misconfigured, e.to_string());
        let name = EndpointName::parse(self.name.as_str()).map_err(invalid)?;
        let missing = |what: &str, how: &str| misconfigured(format!("endpoint {name} has no {what}; add {how}"));
        let stores = match (self.both, self.entities, self.dedup) {
            (Some(both), None, None) => both,
            (None, Some(entities), Some(dedup)) => Stores::two(entities, dedup),
            (Some(_), ..) => {
                return Err(misconfigured(format!(
                    "endpoint {name} has a store for both and another for one; give .store(..), or .entities(..) and .dedup(..)"
                )));
            }
            (None, None, None) if !self.sagas.is_empty() && self.sagas.iter().all(|saga| !saga.stores) => {
                Stores::two(Arc::new(Nothing), Arc::new(Nothing))
            }
            (None, None, _) => return Err(missing("store for entities", ".store(..) or .entities(..)")),
            (None, Some(_), None) => return Err(missing("dedup store", ".dedup(..)")),
        };
        #[cfg(feature = "cron")]
        let begin = self.recurrences.begin(&name)?;
        #[cfg(not(feature = "cron"))]
        let begin = Vec::new();
        let transport = self.transport.ok_or_else(|| missing("transport", ".transport(..)"))?;
        if self.sagas.is_empty() {
            return Err(missing("saga and no handler", ".saga::<T>(..) or .handler(..)"));
        }
        let known = self.sagas.iter().map(|saga| saga.known.clone()).collect::<Result<Vec<_>, _>>();
        let known = known.map_err(|e| misconfigured(format!("endpoint {name}: {e}")))?;
        check_scopes(&name, known.iter().map(|(saga, _)| saga)).map_err(misconfigured)?;
        for (saga, (named, _)) in self.sagas.iter().zip(&known) {
            if let Some(service) = self.services.missing(&saga.needs) {
                return Err(missing(&format!("{service}, which {named} needs"), ".with(..)"));
            }
        }
        check_layers(&self.layers, &self.sagas, &self.services)
            .map_err(|why| misconfigured(format!("endpoint {name} {why}")))?;
        check_promise(&stores, transport.as_ref(), &self.settings)
            .and_then(|()| check_rests(&self.settings, transport.as_ref(), shared_type(&known)))
            .and_then(|()| check_delays(&transport.capabilities(), self.schedule.as_deref(), !begin.is_empty()))
            .and_then(|()| check_timers())
            .and_then(|()| self.audit.map_or(Ok(()), |audit| audit.check()))
            .and_then(|()| self.seals.check())
            .map_err(|why| misconfigured(format!("endpoint {name}: {why}")))?;
        let types = all_types(known);
        let connected = transport.connect(&name, &types).await.map_err(|e| {
            Error::new(
                ErrorKind::Transport,
                format!("endpoint {name} cannot connect to {}", transport.capabilities().name),
            )
            .caused_by(e)
        })?;
        let Some(dead_letters) = self.dead_letters.or(connected.dead_letters) else {
            return Err(missing("place for dead letters", ".dead_letters(..)"));
        };
        let clock = self.clock;
        let backoff = self.backoff.unwrap_or_else(|| Arc::new(self.settings.backoff));
        let audited = audited(&name, &self.sagas);
        let (auditor, metrics) = Auditor::new(self.audit, &stores, &clock, self.metrics, audited, &self.settings).await;
        let history = Arc::new(History::new(metrics, dead_letters.clone()));
        let circuit = Arc::new(Circuit::new(backoff.clone(), history.clone()));
        let spans = Spans::new(transport.capabilities().name, self.traces);
        circuit.observe(Event::Started(&name, transport.capabilities().name));
        let sends = Arc::new(Sends::new(connected.dispatcher, spans.clone()).of(name.clone(), circuit.clone()));
        let straight: Arc<dyn Dispatcher> = if self.breaks { Arc::new(Outlets::new(sends)) } else { sends };
        let holds_all = transport.capabilities().delays == Delays::Any && self.schedule.is_none();
        let departures = (!holds_all).then(|| {
            let capabilities = transport.capabilities();
            Arc::new(Departures::new(&name, straight.clone(), &capabilities, self.schedule, clock.clone()))
        });
        let dispatcher = departures.clone().map_or(straight, |departures| departures);
        let ports = Ports {
            stores: stores.clone(),
            dispatcher: dispatcher.clone(),
            dead_letters: dead_letters.clone(),
            clock: clock.clone(),
            ids: Arc::new(RandomIds::default()),
            metrics: circuit.clone(),
        };
        let given = Given {
            limits: self.settings.limits,
            codec: self.codec,
            services: Arc::new(self.services),
            seals: self.seals.clone(),
            layers: self.layers.into(),
        };
        let make = |saga: SagaParts| {
            let given = given.of(&saga);
            (saga.make)(&name, ports.clone(), given)
        };
        let (enqueued, sagas): (Vec<_>, Vec<_>) = self.sagas.into_iter().partition(|saga| saga.enqueued);
        let [enqueued, managers] =
            [enqueued, sagas].map(|sagas| sagas.into_iter().map(make).collect::<Result<Vec<_>, _>>());
        let (enqueued, managers) = (enqueued.map_err(invalid)?, managers.map_err(invalid)?);
        let takers = takers_by_type(&managers);
        let receiver = Arc::new(Joint::new(connected.receiver.clone()));
        let shared = takers.values().any(|takers| takers.len() > 1);
        // More in a pass than the store can save at once would be handled in vain.
        let processed_max = stores.entities().capabilities().processed_max;
        let mut recoverability = self.settings.recoverability.clone();
        recoverability.pass_max = recoverability.pass_max.min(processed_max);
        let deliver = Deliver {
            receiver: if shared { receiver.clone() } else { connected.receiver },
            dead_letters: Some(history),
            backoff: if self.breaks { circuit.clone() } else { backoff },
            clock,
            metrics: circuit.clone(),
            recoverability,
        };
        let handle =
            EndpointHandle::new(name.clone(), circuit.clone(), auditor.clone(), departures.clone(), &self.settings);
        Ok(Endpoint {
            managers,
            enqueued,
            takers,
            receiver,
            deliver,
            dispatcher,
            letters: dead_letters,
            _ended: Ended(handle.clone()),
            handle,
            departures,
            circuit,
            spans,
            name,
            stores,
            seals: self.seals,
            #[cfg(feature = "testing")]
            codec: self.codec,
            lease: transport.capabilities().lease,
            settings: self.settings,
            inboxes: self.inboxes,
            auditor,
            begin,
            handled: AtomicU64::new(0),
            #[cfg(feature = "testing")]
            drops: self.drops,
        })
    }

    /// [`start`](Self::start), then [`Endpoint::run_until`].
    ///
    /// # Errors
    /// As for [`start`](Self::start) and [`Endpoint::run_until`].
    pub async fn run_until<F: Future>(self, stop: F) -> Result<(), Error> {
        self.start().await?.run_until(stop).await
    }
}

/// Those that keep something in the endpoint's stores.
fn audited(endpoint: &EndpointName, sagas: &[SagaParts]) -> Vec<Audited> {
    let kept = sagas.iter().filter(|saga| saga.stores);
    let named = kept.filter_map(|parts| Some((parts, parts.known.as_ref().ok()?)));
    let audited = named.map(|(parts, (saga, _))| Audited {
        scope: Arc::new(Scope { endpoint: endpoint.clone(), saga: saga.clone() }),
        is_handled: !parts.enqueued,
    });
    audited.collect()
}

fn needs_of<M: Message, H: Handler<M>>(_: &H) -> Needs {
    H::needs()
}

impl fmt::Debug for EndpointBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointBuilder").field("name", &self.name).finish_non_exhaustive()
    }
}
