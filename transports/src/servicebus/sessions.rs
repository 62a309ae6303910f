//! Messages in order: those of one partition key are a session of the service, which one process has at a time. Of each session that is here one
//! message comes at a time, and the next once that is settled; when no more comes for a moment, the next session that nobody has is asked for.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use fe2o3_amqp::{
    Receiver,
    link::{LinkStateError, RecvError, delivery::DeliveryInfo},
    session::SessionHandle,
    types::{
        definitions::ErrorCondition,
        messaging::{Body, Released},
        primitives::Value,
    },
};
use hapax_core::ports::{Settled, TransportError};
use tokio::{
    select,
    sync::mpsc,
    time::{Instant, sleep, timeout},
};

use super::{
    ServiceBus,
    errors::{gone, late, of_begin, of_recv},
    link::Linked,
    pump::{Came, Coming, Order, Orders, Pump, RECEIVING},
};

/// Sessions that an endpoint has at a time, if it may have as many messages: each of them is a link, and one message is handled of each.
const SESSIONS_MAX: u16 = 32;
/// With nothing for so long a session is left to whoever wants it: others may wait, of which nothing is heard until then.
const QUIET: Duration = Duration::from_millis(250);
/// For taking leave of a session, and of the connection. Beyond it the connection is dropped.
const LEAVE: Duration = Duration::from_secs(5);
/// After the service had none to give. The driver answers twice then, the second time a moment later, and that would end a link that was asked for at
/// once: it has the same number.
const REST: Duration = Duration::from_millis(100);
/// What the service says when it ends a link whose session has no lock any more.
const LOST: &str = "com.microsoft:session-lock-lost";
/// Part of a lease after which a session is left and asked for again, if nothing of it is being handled: a message is to come under most of a lock.
const STALE_AFTER: u32 = 3;

/// The lock of a session.
pub(super) struct SessionLock {
    id: String,
    began: Mutex<Instant>,
}

impl SessionLock {
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    fn began(&self) -> Instant {
        *self.began.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begins_anew(&self, at: Instant) {
        let mut began = self.began.lock().unwrap_or_else(PoisonError::into_inner);
        *began = at.max(*began);
    }
}

impl Pump {
    /// Messages from `address` in order, of as many sessions at a time as there may be messages that are not settled.
    pub(super) async fn of_sessions(bus: &ServiceBus, address: &str, prefetch: u16) -> Result<Self, TransportError> {
        let link = &bus.0.link;
        let mut linked = link.connect().await?;
        let mut handles = Vec::new();
        for _ in 0..prefetch.min(SESSIONS_MAX) {
            let begun = match timeout(link.patience, linked.another_session()).await {
                Ok(begun) => begun.map_err(|e| of_begin(RECEIVING, link.place(), &e)),
                Err(_) => Err(late(RECEIVING, link.place(), link.patience, false)),
            };
            handles.push(begun?);
        }
        let (linked, (came_here, came)) = (Arc::new(linked), mpsc::unbounded_channel());
        for session in handles {
            let (bus, address, came, linked) = (bus.clone(), address.to_owned(), came_here.clone(), linked.clone());
            tokio::spawn(Task { session, bus, address, came, _linked: linked }.run());
        }
        Ok(Self { came })
    }
}

/// Has one session after the other.
struct Task {
    // Of AMQP. Before its connection, which ends with the last of them.
    session: SessionHandle<()>,
    bus: ServiceBus,
    address: String,
    came: mpsc::UnboundedSender<Coming>,
    _linked: Arc<Linked>,
}

impl Task {
    async fn run(mut self) {
        match self.all().await {
            // What was written before goes before.
            Ok(()) => drop(timeout(LEAVE, self.session.end()).await),
            // Who asks may be gone.
            Err(error) => drop(self.came.send(Err(error))),
        }
    }

    /// Until nobody asks any more, or why nothing comes any more.
    async fn all(&mut self) -> Result<(), TransportError> {
        loop {
            let next = select! {
                () = self.came.closed() => return Ok(()),
                next = self.bus.0.link.session_receiver(RECEIVING, &mut self.session, &self.address) => next?,
            };
            // There was none for a while.
            let Some((receiver, id)) = next else {
                sleep(REST).await;
                continue;
            };
            let lock = Arc::new(SessionLock { id, began: Mutex::new(Instant::now()) });
            if !self.one(receiver, &lock).await? {
                return Ok(());
            }
        }
    }

    /// Until the session is left; whether anybody asks any more.
    async fn one(&self, mut receiver: Receiver, lock: &Arc<SessionLock>) -> Result<bool, TransportError> {
        let (place, patience) = (self.bus.0.link.place(), self.bus.0.link.patience);
        let stale = self.bus.0.options.lease() / STALE_AFTER;
        let (orders, mut orders_here) = mpsc::unbounded_channel::<Order>();
        let settled_by = Orders::new(orders);
        let mut held: Option<DeliveryInfo> = None;
        let goes_on = loop {
            if held.is_none() {
                if lock.began().elapsed() > stale {
                    break true;
                }
                if receiver.credit() == 0 {
                    match timeout(patience, receiver.set_credit(1)).await {
                        Ok(given) => given.map_err(|_| gone(RECEIVING, place, None, false))?,
                        Err(_) => return Err(late(RECEIVING, place, patience, false)),
                    }
                }
            }
            select! {
                () = self.came.closed() => break false,
                order = orders_here.recv() => {
                    // There is always one more who can give some: this task.
                    if let Some(order) = order {
                        self.obey(&receiver, &mut held, order).await?;
                    }
                }
                given = receiver.recv::<Body<Value>>() => {
                    let came = match given {
                        Ok(delivery) => {
                            let (info, message) = delivery.into_parts();
                            let (at, session) = (lock.began(), Some(lock.clone()));
                            Came::Message { info, message: Box::new(message), at, session }
                        }
                        Err(RecvError::MessageDecode(error)) => Came::Unreadable { info: error.info },
                        // What was given of it is somebody else's by now, or will be.
                        Err(error) if is_lost(&error) => return Ok(true),
                        Err(error) => return Err(of_recv(RECEIVING, place, &error)),
                    };
                    let (Came::Message { info, .. } | Came::Unreadable { info }) = &came;
                    held = Some(info.clone());
                    // Who asks may be gone, which is seen next.
                    let _ = self.came.send(Ok((came, settled_by.clone())));
                }
                () = sleep(QUIET), if held.is_none() => break true,
            }
        };
        let left = async {
            // What was asked for before is done before. Each step is of use only after the one before.
            while let Ok(order) = orders_here.try_recv() {
                self.obey(&receiver, &mut held, order).await.ok()?;
            }
            if let Some(info) = held.take() {
                receiver.dispose(info, Released {}).await.ok()?;
            }
            receiver.close().await.ok()
        };
        match timeout(LEAVE, left).await {
            Ok(Some(())) => Ok(goes_on),
            // Its lock is not known to have been left.
            _ if goes_on => Err(gone(RECEIVING, place, None, false)),
            _ => Ok(false),
        }
    }

    async fn obey(
        &self,
        receiver: &Receiver,
        held: &mut Option<DeliveryInfo>,
        Order { info, state, answer }: Order,
    ) -> Result<(), TransportError> {
        let (place, patience) = (self.bus.0.link.place(), self.bus.0.link.patience);
        // It has been given back since.
        if held.as_ref().is_none_or(|held| held.delivery_id() != info.delivery_id()) {
            let _ = answer.send(Settled::LeaseLost);
            return Ok(());
        }
        *held = None;
        match timeout(patience, receiver.dispose(info, state)).await {
            // Who asked may be gone.
            Ok(Ok(())) => drop(answer.send(Settled::Done)),
            // Not answered: what became of it is not known.
            Ok(Err(_)) => return Err(gone(RECEIVING, place, None, false)),
            Err(_) => return Err(late(RECEIVING, place, patience, false)),
        }
        Ok(())
    }
}

/// The session is over, and nothing else with it.
fn is_lost(error: &RecvError) -> bool {
    let RecvError::LinkStateError(
        LinkStateError::RemoteClosedWithError(said) | LinkStateError::RemoteDetachedWithError(said),
    ) = error
    else {
        return false;
    };
    matches!(&said.condition, ErrorCondition::Custom(name) if name.as_str() == LOST)
}
