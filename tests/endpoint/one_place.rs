//! Dead letters are in hapax's store where one is given for them, else in the broker's own place, and never in both: whatever becomes of
//! the calls that put them there, and whoever dies between the letter and the ack.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    Context, Correlation, Endpoint, Handle, HandlerError, InProcess, Memory, Message, Saga,
    deliver::Recoverability,
    endpoint::{EndpointBuilder, Settings},
    envelope::Outgoing,
    ids::{EndpointName, TypeName},
    ports::{
        Connected, DeadLetter, DeadLetters, DispatchError, Dispatcher, ErrorKind, Page, Refused, StoreError, Transport,
        TransportCapabilities, TransportError,
    },
    transports::in_process::Faults,
};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

use crate::work::{Unheard, settings};

const LEASE: Duration = Duration::from_secs(5);
/// Of each kind.
const PIECES: usize = 4;

/// What becomes of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Kind {
    Good,
    /// Its handler fails for good, or each time.
    Refused,
    Failing,
    /// It does not name its saga.
    Nameless,
    /// It is handled; what it sends is never taken.
    Unsendable,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Piece {
    key: String,
    name: String,
    kind: Kind,
}

impl Message for Piece {
    const TYPE: &'static str = "place.piece";
}

#[derive(Debug, Serialize, Deserialize)]
struct Parcel {
    name: String,
}

impl Message for Parcel {
    const TYPE: &'static str = "place.parcel";
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Sorter {
    sorted: Vec<String>,
}

impl Saga for Sorter {
    const NAME: &'static str = "sorter";
}

impl Handle<Piece> for Sorter {
    fn correlate(piece: &Piece) -> Correlation<'_> {
        Correlation::of("key", &piece.key)
    }

    async fn handle(&mut self, piece: Piece, cx: &mut Context) -> Result<(), HandlerError> {
        match piece.kind {
            Kind::Refused => return Err(HandlerError::permanent("it is refused")),
            Kind::Failing => return Err(HandlerError::transient("it fails each time")),
            Kind::Unsendable => cx.send("nowhere", Parcel { name: piece.name.clone() })?,
            Kind::Good | Kind::Nameless => {}
        }
        self.sorted.push(piece.name);
        Ok(())
    }
}

/// What becomes of a letter that is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Put {
    Kept,
    Refused,
    KeptUntold,
    LostUntold,
    /// Who puts it dies: first, or then.
    DiesBefore,
    DiesAfter,
}

const PUTS: [Put; 6] = [Put::Kept, Put::Refused, Put::KeptUntold, Put::LostUntold, Put::DiesBefore, Put::DiesAfter];

/// A place for letters, as one process has it.
#[derive(Debug, Clone)]
struct Place<P> {
    kept: P,
    day: Day,
    dies: Arc<Notify>,
}

/// What happens, drawn from a seed, and what has happened.
#[derive(Debug, Clone)]
struct Day(Arc<Mutex<(fastrand::Rng, BTreeMap<Put, u32>)>>);

impl Day {
    fn next(&self) -> Put {
        let (random, met) = &mut *self.0.lock().unwrap();
        let put = PUTS[random.usize(..PUTS.len())];
        *met.entry(put).or_default() += 1;
        put
    }
}

#[async_trait]
impl<P: DeadLetters> DeadLetters for Place<P> {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        let error = |kind| Err(StoreError::new(kind, "adding a letter", "as the test wants it"));
        let put = self.day.next();
        if matches!(put, Put::Kept | Put::KeptUntold | Put::DiesAfter) {
            self.kept.add(letter).await?;
        }
        match put {
            Put::Kept => Ok(()),
            Put::Refused => error(ErrorKind::Unavailable),
            Put::KeptUntold | Put::LostUntold => error(ErrorKind::UnknownOutcome),
            Put::DiesBefore | Put::DiesAfter => {
                self.dies.notify_one();
                pending().await
            }
        }
    }

    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        self.kept.list(endpoint, page).await
    }

    async fn discard(&self, letters: &[DeadLetter]) -> Result<usize, StoreError> {
        self.kept.discard(letters).await
    }
}

/// A hub that never takes a parcel, with a place of its own for letters.
#[derive(Debug)]
struct Post {
    hub: InProcess,
    place: Place<InProcess>,
}

#[async_trait]
impl Transport for Post {
    fn capabilities(&self) -> TransportCapabilities {
        self.hub.capabilities()
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        let connected = self.hub.connect(endpoint, types).await?;
        let dispatcher = Arc::new(WayOut(self.hub.clone()));
        Ok(Connected { dispatcher, dead_letters: Some(Arc::new(self.place.clone())), ..connected })
    }
}

#[derive(Debug)]
struct WayOut(InProcess);

#[async_trait]
impl Dispatcher for WayOut {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        self.0.check(outgoing)
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        let never = || TransportError::new(ErrorKind::TooLarge, "dispatching", "no parcels");
        outgoing.iter().map(|_| Err(DispatchError::Permanent(never()))).collect()
    }
}

/// Where the letters of an endpoint are to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Configured {
    Store,
    Nothing,
}

fn process(configured: Configured, store: &Memory, hub: &InProcess, day: &Day, dies: &Arc<Notify>) -> EndpointBuilder {
    let (day, dies) = (day.clone(), dies.clone());
    let post = Post { hub: hub.clone(), place: Place { kept: hub.clone(), day: day.clone(), dies: dies.clone() } };
    let settings = Settings {
        // Who dies is not the message's fault.
        recoverability: Recoverability { attempts_max: 3, poison_above: u32::MAX, ..Recoverability::default() },
        sweep_interval: Duration::from_secs(1),
        ..settings()
    };
    let process = Endpoint::builder("work").entities(store.clone()).dedup(store.clone()).transport(post);
    let process = process.settings(settings).saga::<Sorter>(|sorter| sorter.starts::<Piece>());
    match configured {
        Configured::Store => process.dead_letters(Place { kept: store.clone(), day, dies }),
        Configured::Nothing => process,
    }
}

/// One process after another, until nothing is left; answers how many there were.
async fn processes(configured: Configured, store: &Memory, hub: &InProcess, day: &Day) -> usize {
    for number in 1.. {
        let dies = Arc::new(Notify::new());
        tokio::select! {
            ended = process(configured, store, hub, day, &dies).run_until(at_rest(store, hub)) => {
                ended.unwrap();
                return number;
            }
            () = dies.notified() => {}
        }
    }
    unreachable!("it returns")
}

async fn at_rest(store: &Memory, hub: &InProcess) {
    loop {
        hub.idle().await;
        if store.entities().iter().all(|(_, entity)| entity.outbox.is_empty()) {
            return;
        }
        sleep(Duration::from_secs(1)).await;
    }
}

/// What each letter of a place is about, sorted.
async fn about(place: &dyn DeadLetters) -> Vec<String> {
    let letters = place.list(&"work".parse().unwrap(), &Page::first(1000)).await.unwrap();
    let mut about: Vec<String> = letters
        .iter()
        .map(|letter| match letter.destination {
            Some(_) => serde_json::from_slice::<Parcel>(&letter.envelope.body).unwrap().name,
            None => letter.envelope.message_id.to_string(),
        })
        .collect();
    about.sort();
    about
}

async fn send_all(hub: &InProcess) -> (BTreeSet<String>, Vec<String>) {
    let (mut good, mut bad) = (BTreeSet::new(), Vec::new());
    for kind in [Kind::Good, Kind::Refused, Kind::Failing, Kind::Nameless, Kind::Unsendable] {
        for number in 0..PIECES {
            let name = format!("{kind:?}-{number}");
            let key = if kind == Kind::Nameless { String::new() } else { format!("key-{number}") };
            let piece = Piece { key, name: name.clone(), kind };
            hub.sender().send_as(name.parse().unwrap(), "work", &piece).await.unwrap();
            if matches!(kind, Kind::Good | Kind::Unsendable) {
                good.insert(name.clone());
            }
            if kind != Kind::Good {
                bad.push(name);
            }
        }
    }
    for number in 0..PIECES {
        let name = format!("Unheard-{number}");
        hub.sender().send_as(name.parse().unwrap(), "work", &Unheard).await.unwrap();
        bad.push(name);
    }
    bad.sort();
    (good, bad)
}

async fn every_letter_is_in_one_place(configured: Configured) {
    let (mut died, mut met) = (0, BTreeSet::new());
    for seed in 0..6 {
        let faults = Faults { seed, duplicates: 0.3, reorder: 0.3, delay_max: 4 * LEASE, lost_acks: 0.2 };
        let (store, hub) = (Memory::new(), InProcess::with_faults("one-place", LEASE, faults));
        let day = Day(Arc::new(Mutex::new((fastrand::Rng::with_seed(seed), BTreeMap::new()))));
        let (good, bad) = send_all(&hub).await;
        let both = async {
            tokio::join!(processes(configured, &store, &hub, &day), processes(configured, &store, &hub, &day))
        };
        let (one, two) = timeout(Duration::from_secs(24 * 3600), both).await.expect("nothing is left over");
        died += one + two - 2;
        let (in_store, in_broker) = (about(&store).await, about(&hub).await);
        let (here, there) = match configured {
            Configured::Store => (in_store, in_broker),
            Configured::Nothing => (in_broker, in_store),
        };
        assert_eq!((&here, there), (&bad, Vec::new()), "seed {seed}");
        let sorted: Vec<String> = store.entities().iter().flat_map(|(_, entity)| sorted(&entity.state)).collect();
        assert_eq!(sorted.len(), good.len(), "seed {seed}: {sorted:?}");
        assert_eq!(sorted.into_iter().collect::<BTreeSet<String>>(), good, "seed {seed}");
        met.extend(day.0.lock().unwrap().1.keys().copied());
    }
    assert!(met.len() == PUTS.len() && died > 0, "{met:?}, {died} have died");
}

fn sorted(state: &[u8]) -> Vec<String> {
    serde_json::from_slice::<Sorter>(&state[hapax::codec::FRAME_BYTES..]).unwrap().sorted
}

#[tokio::test(start_paused = true)]
async fn letters_are_in_the_store_that_is_given_for_them_and_never_in_the_brokers_place() {
    every_letter_is_in_one_place(Configured::Store).await;
}

#[tokio::test(start_paused = true)]
async fn letters_are_in_the_brokers_place_where_no_store_is_given_for_them() {
    every_letter_is_in_one_place(Configured::Nothing).await;
}
