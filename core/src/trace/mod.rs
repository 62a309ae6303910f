//! Spans of what happens to messages, named by the messaging conventions of OpenTelemetry, and how they are joined to the
//! traces of whoever sent a message or receives it.
//!
//! ```text
//! process A ─┬─ (what the handler does)
//!            ├─ create B ··· the trace context that travels with B
//!            └─ send B                  │
//!                                  process B, in another endpoint: its child, or linked to it
//! ```
//!
//! The spans are those of [`tracing`], at level `INFO`, and cost next to nothing where nobody listens. What is in them: names,
//! ids, counts and sizes; never a body and never what a header says. hapax carries the trace context of a message and does not
//! know what it means: [`Traces`] does, and the feature `otel` of the crate `hapax` has one.
//!
//! The context is taken when a handler adds the message, and saved with it. So it says the same however often the message is
//! dispatched, and by whom.
//!
//! # Source
//! OpenTelemetry's semantic conventions for messaging spans, version 1.45.

mod sends;

use std::{fmt, future::Future, sync::Arc, time::Instant};

pub(crate) use sends::{Sends, sent};
use tracing::{Instrument, Span, field::Empty, instrument::Instrumented};

use crate::{
    envelope::{Destination, Envelope, Outgoing},
    ids::{CorrelationId, EndpointName, EntityKey, TraceParent},
    manager::Incoming,
    metrics::Ending,
};

/// Messages of one call to a transport that its span is linked to, at most: as many as OpenTelemetry's SDKs keep of a span by default.
const LINKS_MAX: usize = 128;

/// Joins spans to traces that reach over processes. Called from the hot path: it must be quick and must not block.
pub trait Traces: fmt::Debug + Send + Sync {
    /// `span` has just been made for one delivery of `message`, which has been given `attempts` times, this time included. It is
    /// its own trace until it is joined to that of [`Envelope::traceparent`].
    fn received(&self, span: &Span, message: &Envelope, attempts: u32);

    /// `span` has just been made for sending `message`, with others or alone, which was created in the trace context that it has.
    fn sent(&self, span: &Span, message: &Envelope);

    /// What a message is told that is created in `span`. `None` where the span is in no trace, or nobody listens.
    fn context_of(&self, span: &Span) -> Option<TraceParent>;
}

impl<T: Traces + ?Sized> Traces for Arc<T> {
    fn received(&self, span: &Span, message: &Envelope, attempts: u32) {
        (**self).received(span, message, attempts);
    }

    fn sent(&self, span: &Span, message: &Envelope) {
        (**self).sent(span, message);
    }

    fn context_of(&self, span: &Span) -> Option<TraceParent> {
        (**self).context_of(span)
    }
}

/// Makes spans.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spans(Option<Arc<Of>>);

/// One pointer away, since each message under way has it with it.
#[derive(Debug)]
struct Of {
    system: &'static str,
    traces: Option<Arc<dyn Traces>>,
}

impl Spans {
    /// Spans of messages that `system` carries.
    pub(crate) fn new(system: &'static str, traces: Option<Arc<dyn Traces>>) -> Self {
        Self(Some(Arc::new(Of { system, traces })))
    }

    fn system(&self) -> &'static str {
        self.0.as_ref().map_or("", |of| of.system)
    }

    fn traces(&self) -> Option<&Arc<dyn Traces>> {
        self.0.as_ref()?.traces.as_ref()
    }

    /// Begins `messages`, which are all for `key`. The span of all that is done for them.
    pub(crate) fn begin(&self, key: &EntityKey, messages: &mut [Incoming]) -> Span {
        let began = Instant::now();
        for message in &mut *messages {
            let span = self.process(&key.scope().endpoint, Some(key), &message.envelope, message.attempts);
            message.trace = Trace { span, spans: self.clone(), began: Some(began) };
        }
        match messages {
            [one] => one.trace.span.clone(),
            // What a store does for several is no part of any one of them.
            several => tracing::info_span!(
                target: "hapax::deliver",
                parent: None,
                "deliver",
                "hapax.entity" = %key,
                "messaging.system" = self.system(),
                "messaging.destination.name" = key.scope().endpoint.as_str(),
                "messaging.batch.message_count" = several.len(),
            ),
        }
    }

    /// Of one delivery.
    pub(crate) fn process(
        &self,
        endpoint: &EndpointName,
        key: Option<&EntityKey>,
        message: &Envelope,
        attempts: u32,
    ) -> Span {
        let span = tracing::info_span!(
            target: "hapax::process",
            parent: None,
            "process",
            "otel.name" = %format_args!("process {endpoint}"),
            "otel.kind" = "consumer",
            "otel.status_code" = Empty,
            "error.type" = Empty,
            "messaging.system" = self.system(),
            "messaging.operation.name" = "process",
            "messaging.operation.type" = "process",
            "messaging.destination.name" = endpoint.as_str(),
            "messaging.message.id" = %message.message_id,
            "messaging.message.conversation_id" = message.correlation_id.as_ref().map(CorrelationId::as_str),
            "messaging.message.body.size" = message.body.len(),
            "hapax.message.type" = message.message_type.as_str(),
            "hapax.saga" = key.map(|key| key.scope().saga.as_str()),
            "hapax.entity" = key.map(display),
            "hapax.attempts" = attempts,
            "hapax.outcome" = Empty,
        );
        if let Some(traces) = self.traces() {
            traces.received(&span, message, attempts);
        }
        span
    }

    /// Of a sweeper's pass over one entity.
    pub(crate) fn sweep(&self, key: &EntityKey, entries: usize) -> Span {
        tracing::info_span!(
            target: "hapax::sweep",
            parent: None,
            "sweep",
            "hapax.entity" = %key,
            "hapax.entries" = entries,
            "messaging.system" = self.system(),
        )
    }

    /// Of one call to a transport. `kind`: whether the messages are created by it, or have been before.
    pub(crate) fn send(&self, outgoing: &[Outgoing], kind: Kind) -> Span {
        let only = if let [only] = outgoing { Some(&*only.envelope) } else { None };
        let to = common(outgoing).unwrap_or_default();
        let blank = if to.is_empty() { "" } else { " " };
        let span = tracing::info_span!(
            target: "hapax::send",
            "send",
            "otel.name" = %format_args!("send{blank}{to}"),
            "otel.kind" = kind.as_str(),
            "otel.status_code" = Empty,
            "error.type" = Empty,
            "messaging.system" = self.system(),
            "messaging.operation.name" = "send",
            "messaging.operation.type" = "send",
            "messaging.destination.name" = Some(to).filter(|to| !to.is_empty()),
            "messaging.message.id" = only.map(|message| display(&message.message_id)),
            "messaging.message.body.size" = only.map(|message| message.body.len()),
            "messaging.batch.message_count" = only.is_none().then_some(outgoing.len()),
        );
        if let Some(traces) = self.traces()
            && kind == Kind::Forwards
        {
            for outgoing in outgoing.iter().take(LINKS_MAX) {
                traces.sent(&span, &outgoing.envelope);
            }
        }
        span
    }

    /// Begins to send a message from outside any handler: unless it has a trace context, it begins here.
    pub(crate) fn begin_send(&self, outgoing: &mut [Outgoing; 1]) -> Span {
        let [Outgoing { envelope, .. }] = &*outgoing;
        if envelope.traceparent.is_some() {
            return self.send(outgoing, Kind::Forwards);
        }
        let span = self.send(outgoing, Kind::Creates);
        let context = self.context_of(&span);
        if context.is_some() {
            let [Outgoing { envelope, .. }] = outgoing;
            Arc::make_mut(envelope).traceparent = context;
        }
        span
    }

    /// What a message is told that is created in `span`.
    fn context_of(&self, span: &Span) -> Option<TraceParent> {
        self.traces()?.context_of(span)
    }
}

/// What a span of sending is to the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// They begin with it.
    Creates,
    /// They have begun before.
    Forwards,
}

impl Kind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Creates => "producer",
            Self::Forwards => "client",
        }
    }
}

/// Follows one delivery.
#[derive(Debug, Clone)]
pub(crate) struct Trace {
    span: Span,
    spans: Spans,
    began: Option<Instant>,
}

impl Default for Trace {
    /// Follows nothing.
    fn default() -> Self {
        Self { span: Span::none(), spans: Spans::default(), began: None }
    }
}

impl Trace {
    pub(crate) const fn began(&self) -> Option<Instant> {
        self.began
    }

    /// What `work` does is a part of the delivery.
    pub(crate) fn within<F: Future>(&self, work: F) -> Instrumented<F> {
        work.instrument(self.span.clone())
    }

    /// How the delivery has ended.
    pub(crate) fn ended(&self, ending: Ending) {
        ended(&self.span, ending);
    }

    /// A message is created within the delivery: its trace context, for the envelope.
    pub(crate) fn create(&self, destination: &Destination, message: &Envelope) -> Option<TraceParent> {
        self.spans.traces()?;
        let to = name_of(destination);
        let span = tracing::info_span!(
            target: "hapax::create",
            "create",
            "otel.name" = %format_args!("create {to}"),
            "otel.kind" = "producer",
            "messaging.system" = self.spans.system(),
            "messaging.operation.name" = "create",
            "messaging.operation.type" = "create",
            "messaging.destination.name" = to,
            "messaging.message.id" = %message.message_id,
            "messaging.message.conversation_id" = message.correlation_id.as_ref().map(CorrelationId::as_str),
            "messaging.message.body.size" = message.body.len(),
            "hapax.message.type" = message.message_type.as_str(),
        );
        // Where nobody listens to that one, it begins with the delivery.
        self.spans.context_of(&span).or_else(|| self.spans.context_of(&self.span))
    }
}

/// Writes into the span of a delivery how it has ended.
pub(crate) fn ended(span: &Span, ending: Ending) {
    if span.is_disabled() {
        return;
    }
    span.record("hapax.outcome", ending.as_str());
    if ending.is_failure() {
        span.record("error.type", ending.as_str());
        span.record("otel.status_code", "ERROR");
    }
}

/// Where all of them go, if it is one place.
fn common(outgoing: &[Outgoing]) -> Option<&str> {
    let first = &outgoing.first()?.destination;
    outgoing.iter().all(|outgoing| outgoing.destination == *first).then(|| name_of(first))
}

fn name_of(destination: &Destination) -> &str {
    match destination {
        Destination::Endpoint(name) => name.as_str(),
        Destination::Topic(message_type) => message_type.as_str(),
    }
}
