//! Putting an endpoint together: what it was given is looked at, connected, and made into one.

use std::sync::{Arc, atomic::AtomicU64};

use super::{
    EndpointBuilder, SagaParts,
    around::{Given, check_layers},
    checks::{check_delays, check_memory, check_promise, check_rests, check_scopes, check_timers, retention_of},
    types::{all_types, shared_type, takers_by_type},
};
use crate::{
    deliver::Deliver,
    endpoint::{
        Endpoint, EndpointHandle, Error, ErrorKind, Jittered,
        audit::{Audited, Auditor},
        bodies::{check_bodies, spill},
        circuit::Circuit,
        evicting::Evidence,
        handle::Ended,
        history::History,
        joint::Joint,
        nothing::Nothing,
        office::{Cabinet, DeadLetterOffice},
        outlets::Outlets,
        schedule::Departures,
        suspects::suspect_above,
        system::RandomIds,
    },
    ids::{EndpointName, InvalidId, SagaName, Scope},
    manager::{Ports, Stores},
    metrics::{Event, Metrics},
    ports::{DedupStore, Delays, Dispatcher, EntityStore, Transport},
    routes::Routes,
    trace::{Sends, Spans},
};

impl EndpointBuilder {
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

    async fn start_whole(mut self) -> Result<Endpoint, Error> {
        let misconfigured = |why: String| Error::new(ErrorKind::Misconfigured, why);
        let invalid = |e: InvalidId| Error::new(ErrorKind::Misconfigured, e.to_string());
        let name = EndpointName::parse(self.name.as_str()).map_err(invalid)?;
        self.settings.retention = retention_of(&self.settings, self.evicts_after)
            .map_err(|why| misconfigured(format!("endpoint {name}: {why}")))?;
        let missing = |what: &str, how: &str| misconfigured(format!("endpoint {name} has no {what}; add {how}"));
        let keeps_nothing = !self.sagas.is_empty() && self.sagas.iter().all(|saga| !saga.stores);
        let stores = stores_of(self.both, self.entities, self.dedup, keeps_nothing)
            .map_err(|why| misconfigured(format!("endpoint {name} has {why}")))?;
        let by_evidence = self.evidence && transport_shows(&self.transport) && self.inboxes.is_empty();
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
        check_promise(&stores, transport.as_ref(), &self.settings, by_evidence)
            .and_then(|()| check_memory(&stores, &self.settings, self.evidence))
            .and_then(|()| check_rests(&self.settings, transport.as_ref(), shared_type(&known), by_evidence))
            .and_then(|()| check_delays(&transport.capabilities(), self.schedule.as_deref(), !begin.is_empty()))
            .and_then(|()| self.services.get::<Routes>().map_or(Ok(()), Routes::check))
            .and_then(|()| check_timers())
            .and_then(|()| self.audit.map_or(Ok(()), |audit| audit.check()))
            .and_then(|()| self.seals.check())
            .and_then(|()| {
                let bodies = self.bodies.as_ref().map(|(bodies, _)| bodies.as_ref());
                check_bodies(bodies, &transport.capabilities(), &self.settings)
            })
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
        let evidence = Evidence::of(self.evidence, &self.settings, connected.marks);
        let stores = if evidence.is_some() { stores.recalling() } else { stores };
        let numbers = self.numbers || self.evidence;
        let spill = spill(self.bodies, &self.settings);
        let clock = self.clock;
        let backoff = self.backoff.unwrap_or_else(|| Arc::new(Jittered::new(self.settings.recoverability.clone())));
        let audited = audited(&name, &self.sagas);
        let (auditor, metrics) = Auditor::new(self.audit, &stores, &clock, self.metrics, audited, &self.settings).await;
        let history = Arc::new(History::new(metrics, dead_letters.clone()));
        let circuit = Circuit::new(backoff.clone(), history.clone()).swept_every(self.settings.sweep_interval);
        let circuit = Arc::new(circuit.inboxes(inboxes(&self.sagas)).breaks(self.breaks));
        let spans = Spans::new(transport.capabilities().name, self.traces);
        circuit.observe(Event::Started(&name, transport.capabilities().name));
        let sends = Arc::new(Sends::new(connected.dispatcher, spans.clone()).of(name.clone(), circuit.clone()));
        let limit = self.settings.deadline;
        let straight: Arc<dyn Dispatcher> = if self.breaks { Arc::new(Outlets::new(sends, limit)) } else { sends };
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
            ids: Arc::new(if numbers { RandomIds::numbering() } else { RandomIds::default() }),
            metrics: circuit.clone(),
        };
        let given = Given {
            limits: self.settings.limits(),
            codec: self.codec,
            services: Arc::new(self.services),
            seals: self.seals.clone(),
            spill: spill.clone(),
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
        let managers: Arc<[_]> = managers.into();
        let receiver = Arc::new(Joint::new(connected.receiver.clone()));
        let shared = takers.values().any(|takers| takers.len() > 1);
        // More in a pass than the store can save at once would be handled in vain.
        let processed_max = stores.entities().capabilities().processed_max;
        let deliver = Deliver {
            receiver: if shared { receiver.clone() } else { connected.receiver },
            dead_letters: Some(history),
            backoff: if self.breaks { circuit.clone() } else { backoff },
            clock,
            metrics: circuit.clone(),
            recoverability: self.settings.recoverability.clone(),
            pass_max: self.settings.pass_max.min(processed_max),
        };
        let office = DeadLetterOffice::new(Cabinet {
            endpoint: name.clone(),
            letters: dead_letters.clone(),
            entities: stores.entities().clone(),
            dispatcher: dispatcher.clone(),
            clock: deliver.clock.clone(),
            managers: Some(managers.clone()),
            spill: spill.clone(),
            retention: self.settings.retention,
        });
        let handle = EndpointHandle::new(office, circuit.clone(), auditor.clone(), departures.clone(), &self.settings);
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
            spill,
            #[cfg(feature = "testing")]
            codec: self.codec,
            lease: transport.capabilities().lease,
            suspect_above: suspect_above(&self.settings),
            settings: self.settings,
            inboxes: self.inboxes,
            evidence,
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

/// From what was given for both, for entities and for dedup entries; else what the endpoint has too little or too much of.
fn stores_of(
    both: Option<Stores>,
    entities: Option<Arc<dyn EntityStore>>,
    dedup: Option<Arc<dyn DedupStore>>,
    keeps_nothing: bool,
) -> Result<Stores, &'static str> {
    match (both, entities, dedup) {
        (Some(both), None, None) => Ok(both),
        (None, Some(entities), Some(dedup)) => Ok(Stores::two(entities, dedup)),
        (Some(_), ..) => Err("a store for both and another for one; give .store(..), or .entities(..) and .dedup(..)"),
        (None, None, None) if keeps_nothing => Ok(Stores::two(Arc::new(Nothing), Arc::new(Nothing))),
        (None, None, _) => Err("no store for entities; add .store(..) or .entities(..)"),
        (None, Some(_), None) => Err("no dedup store; add .dedup(..)"),
    }
}

fn transport_shows(transport: &Option<Arc<dyn Transport>>) -> bool {
    transport.as_ref().is_some_and(|transport| transport.capabilities().marks)
}

/// Those that keep nothing in the endpoint's stores.
fn inboxes(sagas: &[SagaParts]) -> Vec<SagaName> {
    let names = sagas.iter().filter(|saga| !saga.stores).filter_map(|saga| saga.known.as_ref().ok());
    names.map(|(name, _)| name.clone()).collect()
}

/// Those that keep something there.
fn audited(endpoint: &EndpointName, sagas: &[SagaParts]) -> Vec<Audited> {
    let kept = sagas.iter().filter(|saga| saga.stores);
    let named = kept.filter_map(|parts| Some((parts, parts.known.as_ref().ok()?)));
    let audited = named.map(|(parts, (saga, _))| Audited {
        scope: Arc::new(Scope { endpoint: endpoint.clone(), saga: saga.clone() }),
        is_handled: !parts.enqueued,
    });
    audited.collect()
}
