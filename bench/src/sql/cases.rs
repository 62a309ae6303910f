//! The cases: what is run in each, and what must come of it.

use super::{Beside, Load, Options, Place, anchor, backlog, candidate, processes, queue};
use crate::{
    AnyError,
    figure::Figure,
    measure::{Sample, wait_for_threads},
    run::{Run, Shape},
    workload::{Ids, REPEATS},
};

/// Deliveries in flight when saturated: the endpoint's default.
const SATURATED: usize = 1024;
const ENTITIES: u32 = 1000;
const ENTITIES_WIDE: u32 = 200_000;
const BATCH: usize = 100;
/// Connections of the hand-written loop in batches: more did not help it.
const LOOP_CLIENTS: usize = 4;
/// In flight where nothing is gathered.
const UNBATCHED: usize = 32;
/// Of as many connections as the loop has, those that read: a look takes an eighth of the time of two commits.
const UNBATCHED_READERS: usize = 4;

/// All rounds of one case.
pub(super) fn case<P: Place>(name: &str, options: &Options) -> Result<Vec<Figure>, AnyError> {
    match name {
        "c2" => with_backlog::<P>(options),
        "q1" => queues::<P>(options),
        "two" => two_processes::<P>(options),
        _ => compared::<P>(name, options),
    }
}

/// hapax beside something else, by one ratio.
fn compared<P: Place>(name: &str, options: &Options) -> Result<Vec<Figure>, AnyError> {
    let mut ratios = Vec::new();
    let (mut cpu, mut flushes, mut commits) = (Vec::new(), Vec::new(), Vec::new());
    let mut beside = P::Beside::of(name, options);
    for round in 1..=options.rounds {
        let (ours, theirs) = paired::<P>(name, options, round as u64)?;
        let ratio = match name {
            "p3" => ours.median_seconds.zip(theirs.median_seconds).map(|(ours, theirs)| ours / theirs),
            "c3" => Some(theirs.cpu_us() / ours.cpu_us()),
            _ => Some(ours.rate() / theirs.rate()),
        };
        let ratio = ratio.ok_or("a round without a figure")?;
        eprintln!("  {round}/{}: other {}, hapax {}, ratio {ratio:.2}", options.rounds, told(&theirs), told(&ours));
        beside.round(options, &load(options, round as u64).shape, &ours);
        ratios.push(ratio);
        cpu.push(ours.cpu_us());
        flushes.extend(ours.flushes_each());
        commits.extend(ours.commits_each());
    }
    let cpu = Figure::of(format!("{name}: CPU of both sides, each"), "us", cpu);
    let flushes = Figure::of(format!("{name}: flushes of the log, each"), "", flushes);
    let commits = Figure::of(format!("{name}: commits, each"), "", commits);
    let mut figures = match name {
        "p1" => vec![
            Figure::of(format!("p1: saturated, K=1000 / loop over {}", P::KIND.batches), "", ratios)
                .median_at_least(0.6),
            cpu.median_at_most(25.0),
            flushes.median_at_most(0.02),
            commits,
        ],
        "p2" => vec![
            Figure::of("p2: 32 in flight, unbatched / loop message by message", "", ratios).median_at_least(0.8),
            cpu,
        ],
        "p3" => vec![
            Figure::of("p3: one at a time, median time / a transaction's", "", ratios).median_at_most(1.1),
            cpu,
            commits,
        ],
        "p4" => vec![
            Figure::of(format!("p4: K=1 / loop over {} with one connection", P::KIND.batches), "", ratios)
                .median_at_least(0.8),
            cpu,
        ],
        "c1" => vec![Figure::of("c1: K=200000 / own K=1000", "", ratios).median_at_least(0.7), cpu, flushes],
        "c3" => {
            vec![Figure::of("c3: many dedup entries, by CPU / own without", "", ratios).median_at_least(0.95), flushes]
        }
        _ => vec![Figure::of("c4: 50 % repeats / own 5 %", "", ratios).median_at_least(1.0), cpu],
    };
    figures.extend(beside.figures(name));
    Ok(figures)
}

/// Handling while outgoing messages wait, and how fast they go in the end.
fn with_backlog<P: Place>(options: &Options) -> Result<Vec<Figure>, AnyError> {
    let (mut handled, mut drained, mut rates, mut even) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 1..=options.rounds {
        let load = load(options, round as u64);
        let full = Load { backlog: options.backlog, ..load.clone() };
        let usual = in_place(options, "hapax", async |place: &P| candidate::run(place, &load).await)?;
        let mut drain = None;
        let loaded = in_place(options, "hapax", async |place: &P| {
            let (run, sent) = backlog::handled_and_drained(place, &full).await?;
            drain = Some(sent);
            Ok(run)
        })?;
        let by_hand =
            without_books(options, "loop", async |place: &P| backlog::drained_by_hand(place, full.backlog).await)?;
        let drain = drain.ok_or("nothing was drained")?;
        // By CPU, because so near to one a rate says more about the neighbours.
        handled.push(usual.sample.cpu_us() / loaded.sample.cpu_us());
        drained.push(drain.rate / by_hand.rate);
        rates.push(drain.rate);
        even.push(drain.last_to_first);
        eprintln!(
            "  {round}/{}: without {}, with {}; drain by hand {:.0}/s, hapax {:.0}/s, its last tenth {:.2} of the first",
            options.rounds,
            told(&usual.sample),
            told(&loaded.sample),
            by_hand.rate,
            drain.rate,
            drain.last_to_first
        );
    }
    let count = options.backlog;
    Ok(vec![
        Figure::of(format!("c2: {count} outgoing messages wait, by CPU / own without"), "", handled)
            .median_at_least(0.95),
        Figure::of("c2: their drain / loop over steps of 100", "", drained).median_at_least(0.4),
        Figure::of("c2: last tenth of the drain / first", "", even).median_at_least(0.7),
        Figure::of("c2: drain", "/s", rates),
    ])
}

/// Two processes on the same entities beside one with as much in flight.
fn two_processes<P: Place>(options: &Options) -> Result<Vec<Figure>, AnyError> {
    let (mut ratios, mut rates, mut cpu) = (Vec::new(), Vec::new(), Vec::new());
    let (mut disturbed, mut deadlocks) = (Vec::new(), Vec::new());
    for round in 1..=options.rounds {
        let load = load(options, round as u64);
        let half = Load { shape: Shape { in_flight: SATURATED / 2, ..load.shape }, ..load.clone() };
        let alone = in_place(options, "hapax", async |place: &P| candidate::run(place, &load).await)?;
        let both = without_books(options, "two", async |place: &P| processes::together(place, &half).await)?;
        let ratio = both.sample.rate() / alone.sample.rate();
        eprintln!(
            "  {round}/{}: one {}, two {}, ratio {ratio:.2}, {:.3} of the passes again, {} deadlocks",
            options.rounds,
            told(&alone.sample),
            told(&both.sample),
            both.disturbed,
            both.deadlocks
        );
        ratios.push(ratio);
        rates.push(both.sample.rate());
        cpu.push(both.sample.cpu_us());
        disturbed.push(both.disturbed);
        deadlocks.push(both.deadlocks as f64);
    }
    Ok(vec![
        Figure::of("two: two processes on the same K=1000 / one", "", ratios),
        Figure::of("two: both together", "/s", rates),
        Figure::of("two: CPU of all sides, each", "us", cpu),
        Figure::of("two: passes that were made again, each", "", disturbed),
        Figure::of("two: deadlocks that the server saw, a run", "", deadlocks),
    ])
}

/// The queue alone, beside a table by hand.
fn queues<P: Place>(options: &Options) -> Result<Vec<Figure>, AnyError> {
    let (mut ratios, mut rates, mut cpu, mut flushes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 1..=options.rounds {
        let shape = load(options, round as u64).shape;
        let by_hand = without_books(options, "loop", async |place: &P| queue::by_hand(place, &shape).await)?;
        let ours = without_books(options, "hapax", async |place: &P| queue::hapax(place, &shape).await)?;
        let ratio = ours.rate() / by_hand.rate();
        eprintln!("  {round}/{}: by hand {}, hapax {}, ratio {ratio:.2}", options.rounds, told(&by_hand), told(&ours));
        ratios.push(ratio);
        rates.push(ours.rate());
        cpu.push(ours.cpu_us());
        flushes.extend(ours.flushes_each());
    }
    Ok(vec![
        Figure::of("q1: sent, given and settled by the queue / table with SKIP LOCKED by hand", "", ratios),
        Figure::of("q1: the queue", "/s", rates),
        Figure::of("q1: CPU of both sides, each", "us", cpu),
        Figure::of("q1: flushes of the log, each", "", flushes),
    ])
}

fn told(sample: &Sample) -> String {
    let median = sample.median_seconds.map(|seconds| format!(" {:.2} ms", seconds * 1e3)).unwrap_or_default();
    format!("{:.0}/s {:.1} us{median}", sample.rate(), sample.cpu_us())
}

/// Saturated, with the workload as it is.
pub(super) fn load(options: &Options, round: u64) -> Load {
    let shape = Shape {
        entities: ENTITIES,
        repeats: REPEATS,
        ids: Ids::Random,
        outgoing: true,
        in_flight: SATURATED,
        batch: BATCH,
        entries: 0,
        queued: 0,
        pending: 0,
        time: options.time,
        seed: round,
        timed: false,
        deliveries_max: u64::MAX,
    };
    Load { shape, clients: LOOP_CLIENTS, group_max: 0, writers: 0, readers: 0, backlog: 0 }
}

/// One round: what hapax did, and what it is compared with.
fn paired<P: Place>(name: &str, options: &Options, round: u64) -> Result<(Sample, Sample), AnyError> {
    let load = load(options, round);
    let with = |change: &dyn Fn(&mut Shape)| {
        let mut load = load.clone();
        change(&mut load.shape);
        load
    };
    let hapax = |load: &Load| in_place(options, "hapax", async |place: &P| candidate::run(place, load).await);
    let batched = |load: &Load| in_place(options, "loop", async |place: &P| anchor::batched(place, load).await);
    let (ours, theirs) = match name {
        "p1" => (hapax(&load)?, batched(&load)?),
        "p2" => {
            let load = Load {
                clients: UNBATCHED,
                group_max: 1,
                writers: UNBATCHED - UNBATCHED_READERS,
                readers: UNBATCHED_READERS,
                ..with(&|shape| shape.in_flight = UNBATCHED)
            };
            let one = with(&|shape| shape.batch = 1);
            let one = Load { clients: UNBATCHED, ..one };
            (hapax(&load)?, in_place(options, "loop", async |place: &P| anchor::unbatched(place, &one).await)?)
        }
        "p3" => {
            let load = Load { clients: 1, ..with(&|shape| (shape.in_flight, shape.batch) = (1, 1)) };
            (hapax(&load)?, in_place(options, "loop", async |place: &P| anchor::classic(place, &load).await)?)
        }
        "p4" => {
            let load = Load { clients: 1, ..with(&|shape| shape.entities = 1) };
            (hapax(&load)?, batched(&load)?)
        }
        "c1" => (hapax(&with(&|shape| shape.entities = ENTITIES_WIDE))?, hapax(&load)?),
        "c3" => (hapax(&with(&|shape| shape.entries = options.entries))?, hapax(&load)?),
        _ => (hapax(&with(&|shape| shape.repeats = 0.5))?, hapax(&load)?),
    };
    Ok((ours.sample, theirs.sample))
}

/// One run in a place of its own, with books that add up.
pub(super) fn in_place<P: Place>(
    options: &Options,
    name: &str,
    run: impl AsyncFnOnce(&P) -> Result<Run, AnyError>,
) -> Result<Run, AnyError> {
    let done = without_books(options, name, run)?;
    match done.books.problem() {
        None => Ok(done),
        Some(problem) => Err(format!("{name}: {problem}").into()),
    }
}

/// One run in a place of its own, which goes with it.
fn without_books<P: Place, T>(
    options: &Options,
    name: &str,
    run: impl AsyncFnOnce(&P) -> Result<T, AnyError>,
) -> Result<T, AnyError> {
    wait_for_threads();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let place = P::create(options.server(), name).await?;
        let done = run(&place).await;
        let removed = place.remove().await;
        let done = done?;
        removed?;
        Ok(done)
    })
}
