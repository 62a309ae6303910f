//! `--metrics`: the measurements of a run as the OpenTelemetry SDK has them, in the text that Prometheus reads.
//!
//! A program that runs for ever would give the SDK an exporter to a collector, as `examples/telemetry` does. A run ends, so that its
//! exporter only writes down what it is given last. Workers tell what they have measured to the process that has started them, over and
//! over, since they may be killed at any moment; what all of them have told is added up.
//!
//! # Source
//! Prometheus, "Exposition formats", text format 0.0.4.

mod sums;

use std::{
    fmt::{self, Display, Write},
    fs::{self, File},
    io::{self, BufRead, ErrorKind, Write as _},
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

use self::sums::Sums;
use crate::Refusal;

/// How often a worker tells what it has measured: so much of it is lost with one that is killed, at most.
const TELL_EVERY: Duration = Duration::from_millis(100);
/// Behind each page of a worker. Source: the end of an exposition in OpenMetrics.
const END: &str = "# EOF";

/// What measures a run, and where that is written.
pub(crate) struct Telemetry {
    provider: SdkMeterProvider,
    page: Page,
    workers: Workers,
    file: Destination,
}

/// What was exported last.
#[derive(Debug, Clone, Default)]
struct Page(Arc<Mutex<String>>);

/// Of worker processes.
#[derive(Clone, Default)]
pub(crate) struct Workers(Arc<Mutex<Sums>>);

impl Workers {
    /// Adds what a worker had told, which was there to the end unless it was killed.
    pub(crate) fn add(&self, page: &str, to_the_end: bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).add(page, to_the_end);
    }
}

/// The file of the measurements; `None`: behind the report.
struct Destination {
    file: Option<PathBuf>,
    /// It was not there, and nothing has been written to it: it goes again with a run that is refused.
    is_new: bool,
}

impl Destination {
    /// A file that cannot be written is refused before the run, not after it. What is in it stays until there is something to take its place.
    fn find(place: &Path) -> Result<Self, Refusal> {
        if place == Path::new("-") {
            return Ok(Self { file: None, is_new: false });
        }
        let is_new = match File::create_new(place) {
            Ok(_) => true,
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                File::options().append(true).open(place).map_err(|e| unwritten(place, &e))?;
                false
            }
            Err(e) => return Err(unwritten(place, &e)),
        };
        Ok(Self { file: Some(place.to_owned()), is_new })
    }

    fn write(mut self, text: String) -> Result<Option<String>, Refusal> {
        let Some(file) = &self.file else { return Ok(Some(text)) };
        fs::write(file, text).map_err(|e| unwritten(file, &e))?;
        self.is_new = false;
        Ok(None)
    }
}

impl Drop for Destination {
    fn drop(&mut self) {
        if let (Some(file), true) = (&self.file, self.is_new) {
            let _ = fs::remove_file(file);
        }
    }
}

impl Telemetry {
    /// Begins to measure, for a file or for `-`.
    pub(crate) fn begin(place: &Path) -> Result<Self, Refusal> {
        let (file, page) = (Destination::find(place)?, Page::default());
        let reader = PeriodicReader::builder(page.clone()).build();
        let provider = SdkMeterProvider::builder().with_reader(reader).build();
        Ok(Self { provider, page, workers: Workers::default(), file })
    }

    /// What the shop's observer is to tell.
    pub(crate) fn observer(&self) -> OtelMetrics {
        OtelMetrics::new(&self.provider.meter("hapax"))
    }

    /// Where what workers have measured is added up.
    pub(crate) fn workers(&self) -> Workers {
        self.workers.clone()
    }

    /// Ends it. What belongs behind the report is given back.
    pub(crate) fn end(self) -> Result<Option<String>, Refusal> {
        self.provider.shutdown().map_err(|e| Refusal::caused("the measurements cannot be exported", &e))?;
        let own = std::mem::take(&mut *self.page.0.lock().unwrap_or_else(PoisonError::into_inner));
        self.workers.add(&own, true);
        let text = self.workers.0.lock().unwrap_or_else(PoisonError::into_inner).to_string();
        self.file.write(text)
    }
}

/// Measures in a worker, and tells the process that has started it.
pub(crate) struct Teller(SdkMeterProvider);

impl Teller {
    pub(crate) fn begin() -> Self {
        let reader = PeriodicReader::builder(Pipe).with_interval(TELL_EVERY).build();
        Self(SdkMeterProvider::builder().with_reader(reader).build())
    }

    pub(crate) fn observer(&self) -> OtelMetrics {
        OtelMetrics::new(&self.0.meter("hapax"))
    }

    /// Tells it for the last time. Who is not there any more need not hear it.
    pub(crate) fn end(self) {
        let _ = self.0.shutdown();
    }
}

/// Standard output of a worker.
#[derive(Debug)]
struct Pipe;

/// The last page of a worker that came whole: one that is killed may be in the middle of another.
pub(crate) fn last_page(told: impl BufRead) -> String {
    let (mut last, mut page) = (String::new(), String::new());
    for line in told.lines().map_while(Result::ok) {
        if line == END {
            last = std::mem::take(&mut page);
        } else {
            page.push_str(&line);
            page.push('\n');
        }
    }
    last
}

fn unwritten(file: &Path, error: &io::Error) -> Refusal {
    Refusal::new(format!("--metrics: {} cannot be written: {error}; name another file, or -", file.display()))
}

impl PushMetricExporter for Pipe {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        let page = format!("{}{END}\n", Text(metrics));
        // A parent that is gone does not mind.
        let _ = io::stdout().lock().write_all(page.as_bytes());
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
