//! The checker itself: histories that can have happened, and ones that cannot.

use crate::{
    checker::{Act, Step, Told, is_linearizable},
    reference::{Content, Key, Mark, Number},
};

const KEY: Key = Key { scope: 0, name: 0 };
const MARK: Mark = Mark { message: 0, attempt: 0 };

fn content(tag: Number) -> Content {
    Content { tag, completed: false, outbox: Vec::new() }
}

fn save(expected: Option<Number>, tag: Number, told: Told) -> Act {
    Act::Save { expected, content: content(tag), processed: Vec::new(), told }
}

fn row(version: Number, tag: Number) -> Act {
    Act::Row(Some((version, content(tag))))
}

/// Whether calls can have happened, each given with its begin and its end; no end: nobody knows.
fn can_be<const N: usize>(calls: [(u64, Option<u64>, Act); N]) -> bool {
    let step = |(invoked, returned, act)| Step { invoked, returned, after: None, act };
    is_linearizable(KEY, &calls.map(step))
}

#[test]
fn one_after_the_other_a_read_sees_the_last_save() {
    let first = || (0, Some(1), save(None, 1, Told::At(10)));
    let second = || (2, Some(3), save(Some(10), 2, Told::At(11)));
    assert!(can_be([first(), second(), (4, Some(5), row(11, 2))]));
    assert!(!can_be([first(), second(), (4, Some(5), row(10, 1))]));
    assert!(!can_be([first(), second(), (4, Some(5), Act::Version(None))]));
}

#[test]
fn a_read_beside_a_save_sees_it_or_not_but_not_first_and_then_not() {
    let saved = || (0, Some(9), save(None, 1, Told::At(10)));
    assert!(can_be([saved(), (1, Some(2), Act::Row(None)), (3, Some(4), row(10, 1))]));
    assert!(!can_be([saved(), (1, Some(2), row(10, 1)), (3, Some(4), Act::Row(None))]));
}

#[test]
fn of_two_saves_that_expect_the_same_one_wins() {
    let first = || (0, Some(9), save(None, 1, Told::At(10)));
    assert!(can_be([first(), (0, Some(9), save(None, 2, Told::Conflict))]));
    assert!(!can_be([first(), (0, Some(9), save(None, 2, Told::At(11)))]));
    assert!(!can_be([(0, Some(9), save(None, 2, Told::Conflict))]), "a conflict with nobody");
}

#[test]
fn a_save_of_unknown_outcome_happens_at_any_time_or_never() {
    let unknown = || (0, None, save(None, 1, Told::Unknown));
    assert!(can_be([unknown(), (1, Some(2), Act::Row(None))]));
    assert!(can_be([unknown(), (1, Some(2), Act::Row(None)), (3, Some(4), row(7, 1))]));
    assert!(!can_be([unknown(), (1, Some(2), row(7, 1)), (3, Some(4), Act::Row(None))]));
    assert!(!can_be([unknown(), (1, Some(2), row(7, 1)), (3, Some(4), row(8, 1))]), "one save, two versions");
    assert!(can_be([unknown(), (1, Some(2), row(7, 1)), (3, Some(4), save(Some(7), 2, Told::At(8)))]));
    assert!(!can_be([(5, None, save(None, 1, Told::Unknown)), (1, Some(2), row(7, 1))]), "before it began");
}

#[test]
fn what_rides_with_a_save_is_there_with_it_and_not_before() {
    let save =
        || (0, Some(9), Act::Save { expected: None, content: content(1), processed: vec![MARK], told: Told::At(10) });
    let marked = |attempt| Act::Marked(MARK.message, attempt);
    assert!(can_be([save(), (1, Some(2), marked(None)), (3, Some(4), marked(Some(0)))]));
    assert!(!can_be([save(), (1, Some(2), marked(Some(0))), (3, Some(4), Act::Row(None))]));
    assert!(!can_be([save(), (1, Some(2), row(10, 1)), (3, Some(4), marked(None))]));
}

#[test]
fn the_first_mark_stays() {
    let insert = |attempt| Act::Insert(Mark { attempt, ..MARK });
    let marked = |attempt| Act::Marked(MARK.message, Some(attempt));
    assert!(can_be([(0, Some(1), insert(0)), (2, Some(3), insert(1)), (4, Some(5), marked(0))]));
    assert!(!can_be([(0, Some(1), insert(0)), (2, Some(3), insert(1)), (4, Some(5), marked(1))]));
    assert!(can_be([(0, Some(3), insert(0)), (2, Some(3), insert(1)), (4, Some(5), marked(1))]));
}
