//! Which span is whose parent, and which is only linked.

use std::time::Duration;

use hapax_core::{envelope::Envelope, ids::TraceParent, time::Timestamp, trace::Traces};
use opentelemetry::{Context, trace::TraceContextExt};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::traceparent;

/// A message that occurred longer ago than this begins a trace of its own, with a link to where it was created. Five minutes:
/// what puts traces together, or chooses which to keep, waits for seconds to a few minutes, and what comes after is torn off or lost.
pub const PARENT_WITHIN: Duration = Duration::from_secs(5 * 60);

/// Joins hapax's spans to the traces that their messages were created in.
///
/// The first delivery of a message is a child of the span that created it. One that comes again, that was not due before some
/// time, or that occurred longer ago than [`PARENT_WITHIN`] (a replay, an outage that is over) is a trace of its own with a link to that
/// span: otherwise traces would be as long as retries, timeouts and outages are. Sending a message is linked to its creation.
///
/// It needs the layer of `tracing-opentelemetry` in the subscriber, and does nothing without it. W3C's `tracestate` is not
/// carried: an envelope has no place for it.
#[derive(Debug, Clone, Copy)]
pub struct OtelTraces {
    parent_within: Duration,
}

impl Default for OtelTraces {
    fn default() -> Self {
        Self { parent_within: PARENT_WITHIN }
    }
}

impl OtelTraces {
    /// Another age than [`PARENT_WITHIN`]. With zero every delivery is a trace of its own.
    #[must_use]
    pub const fn parent_within(mut self, age: Duration) -> Self {
        self.parent_within = age;
        self
    }

    fn is_prompt(&self, message: &Envelope, attempts: u32) -> bool {
        let age = message.occurred_at.map_or(Duration::ZERO, |occurred| Timestamp::now().since(occurred));
        attempts <= 1 && message.due.is_none() && age < self.parent_within
    }
}

impl Traces for OtelTraces {
    fn received(&self, span: &Span, message: &Envelope, attempts: u32) {
        if span.is_disabled() {
            return;
        }
        let Some(created) = message.traceparent.as_ref().and_then(traceparent::read) else { return };
        if self.is_prompt(message, attempts) {
            // It fails where no layer listens, and then there is nothing to join.
            let _ = span.set_parent(Context::new().with_remote_span_context(created));
        } else {
            span.add_link(created);
        }
    }

    fn sent(&self, span: &Span, message: &Envelope) {
        if !span.is_disabled()
            && let Some(created) = message.traceparent.as_ref().and_then(traceparent::read)
        {
            span.add_link(created);
        }
    }

    fn context_of(&self, span: &Span) -> Option<TraceParent> {
        if span.is_disabled() {
            return None;
        }
        traceparent::write(span.context().span().span_context())
    }
}

/// The trace context of the span that is current here, for the envelope of a message that is stored first and sent later (an
/// outbox, [`Enqueued`](hapax_core::Enqueued)). What a handler sends has its own already.
#[must_use]
pub fn current() -> Option<TraceParent> {
    OtelTraces::default().context_of(&Span::current())
}
