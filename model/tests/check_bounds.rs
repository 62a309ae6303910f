//! How far a check goes: presets, limits, and what is said of what was not seen.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use hapax_core::{Context, Correlation, Handle, HandlerError, Message, Registry, Saga};
use hapax_model::check::{Check, Checked};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
struct Fill {
    litres: u32,
}

impl Message for Fill {
    const TYPE: &'static str = "tank.fill";
}

#[derive(Debug, Serialize, Deserialize)]
struct Drain {
    litres: u32,
}

impl Message for Drain {
    const TYPE: &'static str = "tank.drain";
}

#[derive(Debug, Serialize, Deserialize)]
struct Level {
    litres: u32,
}

impl Message for Level {
    const TYPE: &'static str = "tank.level";
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Tank {
    litres: u32,
}

impl Saga for Tank {
    const NAME: &'static str = "tank";
}

impl Handle<Fill> for Tank {
    fn correlate(_: &Fill) -> Correlation<'_> {
        "t".into()
    }

    async fn handle(&mut self, fill: Fill, cx: &mut Context) -> Result<(), HandlerError> {
        self.litres += fill.litres;
        cx.publish(Level { litres: self.litres })
    }
}

impl Handle<Drain> for Tank {
    fn correlate(_: &Drain) -> Correlation<'_> {
        "t".into()
    }

    async fn handle(&mut self, drain: Drain, cx: &mut Context) -> Result<(), HandlerError> {
        self.litres = self.litres.saturating_sub(drain.litres);
        cx.publish(Level { litres: self.litres })
    }
}

fn tank(litres: &[u32]) -> Check<Tank> {
    let check = Check::saga(Registry::new().starts::<Fill>().handles::<Drain>());
    let all: u32 = litres.iter().sum();
    let check = check.messages(litres.iter().map(|litres| Fill { litres: *litres }));
    check.at_rest("nothing is lost", move |world| world.state::<Tank>("t").is_some_and(|tank| tank.litres == all))
}

fn holds(checked: Checked) -> Checked {
    println!("{checked}\n");
    assert!(checked.failure.is_none());
    checked
}

#[test]
fn a_good_saga_passes_the_thorough_preset_which_sees_more_than_the_quick_one() {
    let quick = holds(tank(&[1, 2]).quick().report());
    let thorough = holds(tank(&[1, 2]).thorough().report());
    let worlds = |checked: &Checked| checked.explored.iter().map(|explored| explored.worlds).sum::<usize>();
    assert!(worlds(&thorough) > 10 * worlds(&quick));
    assert!(thorough.explored.iter().all(|explored| !explored.cut_short));
    let kinds = |checked: &Checked, kind: &str| checked.explored.iter().any(|explored| explored.what.contains(kind));
    for kind in ["crashes", "unknown", "duplicates"] {
        assert!(kinds(&quick, kind) && kinds(&thorough, kind), "{kind}");
    }
    for kind in ["refused", "delayed", "expiries"] {
        assert!(!kinds(&quick, kind) && kinds(&thorough, kind), "{kind}");
    }
    assert!(kinds(&thorough, ".crashes(1).unknown(1).duplicates(1)"), "several go wrong in one run");
    assert!(!thorough.warnings.iter().any(|warning| warning.starts_with("no history")), "{thorough}");
}

/// A message that waits for another is not blamed for a settlement that was refused, nor for a crash.
#[test]
fn a_message_that_waits_is_not_blamed_for_the_faults_of_others() {
    let drained = |check: Check<Tank>| {
        let check = check.message(Drain { litres: 1 }).message(Fill { litres: 2 });
        check.at_rest("one is left", |world| world.state::<Tank>("t").is_some_and(|tank| tank.litres == 1))
    };
    let waits = || Check::saga(Registry::new().starts::<Fill>().handles::<Drain>());
    holds(drained(waits()).thorough().report());
    holds(drained(waits()).crashes(1).refused(1).report());
}

#[test]
fn a_check_that_has_not_seen_everything_has_not_passed() {
    let checked = tank(&[1, 2]).worlds_max(500).report();
    let text = checked.to_string();
    let failure = checked.failure.unwrap();
    assert_eq!(failure.claim, "everything_is_seen", "{failure}");
    assert!(failure.seen.contains("3 of 4 explorations ended at the limit of 500 worlds"), "{failure}");
    assert!(failure.seen.contains("which is not all"), "{failure}");
    assert!(failure.advice.contains(".worlds_max(..)"), "{failure}");
    assert!(text.contains("CUT SHORT after 50"), "{text}");
    assert!(!text.contains("nothing is broken in any of them"), "{text}");
}

#[test]
#[should_panic(expected = "everything_is_seen")]
fn a_run_that_has_not_seen_everything_panics() {
    tank(&[1, 2]).worlds_max(500).run();
}

#[test]
fn a_check_may_be_allowed_to_see_a_part() {
    let checked = holds(tank(&[1, 2]).worlds_max(500).may_end_early().report());
    let text = checked.to_string();
    assert!(text.ends_with("nothing is broken in what was seen, which is NOT all"), "{text}");
    assert_eq!(checked.warnings.iter().filter(|warning| warning.starts_with("not all was seen with")).count(), 3);
}

/// What is broken before the limit is told, and not the limit.
#[test]
fn a_break_is_told_before_the_limit() {
    let check = tank(&[1, 2]).worlds_max(500).always("it is dry", |world| world.sent::<Level>().is_empty());
    assert_eq!(check.report().failure.unwrap().claim, "it is dry");
}

#[test]
fn a_quick_check_of_two_messages_takes_a_second() {
    let begun = Instant::now();
    holds(tank(&[1, 2]).quick().report());
    assert!(begun.elapsed() < Duration::from_secs(10), "ten times what it takes where nobody else works");
}
