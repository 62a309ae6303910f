//! A shop and its billing, whose spans and measurements go to a collector by OTLP.
//!
//! `cargo run -p hapax-example-telemetry --example telemetry` sends them to `http://localhost:4318`, or to where `OTEL_EXPORTER_OTLP_ENDPOINT` says, until
//! Ctrl-C; `cargo run -p hapax-example-telemetry --example telemetry -- 10` for ten seconds. `README.md` beside this file says how to look at them.

use std::{error::Error, sync::Arc, time::Duration};

use hapax::{
    Context, Correlation, Endpoint, Handle, HandlerError, InProcess, Memory, Message, Saga,
    endpoint::EndpointBuilder,
    otel::{OtelMetrics, OtelTraces},
};
use opentelemetry::{metrics::MeterProvider, trace::TracerProvider};
use opentelemetry_otlp::{MetricExporter, SpanExporter};
use opentelemetry_sdk::{Resource, metrics::SdkMeterProvider, trace::SdkTracerProvider};
use serde::{Deserialize, Serialize};
use tracing::{Instrument, level_filters::LevelFilter};
use tracing_subscriber::{Layer, Registry, layer::SubscriberExt, util::SubscriberInitExt};

/// One order in so many is refused, and one fails at first.
const ODD: u64 = 7;

#[derive(Serialize, Deserialize)]
struct Place {
    order: u64,
}
impl Message for Place {
    const TYPE: &'static str = "shop.place";
}

#[derive(Serialize, Deserialize)]
struct Bill {
    order: u64,
}
impl Message for Bill {
    const TYPE: &'static str = "billing.bill";
}

#[derive(Default, Serialize, Deserialize)]
struct Order;
impl Saga for Order {
    const NAME: &'static str = "order";
}
impl Handle<Place> for Order {
    fn correlate(place: &Place) -> Correlation<'_> {
        place.order.into()
    }
    async fn handle(&mut self, place: Place, cx: &mut Context) -> Result<(), HandlerError> {
        if place.order.is_multiple_of(ODD) {
            return Err(HandlerError::permanent("there is no stock"));
        }
        tracing::info!(order = place.order, "placed");
        cx.send("billing", Bill { order: place.order })
    }
}

#[derive(Default, Serialize, Deserialize)]
struct Account;
impl Saga for Account {
    const NAME: &'static str = "account";
}
impl Handle<Bill> for Account {
    fn correlate(bill: &Bill) -> Correlation<'_> {
        bill.order.into()
    }
    async fn handle(&mut self, bill: Bill, _: &mut Context) -> Result<(), HandlerError> {
        tokio::time::sleep(Duration::from_millis(bill.order % 20)).await; // The bank.
        Ok(())
    }
}

/// Where spans and measurements go. It has to be shut down at the end, or the last of them are lost.
struct Telemetry {
    spans: SdkTracerProvider,
    measurements: SdkMeterProvider,
}

impl Telemetry {
    fn begin() -> Result<Self, Box<dyn Error>> {
        let service = Resource::builder().with_service_name("hapax-example").build();
        let exporter = SpanExporter::builder().with_http().build()?;
        let spans = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(service.clone()).build();
        let exporter = MetricExporter::builder().with_http().build()?;
        let measurements = SdkMeterProvider::builder().with_periodic_exporter(exporter).with_resource(service).build();
        // Without the filter, what the exporter's own client does would be exported, and so on.
        let exported = tracing_opentelemetry::layer().with_tracer(spans.tracer("hapax"));
        let ours = tracing_subscriber::filter::filter_fn(|of| {
            of.is_span() && of.target().starts_with("hapax") || of.target().starts_with("telemetry")
        });
        let printed = tracing_subscriber::fmt::layer().with_filter(LevelFilter::WARN);
        Registry::default().with(exported.with_filter(ours)).with(printed).init();
        Ok(Self { spans, measurements })
    }

    /// What is left is exported; it takes some seconds where no collector answers.
    fn end(self) {
        for ended in [self.spans.shutdown(), self.measurements.shutdown()] {
            if let Err(error) = ended {
                eprintln!("not all was exported: {error}; does a collector listen?");
            }
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let seconds: Option<u64> = std::env::args().nth(1).map(|text| text.parse()).transpose()?;
    let telemetry = Telemetry::begin()?;
    let metrics = Arc::new(OtelMetrics::new(&telemetry.measurements.meter("hapax")));
    let traces = Arc::new(OtelTraces::default());

    let (queue, store) = (InProcess::new("telemetry"), Memory::new());
    let endpoint = |name: &str| -> EndpointBuilder {
        let endpoint = Endpoint::builder(name).store(store.clone()).transport(queue.clone());
        endpoint.metrics(metrics.clone()).traces(traces.clone())
    };
    let shop = endpoint("shop").saga::<Order>(|order| order.starts::<Place>()).start().await?;
    let billing = endpoint("billing").saga::<Account>(|account| account.starts::<Bill>()).start().await?;
    let (shop, billing) = (tokio::spawn(shop.run_until(end(seconds))), tokio::spawn(billing.run_until(end(seconds))));

    // Requests, each a trace of its own. Every third is sent twice: the copy is dropped.
    let sender = queue.sender().traces_as("in-process", traces.clone());
    let requests = async {
        for order in 1_u64.. {
            let request = async {
                let id = format!("order-{order}").parse()?;
                for _ in 0..=u8::from(order.is_multiple_of(3)) {
                    sender.send_as(Clone::clone(&id), "shop", &Place { order }).await?;
                }
                Ok::<_, Box<dyn Error>>(())
            };
            request.instrument(tracing::info_span!("POST /orders", order)).await?;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok::<_, Box<dyn Error>>(())
    };
    tokio::select! {
        failed = requests => failed?,
        () = end(seconds) => {}
    }
    shop.await??;
    billing.await??;
    tokio::task::spawn_blocking(|| telemetry.end()).await?;
    println!("done");
    Ok(())
}

/// After so many seconds, or at Ctrl-C.
async fn end(seconds: Option<u64>) {
    match seconds {
        Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
        None => drop(tokio::signal::ctrl_c().await),
    }
}
