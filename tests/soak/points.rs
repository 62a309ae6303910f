//! Every crash point: a worker that sends itself SIGKILL before and after its n-th call of a port, for every n and each kind of call; then a clean
//! worker; then the books, of all of them together.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use hapax::{
    Sender,
    ids::EndpointName,
    ports::{Dispatcher, Transport},
};
use hapax_tests::Scratch;
use tokio::time::{Instant, sleep};

use crate::{
    AnyError,
    crew::{Crew, Ended},
    ledger::{self, Books},
    load,
    messages::{BACK, FRONT, SINK, Step, Version},
    options::Options,
    place::{Front, Queues, Store},
    report::{self, Figures},
    servers,
    sink::{self, Sink},
    worker::{Plan, Times},
};

/// All that these endpoints ask of a port. What a pair has no use for has no point. Nobody asks here for letters (`list`, `discard`), which an
/// operator does, nor cancels anything (`cancel`), nor forgets by evidence (long memories and marks).
pub(crate) const CALLS: [&str; 19] = [
    "connect", "receive", "load", "contains", "version", "save", "dispatch", "insert", "finish", "settle", "extend",
    "add", "put", "take", "done", "next", "pending", "evict", "purge",
];
/// Without these, of those that are asked for, a run has shown nothing: of each, one. Not `version`: it is asked for where the step that is set aside has its pass to itself,
/// which is chance; beside others it is judged by their save. Old entries and tombstones are looked for as soon as an endpoint starts.
const MET: [&[&str]; 11] = [
    &["connect"],
    &["receive"],
    &["load"],
    &["save"],
    &["dispatch"],
    &["finish", "insert"],
    &["add"],
    &["settle"],
    &["pending"],
    &["evict"],
    &["purge"],
];
/// Steps of each run: among them one that comes twice, one that is held back, and one that is set aside.
const STEPS: u32 = 8;
/// Keys whose first steps are so: those of [`Step`].
const FIRST_KEY: u32 = 8_000;
const NEXT_KEY: u32 = 9_980;
/// A kind of call is over where so many numbers in a row did not come. How many calls there are differs from run to run: one that did not come
/// says nothing of the next.
const PASSED_OVER_MAX: u32 = 2;
/// Of what is left something is done within this, and what is left is done within that: a machine that is busy otherwise takes its time.
const PATIENCE: Duration = Duration::from_secs(120);
const LONGEST: Duration = Duration::from_secs(900);
const LOOK: Duration = Duration::from_millis(20);

struct Points {
    plan: Plan,
    store: Store,
    queues: Queues,
    sender: Sender,
    dispatcher: Arc<dyn Dispatcher>,
    sink: Arc<Sink>,
    keys: Vec<u32>,
}

/// Whatever is found is an error.
pub(crate) async fn run(options: &Options) -> Result<(), AnyError> {
    let scratch = Scratch::new("points");
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
    let (store, queues) = (
        servers::store(options.store, &scratch, seed).await?,
        servers::queues(options.transport, &scratch, seed).await?,
    );
    let plan = Plan {
        store: store.direct.clone(),
        queues: queues.direct.clone(),
        version: Version::Today,
        forgets: false,
        fuse: None,
        times: Times::SHORT,
    };
    let opened = queues.direct.open(plan.times.lease).await?;
    let transport: Arc<dyn Transport> = opened.transport();
    for name in [FRONT, BACK] {
        transport.connect(&name.parse()?, &[]).await?;
    }
    let dispatcher = transport.connect(&SINK.parse()?, &[]).await?.dispatcher;
    let (sink, place) = (Arc::<Sink>::default(), queues.direct.clone());
    let drained = sink.clone();
    let draining = tokio::spawn(async move { sink::drain(place, &drained).await });
    let store = store.direct.open(Front::Plain).await?;
    let sender = Sender::new(dispatcher.clone());
    let mut points = Points { plan, store, queues: opened, sender, dispatcher, sink, keys: Vec::new() };
    let met = points.everywhere(options).await?;
    let books = ledger::judge(&points.store, &points.plan.store, &points.sink, &points.keys, STEPS).await?;
    draining.abort();
    let mut due = MET.iter().filter(|names| names.iter().any(|name| options.asks_for(name)));
    let unmet = due.find(|names| !names.iter().any(|name| met.contains_key(name)));
    let verdict = match (&*books.faults, unmet) {
        ([], None) => report::WELL.to_owned(),
        ([], Some(names)) => format!("Void: nobody was killed at a call of `{}`.", names.join("` or `")),
        (faults, _) => format!("**Wrong**: {}", faults.join("; ")),
    };
    let runs = u32::try_from(points.keys.len())?;
    figures(options, runs, &met, &books, &verdict).keep(&options.report())?;
    if verdict == report::WELL { Ok(()) } else { Err(verdict.into()) }
}

fn figures(options: &Options, runs: u32, met: &BTreeMap<&'static str, u32>, books: &Books, verdict: &str) -> Figures {
    let mut rows = vec![
        ("points".to_owned(), runs.to_string()),
        ("workers killed".to_owned(), met.values().sum::<u32>().to_string()),
    ];
    // In the order of a message's way.
    let calls = CALLS.iter().filter_map(|name| Some((name, met.get(name)?)));
    rows.extend(calls.map(|(name, killed)| (format!("at `{name}`"), killed.to_string())));
    rows.extend(books.named().map(|(name, count)| (name.to_owned(), count.to_string())));
    let (store, transport) = (options.store.to_string(), options.transport.to_string());
    Figures { kind: "points", store, transport, figures: rows, verdict: verdict.to_owned() }
}

impl Points {
    /// How many points of each kind there were.
    async fn everywhere(&mut self, options: &Options) -> Result<BTreeMap<&'static str, u32>, AnyError> {
        let mut met = BTreeMap::new();
        for name in CALLS.into_iter().filter(|name| options.asks_for(name)) {
            let mut passed_over = 0;
            for number in 0..options.calls {
                let mut killed = 0;
                for side in ["before", "after"] {
                    killed += u32::from(self.point(&format!("{name}-{number}-{side}")).await?);
                }
                if killed > 0 {
                    passed_over = 0;
                    *met.entry(name).or_default() += killed;
                    continue;
                }
                passed_over += 1;
                if passed_over == PASSED_OVER_MAX {
                    break;
                }
            }
        }
        Ok(met)
    }

    /// One run. Whether somebody was killed there.
    async fn point(&mut self, point: &str) -> Result<bool, AnyError> {
        let key = FIRST_KEY + NEXT_KEY * u32::try_from(self.keys.len())?;
        self.keys.push(key);
        let mut left = load::outgoing(&self.sender, (0..STEPS).map(|number| Step { key, number }))?;
        while !left.is_empty() {
            let mut results = self.dispatcher.dispatch(&left).await.into_iter();
            left.retain(|_| results.next().is_none_or(|result| result.is_err()));
        }
        let fused = Plan { fuse: Some(point.to_owned()), ..self.plan.clone() };
        let killed = self.works(fused, key).await.map_err(|why| format!("{point}: {why}"))? == Ended::Killed;
        if killed {
            // One without a fuse that is killed is an error.
            self.works(self.plan.clone(), key).await.map_err(|why| format!("behind {point}: {why}"))?;
        }
        Ok(killed)
    }

    /// One worker, until it is killed or everything is done.
    async fn works(&self, plan: Plan, key: u32) -> Result<Ended, AnyError> {
        let (mut crew, begun) = (Crew::hire(plan, 1)?, Instant::now());
        let (mut last, mut changed) = (String::new(), begun);
        loop {
            if let Some(ended) = crew.ended()? {
                return Ok(ended);
            }
            let Some(left) = self.left(key).await? else { break };
            if left != last {
                (last, changed) = (left, Instant::now());
            }
            if changed.elapsed() > PATIENCE || begun.elapsed() > LONGEST {
                return Err(format!("it comes to no end, {last}: {}", crew.logs()).into());
            }
            sleep(LOOK).await;
        }
        // It may be killed on its way home.
        crew.goes_home().await
    }

    /// How far the first is that is not done; nothing where all is.
    async fn left(&self, key: u32) -> Result<Option<String>, AnyError> {
        let steps = (0..STEPS).map(|number| Step { key, number });
        let due: Vec<Step> = steps.filter(|step| !step.is_ruined()).collect();
        let out = due.iter().filter(|step| self.sink.of(**step).is_some()).count();
        if out < due.len() {
            return Ok(Some(format!("{out} of {} steps have come out", due.len())));
        }
        let effects = ledger::effects(&self.store, &[key]).await?;
        if effects != [due.len() as u64; 2] {
            return Ok(Some(format!("of {} effects there are {effects:?}", due.len())));
        }
        let [front, back]: [EndpointName; 2] = [FRONT.parse()?, BACK.parse()?];
        let wait = [self.queues.backlog(&front).await?, self.queues.backlog(&back).await?];
        if wait != [0, 0] {
            return Ok(Some(format!("at {FRONT} and {BACK} wait {wait:?}")));
        }
        let waits = ledger::waits(&self.store).await?;
        Ok(waits.then(|| "something waits in an outbox".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is on the fuse, by its source. The others are an operator's and a relay's.
    #[test]
    fn each_call_of_a_port_is_a_point_or_nobody_makes_it_here() {
        const NOT_HERE: [&str; 6] = ["list", "discard", "cancel", "care", "state", "leave"];
        let source = include_str!("../process/fuse.rs");
        let calls = source.split("fuse.around(\"").skip(1).filter_map(|rest| rest.split('"').next());
        let mut calls: Vec<&str> = calls.filter(|call| !NOT_HERE.contains(call)).collect();
        let mut points = CALLS;
        calls.sort_unstable();
        points.sort_unstable();
        assert_eq!(calls, points);
    }
}
