//! A whole endpoint that does something each second. It dies at a call of a port, and its transport is not sure of what it did.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use async_trait::async_trait;
use hapax::{
    Context, Correlation, Endpoint, Handle, HandlerError, Message, Saga,
    endpoint::Calendar,
    envelope::Outgoing,
    ids::{EndpointName, TypeName},
    ports::{
        Connected, DeadLetters, DedupStore, Delivery, DispatchError, Dispatcher, EntityStore, ErrorKind, Receipt,
        Receiver, Refused, Settled, Settlement, Transport, TransportCapabilities, TransportError,
    },
};
use serde::{Deserialize, Serialize};

use crate::{
    fuse::{Fuse, Fused},
    log,
    serve::{input_closed, on_postgres, open, settings},
    stored::server_of,
};

/// Of so many messages that are sent, one is sent twice; of so many, one is not confirmed.
const COPIED: u32 = 3;
const UNCONFIRMED: u32 = 4;
/// Of so many settlements, the outcome of one is not told; of so many, one is not made.
const UNTOLD: u32 = 5;
const UNMADE: u32 = 7;

/// It was so late.
#[derive(Debug, Serialize, Deserialize)]
struct Tick {
    due: u64,
}

impl Message for Tick {
    const TYPE: &'static str = "crash.tick";
}

/// All ticks, each time they were handled.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Almanac {
    handled: Vec<String>,
}

impl Saga for Almanac {
    const NAME: &'static str = "almanac";
}

impl Handle<Tick> for Almanac {
    fn correlate(_: &Tick) -> Correlation<'_> {
        "all".into()
    }

    async fn handle(&mut self, tick: Tick, _: &mut Context) -> Result<(), HandlerError> {
        self.handled.push(tick.due.to_string());
        Ok(())
    }
}

/// Until whoever has started this process closes its standard input, or it dies at `point`.
pub(crate) async fn recur(folder: &Path, point: &str) {
    log::begin();
    let fuse = Fuse::parse(point).expect("`none`, `NAME-N-before` or `NAME-N-after`");
    match server_of(folder) {
        Some((url, schema)) => {
            let (store, queue) = on_postgres(&url, &schema).await.unwrap();
            run(store, queue, fuse).await;
        }
        None => {
            let (store, queue) = open(folder, "today").await.unwrap();
            run(store, queue, fuse).await;
        }
    }
}

async fn run<S, Q>(store: S, queue: Q, fuse: Fuse)
where
    S: EntityStore + DedupStore + DeadLetters + 'static,
    Q: Transport + 'static,
{
    let each_second = Calendar::cron("* * * * * *").unwrap().each_missed();
    let endpoint = Endpoint::builder("recurs")
        .store(Fused { port: Arc::new(store), fuse: fuse.clone() })
        .transport(Fused { port: Arc::new(Unsure::new(Arc::new(queue))), fuse })
        .recurring("tick", each_second, |due, cx| cx.send_local(Tick { due: due.as_millis() }))
        .saga::<Almanac>(|almanac| almanac.starts::<Tick>())
        .settings(settings());
    endpoint.run_until(input_closed()).await.unwrap();
}

/// A transport, or an end of it, that does some things twice, some not at all, and does not say so.
#[derive(Debug)]
struct Unsure<P: ?Sized> {
    port: Arc<P>,
    calls: AtomicU32,
}

impl<P: ?Sized> Unsure<P> {
    const fn new(port: Arc<P>) -> Self {
        Self { port, calls: AtomicU32::new(0) }
    }

    fn untold(operation: &'static str) -> TransportError {
        TransportError::new(ErrorKind::UnknownOutcome, operation, "the answer was lost, as the test wants it")
    }
}

#[async_trait]
impl<T: Transport> Transport for Unsure<T> {
    fn capabilities(&self) -> TransportCapabilities {
        self.port.capabilities()
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        let connected = self.port.connect(endpoint, types).await?;
        let receiver = Arc::new(Unsure::new(connected.receiver));
        Ok(Connected { receiver, dispatcher: Arc::new(Unsure::new(connected.dispatcher)), ..connected })
    }
}

#[async_trait]
impl Receiver for Unsure<dyn Receiver> {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, TransportError> {
        self.port.receive(max).await
    }

    async fn extend(&self, receipts: &[Receipt]) -> Result<(), TransportError> {
        self.port.extend(receipts).await
    }

    async fn settle(&self, receipt: &Receipt, settlement: Settlement) -> Result<Settled, TransportError> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        if call.is_multiple_of(UNMADE) {
            return Err(Self::untold("settling"));
        }
        let settled = self.port.settle(receipt, settlement).await;
        if call.is_multiple_of(UNTOLD) { Err(Self::untold("settling")) } else { settled }
    }
}

#[async_trait]
impl Dispatcher for Unsure<dyn Dispatcher> {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        self.port.check(outgoing)
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let results = self.port.dispatch(outgoing).await;
        if call.is_multiple_of(COPIED) {
            let _ = self.port.dispatch(outgoing).await;
        }
        if call.is_multiple_of(UNCONFIRMED) {
            return outgoing.iter().map(|_| Err(DispatchError::Transient(Self::untold("dispatching")))).collect();
        }
        results
    }
}
