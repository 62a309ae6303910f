//! Traces of the explorer on every store that is compiled in: what the shipped code asks of its store in runs that the
//! model goes through, with crashes, lost answers and late writes, is asked of a real one, in the same order, by several
//! handles. It must answer as the model's world did; then the code would have gone the same way on it, and what the
//! explorer claims of the run holds there.
//!
//! `HAPAX_THOROUGH=1` follows many more.
#![allow(clippy::unwrap_used)]

#[path = "machine/lying.rs"]
mod lying;
#[path = "replays/replay.rs"]
mod replay;
#[path = "machine/stores.rs"]
mod stores;

use std::collections::BTreeMap;

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
const SEED: u64 = 1;
/// So many times as many where writes may be late: what is rare is there.
const MORE: usize = 5;
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
    "check: known",
    "finish: failed, done, but not confirmed",
    "finish: failed, marked and not cleaned up, not confirmed",
    "finish: finished",
    "finish: late",
    "finish: left",
    "insert: done",
    "load: loaded",
    "load: nothing",
    "park: done",
    "save: conflict",
    "save: failed, done, but not confirmed",
    "save: late",
    "save: saved",
    "set aside: done",
];

/// Runs of every small configuration in which all that is claimed holds.
fn runs(seed: u64, count: usize) -> Vec<(&'static str, Trace)> {
    let (mut runs, mut tracer) = (Vec::new(), Tracer::new(seed));
    for named in ALL.iter().filter(|named| named.expects == Expects::Holds && named.size == Size::Quick) {
        let scenario = (named.make)();
        if scenario.reads == Reads::Linearizable {
            let count = if scenario.budgets.delayed > 0 { count * MORE } else { count };
            let traces =
                tracer.runs(scenario, count).unwrap_or_else(|why| panic!("{}, seed {seed}: {why}", named.name));
            runs.extend(traces.into_iter().map(|trace| (named.name, trace)));
        }
    }
    runs
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(future)
}

/// Follows `runs` on one store, each under names of its own; answers how often each kind of step was taken.
async fn follow<B: Backend>(hands: &[B], runs: &[(&str, Trace)]) -> Result<BTreeMap<String, u32>, String> {
    let mut met = BTreeMap::new();
    for (number, (name, trace)) in (0..).zip(runs) {
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
    let runs = [runs(SEED, RUNS), runs(seed, fresh)].concat();
    let place = P::new();
    let met = block_on(async {
        let mut hands = Vec::new();
        for _ in 0..HANDS {
            hands.push(place.open().await);
        }
        follow(&hands, &runs).await
    });
    let met = met.unwrap_or_else(|why| panic!("{name}, seed {seed}: {why}"));
    let missing: Vec<_> = MUST_BE_MET.iter().filter(|kind| !met.contains_key(**kind)).collect();
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
