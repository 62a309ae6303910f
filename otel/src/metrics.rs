//! What an endpoint tells its observer, as measurements.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use hapax_core::{
    ids::{EndpointName, EntityKey, Scope},
    manager::Incoming,
    metrics::{Backlog, Ending, Event, Invariant, Metrics},
    ports::{Cause, DispatchError},
    time::Timestamp,
};
use opentelemetry::{
    KeyValue,
    metrics::{Counter, Gauge, Histogram, Meter},
};

use crate::{
    instruments::{self as known, LONG, SHORT},
    relay::Tables,
};

/// Records what endpoints and relays tell their observer into the instruments of a meter: one for all endpoints of a process,
/// or one for each.
///
/// Attributes are few and known before the first message: endpoint, saga, message type, how it ended. Neither entities nor
/// ids, and no name that comes from outside with a message. Clones record into the same instruments.
#[derive(Clone)]
pub struct OtelMetrics {
    consumed: Counter<u64>,
    sent: Counter<u64>,
    calls: Histogram<f64>,
    process: Histogram<f64>,
    handled: Counter<u64>,
    duplicates: Counter<u64>,
    dropped: Counter<u64>,
    dead_letters: Counter<u64>,
    refused: Counter<u64>,
    outgoing_dead_letters: Counter<u64>,
    conflicts: Counter<u64>,
    retries: Counter<u64>,
    left_to_sweeper: Counter<u64>,
    swept: Counter<u64>,
    sweep_failures: Counter<u64>,
    unreadable: Counter<u64>,
    retention_breaches: Counter<u64>,
    audit_looked_at: Counter<u64>,
    audit_violations: Counter<u64>,
    dispatch_lag: Histogram<f64>,
    backlog_entities: Gauge<u64>,
    backlog_entries: Gauge<u64>,
    backlog_oldest: Gauge<f64>,
    backlog_observed: Gauge<f64>,
    schedule_overdue: Gauge<f64>,
    schedule_observed: Gauge<f64>,
    pub(crate) tables: Tables,
    /// What each endpoint's transport is called: as many as the program has endpoints.
    systems: Arc<RwLock<HashMap<EndpointName, &'static str>>>,
}

impl OtelMetrics {
    /// Makes the instruments.
    #[must_use]
    pub fn new(meter: &Meter) -> Self {
        Self {
            consumed: known::CONSUMED.counter(meter),
            sent: known::SENT.counter(meter),
            calls: known::CALLS.histogram(meter, &SHORT),
            process: known::PROCESS.histogram(meter, &SHORT),
            handled: known::HANDLED.counter(meter),
            duplicates: known::DUPLICATES.counter(meter),
            dropped: known::DROPPED.counter(meter),
            dead_letters: known::DEAD_LETTERS.counter(meter),
            refused: known::REFUSED.counter(meter),
            outgoing_dead_letters: known::OUTGOING_DEAD_LETTERS.counter(meter),
            conflicts: known::CONFLICTS.counter(meter),
            retries: known::RETRIES.counter(meter),
            left_to_sweeper: known::LEFT_TO_SWEEPER.counter(meter),
            swept: known::SWEPT.counter(meter),
            sweep_failures: known::SWEEP_FAILURES.counter(meter),
            unreadable: known::UNREADABLE.counter(meter),
            retention_breaches: known::RETENTION_BREACHES.counter(meter),
            audit_looked_at: known::AUDIT_LOOKED_AT.counter(meter),
            audit_violations: known::AUDIT_VIOLATIONS.counter(meter),
            dispatch_lag: known::DISPATCH_LAG.histogram(meter, &LONG),
            backlog_entities: known::BACKLOG_ENTITIES.gauge(meter),
            backlog_entries: known::BACKLOG_ENTRIES.gauge(meter),
            backlog_oldest: known::BACKLOG_OLDEST.gauge_of_seconds(meter),
            backlog_observed: known::BACKLOG_OBSERVED.gauge_of_seconds(meter),
            schedule_overdue: known::SCHEDULE_OVERDUE.gauge_of_seconds(meter),
            schedule_observed: known::SCHEDULE_OBSERVED.gauge_of_seconds(meter),
            tables: Tables::new(meter),
            systems: Arc::default(),
        }
    }

    fn system(&self, endpoint: &EndpointName) -> KeyValue {
        let systems = self.systems.read().unwrap_or_else(PoisonError::into_inner);
        // What no endpoint has announced is of the test that observes by hand.
        KeyValue::new("messaging.system", systems.get(endpoint).copied().unwrap_or("hapax"))
    }

    fn received(&self, endpoint: &EndpointName, messages: usize) {
        let attributes = [self.system(endpoint), operation("receive"), destination(endpoint)];
        self.consumed.add(messages as u64, &attributes);
    }

    fn ended(&self, key: &EntityKey, message: &Incoming, ending: Ending) {
        let Some(began) = message.began() else { return };
        let Scope { endpoint, saga } = &**key.scope();
        let mut attributes = vec![
            self.system(endpoint),
            operation("process"),
            destination(endpoint),
            KeyValue::new("hapax.saga", text(saga.as_str())),
            KeyValue::new("hapax.message.type", text(message.envelope.message_type.as_str())),
            KeyValue::new("hapax.outcome", ending.as_str()),
        ];
        if ending.is_failure() {
            attributes.push(KeyValue::new("error.type", ending.as_str()));
        }
        self.process.record(began.elapsed().as_secs_f64(), &attributes);
    }

    /// Without the destinations: an address for replies comes from outside, and there may be any number of them.
    fn sent(&self, endpoint: &EndpointName, results: &[Result<(), DispatchError>], seconds: f64) {
        let mut attributes = vec![self.system(endpoint), operation("send"), of_endpoint(endpoint)];
        let of = |error: Option<&'static str>| results.iter().filter(|result| error_of(result) == error).count() as u64;
        let failures = ["permanent", "transient"].map(|error| (error, of(Some(error))));
        let sent = of(None);
        if sent > 0 {
            self.sent.add(sent, &attributes);
        }
        for (error, count) in failures.into_iter().filter(|(_, count)| *count > 0) {
            attributes.truncate(3);
            attributes.push(KeyValue::new("error.type", error));
            self.sent.add(count, &attributes);
        }
        self.calls.record(seconds, &attributes);
    }

    fn waiting(&self, scope: &Scope, backlog: Backlog) {
        let attributes = of_scope(scope);
        self.backlog_entities.record(backlog.entities as u64, &attributes);
        self.backlog_entries.record(backlog.entries as u64, &attributes);
        self.backlog_oldest.record(backlog.oldest.unwrap_or_default().as_secs_f64(), &attributes);
        self.backlog_observed.record(seconds_since_1970(), &attributes);
        // An increase is seen only of what has been there before: the first one must not be the one that nobody is told of.
        for counter in [&self.dead_letters, &self.outgoing_dead_letters, &self.retention_breaches] {
            counter.add(0, &attributes);
        }
    }
}

impl Metrics for OtelMetrics {
    fn observe(&self, event: Event<'_>) {
        let one = |counter: &Counter<u64>, key: &EntityKey| counter.add(1, &of_scope(key.scope()));
        let with = |counter: &Counter<u64>, key: &EntityKey, name: &'static str, value: &'static str| {
            let [endpoint, saga] = of_scope(key.scope());
            counter.add(1, &[endpoint, saga, KeyValue::new(name, value)]);
        };
        match event {
            Event::Started(endpoint, system) => {
                let mut systems = self.systems.write().unwrap_or_else(PoisonError::into_inner);
                systems.insert(endpoint.clone(), system);
            }
            Event::Received(endpoint, messages) => self.received(endpoint, messages),
            Event::Ended(key, message, ending) => self.ended(key, message, ending),
            Event::Refused(endpoint, _, ending) => {
                let outcome = KeyValue::new("hapax.outcome", ending.as_str());
                self.refused.add(1, &[of_endpoint(endpoint), outcome]);
            }
            Event::Sent(endpoint, _, results, took) => self.sent(endpoint, results, took.as_secs_f64()),
            Event::Dispatched(key, entry) => {
                let lag = Timestamp::now().since(entry.saved_at);
                self.dispatch_lag.record(lag.as_secs_f64(), &of_scope(key.scope()));
            }
            Event::Waiting(scope, backlog) => self.waiting(scope, backlog),
            Event::Handled(key) => one(&self.handled, key),
            Event::Duplicate(key) => one(&self.duplicates, key),
            Event::Dropped(key, rule) => with(&self.dropped, key, "hapax.rule", rule),
            Event::DeadLettered(key) => one(&self.dead_letters, key),
            Event::OutgoingDeadLettered(key) => one(&self.outgoing_dead_letters, key),
            Event::Retried(key, Cause::Conflict) => one(&self.conflicts, key),
            Event::Retried(key, cause) => with(&self.retries, key, "hapax.cause", name_of(cause)),
            Event::LeftToSweeper(key) => one(&self.left_to_sweeper, key),
            Event::Swept(key, entries) => self.swept.add(entries as u64, &of_scope(key.scope())),
            Event::SweepFailed(key, _) => one(&self.sweep_failures, key),
            Event::Unreadable { key, .. } => one(&self.unreadable, key),
            Event::RetentionBreached(key) => one(&self.retention_breaches, key),
            Event::Audited(key, invariant, violation) => {
                with(&self.audit_looked_at, key, "hapax.invariant", invariant.as_str());
                // Of all, also when there is none: an increase is seen only of what has been there before.
                for of in Invariant::ALL {
                    let [endpoint, saga] = of_scope(key.scope());
                    let attributes = [endpoint, saga, KeyValue::new("hapax.invariant", of.as_str())];
                    self.audit_violations.add(u64::from(of == invariant && violation.is_some()), &attributes);
                }
            }
            Event::Overdue(endpoint, overdue) => {
                let attributes = [of_endpoint(endpoint)];
                self.schedule_overdue.record(overdue.unwrap_or_default().as_secs_f64(), &attributes);
                self.schedule_observed.record(seconds_since_1970(), &attributes);
            }
            _ => {}
        }
    }
}

impl fmt::Debug for OtelMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OtelMetrics").field("systems", &self.systems).finish_non_exhaustive()
    }
}

fn operation(name: &'static str) -> KeyValue {
    KeyValue::new("messaging.operation.name", name)
}

fn destination(endpoint: &EndpointName) -> KeyValue {
    KeyValue::new("messaging.destination.name", text(endpoint.as_str()))
}

fn of_endpoint(endpoint: &EndpointName) -> KeyValue {
    KeyValue::new("hapax.endpoint", text(endpoint.as_str()))
}

fn of_scope(scope: &Scope) -> [KeyValue; 2] {
    [of_endpoint(&scope.endpoint), KeyValue::new("hapax.saga", text(scope.saga.as_str()))]
}

fn text(text: &str) -> String {
    text.to_owned()
}

pub(crate) fn seconds_since_1970() -> f64 {
    const MILLIS: f64 = 1000.0;
    Timestamp::now().as_millis() as f64 / MILLIS
}

const fn name_of(cause: Cause) -> &'static str {
    match cause {
        Cause::Conflict => "conflict",
        Cause::Failure => "failure",
        Cause::Unsent => "unsent",
        Cause::Unavailable => "unavailable",
    }
}

fn error_of(result: &Result<(), DispatchError>) -> Option<&'static str> {
    match result {
        Ok(()) => None,
        Err(DispatchError::Permanent(_)) => Some("permanent"),
        Err(_) => Some("transient"),
    }
}
