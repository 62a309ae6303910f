//! A store answers every call as the reference does, whatever was called before.

use std::{
    cell::Cell,
    collections::BTreeMap,
    sync::Mutex,
    time::{Duration, Instant},
};

use hapax::Memory;
use hapax_tests::Backend;

use crate::{
    calls::{Asked, Calls, Can, HANDS, State, Step},
    lying::{Lie, Lying},
    run::{Failure, Search},
    stores::{InMemory, Place, on_every_store},
    subject::Subject,
};

/// For what a store must do in the end: long, for the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(10);
/// With liars, which will never do it; every try to shorten what they are found out by waits for it.
const LITTLE_PATIENCE: Duration = Duration::from_millis(20);

/// Goes with a save of a store that keeps both.
const RIDING: &str = "marks that ride";
/// Is asked of a store that does not evict by itself.
const EVICTION: &str = "an eviction";

/// What calls must have met, or they have shown nothing about it.
const TO_BE_MET: [&str; 10] = [
    "a save that creates",
    "a save that wins",
    "a save that loses",
    "a save of what was purged",
    RIDING,
    "a finish that cleans up",
    "a finish that is left",
    "an insert over another attempt",
    "a purge",
    EVICTION,
];

/// What a call was an example of.
fn met(step: &Step, asked: &Asked, before: &State) -> Vec<&'static str> {
    let mut met = Vec::new();
    match asked {
        Asked::Save { key, expected, processed, at, .. } => {
            met.push(match (expected, at) {
                (None, Some(_)) => "a save that creates",
                (Some(_), Some(_)) => "a save that wins",
                (Some(_), None) if !before.stored.rows.contains_key(key) => "a save of what was purged",
                (_, None) => "a save that loses",
            });
            if before.can.together && at.is_some() && !processed.is_empty() {
                met.push(RIDING);
            }
        }
        Asked::Finish { clean_up: Some(_), at, .. } => {
            met.push(if at.is_some() { "a finish that cleans up" } else { "a finish that is left" });
        }
        Asked::Purge { gone } if *gone > 0 => met.push("a purge"),
        Asked::Evict { gone } if *gone > 0 => met.push(EVICTION),
        _ => {}
    }
    if let crate::calls::Call::Insert { marks, .. } = &step.call
        && marks.iter().any(|mark| before.stored.marks.get(&mark.message).is_some_and(|first| *first != mark.attempt))
    {
        met.push("an insert over another attempt");
    }
    met
}

/// Asks the handles and the reference the same.
async fn run<B: Backend>(
    hands: Vec<B>,
    patience: Duration,
    mut state: State,
    steps: &[Step],
    begin: &dyn Fn(),
    seen: &Mutex<BTreeMap<&'static str, u32>>,
) -> Result<(), String> {
    state.can = Can::of(&hands[0]);
    let mut subject = Subject::new(hands, patience);
    for (index, step) in steps.iter().enumerate() {
        begin();
        let before = state.clone();
        let asked = state.step(&step.call);
        for met in met(step, &asked, &before) {
            *seen.lock().unwrap().entry(met).or_default() += 1;
        }
        subject.step(step, &asked, &state).await.map_err(|why| format!("at step {}: {why}", index + 1))?;
    }
    subject.check_all(&state).await.map_err(|why| format!("after all: {why}"))
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Every call is answered as by the reference.
fn check<P: Place>(name: &str) {
    let (runtime, seen, steps, begun) = (runtime(), Mutex::default(), Cell::new(0u64), Instant::now());
    let can = Cell::new(Can::default());
    let few = match name {
        "memory" => 200,
        _ if P::SLOW => 30,
        _ => 60,
    };
    let search = Search::fresh(format!("machine-ports-{name}"), few, 20..60);
    let found = search.run::<Calls>(|state, calls, begin| {
        steps.set(steps.get() + calls.len() as u64);
        runtime.block_on(async {
            let place = P::new();
            let mut hands = Vec::new();
            for _ in 0..HANDS {
                hands.push(place.open().await);
            }
            can.set(Can::of(&hands[0]));
            run(hands, PATIENCE, state, calls, begin, &seen).await
        })
    });
    if let Err(failure) = found {
        panic!("{name}: {failure}");
    }
    let seen = seen.into_inner().unwrap();
    println!("{name}: {} cases, {} calls, {seen:?}, {:.1?}", search.cases, steps.get(), begun.elapsed());
    let is_possible = |met: &&&str| match **met {
        RIDING => can.get().together,
        EVICTION => can.get().evicts,
        _ => true,
    };
    let missing: Vec<_> = TO_BE_MET.iter().filter(is_possible).filter(|met| !seen.contains_key(*met)).collect();
    assert!(missing.is_empty(), "void: {missing:?} was never met");
}

mod every_call_is_answered_as_by_the_reference {
    super::on_every_store!(super::check);
}

/// No step can be left out of a list of so many: short enough to be read.
const SHORT: usize = 6;

/// A store that lies is found out, in few steps.
fn found_out(lie: Lie) -> Failure<Calls> {
    let (runtime, seen) = (runtime(), Mutex::default());
    let failure = Search::fixed(400, 1..50).run::<Calls>(|state, calls, begin| {
        runtime.block_on(async {
            let memory: Memory = InMemory::new().open().await;
            let hands = (0..HANDS).map(|_| Lying::new(memory.clone(), lie)).collect();
            run(hands, LITTLE_PATIENCE, state, calls, begin, &seen).await
        })
    });
    let failure = failure.expect_err("the machine must not take a lie");
    println!("{lie:?}: {failure}");
    assert!(failure.steps.len() <= SHORT, "not shortened: {failure}");
    failure
}

#[test]
fn the_wrapper_of_the_lies_is_honest_without_one() {
    let (runtime, seen) = (runtime(), Mutex::default());
    let found = Search::fixed(100, 1..50).run::<Calls>(|state, calls, begin| {
        runtime.block_on(async {
            let memory = InMemory::new().open().await;
            let hands = (0..HANDS).map(|_| Lying::new(memory.clone(), Lie::None)).collect();
            run(hands, LITTLE_PATIENCE, state, calls, begin, &seen).await
        })
    });
    assert!(found.is_ok(), "{}", found.unwrap_err());
}

macro_rules! lies {
    ($($test:ident: $lie:ident, $why:literal;)+) => {
        $(
            #[test]
            fn $test() {
                let failure = found_out(Lie::$lie);
                assert!(failure.why.contains($why), "not {:?}: {failure}", $why);
            }
        )+
    };
}

lies! {
    not_seen_from_a_cache_is_found_out: RemembersNotSeen, "the mark of message";
    a_save_that_wins_whatever_it_expects_is_found_out: SavesBlindly, "a save that expects";
    an_insert_confirmed_before_it_is_visible_is_found_out: InsertsLater, "the mark of message";
    marks_of_a_save_that_lost_are_found_out: MarksLosers, "the mark of message";
    marks_lost_with_a_clean_up_are_found_out: LosesMarks, "the mark of message";
    a_mark_that_replaces_another_is_found_out: LastMarkWins, "the mark of message";
    an_early_eviction_is_found_out: EvictsEarly, "what is evicted after an hour";
    a_version_from_a_cache_is_found_out: RemembersVersions, "the version is";
    a_purge_of_what_is_not_sent_is_found_out: PurgesUnsent, "the number of the purged";
}
