//! Channels to publish on, each lent to one call: the client mixes up what was returned with what was confirmed on a shared one.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hapax_core::ports::{ErrorKind, TransportError};
use lapin::{Channel, options::ConfirmSelectOptions};
use tokio::{
    sync::{Mutex as AsyncMutex, Semaphore, SemaphorePermit},
    time::{Instant, timeout},
};

use super::{
    errors::{error_of, late},
    link::{Link, Linked},
};

/// Calls that publish at a time, each on a channel of its own. Default 64: a confirmation takes some milliseconds, and
/// servers are asked for no more than a few channels by one connection.
const CHANNELS: usize = 64;
/// After a connection could not be made, none is tried for as long: else each message that waits would wait for a try.
const REST: Duration = Duration::from_millis(500);

const OPENING: &str = "opening a channel";

/// The connection that messages are published on.
///
/// Each call has a channel to itself until all of its messages are confirmed. The driver hands a message that the server
/// has returned to whichever confirmation of the channel comes next: on a shared one, a message that went nowhere would
/// be taken for sent, and another for returned.
pub(super) struct Publisher {
    current: AsyncMutex<Current>,
    permits: Semaphore,
    patience: Duration,
}

#[derive(Default)]
struct Current {
    open: Option<Arc<Open>>,
    /// When a connection could not be made, and why.
    failed: Option<(Instant, ErrorKind, String)>,
}

pub(super) struct Open {
    pub(super) connection: Linked,
    idle: Mutex<Vec<Channel>>,
    /// A call was given up whose messages may still be waiting to be written. The driver writes that their channel is closed before them,
    /// and the server would end the connection under all others: so the next call gets another one.
    is_spoiled: AtomicBool,
}

/// A channel that nobody else publishes on. Dropped, it is closed, with whatever is unconfirmed on it.
pub(super) struct Lent<'p> {
    pub(super) channel: Channel,
    open: Arc<Open>,
    /// Messages of the call are on their way, and their confirmations.
    is_under_way: bool,
    _permit: SemaphorePermit<'p>,
}

impl Lent<'_> {
    /// What is dropped from now on, before [`Lent::ended`], is dropped in the middle.
    pub(super) const fn begin(&mut self) {
        self.is_under_way = true;
    }

    /// The driver has said how it ended.
    pub(super) const fn ended(&mut self) {
        self.is_under_way = false;
    }

    /// For the next call: everything on it is confirmed.
    pub(super) fn give_back(self) {
        self.open.idle.lock().unwrap_or_else(PoisonError::into_inner).push(self.channel.clone());
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if self.is_under_way {
            self.open.is_spoiled.store(true, Ordering::Relaxed);
        }
    }
}

impl Publisher {
    pub(super) fn new(patience: Duration) -> Self {
        Self { current: AsyncMutex::default(), permits: Semaphore::new(CHANNELS), patience }
    }

    /// The connection, made anew if it was lost.
    pub(super) async fn open(&self, link: &Link) -> Result<Arc<Open>, TransportError> {
        let mut current = self.current.lock().await;
        if let Some(open) = &current.open
            && open.connection.status().connected()
            && !open.is_spoiled.load(Ordering::Relaxed)
        {
            return Ok(open.clone());
        }
        current.open = None;
        if let Some((when, kind, why)) = &current.failed
            && when.elapsed() < REST
        {
            return Err(TransportError::new(*kind, super::link::CONNECTING, why.clone()));
        }
        match link.connect().await {
            Ok(connection) => {
                let open = Arc::new(Open { connection, idle: Mutex::default(), is_spoiled: AtomicBool::new(false) });
                *current = Current { open: Some(open.clone()), failed: None };
                Ok(open)
            }
            Err(e) => {
                current.failed = Some((Instant::now(), e.kind(), format!("a moment ago: {e}")));
                Err(e)
            }
        }
    }

    /// A channel on which confirmations are asked for.
    pub(super) async fn channel(&self, link: &Link) -> Result<Lent<'_>, TransportError> {
        let stopped = || TransportError::new(ErrorKind::Unavailable, OPENING, "the transport has been closed");
        let permit = match timeout(self.patience, self.permits.acquire()).await {
            Ok(permit) => permit.map_err(|_| stopped())?,
            Err(_) => return Err(late(OPENING, link.place(), self.patience, false)),
        };
        let open = self.open(link).await?;
        let idle = || open.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        while let Some(channel) = idle() {
            if channel.status().connected() {
                return Ok(Lent { channel, open, is_under_way: false, _permit: permit });
            }
        }
        let made = async {
            let channel = open.connection.create_channel().await?;
            channel.confirm_select(ConfirmSelectOptions::default()).await?;
            Ok(channel)
        };
        match timeout(self.patience, made).await {
            Ok(made) => {
                let channel = made.map_err(|e| error_of(OPENING, link.place(), e, false))?;
                Ok(Lent { channel, open, is_under_way: false, _permit: permit })
            }
            Err(_) => Err(late(OPENING, link.place(), self.patience, false)),
        }
    }
}
