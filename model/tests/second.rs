//! A second engine goes through the same worlds: what ours has overlooked, it would see.
#![allow(clippy::unwrap_used)]

mod second {
    pub(crate) mod engine;
}

use hapax_model::{
    explore::{Scenario, explore},
    scenarios::{ALL, Expects, Named, Size, named},
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

/// Configurations with few enough worlds for an engine that knows nothing of them, each with a fault of its own.
const COUNTED: [&str; 9] =
    ["quiet", "one-message", "crash", "unknown", "copy", "refused", "lease", "process", "crash-two-stores"];

/// Every world gone through by itself, as stateright does: what stands for what is our own engine's business.
fn whole(named: &Named) -> Scenario {
    Scenario { reduced: false, ..(named.make)() }
}

#[test]
fn stateright_sees_as_many_worlds_as_the_explorer() {
    for name in COUNTED {
        let named = named(name).unwrap();
        let report = explore(whole(named)).unwrap();
        let seen = verdict(Second::new((named.make)()));
        println!("{name}: {seen:?}");
        assert_eq!(seen, Verdict { worlds: report.states, claim: None, rests: true }, "{name}");
    }
}

#[test]
fn stateright_finds_the_claim_that_the_explorer_finds() {
    for named in ALL.iter().filter(|named| named.size == Size::Quick) {
        if let Expects::Breaks(claim) = named.expects {
            let seen = verdict(Second::new((named.make)()));
            println!("{}: {seen:?}", named.name);
            assert_eq!(seen.claim, Some(claim), "{}", named.name);
        }
    }
}

/// The controls: the counts tell when one kind of step is missing, and a run that cannot go on is noticed.
#[test]
fn a_step_that_is_left_out_shows() {
    for (name, step, rests) in
        [("crash", " crash", true), ("copy", "m1 comes once more", true), ("quiet", "save -> conflict", false)]
    {
        let named = named(name).unwrap();
        let all = explore(whole(named)).unwrap().states;
        let seen = verdict(Second::without(Some(step), (named.make)()));
        assert!(seen.worlds < all, "{name}: {seen:?} of {all} without `{step}`");
        assert_eq!(seen.rests, rests, "{name} without `{step}`");
    }
}
