//! What a program has done, and what it has found afterwards.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use serde::Serialize;
use uuid::Uuid;

use crate::{AnyError, Delivery, Order};

/// For `hapax-bench`, which judges it.
#[derive(Debug, Serialize)]
pub struct Report {
    /// What was done in the window.
    pub sample: Sample,
    /// What was found afterwards.
    pub books: Books,
}

/// What was done in a window.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Sample {
    /// Length of the window.
    pub seconds: f64,
    /// Repeats included.
    pub deliveries: u64,
    /// Of this process.
    pub cpu_seconds: f64,
}

/// What was found after all.
#[derive(Debug, Default, Clone, Copy, Serialize)]
pub struct Books {
    /// Distinct ids that were handled.
    pub distinct: u64,
    /// Sum of the effects in all states.
    pub effects: u64,
    /// Times that a state was written; `None`: nobody says.
    pub versions: Option<u64>,
    /// Ids that are known; `None`: nobody says.
    pub entries: Option<u64>,
    /// Outgoing messages that were stored, and sent where the peer sends.
    pub outgoing: u64,
}

/// How many deliveries are done.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    failed: AtomicU64,
}

impl Progress {
    /// One delivery is over.
    pub fn note(&self, result: &Result<(), AnyError>) {
        match result {
            Ok(()) => self.done.fetch_add(1, Ordering::Relaxed),
            Err(error) => {
                eprintln!("a delivery failed: {error}");
                self.failed.fetch_add(1, Ordering::Relaxed)
            }
        };
    }

    /// Deliveries that were handled.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// An error if a delivery has failed: nothing is disturbed here, so a peer's own retries are not to be measured.
    ///
    /// # Errors
    /// How many did.
    pub fn undisturbed(&self) -> Result<(), AnyError> {
        match self.failed.load(Ordering::Relaxed) {
            0 => Ok(()),
            failed => Err(format!("{failed} deliveries failed").into()),
        }
    }

    /// Waits for the warm-up, and then for the time or the last delivery.
    pub async fn window(&self, order: &Order) -> Sample {
        self.wait(order, order.warm_up()).await;
        let window = Window::open(self.done());
        self.wait(order, order.time).await;
        window.close(self.done())
    }

    async fn wait(&self, order: &Order, time: Duration) {
        const LOOK_AGAIN: Duration = Duration::from_millis(5);
        let end = Instant::now() + time;
        while Instant::now() < end && self.done() < order.deliveries.len() as u64 {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

/// A window that has begun.
#[derive(Debug)]
pub struct Window {
    start: Instant,
    cpu_seconds: f64,
    done: u64,
}

impl Window {
    /// With `done` deliveries before it.
    #[must_use]
    pub fn open(done: u64) -> Self {
        Self { cpu_seconds: cpu_seconds(), start: Instant::now(), done }
    }

    /// With `done` deliveries up to its end.
    #[must_use]
    pub fn close(self, done: u64) -> Sample {
        let seconds = self.start.elapsed().as_secs_f64();
        Sample { seconds, deliveries: done - self.done, cpu_seconds: cpu_seconds() - self.cpu_seconds }
    }
}

/// User and system time of this process, whose threads may come and go.
fn cpu_seconds() -> f64 {
    cpu_seconds_of("self")
}

/// The same of another process, by its number.
#[must_use]
pub fn cpu_seconds_of(process: &str) -> f64 {
    const TICKS_PER_SECOND: f64 = 100.0;
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields: Vec<&str> = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok()).unwrap_or(f64::NAN);
    (ticks(11) + ticks(12)) / TICKS_PER_SECOND
}

/// Distinct ids of which a delivery is no longer in the peer's queue, where the deliveries of `left` still are.
///
/// # Errors
/// More are left of one than there were.
pub fn distinct_gone(deliveries: &[Delivery], left: &[Uuid]) -> Result<u64, AnyError> {
    let mut copies: HashMap<Uuid, (i64, i64)> = HashMap::new();
    deliveries.iter().for_each(|delivery| copies.entry(delivery.id).or_default().0 += 1);
    left.iter().for_each(|id| copies.entry(*id).or_default().1 += 1);
    if copies.values().any(|(sent, left)| left > sent) {
        return Err("the queue holds what was not sent".into());
    }
    Ok(copies.values().filter(|(sent, left)| left < sent).count() as u64)
}
