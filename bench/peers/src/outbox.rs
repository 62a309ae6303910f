//! Peers that keep what is to be sent, and take no messages: deliveries come from within the process, as hapax's do.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{AnyError, Delivery, Order, Progress, Sample, Window};

/// So far may handling be ahead of sending: where sending is slower, that is the peer's rate.
const AHEAD_MAX: u64 = 1000;
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Such a peer.
pub trait Outbox: Send + Sync + 'static {
    /// Handles one delivery in one transaction; whether there is something to be sent now.
    fn handle(&self, delivery: &Delivery) -> impl Future<Output = Result<bool, AnyError>> + Send;

    /// Outgoing messages that were sent so far, by this process.
    fn sent(&self) -> u64;

    /// Outgoing messages that are not sent yet, by the database.
    fn unsent(&self) -> impl Future<Output = Result<i64, AnyError>> + Send;
}

/// Feeds it with so many deliveries `at_a_time` for the warm-up and for the time, and gives the distinct ids of all that was
/// handled. The window ends when all is sent: otherwise what is left unsent would be free.
///
/// # Errors
/// The first of the peer.
pub async fn fed(order: Order, at_a_time: usize, peer: Arc<impl Outbox>) -> Result<(Sample, u64), AnyError> {
    order.wait_for_start()?;
    let feeder = Arc::new(Feeder {
        order,
        progress: Progress::default(),
        at_a_time,
        next: AtomicUsize::default(),
        stored: AtomicU64::default(),
    });
    feeder.clone().feed(&peer, feeder.order.warm_up()).await?;
    let window = Window::open(feeder.progress.done());
    feeder.clone().feed(&peer, feeder.order.time).await?;
    let sample = window.close(feeder.progress.done());
    let handled = usize::try_from(feeder.progress.done())?;
    let ids: HashSet<_> = feeder.order.deliveries[..handled].iter().map(|delivery| delivery.id).collect();
    Ok((sample, ids.len() as u64))
}

struct Feeder {
    order: Order,
    progress: Progress,
    at_a_time: usize,
    next: AtomicUsize,
    /// Messages to be sent.
    stored: AtomicU64,
}

impl Feeder {
    async fn feed(self: Arc<Self>, peer: &Arc<impl Outbox>, time: Duration) -> Result<(), AnyError> {
        let end = Instant::now() + time;
        let worker = |_| {
            let (this, peer) = (self.clone(), peer.clone());
            tokio::spawn(async move {
                while Instant::now() < end {
                    if this.stored.load(Ordering::Relaxed) > peer.sent() + AHEAD_MAX {
                        tokio::time::sleep(LOOK_AGAIN).await;
                        continue;
                    }
                    let next = this.next.fetch_add(1, Ordering::Relaxed);
                    let Some(delivery) = this.order.deliveries.get(next) else { break };
                    let done = peer.handle(delivery).await;
                    this.stored.fetch_add(u64::from(matches!(done, Ok(true))), Ordering::Relaxed);
                    this.progress.note(&done.map(|_| ()));
                }
            })
        };
        let workers: Vec<_> = (0..self.at_a_time).map(worker).collect();
        for worker in workers {
            worker.await?;
        }
        // Each number was taken by one worker, who has handled it: all below the last are done.
        self.progress.undisturbed()?;
        self.next.fetch_min(self.order.deliveries.len(), Ordering::Relaxed);
        while peer.unsent().await? > 0 {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }
}
