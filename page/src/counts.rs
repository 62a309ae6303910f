//! Numbers that no store keeps: how many messages were handled, and how many copies were dropped.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::Arc,
    time::Duration,
};

use hapax_core::{ports::Answer, time::Timestamp};
use serde::Serialize;

/// How long a step of the history is: what is seen of it changes as often as the page asks.
pub(crate) const STEP: Duration = Duration::from_secs(5);
/// Steps of the history: the last ten minutes.
pub(crate) const STEPS_MAX: usize = 120;
/// Sagas that are told apart: an application has tens. What comes beyond counts in the history of a process's own numbers alone, and not at all where they are read from other processes.
pub(crate) const SAGAS_MAX: usize = 1_000;

/// Where the numbers come from.
#[derive(Clone)]
pub struct Counts(Arc<dyn Fn() -> Answer<Counted> + Send + Sync>);

impl Counts {
    /// From nowhere, for this reason.
    #[must_use]
    pub fn unknown(why: impl Into<String>) -> Self {
        let why = why.into();
        Self::by(move || Answer::unknown(why.clone()))
    }

    pub(crate) fn by(counted: impl Fn() -> Answer<Counted> + Send + Sync + 'static) -> Self {
        Self(Arc::new(counted))
    }

    pub(crate) fn counted(&self) -> Answer<Counted> {
        (self.0)()
    }
}

impl fmt::Debug for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counts(..)")
    }
}

/// Numbers since each process began, and of the last ten minutes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Counted {
    /// When it was asked, by the page's clock.
    pub time: String,
    /// How long a step is, in milliseconds.
    pub step_ms: u64,
    /// Each saga.
    pub sagas: Vec<SagaNumbers>,
    /// What was counted in each step, the newest last; those that have not ended are left out.
    pub steps: Vec<Step>,
    /// Whom the numbers come from, where that is not the page's own process.
    pub processes: Vec<ProcessState>,
}

/// What was counted of one saga, of all processes together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SagaNumbers {
    /// Its endpoint.
    pub endpoint: String,
    /// Its name.
    pub saga: String,
    /// Since each process began.
    #[serde(flatten)]
    pub numbers: Numbers,
}

/// How many messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Numbers {
    /// Their effect is saved, and all they cause is sent.
    pub handled: u64,
    /// Copies that were recognised and dropped.
    pub duplicates: u64,
    /// Dropped by a rule.
    pub dropped: u64,
    /// Set aside.
    pub dead_letters: u64,
}

/// A step of the history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Step {
    /// How long ago it has ended, in milliseconds.
    pub ago_ms: u64,
    /// What was counted in it.
    pub counted: Answer<Numbers>,
}

/// A process that tells numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ProcessState {
    /// Where it is asked.
    pub url: String,
    /// Why it has not told any when it was asked last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Of which endpoint and saga.
pub(crate) type Sagas = BTreeMap<(String, String), Numbers>;

impl Numbers {
    pub(crate) const fn add(&mut self, other: Self) {
        self.handled = self.handled.saturating_add(other.handled);
        self.duplicates = self.duplicates.saturating_add(other.duplicates);
        self.dropped = self.dropped.saturating_add(other.dropped);
        self.dead_letters = self.dead_letters.saturating_add(other.dead_letters);
    }
}

/// What was counted in each step: a ring.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// `None`: not known.
    steps: VecDeque<Option<Numbers>>,
    /// Which step the last of them is, counted from the beginning.
    newest: u64,
}

impl History {
    /// The step `at`, which is the newest from now on, if it is not older. Those that were passed by are `between`.
    pub(crate) fn step(&mut self, at: u64, between: Option<Numbers>) -> &mut Option<Numbers> {
        let ahead = at.saturating_sub(self.newest).max(u64::from(self.steps.is_empty()));
        for _ in 0..ahead.min(STEPS_MAX as u64) {
            self.steps.push_back(between);
        }
        while self.steps.len() > STEPS_MAX {
            self.steps.pop_front();
        }
        self.newest = self.newest.max(at);
        let last = self.steps.len() - 1;
        &mut self.steps[last]
    }

    /// As it is told in the step `now`.
    pub(crate) fn told(&self, now: u64, why: &str) -> Vec<Step> {
        let first = (self.newest + 1).saturating_sub(self.steps.len() as u64);
        let steps = (first..).zip(&self.steps).filter(|(at, _)| *at < now);
        steps
            .map(|(at, step)| Step {
                ago_ms: (now - at - 1) * millis(STEP),
                counted: step.map_or_else(|| Answer::unknown(why), Answer::Is),
            })
            .collect()
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn counted(sagas: &Sagas, steps: Vec<Step>, processes: Vec<ProcessState>) -> Counted {
    let sagas = sagas.iter().map(|((endpoint, saga), numbers)| SagaNumbers {
        endpoint: endpoint.clone(),
        saga: saga.clone(),
        numbers: *numbers,
    });
    Counted { time: Timestamp::now().to_string(), step_ms: millis(STEP), sagas: sagas.collect(), steps, processes }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn handled(handled: u64) -> Numbers {
        Numbers { handled, duplicates: 0, dropped: 0, dead_letters: 0 }
    }

    #[test]
    fn the_history_has_a_bound_and_leaves_out_what_has_not_ended() {
        let mut history = History::default();
        for at in 0..500 {
            *history.step(at, None) = Some(handled(at));
        }
        let told = history.told(499, "away");
        assert_eq!(told.len(), STEPS_MAX - 1);
        assert_eq!(told.last(), Some(&Step { ago_ms: 0, counted: Answer::Is(handled(498)) }));
        // Far ahead at once: as many steps, and no more.
        history.step(u64::MAX / 2, None);
        assert_eq!(history.told(u64::MAX / 2, "away").len(), STEPS_MAX - 1);
    }

    #[test]
    fn steps_that_were_passed_by_are_what_the_source_says_they_are() {
        let mut history = History::default();
        *history.step(0, None) = Some(handled(1));
        *history.step(3, None) = Some(handled(2));
        let told: Vec<_> = history.told(4, "away").into_iter().map(|step| step.counted).collect();
        assert_eq!(
            told,
            [Answer::Is(handled(1)), Answer::unknown("away"), Answer::unknown("away"), Answer::Is(handled(2))]
        );
    }
}
