//! Request and reply: sends a request to an endpoint and awaits its answer, across duplicates, lost messages and restarts on
//! either side.
//!
//! The handler answers with [`Context::reply`](crate::Context::reply). What it answers is kept with the dedup entry of the
//! request, and a duplicate gets it again. That is all the client builds on: as long as no answer has come it asks again, with
//! the same message, so that a request takes effect once however often it is sent, and every copy has the same answer.
//!
//! # What names a request
//! - [`request`](RequestClient::request) makes a new message id. It is one request as long as its future lives, and cannot be
//!   asked again afterwards: for what may be done twice, or only looks.
//! - [`request_with_key`](RequestClient::request_with_key) is given an [`IdempotencyKey`]. Whoever asks under the same key, now, in
//!   parallel or after a restart, at this client or at another, gets the same answer, as long as the endpoint
//!   [remembers](crate::endpoint::Settings::retention) it. Message id and correlation id are derived from key, address, type and
//!   body, so that an answer to another body can never be taken for the one that is waited for.
//!
//! # What it does not do
//! It does not make the endpoint faster, nor is it a queue: a request is given up by its client at its deadline, and then
//! nobody here knows whether it has taken effect, or will. Ask again under the same key.

mod answers;
mod asking;
mod builder;
mod error;
#[cfg(all(test, shuttle))]
mod interleaved;
mod waiting;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    time::Duration,
};

pub use builder::{RequestClientBuilder, RequestSettings};
pub use error::RequestError;
use tokio::{sync::watch, task::JoinHandle};
use tracing::Instrument;
use waiting::Waiting;

use crate::{
    codec::Codec,
    context::decode,
    envelope::{Destination, Envelope, Outgoing},
    ids::{EndpointName, Fingerprint, IdempotencyKey, MessageId, TypeName},
    ports::{DeadLetters, Dispatcher},
    saga::Message,
    seal::Seals,
    sender::Sender,
    trace::Spans,
};

/// Sends requests and awaits their answers. Clones are the same client. See the [module](self).
///
/// ```
/// # use std::time::Duration;
/// # use hapax_core::{Message, RequestClient, requests::RequestError};
/// # #[derive(serde::Serialize, serde::Deserialize)] struct PlaceOrder { order: String }
/// # impl Message for PlaceOrder { const TYPE: &'static str = "shop.place-order"; }
/// # #[derive(serde::Serialize, serde::Deserialize)] struct OrderPlaced { number: u64 }
/// # impl Message for OrderPlaced { const TYPE: &'static str = "shop.order-placed"; }
/// async fn place(client: &RequestClient, order: &str) -> Result<u64, RequestError> {
///     let key = order.parse().map_err(|e| RequestError::Invalid(format!("{e}")))?;
///     let place = PlaceOrder { order: order.into() };
///     let placed: OrderPlaced = client.request_with_key(key, "shop", &place, Duration::from_secs(5)).await?;
///     Ok(placed.number)
/// }
/// ```
#[derive(Clone)]
pub struct RequestClient(Arc<Shared>);

struct Shared {
    name: EndpointName,
    dispatcher: Arc<dyn Dispatcher>,
    /// Where the endpoints that are asked set messages aside, if the client is to look there.
    dead_letters: Option<Arc<dyn DeadLetters>>,
    codec: Codec,
    seals: Seals,
    spans: Spans,
    settings: RequestSettings,
    waiting: Arc<Waiting>,
    stop: watch::Sender<bool>,
    /// Receives answers.
    task: Mutex<Option<JoinHandle<()>>>,
}

impl RequestClient {
    /// Begins a client. Answers come to the queue of `name`, so that no endpoint and no other client may have that name, not
    /// even the same program once more: two that share it take each other's answers, which then have to be asked for again. A
    /// name that the program has again after a restart leaves no queue behind.
    pub fn builder(name: impl Into<String>) -> RequestClientBuilder {
        RequestClientBuilder::new(name)
    }

    /// Sends `message` to the endpoint `to` under a new id, and awaits the answer for up to `within` (at most a year).
    ///
    /// Dropping the future forgets the request; it may take effect all the same.
    ///
    /// # Errors
    /// See [`RequestError`]. After [`RequestError::TimedOut`] this request cannot be asked again: see
    /// [`request_with_key`](Self::request_with_key).
    pub async fn request<M: Message, R: Message>(
        &self,
        to: &str,
        message: &M,
        within: Duration,
    ) -> Result<R, RequestError> {
        let envelope = self.envelope(message)?;
        let answer = self.request_envelope(to, envelope, within).await?;
        self.read(&answer)
    }

    /// The same under a key of your own. It takes effect once however often it is asked, and each time the answer is the same.
    ///
    /// The endpoint deduplicates by the key within the saga instance that handles the message. Another type or body under the
    /// same key is refused there, not answered: see [`RequestError::KeyReused`].
    ///
    /// # Errors
    /// See [`RequestError`].
    pub async fn request_with_key<M: Message, R: Message>(
        &self,
        key: IdempotencyKey,
        to: &str,
        message: &M,
        within: Duration,
    ) -> Result<R, RequestError> {
        let envelope = Envelope { idempotency_key: Some(key), ..self.envelope(message)? };
        let answer = self.request_envelope(to, envelope, within).await?;
        self.read(&answer)
    }

    /// An envelope around `message` under a new id, to set headers, tenant, times or an idempotency key before
    /// [`request_envelope`](Self::request_envelope).
    ///
    /// # Errors
    /// [`RequestError::Invalid`] when the message cannot be encoded.
    pub fn envelope<M: Message>(&self, message: &M) -> Result<Envelope, RequestError> {
        let envelope = Sender::envelope_with(self.0.codec, MessageId::random(), message);
        envelope.map_err(|e| RequestError::Invalid(e.to_string()))
    }

    /// Sends an envelope and awaits the answer as it comes, of whichever type, and sealed, if it is. Reply address, correlation id and, with an
    /// idempotency key, message id and time are the client's to set.
    ///
    /// # Errors
    /// See [`RequestError`]; [`RequestError::Invalid`] where the envelope has a reply address or a correlation id already.
    pub async fn request_envelope(
        &self,
        to: &str,
        mut envelope: Envelope,
        within: Duration,
    ) -> Result<Arc<Envelope>, RequestError> {
        let to = EndpointName::parse(to).map_err(|e| RequestError::Invalid(e.to_string()))?;
        if envelope.reply_to.is_some() || envelope.correlation_id.is_some() {
            let why = "reply address and correlation id are for the client to set: leave them out";
            return Err(RequestError::Invalid(why.into()));
        }
        if let Some(key) = &envelope.idempotency_key {
            // Over what is asked, however it is sealed.
            let asked = self.0.seals.open_if_sealed(&envelope).map_err(|e| RequestError::Invalid(e.chain()))?;
            envelope.message_id = MessageId::of_request(&to, key, &Fingerprint::of(&asked));
            envelope.occurred_at = None; // Whoever asks again would say another time.
        }
        envelope.correlation_id = Some((&envelope.message_id).into());
        envelope.reply_to = Some(Destination::Endpoint(self.0.name.clone()));
        self.0.seals.seal(&mut envelope).map_err(|e| RequestError::Invalid(e.chain()))?;
        let span = tracing::debug_span!("request", %to, message_id = %envelope.message_id);
        let outgoing = Outgoing { destination: Destination::Endpoint(to), envelope: Arc::new(envelope) };
        // In a box: many may wait at a time, and whoever awaits this holds it in a future of its own.
        Box::pin(asking::ask(&self.0, outgoing, within)).instrument(span).await
    }

    /// The message in an answer, if it is one of type `R`.
    fn read<R: Message>(&self, answer: &Envelope) -> Result<R, RequestError> {
        if answer.message_type.as_str() != R::TYPE {
            return Err(other_type(R::TYPE, &answer.message_type));
        }
        let opened = self.0.seals.open(answer);
        opened.and_then(|opened| decode(&opened)).map_err(|e| RequestError::Unreadable(e.chain()))
    }

    /// Requests that wait for an answer now.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.waiting.count()
    }

    /// Answers that came when nobody waited for them (any more): further copies, answers after the deadline or to a process
    /// that was restarted. They were acknowledged.
    #[must_use]
    pub fn unawaited(&self) -> u64 {
        self.0.waiting.unawaited.load(Ordering::Relaxed)
    }

    /// Ends the client, also for its clones: what waits gets [`RequestError::Stopped`], and what has been received is
    /// acknowledged, for up to five seconds. Dropping the last clone ends it without.
    pub async fn stop(self) {
        self.0.stop.send_replace(true);
        let task = self.0.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            drop(task.await); // If it has panicked, that was said when it did; it is over all the same.
        }
    }
}

fn other_type(asked: &'static str, got: &TypeName) -> RequestError {
    RequestError::OtherType { asked, got: got.clone() }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(task) = self.task.get_mut().unwrap_or_else(PoisonError::into_inner) {
            task.abort();
        }
    }
}

impl fmt::Debug for RequestClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestClient").field("name", &self.0.name).field("waiting", &self.waiting()).finish()
    }
}
