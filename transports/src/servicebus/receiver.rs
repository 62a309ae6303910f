//! An endpoint's end of a queue: messages come on a link of its own; where the server locks them leases are renewed, and else they last as long as
//! the connection. Where order is kept they come of several sessions, from each of them one at a time.

mod extending;

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use fe2o3_amqp::{
    link::{delivery::DeliveryInfo, receiver::TerminalDeliveryState},
    types::{
        definitions::{Error as Said, ErrorCondition, Fields},
        messaging::{Accepted, Modified, Rejected, Released},
        primitives::{Symbol, Value},
    },
};
use hapax_core::{
    envelope::Envelope,
    ids::EndpointName,
    ports::{Delivery, Receipt, Receiver, Settled, Settlement, TransportError},
    time::Timestamp,
};
use tokio::{
    sync::{Mutex as AsyncMutex, mpsc::error::TryRecvError},
    time::{Instant, timeout},
};

use super::{
    ServiceBus,
    address::Server,
    errors::gone,
    letters::letter_extras,
    message::{Carried, Extras, REASONS, as_letter, attempts_of, cut, envelope_of},
    pump::{Came, Orders, Pump, RECEIVING, SETTLING},
    renewal::{Renewal, Token, token_of},
    sessions::SessionLock,
};

/// Part of a lease after which what has waited here has it renewed when it is given: whoever has it may count on most of one.
const REFRESHED_AFTER: u32 = 3;
/// Before a message that could not be put where it belongs is given back, from where it comes again at once.
const REST: Duration = Duration::from_secs(1);
/// How often who waits for messages looks whether leases have run out that nobody has settled.
const LOOK: Duration = Duration::from_secs(5);
/// Why what the driver cannot read is no message. What it says of that may hold some of the message.
const UNREADABLE: &str = "it cannot be read as a message of AMQP 1.0";
/// What the service is told when a message is to go to the sub-queue of dead letters.
const DEAD_LETTER: &str = "com.microsoft:dead-letter";

/// One endpoint's end of a queue, with a connection of its own.
pub(super) struct EndpointQueue(Arc<End>);

struct End {
    bus: ServiceBus,
    endpoint: EndpointName,
    pump: AsyncMutex<Option<Pump>>,
    held: Mutex<HashMap<u64, Held>>,
    next: AtomicU64,
    renewal: Renewal,
}

/// A message that is not settled.
#[derive(Clone)]
struct Held {
    info: DeliveryInfo,
    token: Option<Token>,
    /// Where it is its session that is locked.
    session: Option<Arc<SessionLock>>,
    envelope: Arc<Envelope>,
    attempts: u32,
    /// When its lease ends, where it does before its connection.
    until: Option<Instant>,
    orders: Orders,
}

impl Held {
    fn is_lost(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }
}

impl EndpointQueue {
    /// It begins to receive when it is first asked for messages: the server hands them out to whoever has given credit, and those that
    /// one holds who never asks would be kept from all others.
    pub(super) fn new(bus: ServiceBus, endpoint: EndpointName) -> Self {
        Self(Arc::new(End {
            bus,
            endpoint,
            pump: AsyncMutex::default(),
            held: Mutex::default(),
            next: AtomicU64::new(1),
            renewal: Renewal::default(),
        }))
    }
}

#[async_trait]
impl Receiver for EndpointQueue {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, TransportError> {
        let (end, max) = (&self.0, max.max(1));
        let mut current = end.pump.lock().await;
        loop {
            let pump = match &mut *current {
                Some(pump) => pump,
                None => current.insert(end.begin().await?),
            };
            // From the first on nothing is waited for: a call that is dropped has taken nothing.
            let mut given = loop {
                match timeout(LOOK, pump.came.recv()).await {
                    Ok(given) => break given,
                    // There may be no credit left for want of settlements.
                    Err(_) => end.forget_lost(),
                }
            };
            let (mut deliveries, mut old) = (Vec::new(), Vec::new());
            let ended = loop {
                match given {
                    Some(Ok((came, orders))) => deliveries.extend(end.take(came, &orders, &mut old)),
                    Some(Err(error)) => break Some(error),
                    None => break Some(gone(RECEIVING, end.bus.0.link.place(), None, false)),
                }
                if deliveries.len() >= max {
                    break None;
                }
                given = match pump.came.try_recv() {
                    Ok(came) => Some(came),
                    Err(TryRecvError::Empty) => break None,
                    Err(TryRecvError::Disconnected) => None,
                };
            };
            // The end is told once. What has come before it is the server's again, like all that is not settled.
            if let Some(error) = ended {
                *current = None;
                end.held().clear();
                return Err(error);
            }
            if !old.is_empty() {
                let end = end.clone();
                tokio::spawn(async move { drop(end.extend(&old).await) });
            }
            if !deliveries.is_empty() {
                return Ok(deliveries);
            }
        }
    }

    /// Where the server locks messages; else leases last as long as the connection.
    async fn extend(&self, receipts: &[Receipt]) -> Result<(), TransportError> {
        let numbers: Vec<u64> = receipts.iter().filter_map(Receipt::as_number).collect();
        self.0.extend(&numbers).await
    }

    async fn settle(&self, receipt: &Receipt, settlement: Settlement) -> Result<Settled, TransportError> {
        let end = &self.0;
        let Some(number) = receipt.as_number() else { return Ok(Settled::LeaseLost) };
        let Some(held) = end.held().get(&number).cloned() else { return Ok(Settled::LeaseLost) };
        if held.is_lost() {
            end.forget(number);
            return Ok(Settled::LeaseLost);
        }
        let settled = end.settle(number, &held, settlement).await;
        end.held().remove(&number);
        if settled.is_err() {
            // What it failed for may last.
            end.give_back_after(held, REST);
        }
        settled
    }
}

impl End {
    fn held(&self) -> MutexGuard<'_, HashMap<u64, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_service(&self) -> bool {
        self.bus.0.names.server() == Server::ServiceBus
    }

    async fn begin(&self) -> Result<Pump, TransportError> {
        let (broker, prefetch) = (&self.bus.0, self.bus.0.options.prefetch);
        let address = broker.names.queue_address(&self.endpoint);
        if broker.options.ordered_keys {
            return Pump::of_sessions(&self.bus, &address, prefetch).await;
        }
        Pump::begin(&broker.link, &address, prefetch.into()).await
    }

    /// A message for the endpoint, unless it is none. One that has waited here for long is among the `old`.
    fn take(self: &Arc<Self>, came: Came, orders: &Orders, old: &mut Vec<u64>) -> Option<Delivery> {
        let (info, message, at, session) = match came {
            Came::Message { info, message, at, session } => (info, message, at, session),
            Came::Unreadable { info } => {
                self.set_aside(info, None, UNREADABLE, orders);
                return None;
            }
        };
        let lease = self.is_service().then(|| self.bus.0.options.lease());
        if lease.is_some_and(|lease| at.elapsed() >= lease) {
            orders.give_back(&info); // It comes again.
            return None;
        }
        match envelope_of(&message, &self.bus.0.names) {
            Ok(envelope) => {
                let (envelope, number) = (Arc::new(envelope), self.next.fetch_add(1, Ordering::Relaxed));
                let attempts = if self.is_service() { attempts_of(&message) } else { 1 };
                if lease.is_some_and(|lease| at.elapsed() > lease / REFRESHED_AFTER) {
                    old.push(number);
                }
                let held = Held {
                    token: token_of(info.delivery_tag()),
                    session,
                    info,
                    envelope: envelope.clone(),
                    attempts,
                    until: lease.map(|lease| at + lease),
                    orders: orders.clone(),
                };
                self.held().insert(number, held);
                Some(Delivery { envelope, receipt: Receipt::number(number), attempts })
            }
            Err(why) => {
                self.set_aside(info, Some(*message), &why, orders);
                None
            }
        }
    }

    /// Ends a delivery. What is not simply ended is first put, confirmed, where it goes, and only then taken from here: a crash in between
    /// leaves two copies, and never none.
    async fn settle(
        self: &Arc<Self>,
        number: u64,
        held: &Held,
        settlement: Settlement,
    ) -> Result<Settled, TransportError> {
        let settle = |state: TerminalDeliveryState| held.orders.settle(&held.info, state);
        match settlement {
            Settlement::Ack => settle(Accepted {}.into()).await,
            Settlement::Retry { delay, counts } if self.is_service() => {
                if delay.is_zero() && counts {
                    let failed =
                        Modified { delivery_failed: Some(true), undeliverable_here: None, message_annotations: None };
                    return settle(failed.into()).await;
                }
                self.again_after(held, delay, counts).await?;
                self.taken_from_here(number, held).await
            }
            Settlement::Retry { delay: Duration::ZERO, .. } => settle(Released {}.into()).await,
            // Nothing is held back there: it stays here, under a lease that lasts as long as the connection.
            Settlement::Retry { delay, .. } => {
                self.give_back_after(held.clone(), delay);
                Ok(Settled::Done)
            }
            Settlement::DeadLetter { reason } if self.is_service() => settle(rejected(&reason).into()).await,
            Settlement::DeadLetter { reason } => {
                let letter = letter_extras(&self.endpoint, None, None, &reason, held.attempts, Timestamp::now());
                self.bus.0.put_letter(SETTLING, &self.endpoint, &held.envelope, letter).await?;
                self.taken_from_here(number, held).await
            }
        }
    }

    /// Ends the delivery of what is elsewhere now. That may have taken as long as its lease: then it comes again from here too.
    async fn taken_from_here(&self, number: u64, held: &Held) -> Result<Settled, TransportError> {
        // Asked for anew, since it may have been extended meanwhile.
        if self.held().get(&number).is_none_or(Held::is_lost) {
            return Ok(Settled::LeaseLost);
        }
        held.orders.settle(&held.info, Accepted {}.into()).await
    }

    /// Another copy, which says how often the message has been given.
    async fn again_after(&self, held: &Held, delay: Duration, counts: bool) -> Result<(), TransportError> {
        let (broker, now) = (&self.bus.0, Timestamp::now());
        let given = if counts { held.attempts } else { held.attempts.saturating_sub(1) };
        let not_before = (!delay.is_zero()).then(|| now.after(delay));
        let extras = Extras { given, is_again: true, not_before, waits: !delay.is_zero(), letter: Vec::new() };
        let copy = broker.carried(&held.envelope, &extras, now);
        broker.publish(SETTLING, &broker.names.queue_address(&self.endpoint), vec![copy]).await.into_iter().collect()
    }

    /// One whose lock has ended there counts no more here, and leaves room for another.
    fn forget(&self, number: u64) {
        if let Some(held) = self.held().remove(&number) {
            held.orders.give_back(&held.info);
        }
    }

    fn forget_lost(&self) {
        self.held().retain(|_, held| {
            let is_lost = held.is_lost();
            if is_lost {
                held.orders.give_back(&held.info);
            }
            !is_lost
        });
    }

    /// What is no message of ours. In a task of its own, since nobody waits for it; if it fails, the message comes again.
    fn set_aside(self: &Arc<Self>, info: DeliveryInfo, message: Option<Carried>, why: &str, orders: &Orders) {
        tracing::error!(endpoint = %self.endpoint, reason = why, "a message that cannot be read is set aside among the dead letters");
        let (end, orders, why) = (self.clone(), orders.clone(), why.to_owned());
        tokio::spawn(async move {
            let done = match message {
                // What such a server does with what is rejected is not known, and this cannot be written again. Kept, it would take the
                // room of others for as long as the connection lasts.
                None if !end.is_service() => {
                    drop(end);
                    tokio::time::sleep(REST).await;
                    return orders.give_back(&info);
                }
                Some(message) if !end.is_service() => {
                    let extras = letter_extras(&end.endpoint, None, None, &why, 1, Timestamp::now());
                    let letter = as_letter(message, &extras);
                    end.bus.0.put_carried(SETTLING, &end.endpoint, letter).await.map(|()| Accepted {}.into())
                }
                _ => Ok(rejected(&why).into()),
            };
            let done = match done {
                Ok(state) => orders.settle(&info, state).await.map(drop),
                Err(e) => Err(e),
            };
            if let Err(error) = done {
                tracing::warn!(?error, "setting a message aside failed; tried again when it comes again");
                drop(end);
                tokio::time::sleep(REST).await;
                orders.give_back(&info);
            }
        });
    }

    /// Gives a message back after a while. If the link is lost, or its lease, it comes again anyway.
    fn give_back_after(self: &Arc<Self>, held: Held, wait: Duration) {
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            held.orders.give_back(&held.info);
        });
    }
}

/// To the sub-queue of dead letters, with the reason.
fn rejected(reason: &str) -> Rejected {
    let texts = REASONS.map(|name| (Symbol::from(name), Value::String(cut(reason).to_owned())));
    let info: Fields = texts.into_iter().collect();
    let condition = ErrorCondition::Custom(Symbol::from(DEAD_LETTER));
    Rejected { error: Some(Said::new(condition, None::<String>, Some(info))) }
}

impl fmt::Debug for EndpointQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointQueue").field("endpoint", &self.0.endpoint).finish_non_exhaustive()
    }
}
