//! A run: servers, lines, workers, load and faults, then the rest in peace, then the books.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use hapax::ids::EndpointName;
use hapax_tests::{Line, Scratch, Trouble};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    AnyError,
    clock::Clock,
    counts::Counts,
    crew::{Crew, Done},
    faults::{self, Event, Fate, Timeline},
    ledger::{self, Books},
    load::{self, KEYS, Load},
    messages::{BACK, FRONT, Version},
    options::{Broker, Options},
    place::{Front, QueuePlace, Queues, Store, StorePlace},
    servers::{self, Server, Side},
    sink::{self, Sink},
    unmet,
    worker::{Plan, Times},
};

/// Something comes out within this, whatever is done, not counting while a server is away: beside other runs one takes minutes to start.
const PATIENCE: Duration = Duration::from_secs(120);
/// When nothing is done any more, all of the rest comes out within this of the last.
const REST: Duration = Duration::from_secs(120);
/// The same for RabbitMQ: a server that was killed may give what waits for its time three minutes late (`docs/rabbitmq.md`).
const REST_ON_RABBITMQ: Duration = Duration::from_secs(240);
/// So long is waited for workers that keep no marks, whatever they do.
const FORGETFUL_REST: Duration = Duration::from_secs(10);
/// A run of which all is demanded, also what comes seldom.
const LONG: Duration = Duration::from_secs(600);
const SAMPLE: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(200);
/// More than there are connections to a store.
const TRIES_MAX: u32 = 10;
/// How often it is told what is left, at the end.
const TELL: Duration = Duration::from_secs(5);

/// At a second of the run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) at: Duration,
    pub(crate) out: u64,
    pub(crate) on_their_way: u64,
}

/// What became of it.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) seed: u64,
    pub(crate) lasted: Duration,
    pub(crate) books: Books,
    pub(crate) counts: Counts,
    pub(crate) done: Done,
    pub(crate) clock_steps: u64,
    /// By side.
    pub(crate) met: BTreeMap<&'static str, BTreeMap<Trouble, u64>>,
    pub(crate) server_kills: BTreeMap<&'static str, u64>,
    pub(crate) samples: Vec<Sample>,
    pub(crate) events: Vec<Event>,
    /// What was to be met and was not: the run has shown nothing about it.
    pub(crate) unmet: Vec<String>,
}

/// What a run has in hand.
struct Run {
    options: Options,
    seed: u64,
    timeline: Timeline,
    load: Arc<Load>,
    sink: Arc<Sink>,
    // Before its servers.
    store: Side<StorePlace>,
    queues: Side<QueuePlace>,
    clock: Clock,
    _scratch: Scratch,
}

/// What was done by the end of the faults.
struct Harassed {
    crew: Crew,
    samples: Vec<Sample>,
    server_kills: BTreeMap<&'static str, u64>,
    clock_steps: u64,
    /// Why it was the end before the time was over.
    stuck: Option<AnyError>,
}

pub(crate) async fn run(options: Options) -> Result<Outcome, AnyError> {
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
    println!("seed {seed}");
    let scratch = Scratch::new("soak");
    let clock = Clock::here()?; // Before there is anybody to go by it.
    let store = servers::store(options.store, &scratch, seed).await?;
    let queues = servers::queues(options.transport, &scratch, seed).await?;
    let (timeline, load, sink) = (Timeline::begin(), Arc::default(), Arc::default());
    let run = Run { options, seed, timeline, load, sink, store, queues, clock, _scratch: scratch };
    run.goes().await
}

impl Run {
    async fn goes(mut self) -> Result<Outcome, AnyError> {
        // Tables and queues are there before anybody is harmed.
        let store = self.store.direct.open(Front::Plain).await?;
        let queues = self.queues.direct.open(Times::USUAL.lease).await?;
        for name in [FRONT, BACK] {
            queues.transport().connect(&name.parse()?, &[]).await?;
        }
        let plan = Plan {
            store: self.store.lined.clone(),
            queues: self.queues.lined.clone(),
            version: Version::Today,
            forgets: self.options.forgets,
            fuse: None,
            times: Times::USUAL,
        };
        let crew = Crew::hire(plan, self.options.workers())?;
        let mut sending = tokio::spawn(load::send(self.queues.direct.clone(), self.load.clone(), self.sink.clone()));
        let (queue, sink) = (self.queues.direct.clone(), self.sink.clone());
        let draining = tokio::spawn(async move { sink::drain(queue, &sink).await });
        let mut harassed = tokio::select! {
            harassed = self.harass(crew) => harassed,
            ended = &mut sending => return Err(format!("the load has ended: {:?}", ended?.err()).into()),
        };
        self.timeline.tell("no more faults, no more load");
        self.load.ends.store(true, Ordering::SeqCst);
        if let Some(why) = harassed.stuck.take() {
            return Ok(self.given_up(harassed, &format!("{why}; {}", left(&queues).await?)));
        }
        match timeout(PATIENCE, sending).await {
            Ok(sent) => sent??,
            Err(_) => return Ok(self.given_up(harassed, "the load cannot be sent")),
        }
        let rounds = self.load.rounds.load(Ordering::SeqCst);
        // What does not is judged all the same: the books say more than that.
        let rest = self.comes_to_rest(&store, &queues, &mut harassed).await;
        let (lasted, logs) = (self.timeline.elapsed(), harassed.crew.logs());
        let Harassed { crew, samples, server_kills, clock_steps, .. } = harassed;
        let done = crew.done;
        let (counts, astray) = crew.ends().await;
        draining.abort();
        let judged = self.judged(&store, rounds).await;
        let mut books = judged.unwrap_or_else(|why| self.unjudged(format!("there can be no books: {why}")));
        books.faults.extend(astray);
        if let Err(why) = rest {
            eprintln!("{logs}");
            books.faults.insert(0, format!("it does not come to rest: {why}"));
        }
        let (seed, met, events) = (self.seed, self.met(), self.timeline.events());
        let none = Vec::new();
        let mut outcome =
            Outcome { seed, lasted, books, counts, done, clock_steps, met, server_kills, samples, events, unmet: none };
        outcome.unmet = unmet::always(&outcome);
        if self.options.lasts() >= LONG {
            outcome.unmet.extend(unmet::for_long(&outcome, queues.transport().capabilities().counts_deliveries));
        }
        Ok(outcome)
    }

    /// What was seen of a run that goes no further, for its report. There are no books: what they would miss may be on its way.
    fn given_up(&self, harassed: Harassed, why: &str) -> Outcome {
        let Harassed { crew, samples, server_kills, clock_steps, .. } = harassed;
        eprintln!("{}{}", self.timeline, crew.logs());
        let (lasted, done, counts) = (self.timeline.elapsed(), crew.done, crew.killed());
        let (seed, books) = (self.seed, self.unjudged(why.to_owned()));
        let (met, events) = (self.met(), self.timeline.events());
        Outcome { seed, lasted, books, counts, done, clock_steps, met, server_kills, samples, events, unmet: vec![] }
    }

    fn unjudged(&self, why: String) -> Books {
        let mut faults = self.sink.faults();
        faults.insert(0, why);
        Books { copies: self.sink.copies(), again: self.sink.again(), faults, ..Books::default() }
    }

    /// The books; asked for again where a connection is from before its server was killed.
    async fn judged(&self, store: &Store, rounds: u32) -> Result<Books, AnyError> {
        let keys = keys();
        for _ in 1..TRIES_MAX {
            if let Ok(books) = ledger::judge(store, &self.store.direct, &self.sink, &keys, rounds).await {
                return Ok(books);
            }
        }
        ledger::judge(store, &self.store.direct, &self.sink, &keys, rounds).await
    }

    fn met(&self) -> BTreeMap<&'static str, BTreeMap<Trouble, u64>> {
        let lines = [("store", &self.store.line), ("transport", &self.queues.line)];
        lines.into_iter().filter_map(|(name, line)| Some((name, line.as_ref()?.met()))).collect()
    }

    /// Until the time is over, or nothing goes on: everything at once, each on its own.
    async fn harass(&mut self, crew: Crew) -> Harassed {
        let until = Instant::now() + self.options.lasts();
        let mut fate = Fate::new(self.seed, self.options.pace());
        let [for_crew, for_store, for_queues, store_sky, queues_sky, of_clock] = std::array::from_fn(|_| fate.fork());
        let timeline = &self.timeline;
        let (store_server, queue_server) = (self.store.server.take(), self.queues.server.take());
        let (store, queues) = (&self.store, &self.queues);
        let kills = async |server: Option<Server>, name, fate, moves: &dyn Fn(&str)| match server {
            Some(server) => {
                let (server, kills) = faults::server(server, name, until, fate, timeline, moves).await;
                (Some(server), Some(kills))
            }
            None => (None, None),
        };
        let ended = async {
            while timeline.goes_on(until) {
                sleep(LOOK).await;
            }
        };
        let weather = async {
            let on = async |line: &Option<Line>, name, fate| match line {
                Some(line) => faults::weather(line, name, fate, timeline).await,
                None => std::future::pending().await,
            };
            tokio::select! {
                () = on(&store.line, "store", store_sky) => {}
                () = on(&queues.line, "transport", queues_sky) => {}
                () = ended => {}
            }
        };
        let crew = faults::workers(crew, until, for_crew, timeline);
        let samples = samples(&self.load, &self.sink, timeline, until);
        let clock = self.clock.steps(until, of_clock, timeline);
        let (store_moves, queues_move) = (|place: &str| store.moves(place), |place: &str| queues.moves(place));
        let ((crew, harmed), (samples, came), of_store, of_queues, clock_steps, ()) = tokio::join!(
            crew,
            samples,
            kills(store_server, "store", for_store, &store_moves),
            kills(queue_server, "transport", for_queues, &queues_move),
            clock,
            weather
        );
        let server_kills = [("store", of_store.1), ("transport", of_queues.1)];
        (self.store.server, self.queues.server) = (of_store.0, of_queues.0);
        for line in [&self.store.line, &self.queues.line].into_iter().flatten() {
            line.weather(None);
        }
        let server_kills = server_kills.into_iter().filter_map(|(name, kills)| Some((name, kills?))).collect();
        let stuck = harmed.and_then(|()| came.map_err(Into::into)).err();
        Harassed { crew, samples, server_kills, clock_steps, stuck }
    }

    /// Until nothing is left anywhere.
    async fn comes_to_rest(&self, store: &Store, queues: &Queues, harassed: &mut Harassed) -> Result<(), AnyError> {
        let [front, back]: [EndpointName; 2] = [FRONT.parse()?, BACK.parse()?];
        let patience = match self.options.transport {
            Broker::RabbitMq => REST_ON_RABBITMQ,
            _ => REST,
        };
        let begun = Instant::now();
        let (mut last, mut changed, mut told) = (Err(String::new()), begun, begun);
        loop {
            harassed.crew.look()?;
            if told.elapsed() > TELL {
                told = Instant::now();
                self.timeline.tell(format!("what is left, out, has effects: {last:?}"));
            }
            let look = async {
                let left = [queues.backlog(&front).await?, queues.backlog(&back).await?];
                let (out, effects) = (self.sink.distinct(), ledger::effects(store, &keys()).await?);
                let is_at_rest = left == [0, 0] && out >= effects[1] && effects[0] == effects[1];
                Ok::<_, AnyError>(((left, out, effects), is_at_rest && !ledger::waits(store).await?))
            };
            let now = match look.await {
                Ok((_, true)) => return Ok(()),
                Ok((now, false)) => Ok(now),
                Err(why) => Err(why.to_string()), // A connection from before a server was killed.
            };
            if now != last {
                (last, changed) = (now.clone(), Instant::now());
            }
            // Who keeps no marks may handle copies for very long: that is to be found out, and not to be waited for.
            let is_given_up = self.options.forgets && begun.elapsed() > FORGETFUL_REST;
            if is_given_up || changed.elapsed() > patience {
                return Err(format!("messages left, out, effects: {now:?}").into());
            }
            sleep(LOOK).await;
        }
    }
}

async fn left(queues: &Queues) -> Result<String, AnyError> {
    let waits = [queues.backlog(&FRONT.parse()?).await, queues.backlog(&BACK.parse()?).await];
    Ok(format!("what waits at {FRONT} and {BACK}: {waits:?}"))
}

fn keys() -> Vec<u32> {
    (0..KEYS).collect()
}

/// A look each second, and an error where nothing has come out for long, though all servers are there. What is away for a moment, again and
/// again, does not excuse the time in between.
async fn samples(load: &Load, sink: &Sink, timeline: &Timeline, until: Instant) -> (Vec<Sample>, Result<(), String>) {
    let (mut samples, mut last, mut nothing_for) = (Vec::new(), 0, Duration::ZERO);
    while timeline.goes_on(until) {
        let since = Instant::now();
        sleep(SAMPLE).await;
        let out = sink.distinct();
        let sample = Sample { at: timeline.elapsed(), out, on_their_way: load.on_their_way(out) };
        if sample.out != last {
            (last, nothing_for) = (sample.out, Duration::ZERO);
        } else if !timeline.is_server_away() {
            nothing_for += since.elapsed();
        }
        samples.push(sample);
        if nothing_for > PATIENCE {
            timeline.stand_still();
            return (samples, Err(format!("nothing has come out for {PATIENCE:?}, {last} before")));
        }
    }
    (samples, Ok(()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_run_of_which_nothing_comes_out_is_ended() {
        let (load, sink, timeline) = (Load::default(), Sink::default(), Timeline::begin());
        let (begun, until) = (Instant::now(), Instant::now() + 10 * PATIENCE);
        let (seen, ended) = samples(&load, &sink, &timeline, until).await;
        assert!(ended.unwrap_err().starts_with("nothing has come out for "));
        assert!((PATIENCE..2 * PATIENCE).contains(&begun.elapsed()) && !seen.is_empty());
        assert!(!timeline.goes_on(until), "others go on");
    }
}
