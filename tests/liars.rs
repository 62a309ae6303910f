//! The conformance suites have teeth: an adapter that breaks a promise is rejected, and the promise that is named first is
//! the one it breaks. Each liar is an honest adapter with one lie.

#![allow(clippy::unwrap_used)]

#[path = "liars/bodies.rs"]
mod bodies;
#[path = "liars/dedup.rs"]
mod dedup;
#[path = "liars/entities.rs"]
mod entities;
#[path = "liars/faulty.rs"]
mod faulty;
#[path = "liars/groups.rs"]
mod groups;
#[path = "liars/letters.rs"]
mod letters;
#[path = "liars/lie.rs"]
mod lie;
#[path = "liars/long.rs"]
mod long;
#[path = "liars/marks.rs"]
mod marks;
#[path = "liars/queue_marks.rs"]
mod queue_marks;
#[path = "liars/queue_surveys.rs"]
mod queue_surveys;
#[path = "liars/queues.rs"]
mod queues;
#[path = "liars/schedules.rs"]
mod schedules;
#[path = "liars/surveys.rs"]
mod surveys;
#[path = "liars/upkeep.rs"]
mod upkeep;
