//! Goes the way that labels name once more: a story that is kept as a test survives changes of the explorer and of the
//! code, as long as the steps that it names still exist.

use std::collections::HashSet;

use super::{
    scenario::Scenario,
    space::Space,
    steps::Steps,
    story::{BETWEEN, Story, Teller},
};

/// How a replay has ended.
#[derive(Debug, Clone)]
pub enum Replay {
    /// Something is broken, now as then.
    Broken(Box<Story>),
    /// Every step was possible and nothing is broken: what happened.
    Holds(Vec<String>),
    /// A step is not possible any more.
    Lost {
        /// Its place among the labels.
        at: usize,
        /// Its label.
        label: String,
        /// What would have been possible.
        possible: Vec<String>,
    },
}

/// The labels of a replay line, as a [`Story`] prints it.
#[must_use]
pub fn labels(line: &str) -> Vec<&str> {
    line.split(BETWEEN).map(str::trim).filter(|label| !label.is_empty()).collect()
}

/// Takes the steps with these labels, one after the other.
///
/// # Errors
/// As [`explore`](super::explore).
pub fn replay(scenario: Scenario, labels: &[impl AsRef<str>]) -> Result<Replay, String> {
    let mut space = Space::new(scenario)?;
    let (mut teller, mut state, mut steps) = (Teller::default(), space.initial(), Steps::new());
    let (mut been, mut packed) = (HashSet::new(), Vec::new());
    for at in 0..=labels.len() {
        space.steps(&state, &mut steps)?;
        packed.clear();
        state.pack(&mut packed);
        let judged = if been.insert((packed.clone(), state.left)) {
            space.judge_end(&state, &steps)
        } else {
            space.judge_circle(&state)
        };
        if let Err(broken) = judged {
            return Ok(Replay::Broken(Box::new(teller.story(broken))));
        }
        let Some(label) = labels.get(at).map(AsRef::as_ref) else { break };
        let named: Vec<String> = steps.iter().map(|(step, _)| teller.label(&space, &state, step)).collect();
        let Some(found) = named.iter().position(|name| name == label) else {
            return Ok(Replay::Lost { at, label: label.to_owned(), possible: named });
        };
        let (step, after) = steps.swap_remove(found);
        let judged = after.and_then(|after| space.judge_always(&after).map(|()| after));
        teller.add(&space, &state, &step, judged.as_ref().ok());
        match judged {
            Ok(after) => state = after,
            Err(broken) => return Ok(Replay::Broken(Box::new(teller.story(broken)))),
        }
    }
    Ok(Replay::Holds(teller.steps()))
}
