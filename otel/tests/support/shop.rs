//! What is run.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use hapax_core::{
    Context, Correlation, Endpoint, Handle, HandlerError, Message, Saga, Sender,
    deliver::Tries,
    endpoint::{EndpointBuilder, Settings},
    envelope::Outgoing,
    ids::{EndpointName, TypeName},
    ports::{
        Connected, DispatchError, Dispatcher, ErrorKind, Refused, Transport, TransportCapabilities, TransportError,
    },
};
use hapax_stores::Memory;
use hapax_transports::InProcess;
use serde::{Deserialize, Serialize};
use tracing::Instrument;

use super::Seen;

/// What becomes of an order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Fate {
    #[default]
    Billed,
    /// In an hour.
    BilledLater,
    /// In its first delivery.
    FailsOnce,
    /// In its first delivery the handler does not come to its end.
    HangsOnce,
    Refused,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) order: String,
    pub(crate) fate: Fate,
    pub(crate) card: String,
}

impl Message for Place {
    const TYPE: &'static str = "shop.place";
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Bill {
    pub(crate) order: String,
    pub(crate) card: String,
}

impl Message for Bill {
    const TYPE: &'static str = "billing.bill";
}

/// Nobody handles it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Unheard(pub(crate) String);

impl Message for Unheard {
    const TYPE: &'static str = "shop.unheard";
}

#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Order {
    card: String,
}

impl Saga for Order {
    const NAME: &'static str = "order";
}

/// Runs of the handler, of all orders of a test.
#[derive(Clone, Default)]
pub(crate) struct Runs(Arc<AtomicU32>);

impl Handle<Place> for Order {
    fn correlate(place: &Place) -> Correlation<'_> {
        Correlation::of("order", &place.order)
    }

    async fn handle(&mut self, place: Place, cx: &mut Context) -> Result<(), HandlerError> {
        tracing::debug!("an order is placed");
        self.card.clone_from(&place.card);
        let bill = Bill { order: place.order, card: place.card };
        match place.fate {
            Fate::Billed => cx.send("billing", bill),
            Fate::BilledLater => cx.send_after(Duration::from_secs(3600), "billing", bill),
            Fate::FailsOnce if cx.get::<Runs>()?.0.fetch_add(1, Ordering::Relaxed) == 0 => {
                Err(HandlerError::transient("the card service is away"))
            }
            Fate::HangsOnce if cx.get::<Runs>()?.0.fetch_add(1, Ordering::Relaxed) == 0 => {
                cx.send("billing", bill)?;
                std::future::pending().await
            }
            Fate::FailsOnce | Fate::HangsOnce => cx.send("billing", bill),
            Fate::Refused => Err(HandlerError::permanent("the card is refused")),
        }
    }
}

#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Account {
    bills: u32,
}

impl Saga for Account {
    const NAME: &'static str = "account";
}

impl Handle<Bill> for Account {
    fn correlate(bill: &Bill) -> Correlation<'_> {
        Correlation::of("order", &bill.order)
    }

    async fn handle(&mut self, _: Bill, _: &mut Context) -> Result<(), HandlerError> {
        self.bills += 1;
        Ok(())
    }
}

/// Retries in place are for other tests; the store's clock is not paused, so the sweeper's age is zero.
fn settings() -> Settings {
    let mut settings = Settings { sweep_age: Duration::ZERO, ..Settings::default() };
    (settings.recoverability.in_place, settings.recoverability.unsent) = (Tries::NONE, Tries::NONE);
    settings
}

fn endpoint(name: &str, seen: &Seen, store: &Memory, transport: impl Transport + 'static) -> EndpointBuilder {
    let builder = Endpoint::builder(name).store(store.clone()).transport(transport).settings(settings());
    builder.metrics(seen.metrics.clone()).traces(seen.traces.clone())
}

pub(crate) fn shop(seen: &Seen, store: &Memory, transport: impl Transport + 'static) -> EndpointBuilder {
    endpoint("shop", seen, store, transport).with(Runs::default()).saga::<Order>(|order| order.starts::<Place>())
}

pub(crate) fn billing(seen: &Seen, store: &Memory, transport: impl Transport + 'static) -> EndpointBuilder {
    endpoint("billing", seen, store, transport).saga::<Account>(|account| account.starts::<Bill>())
}

/// Both, for two hours, in a span of the program's own that is no part of any message's trace.
pub(crate) async fn run(seen: &Seen, store: &Memory, hub: &InProcess) {
    let end = || tokio::time::sleep(Duration::from_secs(2 * 3600));
    let (shop, billing) = (shop(seen, store, hub.clone()), billing(seen, store, hub.clone()));
    let both = async { tokio::join!(shop.run_until(end()), billing.run_until(end())) };
    let (shop, billing) = both.instrument(tracing::info_span!("main")).await;
    shop.unwrap();
    billing.unwrap();
}

pub(crate) fn sender(seen: &Seen, hub: &InProcess) -> Sender {
    hub.sender().traces_as("in-process", seen.traces.clone())
}

pub(crate) fn place(order: &str, fate: Fate) -> Place {
    Place { order: order.into(), fate, card: "none".into() }
}

/// A hub whose way out is cut until it is mended.
#[derive(Debug, Clone)]
pub(crate) struct Cut {
    hub: InProcess,
    mended: Arc<AtomicBool>,
}

impl Cut {
    pub(crate) fn new(hub: &InProcess) -> Self {
        Self { hub: hub.clone(), mended: Arc::default() }
    }

    pub(crate) fn mend(&self) {
        self.mended.store(true, Ordering::Relaxed);
    }
}

#[async_trait]
impl Transport for Cut {
    fn capabilities(&self) -> TransportCapabilities {
        self.hub.capabilities()
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        let connected = self.hub.connect(endpoint, types).await?;
        Ok(Connected { dispatcher: Arc::new(self.clone()), ..connected })
    }
}

#[async_trait]
impl Dispatcher for Cut {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        self.hub.check(outgoing)
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        if self.mended.load(Ordering::Relaxed) {
            return self.hub.dispatch(outgoing).await;
        }
        let away = || TransportError::new(ErrorKind::Unavailable, "dispatching", "cut off");
        outgoing.iter().map(|_| Err(DispatchError::Transient(away()))).collect()
    }
}
