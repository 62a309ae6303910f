//! From a check to what it has found.

use std::{any::TypeId, collections::BTreeMap, sync::Arc};

use hapax_core::{Stateless, envelope::Envelope};

use super::{
    advice,
    builder::Check,
    coming::{Coming, Stop, text},
    hush::{Hush, hush, told},
    outcome::{Checked, Explored, Failure},
    paths,
    plan::{Trial, typed},
    sagas::Subject,
    tell::{differing, differs_again, nothing_set_aside, plain, replay_line, state_within, stopped, told_again},
    watch::{Shared, lock},
};
use crate::explore::{self, Broken, Budgets, Replay, Report, Scenario, Story, explore_at_most, labels};

/// A message whose handler fails is given at least so often, so that one that came too early gets its second chance.
const ATTEMPTS_MIN: u8 = 2;

/// Worlds of the rehearsal at most: seventeen messages in a row take some hundred.
const REHEARSAL_WORLDS_MAX: usize = 2_000;

/// What all explorations of a check have in common.
pub(super) struct Common {
    pub(super) scenario: Scenario,
    notes: Shared,
    pub(super) messages: Arc<Vec<Arc<Envelope>>>,
    own: Vec<&'static str>,
    pub(super) state_bytes_max: Option<usize>,
    is_stateless: bool,
    worlds_max: usize,
    may_end_early: bool,
    hush: Hush,
}

pub(super) fn run<T: Subject>(check: Check<T>) -> Checked {
    let mut checked = Checked { explored: Vec::new(), paths: Vec::new(), warnings: Vec::new(), failure: None };
    if let Some(why) = check.refusal() {
        checked.failure = Some(plain(advice::CHECKABLE, why));
        return checked;
    }
    let trials = check.plan.trials(check.workers);
    let common = Common::new(check);
    let mut events: BTreeMap<&'static str, usize> = BTreeMap::new();
    checked.failure = common.rehearse();
    if checked.failure.is_some() {
        return checked;
    }
    for trial in trials {
        match common.explore(trial) {
            Ok(report) => {
                for (event, count) in &report.events {
                    *events.entry(event).or_default() += count;
                }
                common.add(&mut checked, report, &trial);
            }
            Err(failure) => checked.failure = Some(*failure),
        }
        if checked.failure.is_some() {
            return checked;
        }
    }
    common.look_at_paths(&mut checked, &events);
    common.look_at_growth(&mut checked);
    if checked.failure.is_none() {
        common.look_at_the_end(&mut checked);
    }
    checked
}

pub(super) fn replay<T: Subject>(check: Check<T>, line: &str) -> Checked {
    let mut checked = Checked { explored: Vec::new(), paths: Vec::new(), warnings: Vec::new(), failure: None };
    if let Some(why) = check.refusal() {
        checked.failure = Some(plain(advice::CHECKABLE, why));
        return checked;
    }
    let trials = check.plan.trials(check.workers);
    let common = Common::new(check);
    for trial in trials.iter().take(1) {
        let (replayed, stop) = common.noting(|| explore::replay(common.scenario_of(trial), &labels(line)));
        checked.failure = match (replayed, stop) {
            (Ok(Replay::Holds(_)), _) => None,
            (Ok(Replay::Broken(story)), _) => Some(common.failure(*story, trial)),
            (Ok(Replay::Lost { at, label, possible }), _) => {
                let possible = possible.join(", ");
                let seen = format!("step {}, `{label}`, is not possible any more; these are: {possible}", at + 1);
                Some(plain(advice::REPLAYABLE, seen))
            }
            (Err(_), Some(stop)) => Some(stopped(stop, trial)),
            (Err(why), None) => Some(plain(advice::CHECKABLE, why)),
        };
    }
    checked
}

impl Common {
    fn new<T: Subject>(mut check: Check<T>) -> Self {
        let messages: Vec<_> = check.messages.iter().filter_map(|message| message.as_ref().ok().cloned()).collect();
        let messages = Arc::new(messages);
        let own = check.always.iter().chain(&check.at_rest).map(|(name, _)| *name).collect();
        let mut always = std::mem::take(&mut check.always);
        let at_rest = std::mem::take(&mut check.at_rest);
        let after = std::mem::take(&mut check.after);
        if !check.may_set_aside {
            always.push((advice::SET_ASIDE, nothing_set_aside()));
        }
        let state_bytes_max = check.state_bytes_max;
        let (worlds_max, may_end_early) = (check.worlds_max, check.may_end_early);
        if let Some(bytes_max) = state_bytes_max {
            always.push((advice::STATE_BYTES, state_within(bytes_max)));
        }
        let (tasks, together, may_drop) = (check.workers, check.together, check.may_drop);
        let notes = Shared::default();
        let manager = check.make(&messages, &notes);
        let scenario = Scenario {
            always,
            at_rest,
            after,
            may_drop: if may_drop { (0..u8::MAX).collect() } else { Vec::new() },
            rests: true,
            tasks,
            together,
            ..Scenario::new(manager, messages.to_vec())
        };
        let is_stateless = TypeId::of::<T>() == TypeId::of::<Stateless>();
        Self { worlds_max, may_end_early, scenario, notes, messages, own, state_bytes_max, is_stateless, hush: hush() }
    }

    /// Explores, and gives why it could not go on, if it could not. Outside of this, as many messages may come as like.
    fn noting<R>(&self, explore: impl FnOnce() -> Result<R, String>) -> (Result<R, String>, Option<Stop>) {
        lock(&self.notes).coming = Some(Coming::default());
        let explored = told(explore);
        let coming = lock(&self.notes).coming.take();
        (explored, coming.and_then(|coming| coming.stop))
    }

    /// Whether it can be explored at all: one worker, and nothing goes wrong. A chain of messages without an end is met
    /// here at once, and otherwise behind more worlds than anybody waits for.
    fn rehearse(&self) -> Option<Failure> {
        let trial = (1, Budgets::NONE);
        let (_, stop) = self.noting(|| explore_at_most(self.scenario_of(&trial), REHEARSAL_WORLDS_MAX));
        stop.map(|stop| Failure { messages: self.legend(), ..stopped(stop, &trial) })
    }

    fn explore(&self, trial: Trial) -> Result<Report, Box<Failure>> {
        let (report, stop) = self.noting(|| explore_at_most(self.scenario_of(&trial), self.worlds_max));
        if let Some(differ) = lock(&self.notes).differ.clone() {
            let replay = differs_again(&trial);
            return Err(Box::new(Failure { replay, ..self.failure(differing(&differ), &trial) }));
        }
        let failure = match (report, stop) {
            (Ok(report), stop) if stop.is_none() || report.story.is_some() => return Ok(report),
            (_, Some(stop)) => stopped(stop, &trial),
            (Err(why), None) if why.contains("led to other") => {
                Failure { replay: differs_again(&trial), ..plain(advice::RUNS_DIFFER, why) }
            }
            (Err(why), None) => Failure { replay: told_again(&trial), ..plain(advice::CHECKABLE, why) },
            (Ok(report), None) => return Ok(report),
        };
        Err(Box::new(Failure { messages: self.legend(), ..failure }))
    }

    fn scenario_of(&self, (tasks, budgets): &Trial) -> Scenario {
        // What a fault costs a delivery, the message must not be blamed for: a crash, a lost lease, a settlement that is
        // refused (the message comes again without a rest), a deadline that has passed.
        let Budgets { crashes, process_crashes, expiries, refused, late, .. } = *budgets;
        let faults = [crashes, process_crashes, expiries, refused, late];
        let attempts_max = faults.iter().fold(ATTEMPTS_MIN, |sum, fault| sum.saturating_add(*fault));
        Scenario { tasks: *tasks, budgets: *budgets, attempts_max, ..self.scenario.clone() }
    }

    fn add(&self, checked: &mut Checked, report: Report, trial: &Trial) {
        let what = typed(trial);
        let Report { states, histories, time, cut_short, .. } = report;
        if cut_short && self.may_end_early {
            checked.warnings.push(format!("not all was seen with {what}: there are more than {states} worlds"));
        }
        checked.explored.push(Explored { what, worlds: states, histories, time, cut_short });
        checked.failure = report.story.map(|story| self.failure(story, trial));
    }

    /// What has not been seen has not been checked, and is no pass.
    fn look_at_the_end(&self, checked: &mut Checked) {
        let cut: Vec<_> = checked.explored.iter().filter(|explored| explored.cut_short).collect();
        let Some(first) = cut.first().filter(|_| !self.may_end_early) else { return };
        let (worlds, all) = (self.worlds_max, checked.explored.len());
        let seen = format!(
            "{} of {all} explorations ended at the limit of {worlds} worlds, the first with {}. Nothing was broken in what \
             was seen, which is not all",
            cut.len(),
            first.what
        );
        let replay = format!("the same check with {}: it ends at the same world again", first.what);
        checked.failure = Some(Failure { messages: self.legend(), replay, ..plain(advice::ALL_SEEN, seen) });
    }

    fn failure(&self, story: Story, trial: &Trial) -> Failure {
        let (diagram, replay) = (story.mermaid(), replay_line(trial, &story.line()));
        let Story { broken: Broken { claim, seen }, steps, .. } = story;
        let own = self.own.contains(&claim);
        let advice = advice::on(claim, &seen, &steps, own).into();
        let mut told = steps.clone();
        told.push(seen.clone());
        let seen = self.hush.places(&told).into_iter().fold(seen, |seen, place| format!("{seen}\n  {place}"));
        Failure { messages: self.legend(), steps, replay, diagram, advice, claim: claim.into(), seen }
    }

    pub(super) fn legend(&self) -> Vec<String> {
        self.messages.iter().map(|envelope| text(envelope)).collect()
    }

    /// A path that was never taken was not checked.
    fn look_at_paths(&self, checked: &mut Checked, events: &BTreeMap<&'static str, usize>) {
        let notes = lock(&self.notes);
        let sends = notes.sends;
        for (number, cause) in self.scenario.after.iter().filter(|(_, cause)| !notes.sent.contains(cause)) {
            checked.warnings.push(format!("m{number} never came: no {cause} has ever left, which was to cause it"));
        }
        for path in paths::ALL {
            // What sends nothing has no outbox; a handler without state has no entity that messages share.
            if path.needs_outbox && !sends || path.name == paths::HELPED && self.is_stateless {
                continue;
            }
            let count = events.get(path.name).copied().unwrap_or_default();
            checked.paths.push((path.name, count));
            if count == 0 {
                checked.warnings.push(format!("no history has the path \"{}\": {}", path.name, path.remedy));
            }
        }
    }
}
