//! Tables that answer late, or go on for ever.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    Relay,
    ports::{Care, Cared, Instance, OutboxState, OutboxTable, StoreError, Tick, Ticked},
    relay::{PushLine, RelayCounts, RelayMetrics},
};
use tokio::sync::Semaphore;

use super::{
    rig::{Outbox, Place},
    sink::{PATIENCE, Sink, quick},
};

/// Stores no status before it is let, and never has removed all that is over.
#[derive(Debug, Clone)]
struct Slow {
    inner: Outbox,
    is_asked: Arc<Semaphore>,
    may_answer: Arc<Semaphore>,
    is_purging: Arc<AtomicBool>,
}

impl Slow {
    async fn new(place: &Place) -> Self {
        let closed = || Arc::new(Semaphore::new(0));
        Self { inner: place.outbox().await, is_asked: closed(), may_answer: closed(), is_purging: Arc::default() }
    }
}

#[async_trait]
impl OutboxTable for Slow {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn is_ordered(&self) -> bool {
        self.inner.is_ordered()
    }

    fn is_told(&self) -> bool {
        self.inner.is_told()
    }

    fn attach(&self, line: &Arc<PushLine>) -> bool {
        self.inner.attach(line)
    }

    fn detach(&self, line: &Arc<PushLine>) {
        self.inner.detach(line);
    }

    async fn tick(&self, tick: &Tick) -> Result<Ticked, StoreError> {
        if !tick.ended.is_empty() {
            self.is_asked.add_permits(1);
            let _ = self.may_answer.acquire().await;
        }
        self.inner.tick(tick).await
    }

    async fn care(&self, care: &Care) -> Result<Cared, StoreError> {
        self.is_purging.store(true, Ordering::Relaxed);
        tokio::task::yield_now().await;
        Ok(Cared { ended: care.rows, archived: 0 })
    }

    async fn state(&self) -> Result<OutboxState, StoreError> {
        self.inner.state().await
    }

    async fn leave(&self, instance: &Instance) -> Result<(), StoreError> {
        self.inner.leave(instance).await
    }
}

#[tokio::test]
async fn what_was_sent_and_is_not_stored_as_sent_is_limited() {
    let place = Place::new().await;
    let (slow, sink) = (Slow::new(&place).await, Sink::new());
    // All of it is there when the first look comes, and could be sent in one call.
    place.orders(&slow.inner, 0..100).await;
    let options = quick().status_queue(10).lease(PATIENCE);
    let relay = Relay::to(sink.clone()).table_with(slow.clone(), options).start().unwrap();
    let asked = tokio::time::timeout(PATIENCE, slow.is_asked.acquire()).await.expect("statuses are stored");
    asked.unwrap().forget();
    assert_eq!(sink.asked(), 10, "as many as a crash may repeat");
    slow.may_answer.close(); // From now on it answers at once.
    sink.until_all(0..100).await;
    relay.stop().await.unwrap();
    assert_eq!(place.number("SELECT count(*) FROM hapax.outbox WHERE status = 1").await, 100);
    assert_eq!(sink.taken().len(), 100);
}

#[tokio::test]
async fn figures_come_while_what_is_over_is_being_removed() {
    #[derive(Debug, Clone, Default)]
    struct Told(Arc<AtomicU64>, Arc<AtomicBool>);
    impl RelayMetrics for Told {
        fn observe(&self, _: &str, _: &OutboxState, _: &RelayCounts) {
            // The removing does not end once it has begun.
            if self.1.load(Ordering::Relaxed) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    let place = Place::new().await;
    let (slow, sink) = (Slow::new(&place).await, Sink::new());
    let told = Told(Arc::default(), slow.is_purging.clone());
    let options = quick().care(Duration::from_millis(5), 3);
    let relay = Relay::to(sink.clone()).table_with(slow, options).metrics(told.clone()).start().unwrap();
    sink.until(|_| told.0.load(Ordering::Relaxed) >= 3).await;
    relay.stop().await.unwrap();
}
