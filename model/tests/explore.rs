//! The shipped manager, gone through exhaustively within small budgets.
#![allow(clippy::unwrap_used)]

use hapax_model::{
    explore::{Report, explore},
    scenarios::{ALL, Expects, Named, Size},
};

fn report(named: &Named) -> Report {
    let report = explore((named.make)()).unwrap();
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

/// What must hold holds in every world; what must break is found, and its story is short.
#[test]
fn every_quick_configuration_comes_out_as_it_must() {
    for named in ALL.iter().filter(|named| named.size == Size::Quick) {
        let report = report(named);
        assert!(!report.cut_short, "{}", named.name);
        match (named.expects, &report.story) {
            (Expects::Holds, None) => {}
            (Expects::Holds, Some(story)) => panic!("{}: {story}", named.name),
            (Expects::Breaks(claim), Some(story)) => {
                assert_eq!(story.broken.claim, claim, "{}: {story}", named.name);
                assert!(story.steps.len() < 20, "{}: {story}", named.name);
            }
            (Expects::Breaks(claim), None) => panic!("{}: {claim} should be broken", named.name),
        }
    }
}
