//! An audit that accuses a store in vain is not believed the next time: what each rule lets pass, and what it must not, at moments made by hand.
#![allow(clippy::unwrap_used)]
use std::{sync::Arc, time::Duration};

use super::{
    moment::Moment,
    sample::{Rounds, Sample, Told, Watching},
    subject::{Check, Duty, Now, Sighting, Subject},
};
use crate::{
    entity::{DedupEntry, Entity, OutboxEntry, Version},
    ids::{AttemptId, DedupKey, EntityKey, Fingerprint, Scope},
    metrics::{Backlog, Event, Invariant, Metrics, NoMetrics},
    ports::{Known, Stored},
    time::{Monotonic, Timestamp},
};

const HOUR: Duration = Duration::from_secs(3600);

fn entity() -> EntityKey {
    let scope = Scope { endpoint: "shop".parse().unwrap(), saga: "order".parse().unwrap() };
    EntityKey::new(Arc::new(scope), "7".parse().unwrap())
}

fn key(number: u8) -> DedupKey {
    DedupKey::from_bytes([number; DedupKey::BYTES])
}

fn at(wall: Duration, mono: Duration) -> Moment {
    Moment::new((Timestamp::from_millis(0).after(wall), Monotonic(mono)))
}

fn now(passed: Duration) -> Now {
    Now {
        moment: at(passed, passed),
        sweeps: 0,
        sweep_failed: 0,
        writes: 0,
        sweep_age: Duration::ZERO,
        watch_for: 24 * HOUR,
        is_handled: true,
    }
}

fn watching(duty: Duty) -> Subject {
    let mut subject = Subject::new(entity());
    let told = Told { entity: entity(), key: key(1), message_id: "m".parse().unwrap(), duty };
    subject.watch(told, at(Duration::ZERO, Duration::ZERO));
    subject
}

fn entry() -> OutboxEntry {
    OutboxEntry {
        key: key(1),
        attempt: AttemptId::from_bytes([1; AttemptId::BYTES]),
        fingerprint: Fingerprint::from_bytes([0; Fingerprint::BYTES]),
        commit: 1,
        saved_at: Timestamp::from_millis(0),
        outgoing: Vec::new(),
        reply: None,
        reply_sent: false,
    }
}

fn seen(outbox: Vec<OutboxEntry>, known: Vec<DedupEntry>, is_fresh: bool) -> Sighting {
    let entity = Entity { outbox: outbox.into_iter().map(Arc::new).collect(), commits: 1, ..Entity::default() };
    Sighting { stored: Some(Stored { version: Version::number(1), entity }), known: Known::new(known), is_fresh }
}

fn broken(checks: &[Check]) -> Vec<Invariant> {
    checks.iter().filter(|check| check.broken.is_some()).map(|check| check.invariant).collect()
}

#[test]
fn a_message_is_let_go_of_before_it_may_be_forgotten_by_whichever_clock_has_gone_further() {
    for (wall, mono) in [(24 * HOUR, HOUR), (HOUR, 24 * HOUR)] {
        let mut subject = watching(Duty::Marked);
        subject.forget(&Now { moment: at(23 * HOUR, 23 * HOUR), ..now(HOUR) });
        assert!(!subject.is_empty());
        subject.forget(&Now { moment: at(wall, mono), ..now(HOUR) });
        assert!(subject.is_empty(), "{wall:?} {mono:?}");
        assert_eq!(broken(&subject.judge(&seen(Vec::new(), Vec::new(), true), &now(HOUR))), []);
    }
}

#[test]
fn what_an_old_load_does_not_show_is_not_missing() {
    let mut subject = watching(Duty::Saved);
    assert_eq!(broken(&subject.judge(&seen(Vec::new(), Vec::new(), false), &now(HOUR))), []);
    assert_eq!(broken(&subject.judge(&seen(vec![entry()], Vec::new(), false), &now(HOUR))), []);
    assert_eq!(broken(&subject.judge(&seen(Vec::new(), Vec::new(), true), &now(HOUR))), [Invariant::Kept]);
    // But what is over is asked for freshly, however old the entity is.
    let mut subject = watching(Duty::Marked);
    assert_eq!(broken(&subject.judge(&seen(Vec::new(), Vec::new(), false), &now(HOUR))), [Invariant::Remembered]);
}

#[test]
fn what_moves_from_the_outbox_to_the_dedup_entries_is_kept_and_from_then_on_remembered() {
    let mut subject = watching(Duty::Saved);
    assert_eq!(broken(&subject.judge(&seen(vec![entry()], Vec::new(), true), &now(HOUR))), []);
    assert_eq!(broken(&subject.judge(&seen(Vec::new(), vec![entry().to_dedup_entry()], true), &now(HOUR))), []);
    assert_eq!(broken(&subject.judge(&seen(Vec::new(), Vec::new(), true), &now(HOUR))), [Invariant::Remembered]);
}

#[test]
fn what_waits_is_no_orphan_while_the_sweeper_says_why_nor_before_its_age() {
    let waits = || seen(vec![entry()], Vec::new(), true);
    let mut subject = watching(Duty::Saved);
    subject.judge(&waits(), &now(HOUR));
    let told = Now { sweeps: 100, sweep_failed: 99, ..now(2 * HOUR) };
    assert_eq!(broken(&subject.judge(&waits(), &told)), []);
    let young = Now { sweeps: 100, sweep_age: HOUR, ..now(2 * HOUR) };
    assert_eq!(broken(&subject.judge(&waits(), &young)), []);
    let few = Now { sweeps: 6, ..now(2 * HOUR) };
    assert_eq!(broken(&subject.judge(&waits(), &few)), []);
    let silent = Now { sweeps: 7, ..now(2 * HOUR) };
    assert_eq!(broken(&subject.judge(&waits(), &silent)), [Invariant::NoOrphan]);
}

#[test]
fn an_old_load_that_shows_what_is_gone_shows_no_orphan() {
    let over = |is_fresh| seen(vec![entry()], vec![entry().to_dedup_entry()], is_fresh);
    let mut subject = watching(Duty::Marked);
    subject.judge(&over(true), &now(HOUR));
    let later = Now { sweeps: 100, writes: 1, ..now(2 * HOUR) };
    assert_eq!(broken(&subject.judge(&over(false), &later)), []);
    let unwritten = Now { writes: 0, ..later };
    assert_eq!(broken(&subject.judge(&over(true), &unwritten)), []);
    assert_eq!(broken(&subject.judge(&over(true), &later)), [Invariant::NoOrphan]);
}

#[test]
fn a_busy_entity_has_new_messages_watched_and_no_more_than_it_may() {
    let mut subject = watching(Duty::Marked);
    for number in 2..200 {
        let told = Told { entity: entity(), key: key(number), message_id: "m".parse().unwrap(), duty: Duty::Marked };
        subject.watch(told, at(HOUR, HOUR));
        let known = subject.keys().into_iter().map(|key| DedupEntry { key, ..entry().to_dedup_entry() }).collect();
        let checks = subject.judge(&seen(Vec::new(), known, true), &now(HOUR));
        let looked = |check: &Check| check.message.as_ref().is_some_and(|(of, _)| *of == key(number));
        assert!(checks.iter().any(looked), "{number}");
        assert!(subject.keys().len() <= 16);
    }
    let old = subject.keys().iter().filter(|of| (1..100).any(|number| **of == key(number))).count();
    assert!((1..16).contains(&old), "{old} of the first half are left");
}

#[test]
fn a_sweep_that_fails_is_remembered_however_many_do() {
    let own = entity();
    let rounds = Arc::new(Rounds::new([own.scope()].into_iter()));
    let sample = Arc::new(Sample::new(1, at(HOUR, HOUR)));
    let watching = Watching { metrics: Arc::new(NoMetrics), sample, rounds: rounds.clone() };
    watching.observe(Event::Waiting(own.scope(), Backlog::default()));
    assert_eq!((rounds.sweeps(own.scope()), rounds.failed(&own)), (1, 0));
    watching.observe(Event::SweepFailed(&own, "away"));
    assert_eq!(rounds.failed(&own), 2, "that sweep is not over yet");
    for number in 0..3000 {
        let other = EntityKey::new(own.scope().clone(), format!("other-{number}").parse().unwrap());
        watching.observe(Event::SweepFailed(&other, "away"));
    }
    assert_eq!(rounds.failed(&own), 2);
}
