//! The store on a PostgreSQL server, beside hand-written loops on the same server in the same rounds.

mod anchor;
mod candidate;
mod options;
mod server;

pub(crate) use options::{HELP, Options, parse};
use server::Schema;

use crate::{
    AnyError,
    figure::Figure,
    measure::{Machine, Sample, wait_for_threads},
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

/// What one side runs.
#[derive(Debug, Clone)]
struct Load {
    shape: Shape,
    /// Connections of a hand-written loop.
    clients: usize,
    /// Of the store: 0 means its defaults.
    group_max: usize,
    writers: usize,
    readers: usize,
}

/// Whether no bar is missed, or none is judged. Books that do not add up are an error.
pub(crate) fn bench(options: &Options) -> Result<bool, AnyError> {
    let machine = Machine::of_this_run();
    let mut figures = Vec::new();
    for name in &options.only {
        eprintln!("{name}");
        let found = case(name, options)?;
        found.iter().for_each(|figure| eprintln!("{}", figure.line(options.judged())));
        figures.extend(found);
    }
    println!("{}", machine.line());
    figures.iter().for_each(|figure| println!("{}", figure.line(options.judged())));
    if let Some(file) = &options.json {
        let json = serde_json::json!({ "machine": machine, "settings": options, "judged": options.judged(), "figures": figures });
        let json = serde_json::to_vec_pretty(&json)?;
        std::fs::write(file, json).map_err(|e| format!("--json {}: {e}", file.display()))?;
    }
    Ok(!options.judged() || figures.iter().all(Figure::is_met))
}

/// All rounds of one case.
fn case(name: &str, options: &Options) -> Result<Vec<Figure>, AnyError> {
    let mut ratios = Vec::new();
    let (mut cpu, mut flushes, mut commits) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=options.rounds {
        let (ours, theirs) = paired(name, options, round as u64)?;
        let ratio = match name {
            "p3" => ours.median_seconds.zip(theirs.median_seconds).map(|(ours, theirs)| ours / theirs),
            "c3" => Some(theirs.cpu_us() / ours.cpu_us()),
            _ => Some(ours.rate() / theirs.rate()),
        };
        let ratio = ratio.ok_or("a round without a figure")?;
        eprintln!("  {round}/{}: other {}, hapax {}, ratio {ratio:.2}", options.rounds, told(&theirs), told(&ours));
        ratios.push(ratio);
        cpu.push(ours.cpu_us());
        flushes.extend(ours.flushes_each());
        commits.extend(ours.commits_each());
    }
    let cpu = Figure::of(format!("{name}: CPU of both sides, each"), "us", cpu);
    let flushes = Figure::of(format!("{name}: flushes of the log, each"), "", flushes);
    let commits = Figure::of(format!("{name}: commits, each"), "", commits);
    Ok(match name {
        "p1" => vec![
            Figure::of("p1: saturated, K=1000 / loop over arrays of 100", "", ratios).median_at_least(0.6),
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
            Figure::of("p4: K=1 / loop over arrays of 100 with one connection", "", ratios).median_at_least(0.8),
            cpu,
        ],
        "c1" => vec![Figure::of("c1: K=200000 / own K=1000", "", ratios).median_at_least(0.7), cpu, flushes],
        "c3" => {
            vec![Figure::of("c3: many dedup entries, by CPU / own without", "", ratios).median_at_least(0.95), flushes]
        }
        _ => vec![Figure::of("c4: 50 % repeats / own 5 %", "", ratios).median_at_least(1.0), cpu],
    })
}

fn told(sample: &Sample) -> String {
    let median = sample.median_seconds.map(|seconds| format!(" {:.2} ms", seconds * 1e3)).unwrap_or_default();
    format!("{:.0}/s {:.1} us{median}", sample.rate(), sample.cpu_us())
}

/// One round: what hapax did, and what it is compared with.
fn paired(name: &str, options: &Options, round: u64) -> Result<(Sample, Sample), AnyError> {
    let shape = Shape {
        entities: ENTITIES,
        repeats: REPEATS,
        ids: Ids::Random,
        outgoing: true,
        in_flight: SATURATED,
        batch: BATCH,
        entries: 0,
        queued: 0,
        time: options.time,
        seed: round,
        deliveries_max: u64::MAX,
    };
    let load = Load { shape, clients: LOOP_CLIENTS, group_max: 0, writers: 0, readers: 0 };
    let with = |change: &dyn Fn(&mut Shape)| {
        let mut load = load.clone();
        change(&mut load.shape);
        load
    };
    let hapax = |load: &Load| on_schema(options, "hapax", async |schema| candidate::run(schema, load).await);
    let batched = |load: &Load| on_schema(options, "loop", async |schema| anchor::batched(schema, load).await);
    let (ours, theirs) = match name {
        "p1" => (hapax(&load)?, batched(&load)?),
        "p2" => {
            let load = Load {
                clients: UNBATCHED,
                group_max: 1,
                writers: UNBATCHED / 2,
                readers: UNBATCHED / 2,
                ..with(&|shape| shape.in_flight = UNBATCHED)
            };
            let one = with(&|shape| shape.batch = 1);
            let one = Load { clients: UNBATCHED, ..one };
            (hapax(&load)?, on_schema(options, "loop", async |schema| anchor::unbatched(schema, &one).await)?)
        }
        "p3" => {
            let load = Load { clients: 1, ..with(&|shape| (shape.in_flight, shape.batch) = (1, 1)) };
            (hapax(&load)?, on_schema(options, "loop", async |schema| anchor::classic(schema, &load).await)?)
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

/// One run in a schema of its own, with books that add up.
fn on_schema(
    options: &Options,
    name: &str,
    run: impl AsyncFn(&Schema) -> Result<Run, AnyError>,
) -> Result<Run, AnyError> {
    wait_for_threads();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let schema = Schema::new(&options.server, name).await?;
        let done = run(&schema).await?;
        schema.remove().await?;
        match done.books.problem() {
            None => Ok(done),
            Some(problem) => Err(format!("{name}: {problem}").into()),
        }
    })
}
