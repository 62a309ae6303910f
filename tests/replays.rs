//! Traces of the explorer on every store that is compiled in: what the shipped code asks of its store in runs that the
//! model goes through, with crashes, lost answers and late writes, is asked of a real one, in the same order, by several
//! handles. It must answer as the model's world did; then the code would have gone the same way on it, and what the
//! explorer claims of the run holds there.
//!
//! `HAPAX_THOROUGH=1` follows many more.
#![allow(clippy::unwrap_used)]

#[cfg(any(feature = "cosmos", feature = "dynamodb"))]
#[path = "machine/clouds.rs"]
mod clouds;
#[path = "machine/lying.rs"]
mod lying;
#[path = "replays/replay.rs"]
mod replay;
#[path = "machine/stores.rs"]
mod stores;

use std::collections::BTreeMap;

use hapax::ports::{DedupStore, EntityStore};
use hapax_model::{
    explore::{Reads, Trace, Tracer},
    scenarios::{ALL, Expects, Size},
};
use hapax_tests::Backend;
use lying::{Lie, Lying};
use replay::Replay;
use stores::Place;

/// Runs of each configuration, always the same, so that what is met does not depend on luck.
const RUNS: usize = 2;
/// One with which all that must be met is met. A configuration more changes what is drawn for all.
const SEED: u64 = 4;
/// So many times as many where writes may be late: what is rare is there.
const MORE: usize = 12;
/// New ones each time.
const FRESH: usize = 1;
/// The same with `HAPAX_THOROUGH`.
const MANY_FRESH: usize = 40;
/// Handles, as of so many processes.
const HANDS: usize = 2;
/// Runs for a control, which must not depend on luck.
const RUNS_OF_A_CONTROL: usize = 3;

/// Kinds of steps that must have been taken, or little was shown.
const MUST_BE_MET: &[&str] = &[
    "load: loaded",
    "load: nothing",
    "save: conflict",
    "save: failed, done, but not confirmed",
    "save: saved",
    "set aside: done",
];

/// The same of runs in which one store keeps both, as in all in which a message can never be sent.
const TOGETHER_MUST_BE_MET: &[&str] = &[
    "finish: failed, done, but not confirmed",
    "finish: failed, marked and not cleaned up, not confirmed",
    "finish: finished",
    "finish: late",
    "finish: left",
    "park: done",
];
/// The same of runs in which there is a dedup store of its own.
const APART_MUST_BE_MET: &[&str] = &["check: known", "insert: done", "save: late"];

/// A run, and in which configuration.
#[derive(Debug, Clone)]
struct Run {
    name: &'static str,
    /// One store keeps both.
    together: bool,
    trace: Trace,
}

/// Runs of every small configuration in which all that is claimed holds.
fn runs(seed: u64, count: usize) -> Vec<Run> {
    let (mut runs, mut tracer) = (Vec::new(), Tracer::new(seed));
    for named in ALL.iter().filter(|named| named.expects == Expects::Holds && named.size == Size::Quick) {
        let scenario = (named.make)();
        if scenario.reads == Reads::Linearizable {
            let (name, together) = (named.name, scenario.together);
            let count = if scenario.budgets.delayed > 0 { count * MORE } else { count };
            let traces = tracer.runs(scenario, count).unwrap_or_else(|why| panic!("{name}, seed {seed}: {why}"));
            runs.extend(traces.into_iter().map(|trace| Run { name, together, trace }));
        }
    }
    runs
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(future)
}

/// Follows `runs` on one store, each under names of its own; answers how often each kind of step was taken.
async fn follow<B: Backend>(hands: &[B], runs: &[Run]) -> Result<BTreeMap<String, u32>, String> {
    let mut met = BTreeMap::new();
    for (number, Run { name, trace, .. }) in (0..).zip(runs) {
        let mut replay = Replay::new(hands, number);
        for (at, asked) in trace.asked.iter().enumerate() {
            let context = |why| format!("{name}, run {number}, question {at} ({}): {why}\n{}", asked.kind, trace.line);
            replay.ask(asked).await.map_err(context)?;
            *met.entry(asked.kind.clone()).or_default() += 1;
        }
        replay.rest(trace).await.map_err(|why| format!("{name}, run {number}, at its end: {why}\n{}", trace.line))?;
    }
    Ok(met)
}

fn every_run_goes_as_the_explorer_says<P: Place>(name: &str) {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let fresh = if std::env::var_os("HAPAX_THOROUGH").is_some() { MANY_FRESH } else { FRESH };
    let mut runs = [runs(SEED, RUNS), runs(seed, fresh)].concat();
    let place = P::new();
    let (met, together, alone) = block_on(async {
        let mut hands = Vec::new();
        for _ in 0..HANDS {
            hands.push(place.open().await);
        }
        // What the store says it is no part of is none of its runs.
        let (together, alone) = (hands[0].capabilities().together, hands[0].dedup_capabilities().alone);
        runs.retain(|run| if run.together { together } else { alone });
        (follow(&hands, &runs).await, together, alone)
    });
    let met = met.unwrap_or_else(|why| panic!("{name}, seed {seed}: {why}"));
    let must_be_met = [(MUST_BE_MET, true), (TOGETHER_MUST_BE_MET, together), (APART_MUST_BE_MET, alone)];
    let must_be_met = must_be_met.iter().filter(|(_, is_possible)| *is_possible).flat_map(|(kinds, _)| *kinds);
    let missing: Vec<_> = must_be_met.filter(|kind| !met.contains_key(**kind)).collect();
    println!("{name}: {} runs, {} questions: {met:#?}", runs.len(), met.values().sum::<u32>());
    assert!(missing.is_empty(), "seed {seed}: never met, so that nothing is shown about it: {missing:?}");
}

mod every_run_goes_as_the_explorer_says {
    super::stores::on_every_store!(super::every_run_goes_as_the_explorer_says);
}

/// The control: a store that keeps one promise not is found out by the runs themselves.
#[test]
fn a_store_that_lies_is_found_out() {
    let runs = runs(SEED, RUNS_OF_A_CONTROL);
    let lies = [Lie::SavesBlindly, Lie::LosesMarks, Lie::RemembersNotSeen, Lie::InsertsLater, Lie::RemembersVersions];
    for lie in lies {
        let found = block_on(async {
            let place = stores::InMemory::new();
            let store = place.open().await;
            follow(&[Lying::new(store, lie)], &runs).await
        });
        match found {
            Ok(met) => panic!("{lie:?} was not found out in {} runs: {met:#?}", runs.len()),
            Err(why) => println!("{lie:?}: {}", why.lines().next().unwrap()),
        }
    }
    let honest =
        block_on(async { follow(&[Lying::new(stores::InMemory::new().open().await, Lie::None)], &runs).await });
    assert!(honest.is_ok(), "{honest:?}");
}
