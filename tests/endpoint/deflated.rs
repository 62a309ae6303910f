//! Compressed messages on a bad day, in the days in which compression comes: two processes, of which one gets it only later.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use hapax::{
    Endpoint, HandlerError, InProcess, Memory, Sender,
    codec::Codec,
    endpoint::Settings,
    envelope::{Destination, Envelope},
    metrics::{Ending, Event, Metrics},
    ports::{DeadLetters, Page},
    seal::{Deflate, Seal, Sealed, Seals},
    transports::in_process::Faults,
};
use hapax_model::{Plan, World, faults::Faulty};
use tokio::{sync::oneshot, task::JoinHandle, time::sleep};

use crate::{
    sealed_faults::heard_by,
    vault::{Ear, MINUTE, Tell, Told, WORD, sealed, vault},
    work::settings,
};

type Running = JoinHandle<Result<(), hapax::endpoint::Error>>;

const WORDS: usize = 60;
const DEFLATE: Deflate = Deflate::from_bytes(64);
/// When the other process gets it. By then what it cannot open has been given for the fourth time, if to nobody else; it may be for the fifth,
/// which is the last, after fifteen seconds.
const LATER: Duration = Duration::from_secs(8);

/// Compresses and counts.
#[derive(Debug, Clone, Default)]
struct Counting {
    sealed: Arc<AtomicU32>,
    opened: Arc<AtomicU32>,
}

impl Counting {
    fn counts(&self) -> (u32, u32) {
        (self.sealed.load(Ordering::Relaxed), self.opened.load(Ordering::Relaxed))
    }
}

impl Seal for Counting {
    const NAME: &'static str = Deflate::NAME;

    fn seal(&self, envelope: &Envelope) -> Result<Option<Sealed>, HandlerError> {
        let sealed = DEFLATE.seal(envelope)?;
        self.sealed.fetch_add(u32::from(sealed.is_some()), Ordering::Relaxed);
        Ok(sealed)
    }

    fn open(&self, envelope: &Envelope, key: Option<&str>, bytes_max: usize) -> Result<Vec<u8>, HandlerError> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        DEFLATE.open(envelope, key, bytes_max)
    }
}

/// What a process gave back since it could not read it.
#[derive(Debug, Clone, Default)]
struct Unread(Arc<AtomicU32>);

impl Metrics for Unread {
    fn observe(&self, event: Event<'_>) {
        if let Event::Refused(_, _, Ending::Retried) = event {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A process, in which both endpoints run.
struct Process {
    unread: Unread,
    ends: Vec<(oneshot::Sender<()>, Running)>,
}

impl Process {
    async fn start(hub: &InProcess, [vaults, ears]: [&Memory; 2], seals: impl Fn() -> Seals) -> Self {
        let (unread, mut ends) = (Unread::default(), Vec::new());
        // So that neither takes all of it before the other comes to its turn.
        let few = || Settings { in_flight_max: 4, ..settings() };
        let yields = |store: &Memory| Faulty::new(store.clone(), World::new(Plan { yields: true, ..Plan::default() }));
        let ear = Endpoint::builder("ear").store(yields(ears)).seals(seals());
        let vault = vault(vaults, seals()).store(yields(vaults));
        for endpoint in [vault, ear.saga::<Ear>(|ear| ear.starts::<Told>())] {
            let (stop, stopped) = oneshot::channel::<()>();
            let endpoint =
                endpoint.settings(few()).transport(hub.clone()).metrics(unread.clone()).start().await.unwrap();
            ends.push((stop, tokio::spawn(endpoint.run_until(stopped))));
        }
        Self { unread, ends }
    }

    fn unread(&self) -> u32 {
        self.unread.0.load(Ordering::Relaxed)
    }

    async fn stop(self) {
        for (stop, running) in self.ends {
            stop.send(()).unwrap();
            running.await.unwrap().unwrap();
        }
    }

    /// What it holds comes again when its leases have run out.
    fn die(self) {
        self.ends.iter().for_each(|(_, running)| running.abort());
    }
}

fn word(number: usize) -> String {
    format!("{WORD}-{number}").repeat(20)
}

/// Words are told plain and compressed by turns, and every fifth in both ways.
async fn tell(hub: &InProcess, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let tell = Tell { vault: format!("v-{number}"), word: word(number) };
        let plain = Sender::envelope_with(Codec::default(), format!("tell-{number}").parse().unwrap(), &tell).unwrap();
        let small = sealed(&DEFLATE.into(), plain.clone());
        assert!(small.body.len() < plain.body.len() / 5);
        let told = if number.is_multiple_of(5) {
            vec![plain, small]
        } else if number.is_multiple_of(2) {
            vec![plain]
        } else {
            vec![small]
        };
        for envelope in told {
            let to_vault = Destination::parse("endpoint:vault").unwrap();
            hub.sender().send_envelope(to_vault, envelope).await.unwrap();
        }
    }
}

/// Goal: as `sealed_faults`, where the other process gives back at first what it cannot open, or opens it and sends plain. Method: it dies by turns
/// or is stopped, and another one begins in its place.
#[tokio::test(start_paused = true)]
async fn two_processes_handle_each_compressed_message_once_although_one_compresses_only_later() {
    for seed in 0..6 {
        for opens in [false, true] {
            each_is_heard_once(seed, opens).await;
        }
    }
}

async fn each_is_heard_once(seed: u64, opens: bool) {
    let faults = Faults { seed, duplicates: 0.3, reorder: 0.3, delay_max: MINUTE / 12, lost_acks: 0.2 };
    let hub = InProcess::with_faults("deflated", MINUTE / 6, faults);
    let stores @ [vaults, ears] = [&Memory::new(), &Memory::new()];
    let [first, early, late] = [(); 3].map(|()| Counting::default());
    let one = Process::start(&hub, stores, || first.clone().into()).await;
    let other =
        Process::start(&hub, stores, || if opens { Seals::opened_by(early.clone()) } else { Seals::default() }).await;
    tell(&hub, 0..WORDS / 2).await;
    sleep(LATER).await;
    let ((sealed, opened), unread) = (early.counts(), other.unread());
    assert_eq!((sealed, opened > 0, unread > 0), (0, opens, !opens), "seed {seed}: {opened} opened, {unread} unread");
    if seed.is_multiple_of(2) {
        other.die()
    } else {
        other.stop().await
    }
    let other = Process::start(&hub, stores, || late.clone().into()).await;
    tell(&hub, WORDS / 2..WORDS).await;
    hub.idle().await;
    let counts = [first.counts(), late.counts()];
    assert!(counts.iter().all(|(sealed, opened)| *sealed > 0 && *opened > 0), "seed {seed}, {opens}: {counts:?}");
    assert_eq!((one.unread(), other.unread()), (0, 0), "seed {seed}, {opens}");
    for process in [one, other] {
        process.stop().await;
    }
    let mut heard: Vec<Vec<String>> = ears.entities().iter().flat_map(|(_, ear)| heard_by(&ear.state)).collect();
    heard.sort();
    let mut told: Vec<Vec<String>> = (0..WORDS).map(|number| vec![word(number)]).collect();
    told.sort();
    assert_eq!(heard, told, "seed {seed}, {opens}");
    for (store, endpoint) in [(vaults, "vault"), (ears, "ear")] {
        let letters = store.list(&endpoint.parse().unwrap(), &Page::first(10)).await.unwrap();
        assert_eq!(letters, [], "seed {seed}, {opens}");
    }
}
