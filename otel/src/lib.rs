//! Spans and metrics of hapax for OpenTelemetry, by its conventions for messaging.
//!
//! The application chooses the SDK, the exporters and the subscriber; here is only what joins hapax to them:
//!
//! - [`OtelTraces`] joins hapax's spans to the traces of whoever sent a message, and says what trace context messages carry. The
//!   spans themselves are those of `tracing`, and a layer of `tracing-opentelemetry` exports them.
//! - [`OtelMetrics`] records what an endpoint, or a relay, tells its observer. [`INSTRUMENTS`] lists what it records.
//!
//! ```
//! use std::sync::Arc;
//!
//! use hapax_core::{Endpoint, endpoint::EndpointBuilder};
//! use hapax_otel::{OtelMetrics, OtelTraces};
//!
//! fn seen(endpoint: EndpointBuilder) -> EndpointBuilder {
//!     let meter = opentelemetry::global::meter("hapax");
//!     endpoint.metrics(Arc::new(OtelMetrics::new(&meter))).traces(Arc::new(OtelTraces::default()))
//! }
//! # let _ = seen(Endpoint::builder("shop"));
//! ```
//!
//! A crate of its own, since OpenTelemetry's change in ways that break about twice a year: the versions it takes are
//! `opentelemetry` 0.33 and `tracing-opentelemetry` 0.34, and yours have to be the same.
//!
//! # Source
//! OpenTelemetry's semantic conventions, version 1.45: messaging spans, messaging metrics. They are in development there; a new
//! version of this crate may rename what it records.
// Whoever builds the docs for everybody shows which feature something needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod instruments;
mod metrics;
mod relay;
mod traceparent;
mod traces;

pub use instruments::{INSTRUMENTS, Instrument, Kind};
pub use metrics::OtelMetrics;
pub use traces::{OtelTraces, PARENT_WITHIN, current};
