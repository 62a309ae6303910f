//! A line between a client and a server that fails as a network does, at random, from a seed: connections are cut, bytes are late, come in pieces
//! or not at all, an answer is swallowed after its request was served, and a request is delivered after its client has given up.
//!
//! It knows no protocol: a request is what a client has written when it is looked at, and its answer is what comes after that. Chunks of clients
//! that have many requests under way hold several; what is swallowed or late then is all of them.

mod carried;
mod weather;

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::{broadcast, watch},
    task::JoinHandle,
};
pub use weather::{Trouble, Weather};

/// A server that does not let anybody in within this is away.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// The line. Gone with this; its connections end then.
#[derive(Debug)]
pub struct Line {
    port: u16,
    ends: Arc<Ends>,
    door: JoinHandle<()>,
}

/// What all connections share.
#[derive(Debug)]
struct Ends {
    /// `HOST:PORT` of the server.
    server: Mutex<String>,
    weather: watch::Sender<Option<Weather>>,
    cuts: broadcast::Sender<()>,
    met: [AtomicU64; Trouble::ALL.len()],
}

impl Line {
    /// To the server at `HOST:PORT`, in fair weather.
    ///
    /// # Errors
    /// There is no free port.
    pub async fn to(server: &str, seed: u64) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let ends = Arc::new(Ends {
            server: Mutex::new(server.to_owned()),
            weather: watch::Sender::new(None),
            cuts: broadcast::Sender::new(1),
            met: Default::default(),
        });
        let door = tokio::spawn(let_in(listener, ends.clone(), fastrand::Rng::with_seed(seed)));
        Ok(Self { port, ends, door })
    }

    /// Where clients connect to, on 127.0.0.1.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// `HOST:PORT` of it.
    #[must_use]
    pub fn place(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// A server's `url` with this line in the server's place.
    ///
    /// # Panics
    /// When there is no `//HOST:PORT` in it.
    #[must_use]
    pub fn in_place_of(&self, url: &str) -> String {
        let (scheme, rest) = url.split_once("//").expect("a URL");
        let (place, path) = rest.find(['/', '?']).map_or((rest, ""), |at| rest.split_at(at));
        let user = place.rsplit_once('@').map_or(String::new(), |(user, _)| format!("{user}@"));
        format!("{scheme}//{user}{}{path}", self.place())
    }

    /// From now on; `None`: fair.
    pub fn weather(&self, weather: Option<Weather>) {
        self.ends.weather.send_replace(weather);
    }

    /// All connections end at once; the next ones are whole.
    pub fn cut(&self) {
        drop(self.ends.cuts.send(())); // There may be none.
    }

    /// Connections from now on lead to the server at `HOST:PORT`; those that there are end.
    ///
    /// # Panics
    /// Never.
    pub fn leads_to(&self, server: &str) {
        server.clone_into(&mut self.ends.server.lock().unwrap_or_else(PoisonError::into_inner));
        self.cut();
    }

    /// How often each kind of trouble has taken its effect: what was under way when its connection ended otherwise is not among them.
    #[must_use]
    pub fn met(&self) -> BTreeMap<Trouble, u64> {
        let counts = self.ends.met.iter().map(|count| count.load(Ordering::Relaxed));
        Trouble::ALL.into_iter().zip(counts).collect()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.door.abort();
        self.cut();
    }
}

impl Ends {
    fn meets(&self, trouble: Trouble) {
        self.met[trouble as usize].fetch_add(1, Ordering::Relaxed);
    }
}

async fn let_in(listener: TcpListener, ends: Arc<Ends>, mut random: fastrand::Rng) {
    while let Ok((client, _)) = listener.accept().await {
        let (ends, random) = (ends.clone(), random.fork());
        tokio::spawn(async move {
            let mut cut = ends.cuts.subscribe();
            let place = ends.server.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let Ok(Ok(server)) = tokio::time::timeout(CONNECT_LIMIT, TcpStream::connect(place)).await else { return };
            tokio::select! {
                () = carried::carry(client, server, &ends, random) => {}
                _ = cut.recv() => {}
            }
        });
    }
}
