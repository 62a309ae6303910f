//! A link on which messages come, in a task of its own: the driver lets one at a time receive and settle on it.

use std::{collections::HashMap, sync::Arc, time::Duration};

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
    errors::{gone, late, of_recv},
    link::{Link, Linked},
    message::Carried,
    sessions::SessionLock,
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
        /// Since when it is locked.
        at: Instant,
        /// Where it is its session that is.
        session: Option<Arc<SessionLock>>,
    },
    /// It is no message of AMQP.
    Unreadable { info: DeliveryInfo },
}

/// Its other end. Dropped, what is not settled is given back.
pub(super) struct Pump {
    /// What comes, with where it is settled, and why nothing does any more. No more than credit was given for.
    pub(super) came: mpsc::UnboundedReceiver<Coming>,
}

/// Something that has come, or why nothing comes any more.
pub(super) type Coming = Result<(Came, Orders), TransportError>;

/// Who has one may settle.
#[derive(Clone)]
pub(super) struct Orders {
    orders: mpsc::UnboundedSender<Order>,
}

/// Of which delivery what is to become.
pub(super) struct Order {
    pub(super) info: DeliveryInfo,
    pub(super) state: TerminalDeliveryState,
    pub(super) answer: oneshot::Sender<Settled>,
}

impl Orders {
    pub(super) fn new(orders: mpsc::UnboundedSender<Order>) -> Self {
        Self { orders }
    }

    /// Says what becomes of a delivery. Written is all that can be known of it: AMQP answers no settlement of this kind. Whoever asks is
    /// answered in time: each step of the link's task has a time limit, and the answers end with the task.
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
            Ok(settled) => Ok(settled),
            Err(_) => Err(TransportError::new(ErrorKind::UnknownOutcome, SETTLING, "the link ended meanwhile")),
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
        let task = Task {
            receiver,
            linked,
            place: link.place().to_owned(),
            patience: link.patience,
            prefetch,
            came: came_here,
            orders: orders_here,
            settled_by: Orders::new(orders),
            held: HashMap::new(),
        };
        tokio::spawn(task.run());
        Ok(Self { came })
    }
}

struct Task {
    // Before its connection.
    receiver: Receiver,
    linked: Linked,
    place: String,
    patience: Duration,
    prefetch: u32,
    came: mpsc::UnboundedSender<Coming>,
    orders: mpsc::UnboundedReceiver<Order>,
    settled_by: Orders,
    /// What is not settled, by the number of its delivery.
    held: HashMap<u32, DeliveryInfo>,
}

impl Task {
    async fn run(mut self) {
        let ended = self.pumped().await;
        match ended {
            Ok(()) => self.leave().await,
            // Who asks may be gone.
            Err(error) => drop(self.came.send(Err(error))),
        }
    }

    /// Until nobody asks any more, or why nothing comes any more.
    async fn pumped(&mut self) -> Result<(), TransportError> {
        loop {
            self.give_credit().await?;
            select! {
                () = self.came.closed() => return Ok(()),
                order = self.orders.recv() => match order {
                    Some(order) => self.obey(order).await?,
                    None => return Ok(()),
                },
                given = self.receiver.recv::<Body<Value>>() => {
                    let at = Instant::now();
                    let came = match given {
                        Ok(delivery) => {
                            let (info, message) = delivery.into_parts();
                            Came::Message { info, message: Box::new(message), at, session: None }
                        }
                        Err(RecvError::MessageDecode(error)) => Came::Unreadable { info: error.info },
                        Err(error) => return Err(of_recv(RECEIVING, &self.place, &error)),
                    };
                    let (Came::Message { info, .. } | Came::Unreadable { info }) = &came;
                    self.held.insert(info.delivery_id(), info.clone());
                    // Who asks may be gone, which is seen next.
                    let _ = self.came.send(Ok((came, self.settled_by.clone())));
                }
            }
        }
    }

    /// For as many as there is room for, once none are under way. A server answers with how many it has sent, and the driver takes that for how
    /// many have come: with some on their way it would give credit for them twice, and then end the link, since more come than it counts on.
    async fn give_credit(&mut self) -> Result<(), TransportError> {
        let held = u32::try_from(self.held.len()).unwrap_or(u32::MAX);
        let room = self.prefetch.saturating_sub(held);
        if room == 0 || self.receiver.credit() > 0 {
            return Ok(());
        }
        match timeout(self.patience, self.receiver.set_credit(room)).await {
            Ok(given) => given.map_err(|_| gone(RECEIVING, &self.place, None, false)),
            Err(_) => Err(late(RECEIVING, &self.place, self.patience, false)),
        }
    }

    async fn obey(&mut self, Order { info, state, answer }: Order) -> Result<(), TransportError> {
        // It has been given back since, and the driver would say that all is well.
        if self.held.remove(&info.delivery_id()).is_none() {
            let _ = answer.send(Settled::LeaseLost);
            return Ok(());
        }
        match timeout(self.patience, self.receiver.dispose(info, state)).await {
            // Who asked may be gone.
            Ok(Ok(())) => drop(answer.send(Settled::Done)),
            // Not answered: what became of it is not known.
            Ok(Err(_)) => return Err(gone(RECEIVING, &self.place, None, false)),
            Err(_) => return Err(late(RECEIVING, &self.place, self.patience, false)),
        }
        Ok(())
    }

    /// Gives back what is not settled: a service that locks messages would keep them from all others until their locks run out. What was
    /// asked for before is done before.
    async fn leave(mut self) {
        let left = async {
            // Each step is of use only after the one before.
            while let Ok(order) = self.orders.try_recv() {
                self.obey(order).await.ok()?;
            }
            let Self { mut receiver, linked, held, .. } = self;
            receiver.set_credit(0).await.ok()?;
            receiver.release_all(held.into_values().collect::<Vec<_>>()).await.ok()?;
            linked.close().await
        };
        // Beyond it the connection is dropped.
        let _ = timeout(LEAVE, left).await;
    }
}
