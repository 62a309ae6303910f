//! What is offered to a transport, seen from before it.

use std::{sync::Arc, time::Instant};

use async_trait::async_trait;
use tracing::{Instrument, Span};

use super::{Kind, Spans};
use crate::{
    envelope::Outgoing,
    ids::EndpointName,
    metrics::{Event, Metrics},
    ports::{DispatchError, Dispatcher, Refused},
};

/// A dispatcher with a span around each call, whose observer is told how it went.
#[derive(Debug)]
pub(crate) struct Sends {
    dispatcher: Arc<dyn Dispatcher>,
    spans: Spans,
    told: Option<(EndpointName, Arc<dyn Metrics>)>,
}

impl Sends {
    pub(crate) const fn new(dispatcher: Arc<dyn Dispatcher>, spans: Spans) -> Self {
        Self { dispatcher, spans, told: None }
    }

    /// What `endpoint` sends.
    pub(crate) fn of(self, endpoint: EndpointName, metrics: Arc<dyn Metrics>) -> Self {
        Self { told: Some((endpoint, metrics)), ..self }
    }
}

#[async_trait]
impl Dispatcher for Sends {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        self.dispatcher.check(outgoing)
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        let span = self.spans.send(outgoing, Kind::Forwards);
        let begun = Instant::now();
        let results = self.dispatcher.dispatch(outgoing).instrument(span.clone()).await;
        sent(&span, &results);
        if let Some((endpoint, metrics)) = &self.told {
            metrics.observe(Event::Sent(endpoint, outgoing, &results, begun.elapsed()));
        }
        results
    }
}

/// Writes into the span of a call how it went: the worst of it.
pub(crate) fn sent(span: &Span, results: &[Result<(), DispatchError>]) {
    let failed = |result: &Result<(), DispatchError>| match result {
        Ok(()) => None,
        Err(DispatchError::Transient(_)) => Some("transient"),
        Err(DispatchError::Permanent(_)) => Some("permanent"),
    };
    if let Some(error) = results.iter().filter_map(failed).min() {
        span.record("error.type", error);
        span.record("otel.status_code", "ERROR");
    }
}
