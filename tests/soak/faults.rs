//! What is done to a run: each side of it, its workers and its clock by itself, at times and in kinds that come of the seed.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use fastrand::Rng;
use hapax_tests::{Line, Trouble, Weather};
use tokio::time::{Instant, sleep};

use crate::{AnyError, crew::Crew, servers::Server};

/// Between two things that are done to workers.
const WORKERS_EVERY: Duration = Duration::from_secs(3);
/// Of a spell of foul weather, and of the fair one behind it.
const SPELL: Duration = Duration::from_secs(6);
/// On each connection there is trouble about once in this time, while the weather is foul.
const TROUBLE_EVERY: Duration = Duration::from_millis(400);
/// Longer than clients wait for an answer, now and then.
const TROUBLE_LASTS: Duration = Duration::from_secs(6);
/// Between two kills of a server, and how long it stays away.
const SERVER_EVERY: Duration = Duration::from_secs(25);
const AWAY: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(200);

/// Something that was done, and when.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) at: Duration,
    pub(crate) what: String,
}

/// A line each.
impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.events().iter().try_for_each(|event| writeln!(f, "{:>8.1} s  {}", event.at.as_secs_f64(), event.what))
    }
}

/// All that was done.
#[derive(Debug, Clone)]
pub(crate) struct Timeline {
    begun: Instant,
    events: Arc<Mutex<Vec<Event>>>,
    /// Servers that are away: nothing is expected of anybody then.
    away: Arc<AtomicUsize>,
    stands_still: Arc<AtomicBool>,
}

impl Timeline {
    pub(crate) fn begin() -> Self {
        Self { begun: Instant::now(), events: Arc::default(), away: Arc::default(), stands_still: Arc::default() }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    pub(crate) fn tell(&self, what: impl fmt::Display) {
        let event = Event { at: self.elapsed(), what: what.to_string() };
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }

    pub(crate) fn is_server_away(&self) -> bool {
        self.away.load(Ordering::SeqCst) > 0
    }

    /// Nothing more is done to anybody: what is there is to be looked at.
    pub(crate) fn stand_still(&self) {
        self.stands_still.store(true, Ordering::SeqCst);
    }

    pub(crate) fn goes_on(&self, until: Instant) -> bool {
        Instant::now() < until && !self.stands_still.load(Ordering::SeqCst)
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What decides which and when.
#[derive(Debug, Clone)]
pub(crate) struct Fate {
    pub(crate) random: Rng,
    /// How many times as often as usual, and as short.
    pace: f64,
}

impl Fate {
    pub(crate) fn new(seed: u64, pace: f64) -> Self {
        Self { random: Rng::with_seed(seed), pace }
    }

    /// Another, of the same seed.
    pub(crate) fn fork(&mut self) -> Self {
        Self { random: self.random.fork(), pace: self.pace }
    }

    /// A time around `mean`: from half of it to half as much again.
    pub(crate) fn around(&mut self, mean: Duration) -> Duration {
        self.at_pace(mean).mul_f64(0.5 + self.random.f64())
    }

    fn at_pace(&self, time: Duration) -> Duration {
        time.div_f64(self.pace)
    }
}

/// Kills, stalls and replaces workers, until `until`; those that are there are left. One that does anything else by itself is the end of all.
pub(crate) async fn workers(
    mut crew: Crew,
    until: Instant,
    fate: Fate,
    timeline: &Timeline,
) -> (Crew, Result<(), AnyError>) {
    let harmed = harm(&mut crew, until, fate, timeline).await;
    if harmed.is_err() {
        timeline.stand_still();
    }
    (crew, harmed)
}

async fn harm(crew: &mut Crew, until: Instant, mut fate: Fate, timeline: &Timeline) -> Result<(), AnyError> {
    let mut next = Instant::now() + fate.around(WORKERS_EVERY);
    while timeline.goes_on(until) {
        crew.look()?;
        if Instant::now() < next {
            sleep(LOOK).await;
            continue;
        }
        match fate.random.u8(..10) {
            0..5 if crew.kill(&mut fate.random)? => timeline.tell("a worker is killed"),
            5..8 if crew.stall(&mut fate.random).await => timeline.tell("a worker stood still beyond its leases"),
            8.. if crew.replace(&mut fate.random).await? => timeline.tell("a worker is replaced by the other version"),
            _ => {} // Nobody works yet.
        }
        next = Instant::now() + fate.around(WORKERS_EVERY);
    }
    Ok(())
}

/// Foul and fair weather in turn; every other spell is of one kind of trouble alone.
pub(crate) async fn weather(line: &Line, name: &str, mut fate: Fate, timeline: &Timeline) {
    let mut spells = 0_usize;
    loop {
        sleep(fate.around(SPELL)).await;
        let troubles = if spells.is_multiple_of(2) {
            vec![Trouble::ALL[(spells / 2) % Trouble::ALL.len()]]
        } else {
            Trouble::ALL.to_vec()
        };
        let kinds: Vec<String> = troubles.iter().map(ToString::to_string).collect();
        timeline.tell(format!("on the line to the {name}: {}", kinds.join(", ")));
        line.weather(Some(Weather {
            troubles,
            every: fate.at_pace(TROUBLE_EVERY),
            lasts: fate.at_pace(TROUBLE_LASTS),
        }));
        sleep(fate.around(SPELL)).await;
        line.weather(None);
        timeline.tell(format!("the line to the {name} is whole"));
        spells += 1;
    }
}

/// Kills the server and starts it again, until `until`. Answers it and how often.
pub(crate) async fn server(
    mut server: Server,
    name: &str,
    until: Instant,
    mut fate: Fate,
    timeline: &Timeline,
    moves: impl Fn(&str),
) -> (Server, u64) {
    let mut kills = 0;
    loop {
        let next = Instant::now() + fate.around(SERVER_EVERY);
        if next >= until {
            return (server, kills);
        }
        tokio::time::sleep_until(next).await;
        if !timeline.goes_on(until) {
            return (server, kills);
        }
        timeline.tell(format!("the {name} is killed"));
        timeline.away.fetch_add(1, Ordering::SeqCst);
        server.kill();
        sleep(fate.around(AWAY)).await;
        if let Some(place) = server.restart().await {
            moves(&place);
        }
        timeline.away.fetch_sub(1, Ordering::SeqCst);
        timeline.tell(format!("the {name} answers again"));
        kills += 1;
    }
}
