//! Stories that no exploration tells by itself.

use std::sync::Arc;

use super::{
    advice,
    coming::Stop,
    outcome::Failure,
    plan::{Trial, typed},
    watch::Differ,
};
use crate::explore::{Broken, Sentence, Story};

pub(super) fn plain(claim: &str, seen: String) -> Failure {
    Failure {
        claim: claim.into(),
        messages: Vec::new(),
        steps: Vec::new(),
        advice: advice::on(claim, &seen, &[], false).into(),
        replay: "run the check again".into(),
        diagram: String::new(),
        seen,
    }
}

/// What finds a story again, and what goes its way once more.
pub(super) fn replay_line(trial: &Trial, line: &str) -> String {
    format!("the same check with {} and, in place of .run(), .replay(\"{line}\").holds()", typed(trial))
}

pub(super) fn told_again(trial: &Trial) -> String {
    format!("the same check with {}: the search is not random, it tells the same story again", typed(trial))
}

pub(super) fn differs_again(trial: &Trial) -> String {
    format!("the same check with {}: it finds a difference again, with other values", typed(trial))
}

/// The story of an exploration that could not go on.
pub(super) fn stopped(stop: Stop, trial: &Trial) -> Failure {
    let (claim, seen, steps) = match stop {
        Stop::Endless { seen, steps } => (advice::COUNTABLE, seen, steps),
        Stop::Crowd { seen } => (advice::COUNTABLE, seen, Vec::new()),
        Stop::Unreadable { seen, steps } => (advice::SET_ASIDE, seen, steps),
    };
    let advice = match (claim, steps.is_empty()) {
        (advice::COUNTABLE, true) => advice::CROWD,
        (advice::SET_ASIDE, _) => advice::UNREADABLE,
        _ => advice::on(claim, &seen, &steps, false),
    };
    Failure { steps, replay: told_again(trial), advice: advice.into(), ..plain(claim, seen) }
}

/// The story of two runs that made different things of the same.
pub(super) fn differing(differ: &Differ) -> Story {
    let Differ { message, before, first, second } = differ;
    let message = message.map_or_else(|| "a message".to_owned(), |number| format!("m{number}"));
    let seen = format!("the handler made different things of {message} and the same state, {before}");
    let steps = vec![
        format!("worker w1 is given {message}"),
        format!("w1 {message}: handle it with the state {before} -> {first}"),
        format!("worker w2 is given {message}, as after a crash or a lost race"),
        format!("w2 {message}: handle it with the state {before} -> {second}"),
    ];
    Story { broken: Broken { claim: advice::RUNS_DIFFER, seen }, steps, labels: Vec::new() }
}

pub(super) fn nothing_set_aside() -> Sentence {
    Arc::new(|view| match view.letters {
        [] => Ok(()),
        [_] => Err("a message became a dead letter".into()),
        letters => Err(format!("{} messages became dead letters", letters.len())),
    })
}

pub(super) fn state_within(bytes_max: usize) -> Sentence {
    Arc::new(move |view| {
        let bytes = view.entities.iter().map(|(_, entity)| entity.state.len()).max().unwrap_or_default();
        if bytes <= bytes_max {
            Ok(())
        } else {
            Err(format!("a state has {bytes} bytes; {bytes_max} were said at most"))
        }
    })
}
