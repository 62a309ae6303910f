//! What stands before Tansu, and passes on each request and each answer.
//!
//! With Kafka, a group that is being formed gets another leader when its leader leaves. With Tansu 0.6 it does not: whoever is left asks to
//! join for ever, and nobody deals partitions. It does get one when its leader falls silent. So here who leaves such a group has
//! only fallen silent.

use std::{
    collections::HashMap,
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use super::groups::{Asked, Deal, Groups, number_of_answer, number_of_request};

/// A coordinator that does not answer for so long does not answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// No request and no answer of a test is larger.
const FRAME_MAX: usize = 256 << 20;

/// It takes no more connections once this goes; those that it has end with the broker.
#[derive(Debug)]
pub(super) struct Front {
    shared: Arc<Shared>,
    port: u16,
}

#[derive(Debug)]
struct Shared {
    to: u16,
    groups: Mutex<Groups>,
    ends: AtomicBool,
}

impl Shared {
    fn groups(&self) -> MutexGuard<'_, Groups> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One client's.
struct Connection {
    client: TcpStream,
    server: TcpStream,
    /// Who reads answers and who has one of its own write in turn.
    to_client: Mutex<TcpStream>,
    deals: Mutex<HashMap<[u8; 4], Deal>>,
    shared: Arc<Shared>,
}

impl Front {
    /// Takes connections at `port`, and makes one to `to` for each.
    ///
    /// # Errors
    /// The port is taken.
    pub(super) fn start(port: u16, to: u16) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port))?;
        let shared = Arc::new(Shared { to, groups: Mutex::default(), ends: AtomicBool::new(false) });
        let lets_in = shared.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                if lets_in.ends.load(Ordering::Acquire) {
                    return;
                }
                let (Ok(client), shared) = (client, lets_in.clone()) else { continue };
                // Who cannot be let in hears that by the end of the connection, as from a broker that is away.
                thread::spawn(move || drop(Connection::passes(client, shared)));
            }
        });
        Ok(Self { shared, port })
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Release);
        // So that it looks.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

impl Connection {
    /// Both ways, until one of the two ends it.
    fn passes(client: TcpStream, shared: Arc<Shared>) -> io::Result<()> {
        let server = TcpStream::connect(("127.0.0.1", shared.to))?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let to_client = Mutex::new(client.try_clone()?);
        let connection = Arc::new(Self { client, server, to_client, deals: Mutex::default(), shared });
        let asks = connection.clone();
        let asking = thread::spawn(move || {
            // Whichever of the two ends.
            let _ = asks.asks();
            asks.ends();
        });
        let answered = connection.answers();
        connection.ends();
        drop(asking.join());
        answered
    }

    fn asks(&self) -> io::Result<()> {
        let (mut from, mut to) = (&self.client, &self.server);
        loop {
            let request = read(&mut from)?;
            // Until it is passed on: what is known of a group is what the broker will have been told, in this order.
            let mut groups = self.shared.groups();
            match groups.asked(&request) {
                Asked::Deals(deal) => {
                    if let Some(number) = number_of_request(&request) {
                        self.deals().insert(number, deal);
                    }
                    write(&mut to, &request)?;
                }
                // Nobody may ask to join before the broker knows of it.
                Asked::Leaves => {
                    let answer = asked_aside(self.shared.to, &request)?;
                    self.tell(&answer)?;
                }
                Asked::LeavesUnformed(answer) => self.tell(&answer)?,
                Asked::OfGroup => write(&mut to, &request)?,
                Asked::Other => {
                    drop(groups);
                    write(&mut to, &request)?;
                }
            }
        }
    }

    fn answers(&self) -> io::Result<()> {
        let mut from = &self.server;
        loop {
            let answer = read(&mut from)?;
            let deal = number_of_answer(&answer).and_then(|number| self.deals().remove(&number));
            if let Some(deal) = deal {
                self.shared.groups().answered(&deal, &answer);
            }
            self.tell(&answer)?;
        }
    }

    fn tell(&self, answer: &[u8]) -> io::Result<()> {
        write(&mut *self.to_client.lock().unwrap_or_else(PoisonError::into_inner), answer)
    }

    fn deals(&self) -> MutexGuard<'_, HashMap<[u8; 4], Deal>> {
        self.deals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ends(&self) {
        // One of them has ended already.
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

/// By a connection of its own, so that the answer is this one's.
fn asked_aside(to: u16, request: &[u8]) -> io::Result<Vec<u8>> {
    let mut server = TcpStream::connect(("127.0.0.1", to))?;
    server.set_read_timeout(Some(PATIENCE))?;
    write(&mut server, request)?;
    read(&mut server)
}

/// A request or an answer, without its length.
fn read(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if length > FRAME_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut frame = vec![0; length];
    from.read_exact(&mut frame)?;
    Ok(frame)
}

/// At once: a length alone would wait for more.
fn write(to: &mut impl Write, frame: &[u8]) -> io::Result<()> {
    let length = u32::try_from(frame.len()).map_err(io::Error::other)?;
    to.write_all(&[&length.to_be_bytes(), frame].concat())
}
