//! A second engine goes through the same worlds: what ours has overlooked, it would see.
#![allow(clippy::unwrap_used)]

mod second {
    pub(crate) mod engine;
}

use hapax_model::{
    explore::{Scenario, explore},
    scenarios::{Expects, Named, named},
};
use second::engine::{CAN_REST, HOLDS, Place, RESTS, Second};
use stateright::{Checker, Model};

/// What stateright has seen.
#[derive(Debug, PartialEq, Eq)]
struct Verdict {
    worlds: usize,
    /// The claim that is broken.
    claim: Option<&'static str>,
    /// Some run comes to rest, and no run does not.
    rests: bool,
}

fn verdict(model: Second) -> Verdict {
    let checker = model.checker().spawn_bfs().join();
    let claim = checker.discovery(HOLDS).map(|path| match path.last_state() {
        Place::Broken(broken) => broken.claim,
        world => panic!("{world:?} breaks nothing"),
    });
    let rests = checker.discovery(CAN_REST).is_some() && checker.discovery(RESTS).is_none();
    Verdict { worlds: checker.unique_state_count(), claim, rests }
}

/// Those that are small where each world is gone through by itself.
const COMPARED: [&str; 8] = [
    "quiet",
    "one-message",
    "one-message-two-stores",
    "crash",
    "unknown",
    "copy",
    "lagging-reads",
    "evicted-too-early",
];

/// Each world by itself, as stateright goes through them.
fn whole(named: &Named) -> Scenario {
    Scenario { reduced: false, ..(named.make)() }
}

#[test]
fn stateright_sees_as_many_worlds_as_the_explorer_and_comes_to_the_same_verdict() {
    for name in COMPARED {
        let scenario = named(name).unwrap();
        let report = explore(whole(scenario)).unwrap();
        let seen = verdict(Second::new((scenario.make)()));
        println!("{}: {seen:?}", scenario.name);
        match scenario.expects {
            Expects::Holds => {
                let expected = Verdict { worlds: report.states, claim: None, rests: true };
                assert_eq!(seen, expected, "{}", scenario.name);
            }
            Expects::Breaks(claim) => assert_eq!(seen.claim, Some(claim), "{}", scenario.name),
        }
    }
}

/// The controls: the counts tell when one kind of step is missing, and a run that cannot go on is noticed.
#[test]
fn a_step_that_is_left_out_shows() {
    for (scenario, step, rests) in
        [("crash", " crash", true), ("copy", "m1 comes once more", true), ("quiet", "-> conflict", false)]
    {
        let scenario = named(scenario).unwrap();
        let whole = explore(whole(scenario)).unwrap().states;
        let seen = verdict(Second::without(Some(step), (scenario.make)()));
        assert!(seen.worlds < whole, "{}: {seen:?} of {whole} without `{step}`", scenario.name);
        assert_eq!(seen.rests, rests, "{} without `{step}`", scenario.name);
    }
}
