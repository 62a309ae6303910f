//! Where a take begins and how often is looked, in paused time: the position is a hint, and what is committed late must not stay behind it.

use std::{ops::RangeInclusive, time::Duration};

use super::signals::{Looked, Position, Signals};

const LATE_MS: RangeInclusive<i64> = 50..=1000;

#[tokio::test(start_paused = true)]
async fn looks_are_frequent_while_something_comes_and_rare_when_nothing_does_or_the_server_tells() {
    let (busy, idle) = (Duration::from_millis(5), Duration::from_millis(240));
    let signals = Signals::new(busy, idle, LATE_MS);
    signals.came();
    assert_eq!(signals.interval(), busy);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(signals.interval() > busy && signals.interval() < idle);
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(signals.interval(), idle);
    signals.came();
    assert_eq!(signals.interval(), busy);
    signals.are_told(true);
    assert_eq!(signals.interval(), idle);
    signals.are_told(false);
    assert_eq!(signals.interval(), busy);
}

/// The position is a hint: it moves on with what is looked at, stays behind what may be committed late, and begins at the
/// start again with every poll, also while a full look goes on.
#[tokio::test(start_paused = true)]
async fn a_take_begins_where_the_last_one_ended_and_now_and_then_at_the_start() {
    let idle = Duration::from_millis(240);
    let signal = Signals::new(idle, idle, LATE_MS).of_queue(1);
    let looked = |last: Option<i64>, more, left| {
        let last = last.map(|due| Position { due, id: 7 });
        Looked { now: 10_000, last, more, left, idle: Duration::ZERO }
    };
    let at = |due| Position { due, id: 7 };
    assert_eq!(signal.begin().0, Position::START);
    signal.looked(Position::START, looked(Some(5_000), true, false));
    assert_eq!(signal.begin().0, at(5_000));
    signal.looked(at(5_000), looked(Some(6_000), true, true));
    assert_eq!(signal.begin().0, at(5_000), "what was left is looked at again");

    tokio::time::advance(idle).await;
    assert_eq!(signal.begin().0, Position::START, "beside a full look that goes on");
    signal.looked(Position::START, looked(Some(4_000), true, false));
    assert_eq!(signal.begin().0, at(5_000));
    signal.looked(at(5_000), looked(Some(9_990), false, false));
    let late = signal.begin().0;
    assert!(late.due < 9_990 && late.due > 9_000, "{late:?} leaves no time to those who commit late");

    tokio::time::advance(idle).await;
    assert_eq!(signal.begin().0, Position::START);
    signal.looked(Position::START, looked(None, false, false));
    assert_ne!(signal.begin().0, Position::START);
    signal.anew();
    assert_eq!(signal.begin().0, Position::START);
}

/// What is held up is not looked at again and again; what is committed late before it is found by the next full look.
#[tokio::test(start_paused = true)]
async fn looks_begin_behind_what_is_held_up_until_a_take_gives_something_and_now_and_then_at_the_start() {
    let idle = Duration::from_millis(240);
    let signals = Signals::new(idle, idle, LATE_MS);
    let signal = signals.of_queue(1);
    let _waiting = signal.wait();
    let looks_at = || signals.waiting()[0].1;
    let (from, _) = signal.begin();
    signal.looked(from, Looked { now: 10_000, last: None, more: false, left: false, idle: Duration::ZERO });
    let late = looks_at();
    assert!(late.due < 10_000);
    let held_up = Position { due: 9_999, id: 7 };
    signal.held_up(Some(held_up));
    assert_eq!(looks_at(), held_up);
    assert_eq!(signal.begin().0, late, "a take looks for what is committed late");
    tokio::time::advance(idle).await;
    assert_eq!(looks_at(), Position::START);
    let (from, _) = signal.begin();
    signal.looked(from, Looked { now: 10_240, last: None, more: false, left: false, idle: Duration::ZERO });
    assert!(looks_at() > late && looks_at().due < 10_240);
    signal.held_up(None);
    assert!(looks_at() > late && looks_at().due < 10_240);
}

/// Where commits take long, a look begins further behind; for as long as they do.
#[test]
fn what_is_committed_as_late_as_usual_is_not_left_to_a_full_look() {
    let idle = Duration::from_millis(240);
    let signals = Signals::new(idle, idle, LATE_MS);
    let (signal, late) = (signals.of_queue(1), signals.late());
    let reaches = || {
        signal.anew();
        let (from, _) = signal.begin();
        signal.looked(from, Looked { now: 100_000, last: None, more: false, left: false, idle: Duration::ZERO });
        100_000 - signal.begin().0.due
    };
    assert_eq!(reaches(), 50);
    late.written_in(Duration::from_millis(300));
    assert_eq!(reaches(), 600);
    (0..100).for_each(|_| late.written_in(Duration::from_millis(1)));
    assert_eq!(reaches(), 50);
    late.written_in(Duration::from_secs(60));
    assert_eq!(reaches(), 1000);
}

/// However long the line behind one key, passing it takes a part of the time only.
#[tokio::test(start_paused = true)]
async fn a_full_look_that_took_long_for_nothing_comes_less_often() {
    let idle = Duration::from_millis(240);
    let signal = Signals::new(idle, idle, LATE_MS).of_queue(1);
    let nothing = |last: i64, more| {
        let last = Some(Position { due: last, id: 7 });
        Looked { now: 10_000, last, more, left: false, idle: Duration::from_secs(1) }
    };
    let (from, _) = signal.begin();
    signal.looked(from, nothing(1_000, true));
    let (from, _) = signal.begin();
    signal.looked(from, nothing(2_000, false));
    tokio::time::advance(Duration::from_secs(9)).await;
    assert_ne!(signal.begin().0, Position::START);
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(signal.begin().0, Position::START);
}
