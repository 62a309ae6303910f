//! A peer that behaves as Azure Service Bus documents itself, over AMQP 1.0 on a port of this machine: what is the service's own can be shown
//! against it, as far as the documents are right and were understood. It is no proof of the service.
//!
//! It speaks in frames of the driver's, below its links: a lock token is a delivery's tag, which the driver's own acceptor does not let choose.

mod connection;
mod management;
mod namespace;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use connection::Connection;
use fe2o3_amqp::{frames::amqp::Frame, transport::Transport};
use futures_util::{SinkExt, StreamExt};
use namespace::{Namespace, SUB_QUEUE};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
};

use super::rig::{Queues, Tool, options_at};

/// Whoever has them is let in.
const KEY_NAME: &str = "hapax-test";
const KEY: &str = "let me in";
/// How often it looks whether locks have run out and messages are due.
const TICK: Duration = Duration::from_millis(10);
/// Before the other side takes the connection for lost.
const HEARTBEAT: Duration = Duration::from_secs(10);
const FRAME_BYTES_MAX: u32 = 256 << 10;

/// SASL by hand: the header, and PLAIN as the one mechanism.
const SASL: [u8; 8] = *b"AMQP\x03\x01\x00\x00";
const AMQP: [u8; 8] = *b"AMQP\x00\x01\x00\x00";
const MECHANISMS: &[u8] = b"\x00\x00\x00\x18\x02\x01\x00\x00\x00\x53\x40\xc0\x0b\x01\xe0\x08\x01\xa3\x05PLAIN";
/// An outcome without its last byte, the code.
const OUTCOME: &[u8] = b"\x00\x00\x00\x10\x02\x01\x00\x00\x00\x53\x44\xc0\x03\x01\x50";

/// It answers at once, or never.
const PATIENCE: Duration = Duration::from_secs(5);

type Shared = Arc<Mutex<Namespace>>;

/// A namespace that is there for as long as the runtime that it was started on. Cloning gives another handle to it.
#[derive(Clone)]
pub(crate) struct Peer {
    port: u16,
    shared: Shared,
    /// Each new number cuts all connections that are there.
    cuts: Arc<watch::Sender<u64>>,
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").field("port", &self.port).finish_non_exhaustive()
    }
}

impl Tool for Peer {
    fn run(&self, commands: &str) {
        let mut namespace = locked(&self.shared);
        commands.lines().for_each(|command| namespace.declare(command));
    }
}

fn locked(shared: &Shared) -> MutexGuard<'_, Namespace> {
    shared.lock().unwrap()
}

impl Peer {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let (port, shared) = (listener.local_addr().unwrap().port(), Shared::default());
        let (cuts, cut) = watch::channel(0);
        let (here, ticking) = (shared.clone(), shared.clone());
        tokio::spawn(async move {
            for number in 0.. {
                let Ok((stream, _)) = listener.accept().await else { return };
                let (shared, mut cut) = (here.clone(), cut.clone());
                cut.mark_unchanged();
                tokio::spawn(async move {
                    tokio::select! {
                        _ = serve(stream, number, shared.clone()) => {}
                        _ = cut.changed() => {}
                    }
                    locked(&shared).leave(false, |place| place.connection == number);
                });
            }
        });
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(TICK).await;
                locked(&ticking).tick();
            }
        });
        Self { port, shared, cuts: Arc::new(cuts) }
    }

    /// As the service's emulator has them.
    pub(crate) fn connection_string(&self) -> String {
        let port = self.port;
        format!(
            "Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName={KEY_NAME};SharedAccessKey={KEY};UseDevelopmentEmulator=true"
        )
    }

    /// Queues here, in order by partition key or not.
    pub(crate) async fn queues(&self, ordered: bool) -> Queues {
        let url = self.connection_string();
        let options = options_at(&url).patience(PATIENCE).ordered_keys(ordered);
        Queues::with(options, url, Arc::new(self.clone())).await
    }

    /// Cuts all connections. What was given on them is locked for as long as its locks last.
    pub(crate) fn cut(&self) {
        self.cuts.send_modify(|number| *number += 1);
    }

    /// From now on whoever gives back what is in `queue` is one that died before: nothing was heard of it.
    pub(crate) fn hears_no_release(&self, queue: &str) {
        locked(&self.shared).hears_no_release(queue);
    }

    /// Ends the lock of the first message in `queue`.
    pub(crate) fn lapse(&self, queue: &str) {
        locked(&self.shared).lapse(queue);
    }

    pub(crate) fn seen(&self, queue: &str) -> namespace::Seen {
        locked(&self.shared).seen(queue)
    }

    /// Of each message in the sub-queue of `queue`, the application property `property`.
    pub(crate) fn told_of_set_aside(&self, queue: &str, property: &str) -> Vec<Option<String>> {
        locked(&self.shared).told(&format!("{queue}{SUB_QUEUE}"), property)
    }
}

/// Nothing where the connection has ended, as it pleases.
async fn serve(mut stream: TcpStream, number: u64, shared: Shared) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let_in(&mut stream).await?;
    let frames = Transport::<TcpStream, Frame>::bind(stream, FRAME_BYTES_MAX as usize, None);
    let (gives, mut given) = mpsc::unbounded_channel();
    let mut connection = Connection { number, frames, shared, gives, sessions: HashMap::new() };
    let mut heartbeat = tokio::time::interval(HEARTBEAT);
    // The first is at once, and nothing may come before the connection is open.
    heartbeat.tick().await;
    loop {
        tokio::select! {
            frame = connection.frames.next() => {
                let frame = frame?.ok()?;
                connection.take(frame.channel, frame.body).await?;
            }
            given = given.recv() => connection.give(given?).await?,
            _ = heartbeat.tick() => connection.frames.send(Frame::empty()).await.ok()?,
        }
    }
}

async fn let_in(stream: &mut TcpStream) -> Option<()> {
    let mut header = [0; 8];
    stream.read_exact(&mut header).await.ok()?;
    assert_eq!(header, SASL, "it does not begin with SASL");
    stream.write_all(&SASL).await.ok()?;
    stream.write_all(MECHANISMS).await.ok()?;
    let mut size = [0; 4];
    stream.read_exact(&mut size).await.ok()?;
    let mut init = vec![0; usize::try_from(u32::from_be_bytes(size)).unwrap().checked_sub(4)?];
    stream.read_exact(&mut init).await.ok()?;
    let expected = format!("\0{KEY_NAME}\0{KEY}").into_bytes();
    let is_in = init.windows(expected.len()).any(|bytes| bytes == expected);
    stream.write_all(OUTCOME).await.ok()?;
    stream.write_all(&[u8::from(!is_in)]).await.ok()?;
    if !is_in {
        return None;
    }
    stream.read_exact(&mut header).await.ok()?;
    assert_eq!(header, AMQP, "it does not go on with AMQP");
    stream.write_all(&AMQP).await.ok()
}
