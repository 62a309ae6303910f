//! What has been received and settled so far, by either side; and hapax's transport with that counted.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering},
};

use async_trait::async_trait;
use hapax::{
    ids::{EndpointName, TypeName},
    metrics::{Event, Metrics},
    ports::{
        Connected, Delivery, Receipt, Receiver, Settled, Settlement, Transport, TransportCapabilities, TransportError,
    },
};
use tokio::sync::Notify;

use crate::measure::{Sample, Window};

/// One run's.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Opened by the first message: to connect is no part of it.
    window: OnceLock<Window>,
    settled: AtomicU64,
    /// When `settled` reaches this, who waits is woken.
    wake_at: AtomicU64,
    wake: Notify,
    disturbed: AtomicU64,
}

impl Progress {
    /// Messages have come.
    pub(super) fn received(&self) {
        self.window.get_or_init(Window::open);
    }

    /// The broker has confirmed that so many are over.
    pub(super) fn settled(&self, messages: u64) {
        let settled = self.settled.fetch_add(messages, Ordering::Relaxed) + messages;
        if settled >= self.wake_at.load(Ordering::Relaxed) {
            self.wake.notify_one();
        }
    }

    /// Waits until `count` messages are settled. One at a time may wait.
    pub(super) async fn reaches(&self, count: u64) {
        self.wake_at.store(count, Ordering::Relaxed);
        while self.settled.load(Ordering::Relaxed) < count {
            self.wake.notified().await;
        }
    }

    /// From the first message until now.
    pub(super) fn sample(&self) -> Sample {
        let settled = self.settled.load(Ordering::Relaxed);
        self.window.get().map_or_else(Sample::default, |window| window.close(settled))
    }

    /// What did not go well at once: what was sent may have been sent again.
    pub(super) fn disturbed(&self) -> u64 {
        self.disturbed.load(Ordering::Relaxed)
    }
}

impl Metrics for Progress {
    fn observe(&self, event: Event<'_>) {
        match event {
            Event::Handled(_)
            | Event::Duplicate(_)
            | Event::Started(..)
            | Event::Received(..)
            | Event::Saved(_)
            | Event::Sent(..)
            | Event::Dispatched(..)
            | Event::Ended(..)
            | Event::Waiting(..) => {}
            _ => drop(self.disturbed.fetch_add(1, Ordering::Relaxed)),
        }
    }
}

/// A transport whose messages are counted.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) transport: Arc<dyn Transport>,
    pub(super) progress: Arc<Progress>,
}

#[async_trait]
impl Transport for Counted {
    /// An endpoint refuses queues that outlive its store. Here both end with the run.
    fn capabilities(&self) -> TransportCapabilities {
        TransportCapabilities { durable: false, ..self.transport.capabilities() }
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        let connected = self.transport.connect(endpoint, types).await?;
        let receiver = Arc::new(Counter { receiver: connected.receiver, progress: self.progress.clone() });
        Ok(Connected { receiver, ..connected })
    }
}

#[derive(Debug)]
struct Counter {
    receiver: Arc<dyn Receiver>,
    progress: Arc<Progress>,
}

#[async_trait]
impl Receiver for Counter {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, TransportError> {
        let deliveries = self.receiver.receive(max).await?;
        self.progress.received();
        Ok(deliveries)
    }

    async fn extend(&self, receipts: &[Receipt]) -> Result<(), TransportError> {
        self.receiver.extend(receipts).await
    }

    async fn settle(&self, receipt: &Receipt, settlement: Settlement) -> Result<Settled, TransportError> {
        let is_over = matches!(settlement, Settlement::Ack);
        let settled = self.receiver.settle(receipt, settlement).await?;
        if is_over && settled == Settled::Done {
            self.progress.settled(1);
        }
        Ok(settled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_waits_is_woken_once_as_many_are_settled() {
        let progress = Arc::new(Progress::default());
        let (waiting, settling) = (progress.clone(), progress.clone());
        let settle = async move {
            settling.received();
            for _ in 0..3 {
                tokio::task::yield_now().await;
                settling.settled(1);
            }
        };
        tokio::join!(waiting.reaches(3), settle);
        assert_eq!(progress.sample().deliveries, 3);
        progress.reaches(2).await;
    }
}
