//! Transports that show what they were given, and relays to them.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    Message, MessageId, Relay,
    envelope::{Destination, Outgoing},
    ports::{DispatchError, Dispatcher, ErrorKind, Refused, TransportError},
    relay::{RelayHandle, RelayOptions},
};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::rig::Outbox;

/// What has to come comes long before this, on any machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Placed {
    pub(crate) order: u32,
}

impl Message for Placed {
    const TYPE: &'static str = "shop.placed";
}

/// A relay with short leases and looks.
pub(crate) fn quick() -> RelayOptions {
    RelayOptions::default()
        .polls(Duration::from_millis(50), Duration::from_millis(200))
        .status_batch(10_000, Duration::from_millis(50))
        .lease(Duration::from_millis(1000))
        .birth_lease(Duration::from_millis(1000))
        .backoff(Duration::from_millis(20), Duration::from_millis(100))
}

/// Numbers with which nothing comes by itself within a test: neither looks nor the end of leases.
pub(crate) fn patient() -> RelayOptions {
    RelayOptions::default().polls(PATIENCE * 4, PATIENCE * 4).birth_lease(PATIENCE * 4)
}

pub(crate) fn relay(outbox: &Outbox, sink: &Sink, options: RelayOptions) -> RelayHandle {
    Relay::to(sink.clone()).table_with(outbox.clone(), options).start().unwrap()
}

/// What a transport does with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Taken,
    /// For now.
    Refused,
    /// For good.
    Impossible,
    /// It has it, and says that it has not.
    Denied,
    /// It never answers.
    Silent,
    /// It has it, and never answers.
    Unanswered,
}

/// A transport that keeps what it was given, and treats each message as the test says.
#[derive(Clone)]
pub(crate) struct Sink(Arc<Kept>);

struct Kept {
    taken: Mutex<Vec<(MessageId, u32)>>,
    fate: Box<dyn Fn(u32) -> Fate + Send + Sync>,
    asked: AtomicU64,
    more: Notify,
}

impl Sink {
    pub(crate) fn new() -> Self {
        Self::with(|_| Fate::Taken)
    }

    pub(crate) fn with(fate: impl Fn(u32) -> Fate + Send + Sync + 'static) -> Self {
        let (taken, asked, more) = (Mutex::default(), AtomicU64::new(0), Notify::new());
        Self(Arc::new(Kept { taken, fate: Box::new(fate), asked, more }))
    }

    /// All that was taken, in the order in which it came.
    pub(crate) fn taken(&self) -> Vec<(MessageId, u32)> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn orders(&self) -> Vec<u32> {
        self.taken().into_iter().map(|(_, order)| order).collect()
    }

    /// How many messages it was asked to send.
    pub(crate) fn asked(&self) -> u64 {
        self.0.asked.load(Ordering::Relaxed)
    }

    /// Each order that was taken, once; and no order came under two ids.
    pub(crate) fn distinct(&self) -> Vec<u32> {
        let mut ids = HashMap::new();
        for (id, order) in self.taken() {
            assert_eq!(*ids.entry(order).or_insert_with(|| id.clone()), id, "order {order} has come under two ids");
        }
        let mut orders: Vec<u32> = ids.into_keys().collect();
        orders.sort_unstable();
        orders
    }

    /// Waits until `done` of what was taken.
    pub(crate) async fn until(&self, done: impl Fn(&Self) -> bool) {
        let waiting = async {
            while !done(self) {
                let _ = tokio::time::timeout(Duration::from_millis(20), self.0.more.notified()).await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, waiting).await;
        let (distinct, asked) = (self.distinct(), self.asked());
        assert!(
            waited.is_ok(),
            "of {asked} it has taken {}, {} distinct: {distinct:?}",
            self.taken().len(),
            distinct.len()
        );
    }

    pub(crate) async fn until_all(&self, orders: std::ops::Range<u32>) {
        self.until(|sink| sink.distinct().len() >= orders.len()).await;
        assert_eq!(self.distinct(), Vec::from_iter(orders));
    }
}

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sink")
    }
}

/// An address of which the transport knows that nothing goes there.
pub(crate) const NOWHERE: &str = "nowhere";

#[async_trait]
impl Dispatcher for Sink {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        match &outgoing.destination {
            Destination::Endpoint(name) if name.as_str() == NOWHERE => Err(Refused("nobody is there".to_owned())),
            _ => Ok(()),
        }
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        let mut results = Vec::new();
        for Outgoing { envelope, .. } in outgoing {
            let order = serde_json::from_slice::<Placed>(&envelope.body).unwrap().order;
            self.0.asked.fetch_add(1, Ordering::Relaxed);
            // Its clock is behind all others: what says when it is due is put off.
            let fate = if envelope.due.is_some() { Fate::Refused } else { (self.0.fate)(order) };
            if fate == Fate::Silent {
                std::future::pending::<()>().await;
            }
            if matches!(fate, Fate::Taken | Fate::Denied | Fate::Unanswered) {
                let mut taken = self.0.taken.lock().unwrap_or_else(PoisonError::into_inner);
                taken.push((envelope.message_id.clone(), order));
            }
            if fate == Fate::Unanswered {
                self.0.more.notify_waiters();
                std::future::pending::<()>().await;
            }
            let error =
                || TransportError::new(ErrorKind::Unavailable, "sending", format!("order {order} is not taken"));
            results.push(match fate {
                Fate::Taken | Fate::Silent | Fate::Unanswered => Ok(()),
                Fate::Refused | Fate::Denied => Err(DispatchError::Transient(error())),
                Fate::Impossible => Err(DispatchError::Permanent(error())),
            });
        }
        self.0.more.notify_waiters();
        results
    }
}
