//! The shipped manager, gone through exhaustively within small budgets.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use hapax_model::{
    explore::{Report, explore},
    scenarios::{ALL, Expects, Named, Size},
};

/// What some configuration must come to, or green would mean little.
const MUST_BE_MET: &[&str] = &[
    "conflict",
    "dead-lettered",
    "dedup hit",
    "dropped by a rule",
    "handled",
    "left to the sweeper",
    "outgoing dead-lettered",
    "swept",
    "tried again",
];

fn report(named: &Named) -> Report {
    let report = explore((named.make)()).unwrap_or_else(|why| panic!("{}: {why}", named.name));
    println!(
        "{}: {} worlds, {} steps, {} histories, {:?}, {:.0} worlds a second",
        named.name,
        report.states,
        report.transitions,
        report.histories,
        report.time,
        report.states as f64 / report.time.as_secs_f64()
    );
    println!("    {:?}", report.events);
    if let Some(story) = &report.story {
        println!("{story}");
    }
    report
}

fn all_of(size: Size) {
    let only = std::env::var("EXPLORE").ok();
    let chosen = |named: &&Named| only.as_ref().is_none_or(|only| only.split(',').any(|name| name == named.name));
    let (mut wrong, mut met) = (Vec::new(), BTreeSet::new());
    for named in ALL.iter().filter(|named| named.size == size).filter(chosen) {
        let report = report(named);
        met.extend(report.events.iter().map(|(event, _)| *event));
        let story = report.story.as_ref();
        let (expected, found) = (named.expects, story.map(|story| story.broken.claim));
        let short = story.is_none_or(|story| story.steps.len() < 25);
        match expected {
            Expects::Holds if found.is_none() && !report.cut_short => {}
            Expects::Breaks(claim) if found == Some(claim) && short => {}
            _ => wrong.push(format!("{}: {expected:?}, but {found:?} is broken", named.name)), // Or it is too large.
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let missing: Vec<_> = MUST_BE_MET.iter().filter(|event| !met.contains(*event)).collect();
    assert!(
        only.is_some() || size == Size::Thorough || missing.is_empty(),
        "never met, so that nothing is shown about it: {missing:?}"
    );
}

/// What must hold holds in every world; what must break is found, and its story is short. `EXPLORE=name,name` chooses.
#[test]
fn every_quick_configuration_comes_out_as_it_must() {
    all_of(Size::Quick);
}

/// The same with larger budgets: minutes, and 2 GB. Only with `HAPAX_THOROUGH=1`.
#[test]
fn every_thorough_configuration_comes_out_as_it_must() {
    if std::env::var_os("HAPAX_THOROUGH").is_some() {
        all_of(Size::Thorough);
    }
}
