//! The endpoint end to end, on the reference store and queues inside the process, in paused time.
#![allow(clippy::unwrap_used)]

#[path = "endpoint/attempts.rs"]
mod attempts;
#[path = "endpoint/audit.rs"]
mod audit;
#[path = "endpoint/auditees.rs"]
mod auditees;
#[path = "endpoint/away_from_two.rs"]
mod away_from_two;
#[path = "endpoint/calendar.rs"]
mod calendar;
#[path = "endpoint/changing_hands.rs"]
mod changing_hands;
#[path = "endpoint/cipher.rs"]
mod cipher;
#[path = "endpoint/circuit.rs"]
mod circuit;
#[path = "endpoint/claimed_letters.rs"]
mod claimed_letters;
#[path = "endpoint/claims.rs"]
mod claims;
#[path = "endpoint/crashes.rs"]
mod crashes;
#[path = "endpoint/deaf.rs"]
mod deaf;
#[path = "endpoint/deflated.rs"]
mod deflated;
#[path = "endpoint/depot.rs"]
mod depot;
#[path = "endpoint/edited.rs"]
mod edited;
#[path = "endpoint/enqueued.rs"]
mod enqueued;
#[path = "endpoint/entities.rs"]
mod entities;
#[path = "endpoint/evicting.rs"]
mod evicting;
#[path = "endpoint/faults.rs"]
mod faults;
#[path = "endpoint/handle.rs"]
mod handle;
#[path = "endpoint/hanging.rs"]
mod hanging;
#[path = "endpoint/harness.rs"]
mod harness;
#[path = "endpoint/hub.rs"]
mod hub;
#[path = "endpoint/in_part.rs"]
mod in_part;
#[path = "endpoint/lanes.rs"]
mod lanes;
#[path = "endpoint/middleware.rs"]
mod middleware;
#[path = "endpoint/middleware_faults.rs"]
mod middleware_faults;
#[path = "endpoint/numbered_faults.rs"]
mod numbered_faults;
#[path = "endpoint/office.rs"]
mod office;
#[path = "endpoint/office_lists.rs"]
mod office_lists;
#[path = "endpoint/one_place.rs"]
mod one_place;
#[path = "endpoint/orders.rs"]
mod orders;
#[path = "endpoint/outage.rs"]
mod outage;
#[path = "endpoint/overtaken.rs"]
mod overtaken;
#[path = "endpoint/parts.rs"]
mod parts;
#[path = "endpoint/policies.rs"]
mod policies;
#[path = "endpoint/recoverability.rs"]
mod recoverability;
#[path = "endpoint/recurring.rs"]
mod recurring;
#[path = "endpoint/refusals.rs"]
mod refusals;
#[path = "endpoint/reluctant.rs"]
mod reluctant;
#[path = "endpoint/remembered.rs"]
mod remembered;
#[path = "endpoint/renamed.rs"]
mod renamed;
#[path = "endpoint/replayed.rs"]
mod replayed;
#[path = "endpoint/replayed_by_another.rs"]
mod replayed_by_another;
#[path = "endpoint/routes.rs"]
mod routes;
#[path = "endpoint/schedule.rs"]
mod schedule;
#[path = "endpoint/sealed.rs"]
mod sealed;
#[path = "endpoint/sealed_faults.rs"]
mod sealed_faults;
#[path = "endpoint/settling.rs"]
mod settling;
#[path = "endpoint/start.rs"]
mod start;
#[path = "endpoint/stopped_beside.rs"]
mod stopped_beside;
#[path = "endpoint/turned.rs"]
mod turned;
#[path = "endpoint/two_desks.rs"]
mod two_desks;
#[path = "endpoint/unanswered.rs"]
mod unanswered;
#[path = "endpoint/unreadable.rs"]
mod unreadable;
#[path = "endpoint/vault.rs"]
mod vault;
#[path = "endpoint/work.rs"]
mod work;
#[path = "endpoint/worst_days.rs"]
mod worst_days;
