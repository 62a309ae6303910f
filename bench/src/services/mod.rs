//! Stores in services without tables, on emulators: hapax beside a loop over the bare client library that makes the same calls.
//!
//! An emulator takes more time and CPU than all of the client, so rates say little of the real service; what the client itself
//! costs, and how many requests a message makes, are what is judged.

#[cfg(feature = "cosmos")]
mod cosmos;
#[cfg(feature = "dynamodb")]
mod dynamodb;
mod options;

use std::{fmt, future::Future, time::Duration};

use hapax::{
    Endpoint, InProcess, Saga,
    ids::{EndpointName, EntityKey, SagaKey, SagaName, Scope},
    ports::{DeadLetters, DedupStore, EntityStore},
};
pub(crate) use options::{HELP, Options, Service, parse};

use crate::{
    AnyError,
    candidate::{effects_of, endpoint},
    figure::Figure,
    measure::{Machine, Sample, reset_peak, resident},
    run::{Run, Shape},
    workload::{Account, Deposit, Ids, key_of},
};

/// Requests that a message without rivals may cost: load, check, save, finish.
const REQUESTS_MAX: f64 = 4.0;
/// CPU of hapax and the client library together, beside the client library alone for the same calls.
const CPU_MAX: f64 = 1.1;
/// By how much an endpoint outlives its window: it ends what it has begun.
const IDLE_LONGER: Duration = Duration::from_millis(500);
/// Memory after all rounds beside memory after the first: what grows shows here.
const MEMORY_MAX: f64 = 1.5;

/// What is measured on one service.
trait Place: Sized {
    type Store: EntityStore + DedupStore + DeadLetters + Clone + 'static;

    /// A table or database that nobody else uses.
    fn new(server: &str) -> impl Future<Output = Result<Self, AnyError>> + Send;

    /// hapax's store in it.
    fn store(&self) -> &Self::Store;

    /// Requests that were sent for that store so far.
    fn requests(&self) -> u64;

    /// Accounts from 0 on for the loop by hand.
    fn prepare(&self, entities: u32) -> impl Future<Output = Result<(), AnyError>> + Send;

    /// The loop by hand.
    fn by_hand(&self, shape: &Shape) -> impl Future<Output = Result<Sample, AnyError>> + Send;

    fn remove(self) -> impl Future<Output = Result<(), AnyError>> + Send;
}

/// Whether no bar is missed, or none is judged.
pub(crate) fn bench(options: &Options) -> Result<bool, AnyError> {
    let (machine, judged) = (Machine::of_this_run(), options.judged());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let figures = runtime.block_on(figures(options))?;
    println!("{}; an emulator of {} on the same processors", machine.line(), options.service.title());
    figures.iter().for_each(|figure| println!("{}", figure.line(judged)));
    if let Some(file) = &options.json {
        let json = serde_json::json!({ "machine": machine, "settings": options, "judged": judged, "figures": figures });
        std::fs::write(file, serde_json::to_vec_pretty(&json)?)
            .map_err(|e| format!("--json {}: {e}", file.display()))?;
    }
    Ok(!judged || figures.iter().all(Figure::is_met))
}

async fn figures(options: &Options) -> Result<Vec<Figure>, AnyError> {
    match options.service {
        #[cfg(feature = "dynamodb")]
        Service::DynamoDb => measure::<dynamodb::Table>(options).await,
        #[cfg(feature = "cosmos")]
        Service::Cosmos => measure::<cosmos::Database>(options).await,
        #[cfg(not(all(feature = "dynamodb", feature = "cosmos")))]
        service => Err(format!("built without --features {}", service.command()).into()),
    }
}

#[derive(Default)]
struct Found {
    one: Values,
    many: Values,
    requests: Vec<f64>,
    idle: Vec<f64>,
    memory: Vec<f64>,
}

#[derive(Default)]
struct Values {
    rate: Vec<f64>,
    cpu: Vec<f64>,
    ours: Vec<f64>,
    theirs: Vec<f64>,
}

async fn measure<P: Place>(options: &Options) -> Result<Vec<Figure>, AnyError> {
    let (mut found, mut memory_first) = (Found::default(), None);
    for round in 1..=options.rounds {
        let place = P::new(&options.server).await?;
        let shape = shape(options, round as u64);
        place.prepare(shape.entities).await?;
        for (name, in_flight) in [("one", 1), ("many", options.in_flight)] {
            // Other messages than the case before has left in the store: those would be repeats.
            let seed = shape.seed * 2 + u64::from(in_flight == 1);
            let shape = Shape { in_flight, seed, ..shape };
            let theirs = place.by_hand(&shape).await?;
            reset_peak();
            let (Run { sample: ours, books }, asked) = by_hapax(&place, &shape).await?;
            if let Some(problem) = books.problem() {
                return Err(format!("void: {problem}").into());
            }
            let values = if in_flight == 1 { &mut found.one } else { &mut found.many };
            values.add(&ours, &theirs);
            if in_flight == 1 {
                let idle = idle(&place, shape.time + IDLE_LONGER).await?;
                found.idle.push(idle as f64);
                found.requests.push(asked.saturating_sub(idle) as f64 / books.distinct as f64);
            }
            eprintln!("  {round}/{} {name}: by hand {}, hapax {}", options.rounds, Told(&theirs), Told(&ours));
        }
        let peak = resident().peak_mib;
        found.memory.push(peak / *memory_first.get_or_insert(peak));
        place.remove().await?;
    }
    Ok(found.figures())
}

impl Values {
    fn add(&mut self, ours: &Sample, theirs: &Sample) {
        self.rate.push(ours.rate() / theirs.rate());
        self.cpu.push(ours.cpu_us() / theirs.cpu_us());
        self.ours.push(ours.cpu_us());
        self.theirs.push(theirs.cpu_us());
    }

    fn figures(self, name: &str) -> [Figure; 4] {
        [
            Figure::of(format!("{name}: messages a second / the loop by hand"), "", self.rate),
            Figure::of(format!("{name}: client's CPU of a message / the loop by hand"), "", self.cpu)
                .median_at_most(CPU_MAX),
            Figure::of(format!("{name}: client's CPU of a message"), "us", self.ours),
            Figure::of(format!("{name}: the same by hand"), "us", self.theirs),
        ]
    }
}

impl Found {
    fn figures(self) -> Vec<Figure> {
        let mut figures = vec![
            Figure::of("requests for a message that nobody disturbs, one at a time", "", self.requests)
                .all_at_most(REQUESTS_MAX),
            Figure::of("requests of an endpoint that has nothing to do for as long, left out above", "", self.idle),
        ];
        figures.extend(self.one.figures("one at a time"));
        figures.extend(self.many.figures("many in flight"));
        figures.push(
            Figure::of("highest resident memory of a round / of the first round", "", self.memory)
                .median_at_most(MEMORY_MAX),
        );
        figures
    }
}

fn shape(options: &Options, seed: u64) -> Shape {
    Shape {
        entities: options.entities,
        // None: what a repeat costs is two reads on both sides, and would blur the count of requests.
        repeats: 0.0,
        ids: Ids::Random,
        outgoing: true,
        in_flight: 1,
        batch: 1,
        entries: 0,
        queued: 0,
        pending: 0,
        time: Duration::from_secs(options.seconds),
        deliveries_max: u64::MAX,
        seed,
        timed: false,
    }
}

/// hapax, what it leaves in the store, and how many requests it made; not those of this look at what it leaves.
async fn by_hapax<P: Place>(place: &P, shape: &Shape) -> Result<(Run, u64), AnyError> {
    let store = place.store();
    let before = effects(store, shape.entities).await?;
    let asked = place.requests();
    let mut run = endpoint::fed(store.clone(), Box::new(|| None), shape, false).await?;
    let asked = place.requests() - asked;
    run.books.effects = effects(store, shape.entities).await? - before;
    run.books.outbox_left = store.pending(&scope()?.into(), Duration::ZERO, None, 1000).await?.len() as u64;
    Ok((run, asked))
}

/// Requests of an endpoint that has nothing to do for `time`: its sweeps, which are as many however many messages come.
async fn idle<P: Place>(place: &P, time: Duration) -> Result<u64, AnyError> {
    let asked = place.requests();
    let endpoint = Endpoint::builder(endpoint::ENDPOINT)
        .store(place.store().clone())
        .transport(InProcess::new(endpoint::ENDPOINT))
        .saga::<Account>(|account| account.starts::<Deposit>())
        .start()
        .await?;
    endpoint.run_until(tokio::time::sleep(time)).await?;
    Ok(place.requests() - asked)
}

fn scope() -> Result<Scope, AnyError> {
    Ok(Scope { endpoint: EndpointName::parse(endpoint::ENDPOINT)?, saga: SagaName::parse(Account::NAME)? })
}

async fn effects(store: &impl EntityStore, entities: u32) -> Result<u64, AnyError> {
    let (scope, mut effects) = (std::sync::Arc::new(scope()?), 0);
    for number in 0..entities {
        let key = EntityKey::new(scope.clone(), SagaKey::parse(key_of(number))?);
        if let Some(stored) = store.load(&key, &[]).await?.stored {
            effects += effects_of(&stored.entity.state)?;
        }
    }
    Ok(effects)
}

/// One side, for people.
struct Told<'s>(&'s Sample);

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0}/s {:.0} us", self.0.rate(), self.0.cpu_us())
    }
}
