//! A link on which messages come, in a task of its own: the driver lets one at a time receive and settle on it.

use std::{collections::HashMap, time::Duration};

use fe2o3_amqp::{
    Receiver,
    link::{RecvError, delivery::DeliveryInfo, receiver::TerminalDeliveryState},
    types::{
        messaging::{Body, Released},
        primitives::Value,
    },
};
use hapax_core::ports::{ErrorKind, Settled, TransportError};
use tokio::{
    select,
    sync::{mpsc, oneshot},
    time::{Instant, timeout},
};

use super::{
    errors::{gone, of_recv},
    link::{Link, Linked},
    message::Carried,
};

pub(super) const RECEIVING: &str = "receiving messages";
pub(super) const SETTLING: &str = "settling a message";
/// For giving back what is not settled, and taking leave. Beyond it the connection is dropped.
const LEAVE: Duration = Duration::from_secs(5);

/// What has come.
pub(super) enum Came {
    Message {
        info: DeliveryInfo,
        message: Box<Carried>,
        at: Instant,
    },
    /// It is no message of AMQP.
    Unreadable {
        info: DeliveryInfo,
        why: String,
    },
}

/// Its other end. Dropped, what is not settled is given back.
pub(super) struct Pump {
    /// What comes, and why nothing does any more. No more than credit was given for.
    pub(super) came: mpsc::UnboundedReceiver<Result<Came, TransportError>>,
    pub(super) orders: Orders,
}

/// Who has one may settle.
#[derive(Clone)]
pub(super) struct Orders {
    orders: mpsc::UnboundedSender<Order>,
}

struct Order {
    info: DeliveryInfo,
    state: TerminalDeliveryState,
    answer: oneshot::Sender<bool>,
}

impl Orders {
    /// Says what becomes of a delivery. Written is all that can be known of it: AMQP answers no settlement of this kind.
    pub(super) async fn settle(
        &self,
        info: &DeliveryInfo,
        state: TerminalDeliveryState,
    ) -> Result<Settled, TransportError> {
        let (answer, answered) = oneshot::channel();
        // The link has ended, and its deliveries with it.
        if self.orders.send(Order { info: info.clone(), state, answer }).is_err() {
            return Ok(Settled::LeaseLost);
        }
        match answered.await {
            Ok(true) => Ok(Settled::Done),
            Ok(false) | Err(_) => {
                let why = "the link ended meanwhile";
                Err(TransportError::new(ErrorKind::UnknownOutcome, SETTLING, why))
            }
        }
    }

    /// The same for what nobody waits for.
    pub(super) fn give_back(&self, info: &DeliveryInfo) {
        let (answer, _) = oneshot::channel();
        // If the link has ended, it is given back already.
        let _ = self.orders.send(Order { info: info.clone(), state: Released {}.into(), answer });
    }
}

impl Pump {
    /// Messages from `address`, up to `prefetch` that are not settled.
    pub(super) async fn begin(link: &Link, address: &str, prefetch: u32) -> Result<Self, TransportError> {
        let mut linked = link.connect().await?;
        let receiver = link.receiver(RECEIVING, &mut linked.session, address, None).await?;
        let (came_here, came) = mpsc::unbounded_channel();
        let (orders, orders_here) = mpsc::unbounded_channel();
        let place = link.place().to_owned();
        let task =
            Task { linked, receiver, place, prefetch, came: came_here, orders: orders_here, held: HashMap::new() };
        tokio::spawn(task.run());
        Ok(Self { came, orders: Orders { orders } })
    }
}

struct Task {
    // Before its connection.
    receiver: Receiver,
    linked: Linked,
    place: String,
    prefetch: u32,
    came: mpsc::UnboundedSender<Result<Came, TransportError>>,
    orders: mpsc::UnboundedReceiver<Order>,
    /// What is not settled, by the number of its delivery.
    held: HashMap<u32, DeliveryInfo>,
}

impl Task {
    async fn run(mut self) {
        loop {
            if let Err(error) = self.give_credit().await {
                // Who asks may be gone.
                let _ = self.came.send(Err(error));
                return;
            }
            select! {
                () = self.came.closed() => return self.leave().await,
                order = self.orders.recv() => match order {
                    Some(order) => self.obey(order).await,
                    None => return self.leave().await,
                },
                given = self.receiver.recv::<Body<Value>>() => {
                    let at = Instant::now();
                    let came = match given {
                        Ok(delivery) => {
                            let (info, message) = delivery.into_parts();
                            Came::Message { info, message: Box::new(message), at }
                        }
                        Err(RecvError::MessageDecode(error)) => {
                            let why = format!("it cannot be read as a message of AMQP 1.0: {}", error.source);
                            Came::Unreadable { info: error.info, why }
                        }
                        Err(error) => {
                            let _ = self.came.send(Err(of_recv(RECEIVING, &self.place, &error)));
                            return;
                        }
                    };
                    let (Came::Message { info, .. } | Came::Unreadable { info, .. }) = &came;
                    self.held.insert(info.delivery_id(), info.clone());
                    let _ = self.came.send(Ok(came));
                }
            }
        }
    }

    /// For as many as there is room for, once there is room for half of what may be held.
    async fn give_credit(&mut self) -> Result<(), TransportError> {
        let held = u32::try_from(self.held.len()).unwrap_or(u32::MAX);
        let (room, credit) = (self.prefetch.saturating_sub(held), self.receiver.credit());
        if credit >= room || credit > self.prefetch / 2 {
            return Ok(());
        }
        let given = self.receiver.set_credit(room).await;
        given.map_err(|_| gone(RECEIVING, &self.place, None, false))
    }

    async fn obey(&mut self, Order { info, state, answer }: Order) {
        self.held.remove(&info.delivery_id());
        let done = self.receiver.dispose(info, state).await.is_ok();
        // Who asked may be gone.
        let _ = answer.send(done);
    }

    /// Gives back what is not settled: a service that locks messages would keep them from all others until their locks run out.
    async fn leave(self) {
        let Self { mut receiver, linked, held, .. } = self;
        let left = async {
            // Each step is of use only after the one before.
            receiver.set_credit(0).await.ok()?;
            receiver.release_all(held.into_values().collect::<Vec<_>>()).await.ok()?;
            receiver.close().await.ok()?;
            linked.close().await;
            Some(())
        };
        let _ = timeout(LEAVE, left).await;
    }
}
