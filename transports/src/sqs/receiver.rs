//! An endpoint's end of its queue. What is not settled when it goes is given back at once, or others would wait until its lease runs out.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use aws_sdk_sqs::{
    operation::receive_message::ReceiveMessageError,
    types::{Message, MessageSystemAttributeName as System},
};
use hapax_core::{
    ids::{EndpointName, TypeName},
    ports::{Delivery, Receipt, Receiver, Settled, Settlement, TransportError},
    time::Timestamp,
};
use tokio::{
    runtime::Handle,
    sync::{Mutex as AsyncMutex, Notify},
};

use super::{
    Broker, Sqs,
    addresses::Address,
    batches::{Batches, TOGETHER_MAX},
    errors::refusal,
    letters::Letter,
    link::{Asking, Failed},
    message::Came,
    publisher::{CALLS_MAX, Sent, whole_seconds},
    settle::Answer,
    stock::{Held, Poll, Stock},
};
use crate::reason::reason_of;

const RECEIVING: &str = "receiving messages";
/// How much longer the service hides a message than its lease lasts here: for what it is on its way, and a settlement.
const LEASE_MARGIN: Duration = Duration::from_secs(1);
/// What comes less than this before its due time is given: clocks differ by more.
const EARLY: Duration = Duration::from_millis(10);
/// A message that is not due is hidden for as long at a time, and looked at again then.
const PUT_OFF_MAX: Duration = Duration::from_secs(11 * 3600);
/// A message has waited here for a part of its lease before it is begun anew when the message is given.
const REFRESHED_AFTER: u32 = 4;

/// One endpoint's end of its queue.
pub(super) struct EndpointQueue(Arc<End>);

pub(super) struct End {
    pub(super) broker: Arc<Broker>,
    pub(super) endpoint: EndpointName,
    types: Vec<TypeName>,
    pub(super) address: Arc<Address>,
    /// One call at a time.
    receiving: AsyncMutex<()>,
    stock: Mutex<Stock>,
    /// A call for messages has ended.
    arrived: Notify,
    /// The queue was there no more, so that it is declared before the next call.
    is_lost: AtomicBool,
    pub(super) deletes: Batches<String, Answer>,
    pub(super) changes: Batches<(String, i32), Answer>,
    /// What is sent again.
    pub(super) resends: Batches<Sent, Result<(), TransportError>>,
}

impl EndpointQueue {
    pub(super) fn new(sqs: &Sqs, endpoint: EndpointName, types: &[TypeName], address: Arc<Address>) -> Self {
        Self(Arc::new(End {
            broker: sqs.0.clone(),
            endpoint,
            types: types.to_vec(),
            receiving: AsyncMutex::default(),
            stock: Mutex::default(),
            arrived: Notify::new(),
            is_lost: AtomicBool::new(false),
            deletes: Batches::new(CALLS_MAX),
            changes: Batches::new(CALLS_MAX),
            resends: Batches::new(if address.is_fifo() { 1 } else { CALLS_MAX }),
            address,
        }))
    }
}

#[async_trait]
impl Receiver for EndpointQueue {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, TransportError> {
        let end = &self.0;
        let _alone = end.receiving.lock().await;
        if end.is_lost.load(Ordering::Relaxed) {
            // By an operator, or with a service that has kept nothing. What was in it is gone.
            tracing::warn!(endpoint = %end.endpoint, "the queue was removed, and is declared anew");
            end.broker.addresses.forget(&end.address);
            end.broker.subscribe(&end.endpoint, &end.types).await?;
            end.is_lost.store(false, Ordering::Relaxed);
        }
        loop {
            let arrived = end.arrived.notified();
            // From here on nothing is waited for: a call that is dropped has taken nothing, and what its calls bring is for the next.
            let deliveries = end.given(max.max(1));
            if !deliveries.is_empty() {
                return Ok(deliveries);
            }
            let polls = {
                let mut stock = end.stock();
                if let Some(error) = stock.failed() {
                    return Err(error);
                }
                stock.ask(max.max(1), usize::from(end.broker.options.parallel))
            };
            for poll in polls {
                tokio::spawn(end.clone().poll(poll));
            }
            arrived.await;
        }
    }

    async fn extend(&self, receipts: &[Receipt]) -> Result<(), TransportError> {
        let numbers: Vec<u64> = receipts.iter().filter_map(Receipt::as_number).collect();
        self.0.extend_leases(&numbers).await
    }

    async fn settle(&self, receipt: &Receipt, settlement: Settlement) -> Result<Settled, TransportError> {
        let end = &self.0;
        let Some(number) = receipt.as_number() else { return Ok(Settled::LeaseLost) };
        // The service would take an acknowledgement from whoever had a message before; so a lease that has run out is refused here.
        let Some(held) = end.stock().held(number) else { return Ok(Settled::LeaseLost) };
        let settled = match settlement {
            Settlement::Ack => end.delete(&held.handle).await,
            Settlement::Retry { delay, counts } => end.put_off(&held, delay, counts).await,
            Settlement::DeadLetter { reason } => end.dead_letter(&held, &reason).await,
        };
        // With an error, its lease runs out, and it comes again.
        end.stock().let_go(number);
        settled
    }
}

impl Drop for EndpointQueue {
    /// What was not settled is given back at once, as far as there is time for it: else others wait until its lease runs out.
    fn drop(&mut self) {
        let left = self.0.stock().close();
        self.0.clone().give_back(left.into_iter().map(|held| held.handle).collect());
    }
}

impl End {
    pub(super) fn stock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For how many seconds the service hides a message that is given, or whose lease begins anew.
    pub(super) fn hidden_for(&self) -> i32 {
        whole_seconds(self.broker.options.lease + LEASE_MARGIN)
    }

    /// A call for messages. In a task of its own: one that is dropped while the service answers would leave what it was given
    /// hidden, and nobody would know of it.
    async fn poll(self: Arc<Self>, poll: Poll) {
        let brought = self.brought(poll).await;
        let since = Instant::now();
        let is_closed = self.stock().is_closed;
        let brought = brought.map(|messages| {
            let messages: Vec<Came> = messages.into_iter().filter_map(Came::of).collect();
            if is_closed {
                self.clone().give_back(messages.iter().map(|came| came.handle.clone()).collect());
                return messages.len();
            }
            let count = messages.len();
            for came in messages {
                self.came(came, since);
            }
            count
        });
        self.stock().came(poll, brought);
        self.arrived.notify_waiters();
        self.arrived.notify_one();
    }

    async fn brought(&self, poll: Poll) -> Result<Vec<Message>, TransportError> {
        let (link, options) = (&self.broker.link, &self.broker.options);
        let wait = if poll.waits { options.wait } else { Duration::ZERO };
        let names = [
            System::ApproximateReceiveCount,
            System::ApproximateFirstReceiveTimestamp,
            System::SentTimestamp,
            System::MessageGroupId,
        ];
        let request = link
            .client
            .receive_message()
            .queue_url(&self.address.url)
            .max_number_of_messages(i32::try_from(poll.max).unwrap_or(1))
            .wait_time_seconds(whole_seconds(wait))
            .visibility_timeout(self.hidden_for())
            .message_attribute_names("All")
            .set_message_system_attribute_names(Some(names.to_vec()));
        match link.ask(Asking::receiving(RECEIVING, wait), || request.clone().send()).await {
            Ok(answer) => Ok(answer.messages.unwrap_or_default()),
            Err(Failed::Refused(refused @ ReceiveMessageError::QueueDoesNotExist(_))) => {
                self.is_lost.store(true, Ordering::Relaxed);
                Err(refusal(RECEIVING, link.place(), refused))
            }
            Err(failed) => Err(link.failed(RECEIVING, failed)),
        }
    }

    /// A message for the endpoint, unless it is none, or not due yet.
    fn came(self: &Arc<Self>, came: Came, since: Instant) {
        let until = since + self.broker.options.lease;
        match came.envelope() {
            Ok(envelope) => {
                let not_before = came.not_before(&envelope);
                let now = Timestamp::now();
                if let Some(time) = not_before.filter(|time| now.after(EARLY) < *time) {
                    let wait = time.since(now).min(PUT_OFF_MAX);
                    self.in_a_task("putting off a message that is not due", move |end| async move {
                        end.hide(&came.handle, wait).await
                    });
                    return;
                }
                let attempts = came.attempts(not_before, EARLY);
                let Came { handle, group, .. } = came;
                self.stock().ready(Held { handle, envelope: envelope.into(), attempts, group, since, until });
            }
            Err(problem) => {
                let reason = reason_of(&problem);
                tracing::error!(endpoint = %self.endpoint, reason, "a message that cannot be read is set aside among the dead letters");
                self.in_a_task("setting a message aside", move |end| async move {
                    let letter = Letter::of_none(&came, &reason, &end.endpoint);
                    end.broker.put_letter(super::settle::SETTLING, &end.endpoint, letter).await?;
                    end.delete(&came.handle).await
                });
            }
        }
    }

    /// What can be given now.
    fn given(self: &Arc<Self>, max: usize) -> Vec<Delivery> {
        let refreshed_after = self.broker.options.lease / REFRESHED_AFTER;
        let (deliveries, refresh) = self.stock().give(max, refreshed_after);
        if !refresh.is_empty() {
            // They have waited here, and whoever has them now may count on a whole lease.
            let end = self.clone();
            tokio::spawn(async move { drop(end.extend_leases(&refresh).await) });
        }
        deliveries
    }

    async fn dead_letter(self: &Arc<Self>, held: &Held, reason: &str) -> Answer {
        let letter = Letter::of_message(held, &self.endpoint, reason, &self.broker.options.written_as);
        self.broker.put_letter(super::settle::SETTLING, &self.endpoint, letter).await?;
        self.delete(&held.handle).await
    }

    /// Ends leases at once, for nobody here has the messages. It is counted that they were given.
    fn give_back(self: Arc<Self>, handles: Vec<String>) {
        let (false, Ok(runtime)) = (handles.is_empty(), Handle::try_current()) else { return };
        runtime.spawn(async move {
            for some in handles.chunks(TOGETHER_MAX) {
                let changes: Vec<(String, i32)> = some.iter().map(|handle| (handle.clone(), 0)).collect();
                if let Err(error) = self.hidden("giving messages back", &changes).await {
                    tracing::debug!(%error, endpoint = %self.endpoint, "giving messages back failed; their leases will run out");
                    return;
                }
            }
        });
    }

    /// Does what nobody waits for. If it fails, the lease runs out, and it is tried again.
    fn in_a_task<F>(self: &Arc<Self>, what: &'static str, work: impl FnOnce(Arc<Self>) -> F)
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        let work = work(self.clone());
        tokio::spawn(async move {
            if let Err(error) = work.await {
                tracing::warn!(?error, "{what} failed; tried again once its lease has run out");
            }
        });
    }
}

impl fmt::Debug for EndpointQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointQueue").field("endpoint", &self.0.endpoint).finish_non_exhaustive()
    }
}
