//! How far a partition may be committed, and how deliveries are counted, without a broker: a commit beyond a gap would lose messages.
#![allow(clippy::unwrap_used)]

use hapax_core::{
    envelope::Envelope,
    ids::{MessageId, TypeName},
};

use super::*;

fn message() -> Result<Arc<Envelope>, Unreadable> {
    let kind = TypeName::parse("shop.added").unwrap();
    Ok(Arc::new(Envelope::new(MessageId::random(), kind, Vec::new())))
}

fn lane(offsets: impl IntoIterator<Item = i64>) -> Lane {
    let mut lane = Lane::new(1, 10, Some(10), Given::default());
    offsets.into_iter().for_each(|offset| lane.came(offset, message()));
    lane
}

fn noted(lane: &mut Lane) -> Given {
    let given = lane.notes(Instant::now()).unwrap();
    lane.noted(true, Instant::now(), Duration::ZERO);
    given
}

#[test]
fn what_is_settled_behind_a_gap_is_not_committed_and_not_kept() {
    let mut lane = lane(10..14);
    noted(&mut lane);
    for _ in 10..14 {
        lane.give(Instant::now(), false).unwrap();
    }
    assert!(lane.settle(12), "it waits behind a gap");
    assert_eq!((lane.commits(), lane.open()), (None, 3));
    assert!(!lane.settle(10));
    assert_eq!(lane.commits(), Some(11));
    assert_eq!(lane.commits(), None, "it is under way");
    lane.commit_ended(11, false);
    assert_eq!(lane.commits(), Some(11), "a commit that failed is wanted again");
    lane.commit_ended(11, true);
    assert!(!lane.settle(11));
    assert_eq!(lane.commits(), Some(13));
}

#[test]
fn offsets_at_which_nothing_is_hold_nothing_up() {
    let mut lane = lane([10, 15]);
    noted(&mut lane);
    lane.settle(10);
    assert_eq!(lane.position(), 15);
    lane.settle(15);
    assert_eq!(lane.position(), 16);
}

#[test]
fn nothing_is_given_before_that_is_noted() {
    let mut lane = lane([10]);
    assert!(lane.give(Instant::now(), false).is_none());
    assert!(lane.notes(Instant::now()).is_some());
    assert!(lane.give(Instant::now(), false).is_none());
    lane.noted(false, Instant::now(), Duration::ZERO);
    assert!(lane.give(Instant::now(), false).is_none());
    assert_eq!(noted(&mut lane), Given { position: 10, end: 11, counts: BTreeMap::new() });
    assert_eq!(lane.give(Instant::now(), false).unwrap().attempts, 1);
}

#[test]
fn deliveries_are_counted_across_a_crash_and_those_that_do_not_count_are_not() {
    let mut lane = lane([10, 11]);
    noted(&mut lane);
    let now = Instant::now();
    assert_eq!(lane.give(now, false).unwrap().attempts, 1);
    lane.retry(10, now, Duration::ZERO, true);
    let given = noted(&mut lane);
    assert_eq!((given.count(10), given.count(11)), (2, 1), "a crash now is after its second delivery");
    assert_eq!(lane.give(now, false).unwrap().attempts, 2);
    lane.retry(10, now, Duration::ZERO, false);
    let given = lane.last_notes();
    assert_eq!(
        (given.count(10), given.count(11)),
        (1, 0),
        "neither a retry that does not count, nor what was not given"
    );
    let mut next = Lane::new(2, 10, Some(10), given);
    next.came(10, message());
    noted(&mut next);
    assert_eq!(next.give(now, false).unwrap().attempts, 2);
}

#[test]
fn what_is_put_off_holds_up_the_others_where_order_is_kept() {
    for in_order in [false, true] {
        let mut lane = lane([10, 11]);
        noted(&mut lane);
        let now = Instant::now();
        lane.give(now, in_order).unwrap();
        lane.retry(10, now, Duration::from_secs(60), true);
        assert_eq!(lane.give(now, in_order).is_none(), in_order);
    }
}

/// The log went back: what was committed of the one before is no word on this one.
#[test]
fn nothing_counts_as_committed_where_a_lane_begins_anew() {
    let mut lane = Lane::new(1, 0, None, Given::default());
    assert_eq!(lane.commits(), Some(0), "the place of before is corrected at once");
    lane.commit_ended(0, true);
    lane.came(0, message());
    noted(&mut lane);
    lane.give(Instant::now(), false).unwrap();
    let watched = lane.watch();
    assert!(!lane.settle(0) && *watched.borrow() <= 0, "it is not committed yet");
    assert_eq!(lane.commits(), Some(1));
    lane.commit_ended(1, true);
    assert!(*watched.borrow() > 0);
}

#[test]
fn what_cannot_be_decoded_holds_its_lane_for_a_while() {
    let (mut lane, now) = (lane([10]), Instant::now());
    assert!(!lane.is_held(now));
    lane.hold(now + Duration::from_secs(1));
    assert!(lane.is_held(now) && !lane.is_held(now + Duration::from_secs(1)), "it is tried again");
    assert!(noted(&mut lane).end > 10 && lane.give(now, false).is_some(), "what has come is given");
}

#[test]
fn a_commit_of_a_time_before_it_was_handed_over_is_none_of_this() {
    let mut lane = lane([10]);
    noted(&mut lane);
    lane.settle(10);
    assert_eq!(lane.commits(), Some(11));
    let mut again = Lane::new(2, 10, Some(10), Given::default());
    again.came(10, message());
    again.settle(10);
    again.commit_ended(11, true);
    assert_eq!(again.commits(), Some(11));
}
