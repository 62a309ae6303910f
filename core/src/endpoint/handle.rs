//! What can be asked of an endpoint while it runs, and changed.

use std::{
    fmt,
    sync::{Arc, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    AuditReport, Settings,
    audit::Auditor,
    circuit::Circuit,
    flow::{Flow, Held, Rate, Room},
    office::DeadLetterOffice,
    schedule::Departures,
};
use crate::{
    handler_error::chain,
    ports::{Delivery, StoreError, TransportError},
    sync::{
        Mutex, MutexGuard, Notify,
        atomic::{AtomicUsize, Ordering},
    },
};

/// An endpoint that has not come round for so long is stuck: its turns take milliseconds, unless a handler computes without
/// awaiting.
const STUCK: Duration = Duration::from_secs(10);
/// So long after receiving has last failed, it works: it is asked anew half a second later, and a transport says sooner that its broker is away
/// (within its patience, 30 s unless set otherwise), whereas one in whose queue there is nothing says nothing at all.
const RECEIVES_AGAIN: Duration = Duration::from_secs(60);
/// How often it comes round when there is nothing to do.
pub(super) const TURN: Duration = Duration::from_secs(1);

/// Stays with whoever runs an endpoint, to ask how it is and to change what may change while it runs. Clones are the same handle.
///
/// It goes on after the endpoint has stopped: [`health`](Self::health) says so, and [dead letters](Self::dead_letter_office) can still be looked
/// after. So as long as there is a handle, the endpoint's stores, its way to the broker and its handlers' services are there too: drop it with
/// the endpoint where connections are to be closed.
///
/// ```
/// # use hapax_core::endpoint::{Endpoint, Error};
/// # async fn run(shop: Endpoint) -> Result<(), Error> {
/// let handle = shop.handle();
/// let running = shop.run_until(async { /* a signal */ });
/// // In the handler of GET /ready:
/// let health = handle.health();
/// println!("ready: {}; {}", health.ready(), health.reasons().join("; "));
/// // When the database is busy with something else:
/// handle.set_in_flight_max(64);
/// # running.await
/// # }
/// ```
#[derive(Clone)]
pub struct EndpointHandle(Arc<Shared>);

pub(super) struct Shared {
    office: DeadLetterOffice,
    circuit: Arc<Circuit>,
    auditor: Arc<Auditor>,
    departures: Option<Arc<Departures>>,
    pub(super) flow: Flow,
    in_flight: AtomicUsize,
    /// Something was changed: the endpoint has to come round.
    pub(super) changed: Notify,
    vitals: Mutex<Vitals>,
}

#[derive(Default)]
struct Vitals {
    stage: Stage,
    turned: Option<Instant>,
    /// Why receiving has failed since it last succeeded, and when last.
    receiving: Option<(String, Instant)>,
}

#[derive(Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Started,
    Running,
    Stopping,
    Stopped,
}

/// How an endpoint is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    live: bool,
    reasons: Vec<String>,
    warnings: Vec<String>,
}

impl Health {
    /// It runs and comes round. When it does not for long, restarting the process is right; the messages it holds come again.
    #[must_use]
    pub const fn live(&self) -> bool {
        self.live
    }

    /// It is live and takes messages, from a broker that answers to stores that do, and that take what is written. When it is not, restarting does not help.
    #[must_use]
    pub const fn ready(&self) -> bool {
        self.live && self.reasons.is_empty()
    }

    /// Why it is not ready; nothing when it is.
    #[must_use]
    pub fn reasons(&self) -> &[String] {
        &self.reasons
    }

    /// What somebody should look at although the endpoint is ready: what is due in its [schedule](super::EndpointBuilder::schedule) and is not
    /// sent, or a schedule that cannot be reached. Other messages are handled meanwhile, so it is no reason to send them elsewhere.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

impl EndpointHandle {
    pub(super) fn new(
        office: DeadLetterOffice,
        circuit: Arc<Circuit>,
        auditor: Arc<Auditor>,
        departures: Option<Arc<Departures>>,
        settings: &Settings,
    ) -> Self {
        let Settings { in_flight_max, bytes_in_flight_max, rate_max, .. } = *settings;
        Self(Arc::new(Shared {
            office,
            circuit,
            auditor,
            departures,
            flow: Flow::new(in_flight_max, bytes_in_flight_max, rate_max),
            in_flight: AtomicUsize::new(0),
            changed: Notify::new(),
            vitals: Mutex::default(),
        }))
    }

    /// How the endpoint is, from memory: cheap enough for a probe each second.
    #[must_use]
    pub fn health(&self) -> Health {
        let (vitals, name) = (self.0.vitals(), self.0.office.endpoint());
        let mut reasons = Vec::new();
        let stuck = vitals.turned.map(|turned| turned.elapsed()).filter(|since| *since > STUCK);
        match vitals.stage {
            Stage::Started => reasons.push(format!("endpoint {name} does not run yet")),
            Stage::Stopping => reasons.push(format!("endpoint {name} stops")),
            Stage::Stopped => reasons.push(format!("endpoint {name} has stopped")),
            Stage::Running => {}
        }
        if let Some(since) = stuck {
            let why = "does a handler compute without awaiting?";
            reasons.push(format!("endpoint {name} has not come round for {since:?}; {why}"));
        }
        if let Some((why, _)) = vitals.receiving.as_ref().filter(|(_, failed)| failed.elapsed() < RECEIVES_AGAIN) {
            reasons.push(format!("receiving fails: {why}"));
        }
        reasons.extend(self.0.circuit.troubles().into_iter().map(str::to_owned));
        let live = stuck.is_none() && vitals.stage != Stage::Stopped;
        let warnings = self.0.departures.iter().filter_map(|departures| departures.trouble()).collect();
        Health { live, reasons, warnings }
    }

    /// Messages that are held and not settled yet.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.0.in_flight.load(Ordering::Relaxed)
    }

    /// Messages that are held at a time at most, from now on: see [`Settings::in_flight_max`]. What is held
    /// already is handled. With 0 no more are received, until it is set again.
    pub fn set_in_flight_max(&self, messages: usize) {
        if self.0.flow.set_messages_max(messages) {
            self.0.changed.notify_one();
        }
    }

    /// Bytes that are held at a time at most, from now on: see [`Settings::bytes_in_flight_max`].
    pub fn set_bytes_in_flight_max(&self, bytes: usize) {
        if self.0.flow.set_bytes_max(bytes) {
            self.0.changed.notify_one();
        }
    }

    /// Messages that are received in a time at most, from now on; `None`: as many as come. See [`Settings::rate_max`].
    pub fn set_rate_max(&self, rate: Option<Rate>) {
        if self.0.flow.set_rate(rate) {
            self.0.changed.notify_one();
        }
    }

    /// What the [audit](super::Audit) of this process has found so far, from memory.
    #[must_use]
    pub fn audit(&self) -> AuditReport {
        self.0.auditor.report()
    }

    /// Looks at once at all that the audit watches, and at all that waits in the outboxes; then as [`audit`](Self::audit). Of an
    /// endpoint that was given no [`Audit`](super::Audit) it is only what waits.
    ///
    /// It takes as long as two or three calls of the store for each entity, one after the other, and the endpoint's own looks wait for it.
    ///
    /// # Errors
    /// [`StoreError`] of the first call that failed. What was seen before is counted; nothing was written.
    pub async fn audit_once(&self) -> Result<AuditReport, StoreError> {
        self.0.auditor.everything().await
    }

    /// What was set aside, for a person, and what `by` can do with it: a name for the record. It is the one of
    /// [`Endpoint::dead_letter_office`](super::Endpoint::dead_letter_office), while the endpoint runs and after; what is retried is handled
    /// once it runs.
    #[must_use]
    pub fn dead_letter_office(&self, by: impl Into<String>) -> DeadLetterOffice {
        self.0.office.of(by.into())
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.0
    }
}

impl Shared {
    fn vitals(&self) -> MutexGuard<'_, Vitals> {
        self.vitals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether more may be received, and how many.
    pub(super) fn room(&self, held: Held) -> Room {
        self.in_flight.store(held.messages, Ordering::Relaxed);
        self.flow.room(held)
    }

    pub(super) fn turned(&self) {
        let mut vitals = self.vitals();
        vitals.stage = Stage::Running;
        vitals.turned = Some(Instant::now());
    }

    pub(super) fn received(&self, received: &Result<Vec<Delivery>, TransportError>) {
        if let Ok(deliveries) = received {
            let bytes = deliveries.iter().map(|delivery| delivery.envelope.size()).sum();
            self.flow.received(deliveries.len(), bytes);
        }
        self.vitals().receiving = received.as_ref().err().map(|error| (chain(error), Instant::now()));
    }

    pub(super) fn stopping(&self) {
        let mut vitals = self.vitals();
        (vitals.stage, vitals.turned) = (Stage::Stopping, None);
    }

    pub(super) fn stopped(&self) {
        self.vitals().stage = Stage::Stopped;
        self.in_flight.store(0, Ordering::Relaxed);
    }
}

/// Says that nobody runs the endpoint any more, also where its future was dropped.
pub(super) struct Ended(pub(super) EndpointHandle);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.shared().stopped();
    }
}

impl fmt::Debug for EndpointHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointHandle")
            .field("endpoint", self.0.office.endpoint())
            .field("health", &self.health())
            .finish()
    }
}

#[cfg(all(test, shuttle))]
#[path = "interleaved/handle.rs"]
mod interleaved;
