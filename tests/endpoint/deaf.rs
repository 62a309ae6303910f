//! A broker that gives nothing for minutes: an operator is told once, then once a minute, and when it is over.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    InProcess, Memory,
    ids::{EndpointName, TypeName},
    ports::{
        Connected, Delivery, ErrorKind, Receipt, Receiver, Settled, Settlement, Transport, TransportCapabilities,
        TransportError,
    },
};
use hapax_tests::LogLines;

use crate::work::{Log, done, endpoint, send, task};

/// A hub of which nothing can be received for a while.
#[derive(Debug, Clone)]
struct Deaf {
    hub: InProcess,
    is_away: Arc<AtomicBool>,
}

#[async_trait]
impl Transport for Deaf {
    fn capabilities(&self) -> TransportCapabilities {
        self.hub.capabilities()
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        let connected = self.hub.connect(endpoint, types).await?;
        let receiver = Arc::new(Queue { receiver: connected.receiver, is_away: self.is_away.clone() });
        Ok(Connected { receiver, ..connected })
    }
}

#[derive(Debug)]
struct Queue {
    receiver: Arc<dyn Receiver>,
    is_away: Arc<AtomicBool>,
}

#[async_trait]
impl Receiver for Queue {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, TransportError> {
        if self.is_away.load(Ordering::SeqCst) {
            return Err(TransportError::new(ErrorKind::Unavailable, "receiving", "it is away"));
        }
        self.receiver.receive(max).await
    }

    async fn extend(&self, receipts: &[Receipt]) -> Result<(), TransportError> {
        self.receiver.extend(receipts).await
    }

    async fn settle(&self, receipt: &Receipt, settlement: Settlement) -> Result<Settled, TransportError> {
        self.receiver.settle(receipt, settlement).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_is_away_is_told_of_once_a_minute_and_when_it_is_back() {
    let logged = LogLines::here();
    let (store, log, is_away) = (Memory::new(), Log::default(), Arc::new(AtomicBool::new(true)));
    let hub = InProcess::new("deaf");
    let broker = Deaf { hub: hub.clone(), is_away: is_away.clone() };
    let running = tokio::spawn(endpoint(&store, broker, &log).start().await.unwrap().run_until(pending::<()>()));
    send(&hub, &task("a", "first")).await;
    tokio::time::sleep(Duration::from_secs(150)).await;
    // One every half second.
    let told = logged.with("receiving failed");
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told[0].contains("untold=0") && told[0].contains("it is away"), "{told:?}");
    assert!(told[1].contains("untold=11") && logged.with("receives again").is_empty(), "{told:?}");
    is_away.store(false, Ordering::SeqCst);
    while done(&store, "worker", "a").is_empty() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let over = logged.with("receives again");
    assert!(over.len() == 1 && over[0].contains("INFO") && over[0].contains("tries=3"), "{over:?}");
    running.abort();
}
