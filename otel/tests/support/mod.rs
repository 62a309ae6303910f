//! A shop and its billing on queues inside the process, and what is exported of them.
#![allow(dead_code, reason = "each test uses a part")]

pub(crate) mod shop;

use std::{
    collections::BTreeMap,
    fmt::{Debug, Write as _},
    sync::{Arc, Mutex},
};

use hapax_otel::{OtelMetrics, OtelTraces};
use opentelemetry::{Value, metrics::MeterProvider, trace::TracerProvider};
use opentelemetry_sdk::{
    metrics::{
        InMemoryMetricExporter, PeriodicReader, SdkMeterProvider,
        data::{AggregatedMetrics, MetricData},
    },
    trace::{InMemorySpanExporter, SdkTracerProvider, SpanData},
};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
    subscriber::DefaultGuard,
};
use tracing_subscriber::{Layer, Registry, layer::Context, layer::SubscriberExt};

/// Everything that one test's thread exports and logs, at all levels.
pub(crate) struct Seen {
    spans: InMemorySpanExporter,
    tracer: SdkTracerProvider,
    measured: InMemoryMetricExporter,
    meter: SdkMeterProvider,
    lines: Lines,
    pub(crate) metrics: Arc<OtelMetrics>,
    pub(crate) traces: Arc<OtelTraces>,
    _guard: DefaultGuard,
}

impl Seen {
    pub(crate) fn begin() -> Self {
        let spans = InMemorySpanExporter::default();
        let tracer = SdkTracerProvider::builder().with_simple_exporter(spans.clone()).build();
        let measured = InMemoryMetricExporter::default();
        let meter = SdkMeterProvider::builder().with_reader(PeriodicReader::builder(measured.clone()).build()).build();
        let lines = Lines::default();
        let layer = tracing_opentelemetry::layer().with_tracer(tracer.tracer("hapax"));
        let subscriber = Registry::default().with(layer).with(lines.clone());
        let metrics = Arc::new(OtelMetrics::new(&meter.meter("hapax")));
        let _guard = tracing::subscriber::set_default(subscriber);
        Self { spans, tracer, measured, meter, lines, metrics, traces: Arc::default(), _guard }
    }

    pub(crate) fn spans(&self) -> Spans {
        self.tracer.force_flush().unwrap();
        Spans(self.spans.get_finished_spans().unwrap())
    }

    /// All that was logged: names and fields of spans and events.
    pub(crate) fn lines(&self) -> String {
        self.lines.0.lock().unwrap().clone()
    }

    /// The sums, counts of measurements and last values now, by instrument and attributes.
    pub(crate) fn measured(&self) -> Measured {
        self.measured.reset();
        self.meter.force_flush().unwrap();
        let mut all = Measured::default();
        for resource in self.measured.get_finished_metrics().unwrap() {
            for metric in resource.scope_metrics().flat_map(|scope| scope.metrics()) {
                match metric.data() {
                    AggregatedMetrics::U64(data) => all.take(metric.name(), data, |value| value as f64),
                    AggregatedMetrics::F64(data) => all.take(metric.name(), data, |value| value),
                    AggregatedMetrics::I64(_) => unreachable!("{} counts signed", metric.name()),
                }
            }
        }
        all
    }
}

pub(crate) struct Spans(pub(crate) Vec<SpanData>);

impl Spans {
    /// Those of this name, in the order in which they ended.
    pub(crate) fn named(&self, name: &str) -> Vec<&SpanData> {
        self.0.iter().filter(|span| span.name == name).collect()
    }

    pub(crate) fn only(&self, name: &str) -> &SpanData {
        let [only] = self.named(name)[..] else {
            let names: Vec<_> = self.0.iter().map(|span| &*span.name).collect();
            panic!("not one span `{name}` in {names:?}")
        };
        only
    }
}

pub(crate) fn attribute(span: &SpanData, name: &str) -> Option<String> {
    span.attributes.iter().find(|of| of.key.as_str() == name).map(|of| of.value.to_string())
}

/// Whether `span` is linked to `to`, and to nothing else.
pub(crate) fn is_linked(span: &SpanData, to: &SpanData) -> bool {
    let links: Vec<_> =
        span.links.iter().map(|link| (link.span_context.trace_id(), link.span_context.span_id())).collect();
    links == [(to.span_context.trace_id(), to.span_context.span_id())]
}

pub(crate) fn is_child(span: &SpanData, of: &SpanData) -> bool {
    span.parent_span_id == of.span_context.span_id() && span.span_context.trace_id() == of.span_context.trace_id()
}

type Attributed = (BTreeMap<String, String>, f64);

/// Values by instrument and attributes.
#[derive(Debug, Default)]
pub(crate) struct Measured(BTreeMap<String, Vec<Attributed>>);

impl Measured {
    fn take<T: Copy>(&mut self, name: &str, data: &MetricData<T>, number: impl Fn(T) -> f64) {
        let of = self.0.entry(name.to_owned()).or_default();
        let text = |key: &opentelemetry::Key, value: &Value| (key.to_string(), value.to_string());
        match data {
            MetricData::Sum(sum) => {
                for point in sum.data_points() {
                    let attributes = point.attributes().map(|of| text(&of.key, &of.value)).collect();
                    of.push((attributes, number(point.value())));
                }
            }
            MetricData::Gauge(gauge) => {
                for point in gauge.data_points() {
                    let attributes = point.attributes().map(|of| text(&of.key, &of.value)).collect();
                    of.push((attributes, number(point.value())));
                }
            }
            MetricData::Histogram(histogram) => {
                for point in histogram.data_points() {
                    let attributes = point.attributes().map(|of| text(&of.key, &of.value)).collect();
                    of.push((attributes, point.count() as f64));
                }
            }
            MetricData::ExponentialHistogram(_) => unreachable!("{name} is exponential"),
        }
    }

    /// The sum over all attributes that hold these.
    pub(crate) fn sum(&self, name: &str, with: &[(&str, &str)]) -> f64 {
        let all = self.0.get(name).map(Vec::as_slice).unwrap_or_default();
        let holds =
            |of: &BTreeMap<String, String>| with.iter().all(|(key, value)| of.get(*key).is_some_and(|is| is == value));
        all.iter().filter(|(of, _)| holds(of)).map(|(_, value)| value).sum()
    }

    pub(crate) fn names(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }

    pub(crate) fn attributes(&self) -> impl Iterator<Item = (&String, &String)> {
        self.0.values().flatten().flat_map(|(attributes, _)| attributes)
    }
}

/// Writes everything down.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<String>>);

struct Written<'a>(&'a mut String);

impl Visit for Written<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        let mut lines = self.0.lock().unwrap();
        lines.push_str(attributes.metadata().name());
        attributes.record(&mut Written(&mut lines));
        lines.push('\n');
    }

    fn on_record(&self, _: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let mut lines = self.0.lock().unwrap();
        values.record(&mut Written(&mut lines));
        lines.push('\n');
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut lines = self.0.lock().unwrap();
        lines.push_str(event.metadata().target());
        event.record(&mut Written(&mut lines));
        lines.push('\n');
    }
}
