//! `--metrics`: the measurements of a run as the OpenTelemetry SDK has them, in the text that Prometheus reads.
//!
//! A program that runs for ever would give the SDK an exporter to a collector, as `examples/telemetry` does. A run ends, so that its
//! exporter only writes down what it is given last.
//!
//! # Source
//! Prometheus, "Exposition formats", text format 0.0.4.

use std::{
    fmt::{self, Display, Write},
    fs::{self, File},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use hapax::otel::{INSTRUMENTS, OtelMetrics};
use opentelemetry::{KeyValue, metrics::MeterProvider};
use opentelemetry_sdk::{
    error::OTelSdkResult,
    metrics::{
        PeriodicReader, SdkMeterProvider, Temporality,
        data::{AggregatedMetrics, Histogram, Metric, MetricData, ResourceMetrics},
        exporter::PushMetricExporter,
    },
};

use crate::Refusal;

/// What measures a run, and where that is written.
pub(crate) struct Telemetry {
    provider: SdkMeterProvider,
    page: Page,
    /// `None`: behind the report.
    file: Option<PathBuf>,
}

/// What was exported last.
#[derive(Debug, Clone, Default)]
struct Page(Arc<Mutex<String>>);

impl Telemetry {
    /// Begins to measure, for a file or for `-`. A file that cannot be written is refused before the run, not after it.
    pub(crate) fn begin(place: &Path) -> Result<Self, Refusal> {
        let file = (place != Path::new("-")).then(|| place.to_owned());
        if let Some(file) = &file {
            // What is in it stays until there is something to take its place.
            File::options().append(true).create(true).open(file).map_err(|e| unwritten(file, &e))?;
        }
        let page = Page::default();
        let reader = PeriodicReader::builder(page.clone()).build();
        Ok(Self { provider: SdkMeterProvider::builder().with_reader(reader).build(), page, file })
    }

    /// What the shop's observer is to tell.
    pub(crate) fn observer(&self) -> OtelMetrics {
        OtelMetrics::new(&self.provider.meter("hapax"))
    }

    /// Ends it. What belongs behind the report is given back.
    pub(crate) fn end(self) -> Result<Option<String>, Refusal> {
        self.provider.shutdown().map_err(|e| Refusal::caused("the measurements cannot be exported", &e))?;
        let text = std::mem::take(&mut *self.page.0.lock().unwrap_or_else(PoisonError::into_inner));
        let Some(file) = self.file else { return Ok(Some(text)) };
        fs::write(&file, text).map_err(|e| unwritten(&file, &e))?;
        Ok(None)
    }
}

fn unwritten(file: &Path, error: &std::io::Error) -> Refusal {
    Refusal::new(format!("--metrics: {} cannot be written: {error}; name another file, or -", file.display()))
}

impl PushMetricExporter for Page {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Text(metrics).to_string();
        Ok(())
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }

    fn temporality(&self) -> Temporality {
        Temporality::Cumulative
    }
}

/// All measurements as text, by name.
struct Text<'m>(&'m ResourceMetrics);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut metrics: Vec<&Metric> = self.0.scope_metrics().flat_map(|scope| scope.metrics()).collect();
        metrics.sort_by_key(|metric| metric.name());
        metrics.into_iter().try_for_each(|metric| write_metric(f, metric))
    }
}

fn write_metric(f: &mut fmt::Formatter<'_>, metric: &Metric) -> fmt::Result {
    let instrument = INSTRUMENTS.iter().find(|instrument| instrument.name == metric.name());
    let name = instrument.map_or_else(|| metric.name().replace('.', "_"), |instrument| instrument.prometheus());
    let mut head = |kind: &str| writeln!(f, "# HELP {name} {}\n# TYPE {name} {kind}", metric.description());
    // The kinds that hapax has; see `hapax::otel::Kind`.
    match metric.data() {
        AggregatedMetrics::U64(MetricData::Sum(sum)) => {
            head("counter")?;
            let mut points = sum.data_points();
            points.try_for_each(|point| writeln!(f, "{name}{} {}", Labels(labels(point.attributes())), point.value()))
        }
        AggregatedMetrics::U64(MetricData::Gauge(gauge)) => {
            head("gauge")?;
            let mut points = gauge.data_points();
            points.try_for_each(|point| writeln!(f, "{name}{} {}", Labels(labels(point.attributes())), point.value()))
        }
        AggregatedMetrics::F64(MetricData::Gauge(gauge)) => {
            head("gauge")?;
            let mut points = gauge.data_points();
            points.try_for_each(|point| writeln!(f, "{name}{} {}", Labels(labels(point.attributes())), point.value()))
        }
        AggregatedMetrics::F64(MetricData::Histogram(histogram)) => {
            head("histogram")?;
            write_histogram(f, &name, histogram)
        }
        _ => Ok(()),
    }
}

fn write_histogram(f: &mut fmt::Formatter<'_>, name: &str, histogram: &Histogram<f64>) -> fmt::Result {
    for point in histogram.data_points() {
        let of = labels(point.attributes());
        let mut up_to = 0;
        let bounds = point.bounds().map(|bound| bound.to_string()).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(point.bucket_counts()) {
            up_to += count;
            let mut of = of.clone();
            of.push(("le".into(), bound));
            writeln!(f, "{name}_bucket{} {up_to}", Labels(of))?;
        }
        writeln!(f, "{name}_sum{} {}", Labels(of.clone()), point.sum())?;
        writeln!(f, "{name}_count{} {}", Labels(of), point.count())?;
    }
    Ok(())
}

fn labels<'a>(attributes: impl Iterator<Item = &'a KeyValue>) -> Vec<(String, String)> {
    let mut labels: Vec<_> =
        attributes.map(|attribute| (attribute.key.as_str().replace('.', "_"), attribute.value.to_string())).collect();
    labels.sort_unstable();
    labels
}

struct Labels(Vec<(String, String)>);

impl Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (name, value)) in self.0.iter().enumerate() {
            f.write_char(if number == 0 { '{' } else { ',' })?;
            let value = value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
            write!(f, "{name}=\"{value}\"")?;
        }
        if self.0.is_empty() { Ok(()) } else { f.write_char('}') }
    }
}
