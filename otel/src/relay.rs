//! What a relay tells of its table.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use hapax_core::{
    ports::OutboxState,
    relay::{RelayCounts, RelayMetrics},
};
use opentelemetry::{
    KeyValue,
    metrics::{Counter, Gauge, Meter},
};

use crate::{OtelMetrics, instruments as known, metrics::seconds_since_1970};

#[derive(Clone)]
pub(crate) struct Tables {
    stored: Gauge<u64>,
    claimed: Gauge<u64>,
    oldest: Gauge<f64>,
    lag: Gauge<f64>,
    failed: Gauge<u64>,
    relays: Gauge<u64>,
    log_lag: Gauge<u64>,
    log_gaps: Gauge<u64>,
    observed: Gauge<f64>,
    relay_sent: Counter<u64>,
    relay_later: Counter<u64>,
    relay_failed: Counter<u64>,
    /// What was told last, by table, of which a program has few: a relay tells sums.
    told: Arc<Mutex<HashMap<String, RelayCounts>>>,
}

impl Tables {
    pub(crate) fn new(meter: &Meter) -> Self {
        Self {
            stored: known::OUTBOX_STORED.gauge(meter),
            claimed: known::OUTBOX_CLAIMED.gauge(meter),
            oldest: known::OUTBOX_OLDEST.gauge_of_seconds(meter),
            lag: known::OUTBOX_LAG.gauge_of_seconds(meter),
            failed: known::OUTBOX_FAILED.gauge(meter),
            relays: known::OUTBOX_RELAYS.gauge(meter),
            log_lag: known::OUTBOX_LOG_LAG.gauge(meter),
            log_gaps: known::OUTBOX_LOG_GAPS.gauge(meter),
            observed: known::OUTBOX_OBSERVED.gauge_of_seconds(meter),
            relay_sent: known::RELAY_SENT.counter(meter),
            relay_later: known::RELAY_LATER.counter(meter),
            relay_failed: known::RELAY_FAILED.counter(meter),
            told: Arc::default(),
        }
    }

    fn observe(&self, table: &str, state: &OutboxState, counts: &RelayCounts) {
        let table_name = [KeyValue::new("table", table.to_owned())];
        self.stored.record(state.stored, &table_name);
        self.claimed.record(state.claimed, &table_name);
        self.oldest.record(state.oldest.unwrap_or_default().as_secs_f64(), &table_name);
        self.lag.record(state.lag.unwrap_or_default().as_secs_f64(), &table_name);
        self.failed.record(state.failed, &table_name);
        self.relays.record(state.relays, &table_name);
        if let Some(bytes) = state.log_lag {
            self.log_lag.record(bytes, &table_name);
        }
        self.log_gaps.record(state.log_gaps, &table_name);
        self.observed.record(seconds_since_1970(), &table_name);
        let before = {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            told.insert(table.to_owned(), *counts).unwrap_or_default()
        };
        // A sum that is smaller than before is of a relay that was started anew.
        let more = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        self.relay_sent.add(more(counts.sent, before.sent), &table_name);
        self.relay_later.add(more(counts.later, before.later), &table_name);
        self.relay_failed.add(more(counts.failed, before.failed), &table_name);
    }
}

impl RelayMetrics for OtelMetrics {
    fn observe(&self, table: &str, state: &OutboxState, counts: &RelayCounts) {
        self.tables.observe(table, state, counts);
    }
}
