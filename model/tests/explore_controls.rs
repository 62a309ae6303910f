//! A check that cannot fail shows nothing: each claim is broken on purpose, by a manager or a port that does one thing
//! wrong, and the explorer must find out. And what cannot be explored must be refused.
#![allow(clippy::unwrap_used)]

mod explore_liars;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, atomic::AtomicUsize},
};

use explore_liars::{Lie, Wrong, lying, wrong};
use hapax_core::{entity::Entity, ids::EntityKey};
use hapax_model::{
    explore::{
        Broken, Budgets, CLAIMS, Replay, Scenario, Sentence, Story, View, claim, cross_check, explore, labels, replay,
    },
    scenarios::{
        ALL, Expects, alarm,
        book::{self, Does},
        named, shelf,
    },
};

const NONE: Budgets = Budgets::NONE;

fn one() -> Scenario {
    book::scenario(vec![book::note("b", 0, 1)], 1)
}

fn two() -> Scenario {
    book::scenario(vec![book::note("b", 0, 1), book::note("b", 1, 1)], 2)
}

fn with(scenario: Scenario, budgets: Budgets) -> Scenario {
    Scenario { budgets, ..scenario }
}

const REFUSED: Budgets = Budgets { refused: 1, ..NONE };
const COPY: Budgets = Budgets { duplicates: 1, ..NONE };

/// What is wrong, and the claim that it breaks.
fn controls() -> Vec<(&'static str, &'static str, Scenario)> {
    let manager = book::manager;
    let message = book::note("b", 0, 0);
    let asking = vec![book::asking(&message, "here"), book::asking(&message, "there")];
    let alarm = alarm::scenario(true, 1);
    let hopeless = book::scenario(vec![book::special(0, 0, Does::FailsForGood)], 1);
    vec![
        ("a dedup store that finds nothing", "effect_at_most_once", lying(Lie::FindsNothing, with(one(), COPY))),
        ("a save without compare-and-set", "no_lost_update", lying(Lie::SavesAnyway, two())),
        ("messages leave before the save", "no_ghost_output", lying(Lie::SendsFirst, one())),
        ("a dispatcher that changes bodies", "output_stable", lying(Lie::ChangesBodies, one())),
        ("an ack after a conflict", "ack_implies_done", wrong(Wrong::AcksConflicts, two())),
        ("a conflict is dead-lettered", "complete_at_rest", wrong(Wrong::SetsConflictsAside, two())),
        ("a store that never cleans up", "no_garbage_at_rest", lying(Lie::NeverCleans, one())),
        ("a pass that never decides", "every_run_ends", wrong(Wrong::NeverDecides, one())),
        ("no worker", "no_deadlock", Scenario { tasks: 0, ..one() }),
        ("send errors are swallowed", "marked_only_when_sent", lying(Lie::SwallowsSendErrors, with(one(), REFUSED))),
        ("cleaned up before it is marked", "no_gap", lying(Lie::CleansFirst, one())),
        ("unsent is dead-lettered", "no_letter_after_effect", wrong(Wrong::SetsUnsentAside, with(one(), REFUSED))),
        ("letters lose their bodies", "letter_is_whole", wrong(Wrong::LosesBodies, hopeless)),
        ("timeouts are ordinary messages", "timeout_only_while_live", wrong(Wrong::ForgetsTimeouts, alarm)),
        ("a saga without ordered outputs", "outputs_in_order", (named("not-ordered").unwrap().make)()),
        (
            "a dedup store that forgets answers",
            "answer_repeated",
            lying(Lie::ForgetsAnswers, book::scenario(asking, 1)),
        ),
        (
            "an endpoint below whose dedup store finds nothing",
            "downstream_once",
            Scenario {
                downstream: Some(explore_liars::liar(Lie::FindsNothing, shelf::manager())),
                manager: manager(),
                ..with(one(), COPY)
            },
        ),
    ]
}

fn broken(about: &str, scenario: Scenario) -> Story {
    let report = explore(scenario).unwrap_or_else(|why| panic!("{about}: {why}"));
    report.story.unwrap_or_else(|| panic!("{about}: nothing was found in {} worlds", report.states))
}

/// Each claim of the table has its control, and the control breaks that claim first.
#[test]
fn every_claim_can_be_broken() {
    let controls = controls();
    for claim in CLAIMS {
        assert!(controls.iter().any(|(_, name, _)| *name == claim.name), "{} has no control", claim.name);
    }
    for (about, name, scenario) in controls {
        let story = broken(about, scenario);
        println!("{about}: {name}, {} steps", story.steps.len());
        assert_eq!(story.broken.claim, name, "{about}: {story}");
    }
}

/// The same controls without the claims that look inside: what can be seen from outside is enough to find them out, but
/// later.
#[test]
fn what_looks_inside_is_not_needed_to_find_them_out() {
    let inside = ["marked_only_when_sent", "no_gap"];
    for (about, name, scenario) in controls().into_iter().filter(|(_, name, _)| inside.contains(name)) {
        let scenario = Scenario { budgets: Budgets { crashes: 1, ..scenario.budgets }, ..scenario };
        let story = broken(about, Scenario { without: inside.to_vec(), ..scenario });
        assert!(!inside.contains(&story.broken.claim), "{about}: {story}");
        println!("{about}: {name}, and from outside {}, {} steps", story.broken.claim, story.steps.len());
    }
}

/// Names are unique, every sentence is one, and a claim that is switched off has to exist.
#[test]
fn the_table_of_claims_can_be_printed() {
    for (at, one) in CLAIMS.iter().enumerate() {
        println!("| {} | {} | {} | {} |", one.name, one.says, one.readme, one.source);
        assert!(one.says.ends_with('.') && !one.source.is_empty(), "{}", one.name);
        assert!(CLAIMS[..at].iter().all(|other| other.name != one.name), "{}", one.name);
        assert_eq!(claim(one.name), Some(one));
    }
    let why = explore(Scenario { without: vec!["no_such_claim"], ..one() }).unwrap_err();
    assert!(why.contains("no_such_claim"), "{why}");
}

/// A claim that is switched off is not judged, whatever the worlds look like: also that every run ends.
#[test]
fn a_circle_that_is_not_judged_is_not_told() {
    let circles = |without: &[&'static str]| {
        let scenario = wrong(Wrong::NeverDecides, one());
        explore(Scenario { without: without.to_vec(), ..scenario }).unwrap().story.map(|story| story.broken.claim)
    };
    assert_eq!(circles(&[]), Some("every_run_ends"));
    assert_eq!(circles(&["every_run_ends"]), None);
    assert_eq!(circles(&["every_run_ends", "no_garbage_at_rest"]), None);
}

/// A claim is about a sentence that a reader of the README finds there.
#[test]
fn every_claim_shows_a_sentence_of_the_readme() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md")).unwrap();
    let words: Vec<&str> = readme.split_whitespace().collect();
    let text = words.join(" ");
    for claim in CLAIMS {
        assert!(claim.readme.ends_with('.') && text.contains(claim.readme), "{}: {}", claim.name, claim.readme);
    }
}

/// Whoever waits for something that is no port cannot be explored.
#[test]
fn an_await_that_is_no_port_is_refused() {
    let why = explore(wrong(Wrong::Sleeps, one())).unwrap_err();
    assert!(why.contains("no port"), "{why}");
    let why = explore(wrong(Wrong::GivesWayForEver, one())).unwrap_err();
    assert!(why.contains("given way"), "{why}");
}

/// Whoever does something else with the same messages and answers cannot be explored.
#[test]
fn a_manager_that_does_not_do_the_same_twice_is_refused() {
    let runs = Arc::new(AtomicUsize::new(0));
    let why = explore(wrong(Wrong::AsksByTheWay(runs), two())).unwrap_err();
    assert!(why.contains("led to other questions"), "{why}");
}

/// A story's labels, as they are printed, lead to the same break again.
#[test]
fn stories_can_be_replayed() {
    let breaking = ALL.iter().filter(|named| matches!(named.expects, Expects::Breaks(_)));
    let named = breaking.map(|named| (named.name, (named.make)()));
    for (about, scenario) in controls().into_iter().map(|(about, _, scenario)| (about, scenario)).chain(named) {
        let story = broken(about, scenario.clone());
        let line = story.line();
        match replay(scenario, &labels(&line)).unwrap() {
            Replay::Broken(again) => {
                assert_eq!(again.broken, story.broken, "{about}");
                assert_eq!(again.steps, story.steps, "{about}");
            }
            other => panic!("{about}: {other:?}; {story}"),
        }
    }
}

/// A story that is kept: its labels name neither states nor numbers, so that it lasts.
const KEPT: &str = "begin m0 | w1 m0 load -> nothing | w1 m0 save -> saved | w1 m0 dispatch -> sent | \
    w1 m0 mark m0 and clean up -> finished | w1 m0 ack -> settled | begin m0, once more | \
    w2 m0 load -> loaded, not seen yet, of the newest entries: 1 | w2 m0 save -> done";

/// The kept story breaks what it broke where reads lag; where they do not, it gets as far as the stale read.
#[test]
fn a_kept_story_says_where_it_is_lost() {
    let kept = labels(KEPT);
    match replay((named("lagging-reads").unwrap().make)(), &kept).unwrap() {
        Replay::Broken(story) => {
            assert!(matches!(story.broken, Broken { claim: "effect_at_most_once", .. }), "{story}")
        }
        other => panic!("{other:?}"),
    }
    match replay(with(one(), COPY), &kept).unwrap() {
        Replay::Lost { at, label, possible } => {
            assert_eq!((at, label.as_str()), (7, kept[7]));
            assert!(possible.contains(&"w2 m0 load -> loaded".to_owned()), "{possible:?}");
        }
        other => panic!("{other:?}"),
    }
    match replay(with(one(), COPY), &kept[..7]).unwrap() {
        Replay::Holds(steps) => assert_eq!(steps.len(), 7),
        other => panic!("{other:?}"),
    }
}

/// What one can see of every world: entities without the names of attempts, what has left, what was set aside.
fn seen_in(scenario: Scenario) -> (usize, BTreeSet<String>) {
    let all = Arc::new(Mutex::new(BTreeSet::new()));
    let note = all.clone();
    let always: Sentence = Arc::new(move |view: &View<'_>| {
        let entity = |(key, entity): &(&EntityKey, &Entity)| {
            let outbox: Vec<_> = entity.outbox.iter().map(|entry| (entry.key, &entry.outgoing)).collect();
            format!("{key}: {:?} {} {} {outbox:?}", entity.state, entity.commits, entity.completed)
        };
        let entities: Vec<String> = view.entities.iter().map(entity).collect();
        let mut left: Vec<String> =
            view.sent.iter().chain(&view.outgoing_letters).map(|sent| format!("{sent:?}")).collect();
        left.sort();
        note.lock().unwrap().insert(format!("{entities:?} {left:?} {:?}", view.letters));
        Ok(())
    });
    let report = explore(Scenario { always: vec![("looked_at", always)], ..scenario }).unwrap();
    assert!(report.story.is_none() && !report.cut_short, "{:?}", report.story);
    let all = std::mem::take(&mut *all.lock().unwrap());
    (report.states, all)
}

fn compare(names: &[&str]) {
    for name in names {
        let scenario = (named(name).unwrap().make)();
        let (reduced, seen) = seen_in(scenario.clone());
        let (all, seen_in_all) = seen_in(Scenario { reduced: false, ..scenario });
        println!("{name}: {reduced} worlds for {all}, {} that look different", seen.len());
        assert_eq!(seen, seen_in_all, "{name}");
        assert!(reduced < all, "{name}");
    }
}

/// One world stands for many: whatever can be seen when each is gone through by itself is seen then, too.
#[test]
fn nothing_is_overlooked_where_one_world_stands_for_many() {
    compare(&["quiet", "one-message", "crash", "unknown", "copy", "completion", "fails-early", "timeout-cancelled"]);
    compare(&["poison-stale-load", "two-sagas", "one-id-two-bodies", "pass-with-copies-no-output"]);
}

/// The same for larger ones: a minute. Only with `HAPAX_THOROUGH=1`.
#[test]
fn nothing_is_overlooked_in_larger_configurations() {
    if std::env::var_os("HAPAX_THOROUGH").is_none() {
        return;
    }
    compare(&["one-message-two-stores", "refused", "late", "own-conflict", "stale-load", "never-sent", "lease"]);
    compare(&["pass-of-two", "no-effect", "two-in-a-row", "answers", "ordered", "delayed-two-stores"]);
}

/// Tasks that live together and share a manager do what their histories say.
#[test]
fn tasks_that_live_together_do_the_same() {
    const RUNS: usize = 60;
    let mut steps = 0;
    for named in ALL {
        steps += cross_check(&(named.make)(), 1, RUNS).unwrap_or_else(|why| panic!("{}: {why}", named.name)).steps;
    }
    println!("{steps} steps compared");
    assert!(steps > 10_000, "{steps}");
}

/// A manager that keeps something between two deliveries: one that lives alone never shows it, so exploring finds nothing
/// and the cross-check does.
#[test]
fn a_manager_that_remembers_is_found_out() {
    let remembers = || wrong(Wrong::Remembers, with(two(), COPY));
    assert!(explore(remembers()).unwrap().story.is_none());
    let why = cross_check(&remembers(), 1, 1_000).unwrap_err();
    assert!(why.contains("shares its manager"), "{why}");
}
