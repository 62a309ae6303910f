//! An endpoint in virtual time, for tests of an application.

mod desk;

use std::{fmt, sync::Arc, time::Duration};

use desk::{AtDesk, Desk};
use futures_util::StreamExt;

use super::{Endpoint, EndpointBuilder, Error, lanes::Lanes};
use crate::{
    Sender,
    context::decode,
    envelope::{Envelope, Outgoing},
    handler_error::HandlerError,
    ids::{EntityKey, MessageId, SagaKey, Scope},
    ports::{DeadLetter, Page, StoreError},
    saga::{Message, Saga, state_schema},
    time::Timestamp,
};

/// Deliveries that one call may cause. Beyond it messages are taken to cause each other without end.
pub const DELIVERIES_MAX: usize = 10_000;
/// Dead letters that are asked for at a time.
const LETTERS_PAGE: usize = 100;

/// Your endpoint under test: as it is put together for production, but with queues of the test's own and in virtual time, so that nothing is
/// waited for and every run is the same.
///
/// Whatever is sent is handled before the call returns, with all that it causes: what the endpoint sends to itself, and what
/// it publishes and subscribes to itself, comes back to it. Messages for others go nowhere; what the test looks at are
/// [`sent`](Self::sent) and [`published`](Self::published). Timeouts, delayed messages and later deliveries of what failed wait until the
/// test [`advance`](Self::advance)s the time.
///
/// Lanes, retries, budgets and dead letters are those of the endpoint, and so is the store, which may be any. Retries in place do not
/// wait. The store has a clock of its own: dedup entries are not evicted by virtual time.
///
/// ```
/// # use hapax_core::{Context, Correlation, Handle, HandlerError, Message, Saga, endpoint::EndpointBuilder, testing::{Harness, HarnessError}};
/// # use std::time::Duration;
/// # #[derive(serde::Serialize, serde::Deserialize)] struct PlaceOrder { order: String }
/// # impl Message for PlaceOrder { const TYPE: &'static str = "shop.place-order"; }
/// # #[derive(serde::Serialize, serde::Deserialize)] struct OrderLapsed { order: String }
/// # impl Message for OrderLapsed { const TYPE: &'static str = "shop.order-lapsed"; }
/// # #[derive(Default, serde::Serialize, serde::Deserialize)] struct Order;
/// async fn an_order_that_nobody_pays_lapses(shop: EndpointBuilder) -> Result<(), Box<dyn std::error::Error>> {
///     let mut shop = Harness::start(shop).await?;
///     shop.send(&PlaceOrder { order: "7".into() }).await?;
///     assert!(shop.published::<OrderLapsed>()?.is_empty());
///     shop.advance(Duration::from_secs(24 * 3600)).await?;
///     assert_eq!(shop.published::<OrderLapsed>()?[0].order, "7");
///     Ok(())
/// }
/// ```
#[must_use]
pub struct Harness {
    endpoint: Endpoint,
    desk: Arc<Desk>,
    /// How long ago the sweeper has looked last.
    unswept: Duration,
}

/// Why a test could not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HarnessError {
    /// A message cannot be encoded, or read as what was asked for.
    #[error("{}", .0.chain())]
    Invalid(HandlerError),
    /// The store that the endpoint was given has failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The state of a saga cannot be read, or it has no such name or key here.
    #[error("{0}")]
    State(String),
    /// Messages cause each other without end, or are given again without delay.
    #[error("{DELIVERIES_MAX} deliveries and still no rest; the last was of {0}")]
    Restless(String),
}

impl From<HandlerError> for HarnessError {
    fn from(error: HandlerError) -> Self {
        Self::Invalid(error)
    }
}

impl Harness {
    /// Starts `endpoint`, with everything it was given but its transport, its waits and its store of large bodies: they travel. It needs no
    /// transport.
    ///
    /// # Errors
    /// As for [`EndpointBuilder::start`].
    pub async fn start(mut endpoint: EndpointBuilder) -> Result<Self, Error> {
        let desk = Arc::new(Desk::new(endpoint.settings.recoverability.clone()));
        endpoint.transport = Some(Arc::new(AtDesk(desk.clone())));
        endpoint.backoff = Some(desk.clone());
        endpoint.clock = desk.clone();
        endpoint.breaks = false;
        endpoint.bodies = None;
        let endpoint = endpoint.start().await?;
        let begin = endpoint.begin.iter().filter_map(|begin| endpoint.told_anew(begin));
        begin.for_each(|begin| desk.put(begin.envelope));
        Ok(Self { endpoint, desk, unswept: Duration::ZERO })
    }

    /// Sends `message` to the endpoint, under a new id and sealed as the endpoint seals, and waits until it and everything it causes is handled.
    ///
    /// # Errors
    /// [`HarnessError::Invalid`] and [`HarnessError::Restless`]. What a handler fails with is no error here: the message is
    /// tried again as time [`advance`](Self::advance)s, and ends among the [`dead_letters`](Self::dead_letters).
    pub async fn send<M: Message>(&mut self, message: &M) -> Result<MessageId, HarnessError> {
        let id = self.desk.next_id();
        let envelope = Sender::envelope_with(self.endpoint.codec, id.clone(), message)
            .map_err(|e| HandlerError::permanent(e.to_string()))?;
        let mut envelope = Envelope { occurred_at: Some(self.now()), ..envelope };
        self.endpoint.seals.seal(&mut envelope)?;
        self.send_envelope(envelope).await?;
        Ok(id)
    }

    /// Sends an envelope as it is: under an id of the test's own, with headers, with an address for replies. Sent twice, it comes
    /// twice.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub async fn send_envelope(&mut self, envelope: Envelope) -> Result<(), HarnessError> {
        self.desk.put(Arc::new(envelope));
        self.settle().await
    }

    /// Gives all that came in so far again: as a broker may, at any time. What was handled has to be dropped.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub async fn redeliver(&mut self) -> Result<(), HarnessError> {
        self.desk.put_all_again();
        self.settle().await
    }

    /// Lets `time` pass: what becomes due meanwhile is handled when it is due, one after the other. Every
    /// [`sweep_age`](super::Settings::sweep_age), the sweeper looks for what could not be sent.
    ///
    /// # Errors
    /// As for [`send`](Self::send), and [`HarnessError::Store`].
    pub async fn advance(&mut self, time: Duration) -> Result<(), HarnessError> {
        let end = self.now().after(time);
        while let Some(due) = self.desk.next_due().filter(|due| *due <= end) {
            self.desk.set_time(due);
            self.settle().await?;
        }
        self.desk.set_time(end);
        self.unswept = self.unswept.saturating_add(time);
        if self.unswept >= self.endpoint.settings.sweep_age {
            self.unswept = Duration::ZERO;
            self.sweep().await?;
        }
        Ok(())
    }

    /// The time of the test. It begins at 2000-01-01T00:00:00Z.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.desk.time()
    }

    /// The next `count` messages that the endpoint wants to send are not taken: its broker is away for so long.
    pub fn refuse_sends(&mut self, count: usize) {
        self.desk.refuse(count);
    }

    /// What the endpoint has published of type `M`, in order. What it sent twice under one id is told once, as others take it.
    ///
    /// # Errors
    /// [`HarnessError::Invalid`] when one cannot be read back.
    pub fn published<M: Message>(&self) -> Result<Vec<M>, HarnessError> {
        self.read(|sent| matches!(sent.destination, crate::envelope::Destination::Topic(_)))
    }

    /// What the endpoint has sent of type `M`, to whomever, itself included, in order; and what it has published.
    ///
    /// # Errors
    /// As for [`published`](Self::published).
    pub fn sent<M: Message>(&self) -> Result<Vec<M>, HarnessError> {
        self.read(|_| true)
    }

    /// All that the endpoint has sent, with envelopes and destinations, in order.
    #[must_use]
    pub fn outgoing(&self) -> Vec<Outgoing> {
        self.desk.sent()
    }

    /// What waits for its time, with the time: timeouts, delayed messages, and messages that failed.
    #[must_use]
    pub fn waiting(&self) -> Vec<(Timestamp, Arc<Envelope>)> {
        self.desk.waiting()
    }

    /// What was set aside for a person, oldest first.
    ///
    /// # Errors
    /// [`HarnessError::Store`].
    pub async fn dead_letters(&self) -> Result<Vec<DeadLetter>, HarnessError> {
        let Some(place) = &self.endpoint.deliver.dead_letters else { return Ok(Vec::new()) };
        let (mut letters, mut skip): (Vec<DeadLetter>, usize) = (Vec::new(), 0);
        loop {
            let page = Page { skip, ..Page::first(LETTERS_PAGE) };
            let next = place.list(&self.endpoint.name, &page).await?;
            if next.is_empty() {
                return Ok(letters);
            }
            skip += LETTERS_PAGE; // A page may lack what cannot be read.
            for letter in next {
                // What was given in the place of a page of which nothing could be read comes again.
                if !letters.iter().any(|known| known.is_same(&letter)) {
                    letters.push(letter);
                }
            }
        }
    }

    /// The state of the saga `T` with `key`; `None` if there is none, or it is complete.
    ///
    /// # Errors
    /// [`HarnessError::State`] and [`HarnessError::Store`].
    pub async fn state<T: Saga>(&self, key: &str) -> Result<Option<T>, HarnessError> {
        let scope = self.scope_of::<T>()?;
        let key = SagaKey::parse(key).map_err(|e| HarnessError::State(e.to_string()))?;
        let stored = self.endpoint.stores.entities().load(&EntityKey::new(scope, key), &[]).await?.stored;
        match stored {
            Some(stored) if !stored.entity.completed => {
                let state = state_schema::<T>().read_framed(&stored.entity.state);
                state.map(Some).map_err(|e| HarnessError::State(e.to_string()))
            }
            _ => Ok(None),
        }
    }

    fn scope_of<T: Saga>(&self) -> Result<Arc<Scope>, HarnessError> {
        let mut scopes = self.endpoint.managers.iter().map(|manager| manager.scope());
        let found = scopes.find(|scope| scope.saga.as_str() == T::NAME).cloned();
        found.ok_or_else(|| HarnessError::State(format!("endpoint {} has no saga {}", self.endpoint.name, T::NAME)))
    }

    fn read<M: Message>(&self, wanted: impl Fn(&Outgoing) -> bool) -> Result<Vec<M>, HarnessError> {
        let sent = self.desk.sent().into_iter();
        let sent = sent.filter(|sent| sent.envelope.message_type.as_str() == M::TYPE && wanted(sent));
        let read = |sent: Outgoing| decode(&*self.endpoint.seals.open_if_sealed(&sent.envelope)?);
        sent.map(|sent| read(sent).map_err(HarnessError::from)).collect()
    }

    /// Handles what is due until nothing is.
    async fn settle(&self) -> Result<(), HarnessError> {
        let (mut lanes, mut given) = (Lanes::new(&self.endpoint), 0);
        loop {
            let deliveries = self.desk.take(self.endpoint.settings.in_flight_max);
            let Some(last) = deliveries.last().map(|last| last.envelope.message_type.clone()) else { return Ok(()) };
            given += deliveries.len();
            if given > DELIVERIES_MAX {
                return Err(HarnessError::Restless(last.to_string()));
            }
            lanes.take(deliveries);
            while let Some(done) = lanes.running.next().await {
                lanes.ended(done);
            }
        }
    }

    /// As the endpoint's sweeper does for what is old enough: here everything is.
    async fn sweep(&self) -> Result<(), HarnessError> {
        self.endpoint.sweep(&self.endpoint.managers, Duration::ZERO).await?;
        self.endpoint.sweep(&self.endpoint.enqueued, Duration::ZERO).await?;
        self.settle().await
    }
}

impl fmt::Debug for Harness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Harness").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}
