//! Messages through a broker: hapax beside a loop over the bare client library, on the same queues of the same server in the same rounds,
//! with the same confirmations and as much under way.
//!
//! Every run is void, and an error, unless its books add up: by the ids of what was sent, every message had its effect once.

mod desk;
mod history;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "nats")]
mod nats;
mod options;
mod place;
mod progress;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
#[cfg(feature = "redis")]
mod redis;
mod runs;
#[cfg(feature = "sqs")]
mod sqs;

use std::{fmt, time::Duration};

pub(crate) use options::{HELP, Options, parse};

#[cfg(any(feature = "kafka", feature = "nats", feature = "rabbitmq", feature = "redis", feature = "sqs"))]
use options::Broker;
use options::{IDLE, SPEED, STORE};
use place::{Load, Place};

use crate::{
    AnyError,
    figure::Figure,
    measure::{Machine, Sample},
    run::Run,
};

/// Of the loop by hand.
const SPEED_MIN: f64 = 0.7;
const IDLE_MAX: f64 = 1.5;
/// Of the slower of store and broker alone.
const STORE_MIN: f64 = 0.8;
/// Messages by which it is found how many take as long as asked for.
const TRIAL: u64 = 2000;
/// Share of messages that repeat an earlier one, where it is looked at what became of each. In rounds there are none: a broker that drops
/// them would have less to do than is counted.
const REPEATS: f64 = 0.05;

/// Whether no bar is missed, or none is judged.
pub(crate) fn bench(options: &Options) -> Result<bool, AnyError> {
    let (machine, judged) = (Machine::of_this_run(), options.judged());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let figures = runtime.block_on(figures(options))?;
    println!("{}; {} on the same processors", machine.line(), options.broker.title());
    figures.iter().for_each(|figure| println!("{}", figure.line(judged)));
    if let Some(file) = &options.json {
        let json = serde_json::json!({ "machine": machine, "settings": options, "judged": judged, "figures": figures });
        std::fs::write(file, serde_json::to_vec_pretty(&json)?)
            .map_err(|e| format!("--json {}: {e}", file.display()))?;
    }
    Ok(!judged || figures.iter().all(Figure::is_met))
}

async fn figures(options: &Options) -> Result<Vec<Figure>, AnyError> {
    match options.broker {
        #[cfg(feature = "kafka")]
        Broker::Kafka => measured::<kafka::Topics>(options).await,
        #[cfg(feature = "nats")]
        Broker::Nats => measured::<nats::Streams>(options).await,
        #[cfg(feature = "rabbitmq")]
        Broker::RabbitMq => measured::<rabbitmq::Exchange>(options).await,
        #[cfg(feature = "redis")]
        Broker::Redis => measured::<redis::Streams>(options).await,
        #[cfg(feature = "sqs")]
        Broker::Sqs => measured::<sqs::Service>(options).await,
        #[cfg(not(all(
            feature = "kafka",
            feature = "nats",
            feature = "rabbitmq",
            feature = "redis",
            feature = "sqs"
        )))]
        broker => Err(format!("built without {}: cargo xtask bench builds with it", broker.title()).into()),
    }
}

/// What was declared is removed, whatever happened.
async fn measured<P: Place>(options: &Options) -> Result<Vec<Figure>, AnyError> {
    let place = P::open(options).await?;
    let figures = match options.messages {
        Some(messages) => followed(&place, options, messages).await,
        None => rounds(&place, options).await,
    };
    let removed = place.remove().await;
    let figures = figures?;
    removed?;
    Ok(figures)
}

/// So many messages once, by hapax alone.
async fn followed<P: Place>(place: &P, options: &Options, messages: u64) -> Result<Vec<Figure>, AnyError> {
    let Run { sample, books } =
        runs::in_memory(place, &Load { messages, repeats: REPEATS, ..load(options, 1) }).await?;
    let name = format!(
        "{messages} messages, {} distinct ids: lost, or with more than one effect ({} were sent more than once under their id)",
        books.distinct,
        books.sent - books.distinct
    );
    // A run with any other number is an error.
    Ok(vec![Figure::of(name, "", vec![0.0]).all_at_most(0.0), Figure::of("messages a second", "", vec![sample.rate()])])
}

fn load(options: &Options, seed: u64) -> Load {
    Load { messages: TRIAL, entities: options.entities, repeats: 0.0, in_flight: options.in_flight, seed }
}

#[derive(Debug, Default)]
struct Found {
    ours: Vec<Sample>,
    theirs: Vec<Sample>,
    idle_ours: Vec<f64>,
    idle_theirs: Vec<f64>,
    /// With PostgreSQL as the store; PostgreSQL alone; the broker alone.
    stored: Vec<[Sample; 3]>,
}

async fn rounds<P: Place>(place: &P, options: &Options) -> Result<Vec<Figure>, AnyError> {
    let (count, time) = (options.rounds, Duration::from_secs(options.seconds));
    let mut found = Found::default();
    // As many for both sides as the faster one does in the time: what is not measured, warms up.
    let trial = load(options, 0);
    let (theirs, ours) = (runs::by_hand(place, &trial).await?, runs::in_memory(place, &trial).await?);
    let mut rate = theirs.sample.rate().max(ours.sample.rate());
    // With PostgreSQL it is a fraction of that: what takes a minute would show no more.
    let mut stored_rate = None;
    let in_time = |rate: f64| ((rate * time.as_secs_f64()) as u64).max(TRIAL);
    for round in 1..=count {
        let load = Load { messages: in_time(rate), ..load(options, round as u64) };
        let ours_first = round % 2 == 0;
        let mut ours = None;
        if options.takes(SPEED) {
            let [theirs, hapax] = both(place, &load, ours_first).await?;
            eprintln!("  {round}/{count} speed: by hand {}, hapax {}", Told(&theirs), Told(&hapax));
            // The trial is short, and says little.
            rate = theirs.rate().max(hapax.rate());
            found.theirs.push(theirs);
            found.ours.push(hapax);
            ours = Some(hapax);
        }
        if options.takes(IDLE) {
            let (theirs, hapax) = idle(place, &load, time, ours_first).await?;
            eprintln!("  {round}/{count} idle: by hand {:.0} us, hapax {:.0} us", theirs * 1e6, hapax * 1e6);
            found.idle_theirs.push(theirs);
            found.idle_ours.push(hapax);
        }
        if let Some(server) = options.postgres.as_deref().filter(|_| options.takes(STORE)) {
            let load = Load { messages: in_time(stored_rate.unwrap_or(rate)), ..load };
            let broker = match ours {
                Some(sample) => sample,
                None => runs::in_memory(place, &load).await?.sample,
            };
            let store = runs::postgres_alone(server, &load).await?.sample;
            let both = runs::in_postgres(place, server, &load).await?.sample;
            let told = [Told(&both), Told(&store), Told(&broker)];
            eprintln!("  {round}/{count} store: both {}, store alone {}, broker alone {}", told[0], told[1], told[2]);
            stored_rate = Some(both.rate().max(store.rate()));
            found.stored.push([both, store, broker]);
        }
    }
    if options.takes(STORE) && options.postgres.is_none() {
        eprintln!("store is NOT MEASURED: name a server with --postgres or HAPAX_TEST_POSTGRES");
    }
    Ok(found.figures(options))
}

/// One after the other, the loop by hand being the first of what is given.
async fn both<P: Place>(place: &P, load: &Load, ours_first: bool) -> Result<[Sample; 2], AnyError> {
    if ours_first {
        let ours = runs::in_memory(place, load).await?.sample;
        return Ok([runs::by_hand(place, load).await?.sample, ours]);
    }
    Ok([runs::by_hand(place, load).await?.sample, runs::in_memory(place, load).await?.sample])
}

async fn idle<P: Place>(place: &P, load: &Load, time: Duration, ours_first: bool) -> Result<(f64, f64), AnyError> {
    if ours_first {
        let ours = runs::idle_by_hapax(place, load, time).await?;
        return Ok((runs::idle_by_hand(place, load, time).await?, ours));
    }
    Ok((runs::idle_by_hand(place, load, time).await?, runs::idle_by_hapax(place, load, time).await?))
}

impl Found {
    fn figures(self, options: &Options) -> Vec<Figure> {
        let mut figures = Vec::new();
        let each = |samples: &[Sample], of: fn(&Sample) -> f64| samples.iter().map(of).collect::<Vec<f64>>();
        let pairs = || self.ours.iter().zip(&self.theirs);
        if options.takes(SPEED) {
            let ratio = pairs().map(|(ours, theirs)| ours.rate() / theirs.rate()).collect();
            let cpu = pairs().map(|(ours, theirs)| ours.cpu_us() / theirs.cpu_us()).collect();
            figures.extend([
                Figure::of("speed: messages a second / the loop by hand", "", ratio).median_at_least(SPEED_MIN),
                Figure::of("speed: messages a second", "", each(&self.ours, Sample::rate)),
                Figure::of("speed: the same by hand", "", each(&self.theirs, Sample::rate)),
                Figure::of("speed: client's CPU of a message / the loop by hand", "", cpu),
                Figure::of("speed: client's CPU of a message", "us", each(&self.ours, Sample::cpu_us)),
                Figure::of("speed: the same by hand", "us", each(&self.theirs, Sample::cpu_us)),
            ]);
        }
        if options.takes(IDLE) {
            let us = |seconds: &[f64]| seconds.iter().map(|seconds| seconds * 1e6).collect::<Vec<f64>>();
            let ratio = self.idle_ours.iter().zip(&self.idle_theirs).map(|(ours, theirs)| ours / theirs).collect();
            figures.extend([
                Figure::of("idle: time until half are settled / the loop by hand", "", ratio).median_at_most(IDLE_MAX),
                Figure::of("idle: time until half are settled", "us", us(&self.idle_ours)),
                Figure::of("idle: the same by hand", "us", us(&self.idle_theirs)),
            ]);
        }
        if !self.stored.is_empty() {
            let ratio = |[both, store, broker]: &[Sample; 3]| both.rate() / store.rate().min(broker.rate());
            let stored = |place: usize| self.stored.iter().map(|samples| samples[place].rate()).collect::<Vec<f64>>();
            figures.extend([
                Figure::of(
                    "store: messages a second with PostgreSQL as the store / the slower of both alone",
                    "",
                    self.stored.iter().map(ratio).collect(),
                )
                .median_at_least(STORE_MIN),
                Figure::of("store: messages a second with both", "", stored(0)),
                Figure::of("store: with the store alone, by queues of the process", "", stored(1)),
                Figure::of("store: with the broker alone, by a store in memory", "", stored(2)),
            ]);
        }
        figures
    }
}

/// One side, for people.
struct Told<'s>(&'s Sample);

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0}/s {:.0} us", self.0.rate(), self.0.cpu_us())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn sample(rate: f64) -> Sample {
        Sample { seconds: 1.0, deliveries: rate as u64, cpu_seconds: 1.0, ..Sample::default() }
    }

    fn options() -> Options {
        parse(["redis".to_owned()]).unwrap().unwrap()
    }

    #[test]
    fn ratios_are_taken_within_a_round_and_bars_are_the_issue_s() {
        let found = |ours: f64, idle: f64, both: f64| Found {
            ours: vec![sample(ours), sample(ours * 2.0)],
            theirs: vec![sample(1000.0), sample(2000.0)],
            idle_ours: vec![idle],
            idle_theirs: vec![1.0],
            stored: vec![[sample(both), sample(1000.0), sample(5000.0)]],
        };
        let met = |found: Found| found.figures(&options()).iter().map(Figure::is_met).collect::<Vec<_>>();
        assert!(met(found(700.0, 1.5, 800.0)).into_iter().all(|met| met));
        assert_eq!(met(found(699.0, 1.51, 799.0)).into_iter().filter(|met| !met).count(), 3);
    }

    #[test]
    fn what_was_not_asked_for_has_no_figure() {
        let options = Options { only: vec![IDLE.to_owned()], ..options() };
        let figures = Found { idle_ours: vec![1.0], idle_theirs: vec![1.0], ..Found::default() }.figures(&options);
        assert!(figures.iter().all(|figure| figure.line(false).starts_with("  idle:")));
    }
}
