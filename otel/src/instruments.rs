//! What is recorded, and under which names.

use opentelemetry::metrics::{Counter, Gauge, Histogram, Meter};

/// One instrument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instrument {
    /// Its name.
    pub name: &'static str,
    /// Its unit, by UCUM.
    pub unit: &'static str,
    /// How it counts.
    pub kind: Kind,
    /// What it counts.
    pub description: &'static str,
}

/// How an instrument counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Up.
    Counter,
    /// What is there now, or was there when somebody looked last.
    Gauge,
    /// How often something took how long.
    Histogram,
}

impl Instrument {
    /// Its name in Prometheus; of a histogram, what `_bucket`, `_sum` and `_count` come behind.
    ///
    /// # Source
    /// OpenTelemetry's "Prometheus and OpenMetrics Compatibility": names with `_` for `.`, then the unit in words, then `_total` for
    /// what counts up.
    #[must_use]
    pub fn prometheus(&self) -> String {
        let unit = match self.unit {
            "s" => "_seconds",
            "By" => "_bytes",
            _ => "",
        };
        let total = if self.kind == Kind::Counter { "_total" } else { "" };
        format!("{}{unit}{total}", self.name.replace('.', "_"))
    }

    pub(crate) fn counter(&self, meter: &Meter) -> Counter<u64> {
        meter.u64_counter(self.name).with_unit(self.unit).with_description(self.description).build()
    }

    pub(crate) fn gauge(&self, meter: &Meter) -> Gauge<u64> {
        meter.u64_gauge(self.name).with_unit(self.unit).with_description(self.description).build()
    }

    pub(crate) fn gauge_of_seconds(&self, meter: &Meter) -> Gauge<f64> {
        meter.f64_gauge(self.name).with_unit(self.unit).with_description(self.description).build()
    }

    pub(crate) fn histogram(&self, meter: &Meter, bounds: &[f64]) -> Histogram<f64> {
        let histogram = meter.f64_histogram(self.name).with_unit(self.unit).with_description(self.description);
        histogram.with_boundaries(bounds.to_vec()).build()
    }
}

/// Bounds for what takes milliseconds, in seconds: those that the conventions give.
pub(crate) const SHORT: [f64; 14] = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];
/// Bounds for what takes milliseconds, and hours when a broker is down, in seconds.
pub(crate) const LONG: [f64; 14] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 1800.0, 7200.0, 86400.0];

macro_rules! instruments {
    ($($id:ident: $kind:ident $name:literal [$unit:literal] $description:literal;)*) => {
        $(pub(crate) const $id: Instrument =
            Instrument { name: $name, unit: $unit, kind: Kind::$kind, description: $description };)*

        /// All that [`OtelMetrics`](crate::OtelMetrics) records.
        pub const INSTRUMENTS: &[Instrument] = &[$($id),*];
    };
}

instruments! {
    CONSUMED: Counter "messaging.client.consumed.messages" ["{message}"] "Messages that were given to an endpoint.";
    SENT: Counter "messaging.client.sent.messages" ["{message}"] "Messages that were offered to the transport.";
    CALLS: Histogram "messaging.client.operation.duration" ["s"] "How long a call to the transport took.";
    PROCESS: Histogram "messaging.process.duration" ["s"] "From beginning with a message to its end, retries in place included.";
    HANDLED: Counter "hapax.handled" ["{message}"] "Messages whose effect is saved, and all of whose outgoing messages are sent.";
    DUPLICATES: Counter "hapax.duplicates" ["{message}"] "Copies that were recognised and dropped.";
    DROPPED: Counter "hapax.dropped" ["{message}"] "Messages that a rule has dropped.";
    DEAD_LETTERS: Counter "hapax.dead_letters" ["{message}"] "Messages that were set aside.";
    REFUSED: Counter "hapax.refused" ["{message}"] "Messages that no saga of the endpoint can take.";
    OUTGOING_DEAD_LETTERS: Counter "hapax.outgoing_dead_letters" ["{message}"] "Outgoing messages that can never be sent and were set aside.";
    CONFLICTS: Counter "hapax.conflicts" ["{pass}"] "Passes that are made again since somebody else has saved the entity, or the outcome of a save is unknown.";
    RETRIES: Counter "hapax.retries" ["{pass}"] "Passes that are made again for another cause.";
    LEFT_TO_SWEEPER: Counter "hapax.left_to_sweeper" ["{message}"] "Messages whose effect is saved, and not all of whose outgoing messages could be sent within their budget.";
    SWEPT: Counter "hapax.swept" ["{entry}"] "Outbox entries that the sweeper has finished.";
    SWEEP_FAILURES: Counter "hapax.sweep_failures" ["{entity}"] "Passes of the sweeper that could not finish all entries.";
    UNREADABLE: Counter "hapax.unreadable" ["{message}"] "Tries at messages that wait until what is stored can be read.";
    RETENTION_BREACHES: Counter "hapax.retention_breaches" ["{message}"] "Messages that were handled twice, since retention is too short.";
    AUDIT_LOOKED_AT: Counter "hapax.audit.looked_at" ["{look}"] "Looks of an audit at whether an invariant holds of a message or an entity.";
    AUDIT_VIOLATIONS: Counter "hapax.audit.violations" ["{violation}"] "Violations of an invariant that an audit has found.";
    DISPATCH_LAG: Histogram "hapax.dispatch.lag" ["s"] "From saving an outbox entry until all its messages were with the transport.";
    BACKLOG_ENTITIES: Gauge "hapax.backlog.entities" ["{entity}"] "Entities with outbox entries that have waited for the sweeper.";
    BACKLOG_ENTRIES: Gauge "hapax.backlog.entries" ["{entry}"] "Outbox entries that have waited for the sweeper.";
    BACKLOG_OLDEST: Gauge "hapax.backlog.oldest" ["s"] "Age of the oldest of them; 0 when there is none.";
    BACKLOG_OBSERVED: Gauge "hapax.backlog.observed_timestamp" ["s"] "When a sweeper has looked last, since 1970.";
    SCHEDULE_OVERDUE: Gauge "hapax.schedule.overdue" ["s"] "For how long the earliest message of an endpoint's schedule has been due and is not sent; 0 when there is none.";
    SCHEDULE_OBSERVED: Gauge "hapax.schedule.observed_timestamp" ["s"] "When an endpoint has looked into its schedule last, since 1970.";
    OUTBOX_STORED: Gauge "hapax.outbox.stored" ["{message}"] "Messages in an outbox table that wait to be sent.";
    OUTBOX_CLAIMED: Gauge "hapax.outbox.claimed" ["{message}"] "Of these, how many a relay has.";
    OUTBOX_OLDEST: Gauge "hapax.outbox.oldest" ["s"] "Age of the oldest of them; 0 when there is none.";
    OUTBOX_LAG: Gauge "hapax.outbox.lag" ["s"] "For how long the first of those that are due could have been sent; 0 when there is none.";
    OUTBOX_FAILED: Gauge "hapax.outbox.failed" ["{message}"] "Messages in an outbox table that have failed.";
    OUTBOX_RELAYS: Gauge "hapax.outbox.relays" ["{relay}"] "Relays of an outbox table.";
    OUTBOX_LOG_LAG: Gauge "hapax.outbox.log_lag" ["By"] "Bytes of the server's log that are kept since they were not relayed; absent where no log is relayed.";
    OUTBOX_LOG_GAPS: Gauge "hapax.outbox.log_gaps" ["{gap}"] "How often something of the log was thrown away before it was relayed.";
    OUTBOX_OBSERVED: Gauge "hapax.outbox.observed_timestamp" ["s"] "When a relay has told of its table last, since 1970.";
    RELAY_SENT: Counter "hapax.relay.sent" ["{message}"] "Messages of a table that the transport has confirmed to this relay.";
    RELAY_LATER: Counter "hapax.relay.later" ["{attempt}"] "Attempts of this relay that are made again later.";
    RELAY_FAILED: Counter "hapax.relay.failed" ["{message}"] "Messages that have failed for good in this relay.";
}
