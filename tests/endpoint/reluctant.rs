//! A broker that is slow to answer, or does not.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    InProcess,
    ids::{EndpointName, TypeName},
    ports::{
        Connected, Delivery, ErrorKind, Receipt, Receiver, Settled, Settlement, Transport, TransportCapabilities,
        TransportError,
    },
};

/// How it settles.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Settling {
    /// After this time.
    After(Duration),
    /// It does not answer.
    Never,
}

/// A hub that settles as it was told, and that may be away.
#[derive(Debug, Clone)]
pub(crate) struct Reluctant {
    hub: InProcess,
    settling: Settling,
    away: Arc<AtomicBool>,
    asked: Arc<AtomicU32>,
    first: Option<&'static str>,
}

impl Reluctant {
    pub(crate) fn new(hub: &InProcess, settling: Settling) -> Self {
        Self { hub: hub.clone(), settling, away: Arc::default(), asked: Arc::default(), first: None }
    }

    /// Of what it gives at once this message comes first.
    pub(crate) fn giving_first(self, id: &'static str) -> Self {
        Self { first: Some(id), ..self }
    }

    /// From now on receiving fails, or no longer does.
    pub(crate) fn is_away(&self, away: bool) {
        self.away.store(away, Ordering::Relaxed);
    }

    /// How often it was asked for messages.
    pub(crate) fn asked(&self) -> u32 {
        self.asked.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Transport for Reluctant {
    fn capabilities(&self) -> TransportCapabilities {
        self.hub.capabilities()
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        let connected = self.hub.connect(endpoint, types).await?;
        let receiver = Arc::new(Queue { receiver: connected.receiver.clone(), broker: self.clone() });
        Ok(Connected { receiver, ..connected })
    }
}

#[derive(Debug)]
struct Queue {
    receiver: Arc<dyn Receiver>,
    broker: Reluctant,
}

#[async_trait]
impl Receiver for Queue {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, TransportError> {
        self.broker.asked.fetch_add(1, Ordering::Relaxed);
        if self.broker.away.load(Ordering::Relaxed) {
            return Err(TransportError::new(ErrorKind::Unavailable, "receiving", "it is away, as the test wants it"));
        }
        let mut given = self.receiver.receive(max).await?;
        if let Some(first) = self.broker.first {
            given.sort_by_key(|delivery| delivery.envelope.message_id.to_string() != first);
        }
        Ok(given)
    }

    async fn extend(&self, receipts: &[Receipt]) -> Result<(), TransportError> {
        self.receiver.extend(receipts).await
    }

    async fn settle(&self, receipt: &Receipt, settlement: Settlement) -> Result<Settled, TransportError> {
        match self.broker.settling {
            Settling::After(time) => tokio::time::sleep(time).await,
            Settling::Never => pending().await,
        }
        self.receiver.settle(receipt, settlement).await
    }
}
