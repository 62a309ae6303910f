//! Who sees what an endpoint does.

use std::sync::Arc;

use super::EndpointBuilder;
use crate::{metrics::Metrics, trace::Traces};

impl EndpointBuilder {
    /// Who wants to know what happens.
    pub fn metrics(mut self, metrics: impl Metrics + 'static) -> Self {
        self.metrics = Arc::new(metrics);
        self
    }

    /// Who joins the endpoint's spans to the traces of others, and says what trace context its messages carry. Without it the
    /// spans are there, each delivery in a trace of its own, and messages carry on the context that caused them.
    pub fn traces(mut self, traces: impl Traces + 'static) -> Self {
        self.traces = Some(Arc::new(traces));
        self
    }
}
