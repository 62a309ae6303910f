//! A proxy before a broker of the test's own, whose clients are told to come to the proxy. It passes on each request and each answer, and
//! changes some, so that the broker seems to do what Kafka does and the broker of the tests does not.

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hapax_tests::KafkaServer;

use super::{
    sasl::let_in,
    wire::{PRODUCE, Produced, behind, number, produced, short},
};
use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::broadcast,
};
use tokio_rustls::TlsAcceptor;

/// Kinds of requests, as Kafka's protocol numbers them, and the first version of each whose lengths are short.
const COMMIT: (i16, i16) = (8, 8);
const METADATA: i16 = 3;
const CREATE_TOPICS: i16 = 19;
pub(crate) const WHICH: (i16, i16) = (18, 3);
const DESCRIBE_CONFIGS: i16 = 32;
/// No broker has a kind of requests of this number.
const NONE: i16 = i16::MAX;
const UNKNOWN_TOPIC: i16 = 3;
/// One that the client library does not try again by itself.
const METADATA_TOO_LARGE: i16 = 12;
/// Between two looks whether an answer is still kept back.
const MOMENT: Duration = Duration::from_millis(5);

/// Passes on what comes, until told otherwise.
#[derive(Debug)]
pub(crate) struct Proxied {
    _server: KafkaServer,
    port: u16,
    is_away: Arc<AtomicBool>,
    cuts: broadcast::Sender<()>,
    script: Arc<Mutex<Script>>,
}

/// What is not passed on as it came.
#[derive(Debug, Default)]
struct Script {
    /// A topic that is not there until somebody makes it: it is asked for under a name that nobody has.
    gone: Option<String>,
    /// A topic of which the next commit of several partitions is refused for one of them.
    refused: Option<String>,
    /// A topic of which the next answer that something is stored does not come, and ends its connection.
    unanswered: Option<String>,
    /// A topic of which all such answers are kept back, and with each whatever comes behind it on its connection.
    held: Option<String>,
    /// A topic, and of how many of its next commits the answer does not come. Each ends its connection.
    unheard: Option<(String, u32)>,
    /// Of how many it did not.
    commits_lost: u32,
    /// It says that it does not tell how topics are configured.
    tells_no_terms: bool,
    /// What was sent, all of it.
    produced: Vec<Produced>,
}

/// What clients come in by.
#[derive(Clone)]
enum Door {
    Open,
    Tls(TlsAcceptor),
    /// A user's name and password.
    Asks((&'static str, &'static str)),
}

impl Door {
    /// Who is not let in has heard why.
    async fn passes(&self, mut client: TcpStream, mut server: TcpStream, script: &Mutex<Script>) {
        match self {
            Self::Open => passes(client, server, script).await,
            Self::Tls(tls) => {
                if let Ok(client) = tls.accept(client).await {
                    passes(client, server, script).await;
                }
            }
            Self::Asks(login) => {
                if let_in(&mut client, &mut server, *login).await.is_ok() {
                    passes(client, server, script).await;
                }
            }
        }
    }
}

/// An answer that is to be changed.
#[derive(Debug)]
enum Change {
    Lost,
    Held,
    Made(Made),
    /// One of the kinds of requests that the broker takes is not among them.
    Without(i16),
}

#[derive(Debug)]
struct Made {
    topic: String,
    /// Where it speaks of the topic, its first partition has this error.
    code: Option<i16>,
    has_short_lengths: bool,
}

impl Proxied {
    pub(crate) async fn start() -> Self {
        Self::start_with(Door::Open).await
    }

    /// One that lets in nobody else.
    pub(crate) async fn start_with_password(user: &'static str, password: &'static str) -> Self {
        Self::start_with(Door::Asks((user, password))).await
    }

    /// One whose clients speak TLS to it.
    pub(crate) async fn start_with_tls(tls: ServerConfig) -> Self {
        Self::start_with(Door::Tls(TlsAcceptor::from(Arc::new(tls)))).await
    }

    async fn start_with(door: Door) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = KafkaServer::behind(port);
        let to = server.port();
        let (is_away, cuts) = (Arc::new(AtomicBool::new(false)), broadcast::channel(4).0);
        let script: Arc<Mutex<Script>> = Arc::default();
        let proxied =
            Self { _server: server, port, is_away: is_away.clone(), cuts: cuts.clone(), script: script.clone() };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                client.set_nodelay(true).unwrap(); // A length and what it is the length of are two packets.
                let (mut cut, script, door) = (cuts.subscribe(), script.clone(), door.clone());
                if is_away.load(Ordering::SeqCst) {
                    continue; // It ends at once.
                }
                tokio::spawn(async move {
                    let mut tries = 0;
                    let server = loop {
                        match TcpStream::connect(("127.0.0.1", to)).await {
                            Ok(server) => {
                                server.set_nodelay(true).unwrap();
                                break server;
                            }
                            Err(_) if tries < 100 => tokio::time::sleep(Duration::from_millis(50)).await,
                            Err(_) => return,
                        }
                        tries += 1;
                    };
                    tokio::select! {
                        () = door.passes(client, server, &script) => {}
                        _ = cut.recv() => {}
                    }
                });
            }
        });
        proxied
    }

    pub(crate) fn url(&self) -> String {
        format!("kafka://127.0.0.1:{}", self.port)
    }

    /// All connections end, and no more are taken.
    pub(crate) fn goes(&self) {
        self.is_away.store(true, Ordering::SeqCst);
        drop(self.cuts.send(())); // There may be none.
    }

    pub(crate) fn comes_back(&self) {
        self.is_away.store(false, Ordering::SeqCst);
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap()
    }

    /// Has a topic be gone until somebody makes it.
    pub(crate) fn knows_not(&self, topic: &str) {
        self.script().gone = Some(topic.to_owned());
    }

    /// Whether somebody has made it.
    pub(crate) fn knows_all(&self) -> bool {
        self.script().gone.is_none()
    }

    /// Has the next commit of several partitions of a topic be refused for the first of them.
    pub(crate) fn refuses_one_of_several(&self, topic: &str) {
        self.script().refused = Some(topic.to_owned());
    }

    /// Whether it was.
    pub(crate) fn has_refused(&self) -> bool {
        self.script().refused.is_none()
    }

    /// Has the broker store what comes next for a topic, and nobody hear of it: the answer is lost with its connection.
    pub(crate) fn loses_an_answer(&self, topic: &str) {
        self.script().unanswered = Some(topic.to_owned());
    }

    /// Whether one was lost, or is about to be.
    pub(crate) fn has_lost_it(&self) -> bool {
        self.script().unanswered.is_none()
    }

    /// Has the broker store what comes for a topic from now on, and nobody hear of it for now.
    pub(crate) fn holds_answers(&self, topic: &str) {
        self.script().held = Some(topic.to_owned());
    }

    /// Has everybody hear of it.
    pub(crate) fn lets_answers_go(&self) {
        self.script().held = None;
    }

    /// Has the broker do the next commits of a topic, so many, and nobody hear of it: each answer is lost with its connection.
    pub(crate) fn loses_commits(&self, topic: &str, count: u32) {
        self.script().unheard = Some((topic.to_owned(), count));
    }

    /// Has all commits be answered again.
    pub(crate) fn answers_commits(&self) {
        self.script().unheard = None;
    }

    /// Of how many the answer was lost, or is about to be.
    pub(crate) fn commits_lost(&self) -> u32 {
        self.script().commits_lost
    }

    /// Has the broker be one that does not tell how topics are configured, for who connects from now on.
    pub(crate) fn tells_no_terms(&self) {
        self.script().tells_no_terms = true;
    }

    /// What was to be stored in a topic, in this order.
    pub(crate) fn produced(&self, topic: &str) -> Vec<Produced> {
        self.script().produced.iter().filter(|produced| produced.topic == topic).cloned().collect()
    }
}

async fn passes(client: impl AsyncRead + AsyncWrite, server: TcpStream, script: &Mutex<Script>) {
    let changes: Mutex<HashMap<[u8; 4], Change>> = Mutex::default();
    let (from_client, to_client) = tokio::io::split(client);
    let (from_server, to_server) = server.into_split();
    // Whoever of the two ends it.
    tokio::select! {
        _ = asks(from_client, to_server, script, &changes) => {}
        _ = answers(from_server, to_client, script, &changes) => {}
    }
}

async fn asks(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    script: &Mutex<Script>,
    changes: &Mutex<HashMap<[u8; 4], Change>>,
) -> io::Result<()> {
    loop {
        let mut request = read(&mut from).await?;
        let change = script.lock().unwrap().asked(&mut request);
        changes.lock().unwrap().extend(change.map(|change| (number(&request, 4), change)));
        write(&mut to, &request).await?;
    }
}

async fn answers(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    script: &Mutex<Script>,
    changes: &Mutex<HashMap<[u8; 4], Change>>,
) -> io::Result<()> {
    let is_holding = || script.lock().unwrap().held.is_some();
    loop {
        let mut answer = read(&mut from).await?;
        let change = changes.lock().unwrap().remove(&number(&answer, 0));
        match change {
            Some(Change::Lost) => return Err(io::ErrorKind::ConnectionAborted.into()),
            Some(Change::Held) => {
                while is_holding() {
                    tokio::time::sleep(MOMENT).await;
                }
            }
            Some(Change::Made(made)) => made.is_made(&mut answer),
            Some(Change::Without(kind)) => leave_out(&mut answer, kind),
            None => {}
        }
        write(&mut to, &answer).await?;
    }
}

/// A request or an answer, without its length.
pub(crate) async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; from.read_u32().await?.try_into().unwrap()];
    from.read_exact(&mut frame).await?;
    Ok(frame)
}

pub(crate) async fn write(to: &mut (impl AsyncWrite + Unpin), frame: &[u8]) -> io::Result<()> {
    to.write_u32(frame.len().try_into().unwrap()).await?;
    to.write_all(frame).await
}

impl Script {
    /// What is to be changed in the answer to a request; what is refused does not reach the broker either.
    fn asked(&mut self, request: &mut [u8]) -> Option<Change> {
        let (kind, version) = (short(request, 0), short(request, 2));
        let produced = produced(request);
        let is_of = |topic: &Option<String>| produced.iter().any(|produced| topic.as_ref() == Some(&produced.topic));
        let (is_lost, is_held) = (is_of(&self.unanswered), is_of(&self.held));
        self.produced.extend(produced);
        if is_lost {
            self.unanswered = None;
            return Some(Change::Lost);
        }
        if is_held {
            return Some(Change::Held);
        }
        if kind == WHICH.0 && self.tells_no_terms {
            assert!(version >= WHICH.1, "its lengths are read as short ones");
            return Some(Change::Without(DESCRIBE_CONFIGS));
        }
        if kind == CREATE_TOPICS && self.gone.as_ref().is_some_and(|topic| behind(request, topic).is_some()) {
            self.gone = None;
        }
        if kind == PRODUCE.0 || kind == METADATA {
            let topic = self.gone.clone()?;
            let end = behind(request, &topic)?;
            request[end - topic.len()..end].copy_from_slice(other(&topic).as_bytes());
            let code = (kind == PRODUCE.0).then_some(UNKNOWN_TOPIC);
            return Some(Change::Made(Made { topic, code, has_short_lengths: version >= PRODUCE.1 }));
        }
        if kind == COMMIT.0 {
            if let Some((topic, left)) = &mut self.unheard
                && *left > 0
                && behind(request, topic).is_some()
            {
                *left -= 1;
                self.commits_lost += 1;
                return Some(Change::Lost);
            }
            let topic = self.refused.clone()?;
            let (at, has_short_lengths) = (behind(request, &topic)?, version >= COMMIT.1);
            let (at, count) = if has_short_lengths {
                (at + 1, u32::from(request[at]) - 1)
            } else {
                (at + 4, u32::from_be_bytes(number(request, at)))
            };
            if count > 1 {
                self.refused = None;
                request[at + 4..at + 12].fill(0); // The offset behind the partition's own number.
                return Some(Change::Made(Made { topic, code: Some(METADATA_TOO_LARGE), has_short_lengths }));
            }
        }
        None
    }
}

impl Made {
    fn is_made(&self, answer: &mut [u8]) {
        if let Some(end) = behind(answer, &other(&self.topic)) {
            answer[end - self.topic.len()..end].copy_from_slice(self.topic.as_bytes());
        }
        if let (Some(end), Some(code)) = (behind(answer, &self.topic), self.code) {
            let at = end + if self.has_short_lengths { 1 } else { 4 } + 4;
            answer[at..at + 2].copy_from_slice(&code.to_be_bytes());
        }
    }
}

/// Behind a number and an error come how many there are, and of each its kind, two versions, and nothing more.
fn leave_out(answer: &mut [u8], kind: i16) {
    let mut entries = answer[7..].chunks_exact_mut(7);
    let entry = entries.find(|entry| short(entry, 0) == kind).expect("the broker has it");
    entry[..2].copy_from_slice(&NONE.to_be_bytes());
}

/// A name as long that nobody has.
fn other(name: &str) -> String {
    name.chars().map(|letter| if letter == '-' { '.' } else { letter }).collect()
}
