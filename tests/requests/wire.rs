//! A transport that does with each message as a test says.

use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use async_trait::async_trait;
use hapax::{
    InProcess,
    envelope::{Destination, Outgoing},
    ids::{EndpointName, TypeName},
    ports::{
        Connected, Delivery, DispatchError, Dispatcher, ErrorKind, Receipt, Receiver, Refused, Settled, Settlement,
        Transport, TransportCapabilities, TransportError,
    },
};

/// What becomes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It arrives.
    Sent,
    /// It is confirmed and lost: the transport lies.
    Lost,
    /// It is not confirmed, and does not arrive.
    Refused,
    /// It arrives, but that is not confirmed.
    Unconfirmed,
    /// It is refused for good.
    Never,
    /// It arrives, and whoever sends it is never told anything.
    Untold,
    /// It does not arrive, and whoever sends it is never told anything.
    Stuck,
}

type Says = dyn Fn(u32) -> Fate + Send + Sync;

/// A hub whose messages to one endpoint have a fate by their number, the first being 0.
#[derive(Clone)]
pub(crate) struct Wire {
    hub: InProcess,
    to: Destination,
    says: Arc<Says>,
    offered: Arc<AtomicU32>,
    ends: Arc<Ends>,
}

/// How the receiving ends of a wire are.
#[derive(Debug, Default)]
struct Ends {
    fails: Mutex<u32>,
    panics: AtomicBool,
    never_settles: AtomicBool,
    given: AtomicU32,
}

impl Wire {
    pub(crate) fn to(hub: &InProcess, endpoint: &str, says: impl Fn(u32) -> Fate + Send + Sync + 'static) -> Self {
        let to = Destination::Endpoint(endpoint.parse().unwrap());
        Self { hub: hub.clone(), to, says: Arc::new(says), offered: Arc::default(), ends: Arc::default() }
    }

    /// How many messages for the endpoint it was given.
    pub(crate) fn offered(&self) -> u32 {
        self.offered.load(Ordering::Relaxed)
    }

    /// Receiving fails so often.
    pub(crate) fn fails_to_receive(self, times: u32) -> Self {
        *self.ends.fails.lock().unwrap() = times;
        self
    }

    /// Receiving panics.
    pub(crate) fn panics(self) -> Self {
        self.ends.panics.store(true, Ordering::Relaxed);
        self
    }

    /// Settling is never confirmed.
    pub(crate) fn never_settles(self) -> Self {
        self.ends.never_settles.store(true, Ordering::Relaxed);
        self
    }

    /// How many messages its ends have given.
    pub(crate) fn given(&self) -> u32 {
        self.ends.given.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("to", &self.to).finish_non_exhaustive()
    }
}

fn away(kind: ErrorKind, operation: &'static str) -> TransportError {
    TransportError::new(kind, operation, "the wire is cut")
}

#[async_trait]
impl Transport for Wire {
    fn capabilities(&self) -> TransportCapabilities {
        self.hub.capabilities()
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        let connected = self.hub.connect(endpoint, types).await?;
        let receiver = Arc::new(End { receiver: connected.receiver, ends: self.ends.clone() });
        Ok(Connected { receiver, dispatcher: Arc::new(self.clone()), ..connected })
    }
}

#[async_trait]
impl Dispatcher for Wire {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        self.hub.check(outgoing)
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        let mut results = Vec::new();
        for outgoing in outgoing {
            let fate = match outgoing.destination == self.to {
                true => (self.says)(self.offered.fetch_add(1, Ordering::Relaxed)),
                false => Fate::Sent,
            };
            if matches!(fate, Fate::Sent | Fate::Unconfirmed | Fate::Untold) {
                for result in self.hub.dispatch(std::slice::from_ref(outgoing)).await {
                    result.unwrap();
                }
            }
            results.push(match fate {
                Fate::Sent | Fate::Lost => Ok(()),
                Fate::Refused => Err(DispatchError::Transient(away(ErrorKind::Unavailable, "dispatching"))),
                Fate::Unconfirmed => Err(DispatchError::Transient(away(ErrorKind::UnknownOutcome, "dispatching"))),
                Fate::Never => Err(DispatchError::Permanent(away(ErrorKind::Denied, "dispatching"))),
                Fate::Untold | Fate::Stuck => std::future::pending().await,
            });
        }
        results
    }
}

#[derive(Debug)]
struct End {
    receiver: Arc<dyn Receiver>,
    ends: Arc<Ends>,
}

#[async_trait]
impl Receiver for End {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, TransportError> {
        let fails = {
            let mut left = self.ends.fails.lock().unwrap();
            *left = left.saturating_sub(1);
            *left > 0
        };
        if fails {
            return Err(away(ErrorKind::Unavailable, "receiving"));
        }
        assert!(!self.ends.panics.load(Ordering::Relaxed), "as the test wants it");
        let given = self.receiver.receive(max).await?;
        self.ends.given.fetch_add(u32::try_from(given.len()).unwrap(), Ordering::Relaxed);
        Ok(given)
    }

    async fn extend(&self, receipts: &[Receipt]) -> Result<(), TransportError> {
        self.receiver.extend(receipts).await
    }

    async fn settle(&self, receipt: &Receipt, settlement: Settlement) -> Result<Settled, TransportError> {
        if self.ends.never_settles.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        self.receiver.settle(receipt, settlement).await
    }
}
