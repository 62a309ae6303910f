//! From a check to what it has found.

use std::{any::TypeId, collections::BTreeMap, sync::Arc};

use hapax_core::{Saga, Stateless, envelope::Envelope, manager::Ports};

use super::{
    advice,
    builder::{Check, id},
    outcome::{Checked, Explored, Failure},
    paths,
    plan::{Trial, WORLDS_MAX, typed},
    watch::{Differ, Shared, lock, watched},
};
use crate::explore::{
    self, Broken, Budgets, Replay, Report, Scenario, Sentence, Story, explore_at_most, labels, one_by_one,
};

/// A message whose handler fails is given at least so often, so that one that came too early gets its second chance.
const DELIVERIES_MIN: u8 = 2;
/// How often the messages come again under new ids, to see whether the state grows.
const ROUNDS_MAX: usize = 32;
/// Messages of all rounds at most: what the explorer can number.
const ROUNDS_MESSAGES_MAX: usize = 96;

/// What all explorations of a check have in common.
struct Common {
    scenario: Scenario,
    notes: Shared,
    messages: Arc<Vec<Arc<Envelope>>>,
    own: Vec<&'static str>,
    state_bytes_max: Option<usize>,
    is_stateless: bool,
}

pub(super) fn run<T: Saga>(check: Check<T>) -> Checked {
    let mut checked = Checked { explored: Vec::new(), paths: Vec::new(), warnings: Vec::new(), failure: None };
    if let Some(why) = check.refusal() {
        checked.failure = Some(plain(advice::CHECKABLE, why));
        return checked;
    }
    let trials = check.plan.trials(check.workers);
    let common = Common::new(check);
    let mut events: BTreeMap<&'static str, usize> = BTreeMap::new();
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
    checked
}

pub(super) fn replay<T: Saga>(check: Check<T>, line: &str) -> Checked {
    let mut checked = Checked { explored: Vec::new(), paths: Vec::new(), warnings: Vec::new(), failure: None };
    if let Some(why) = check.refusal() {
        checked.failure = Some(plain(advice::CHECKABLE, why));
        return checked;
    }
    let trials = check.plan.trials(check.workers);
    let common = Common::new(check);
    for trial in trials.iter().take(1) {
        checked.failure = match explore::replay(common.scenario_of(trial), &labels(line)) {
            Ok(Replay::Holds(_)) => None,
            Ok(Replay::Broken(story)) => Some(common.failure(*story, trial)),
            Ok(Replay::Lost { at, label, possible }) => {
                let possible = possible.join(", ");
                let seen = format!("step {}, `{label}`, is not possible any more; these are: {possible}", at + 1);
                Some(plain(advice::REPLAYABLE, seen))
            }
            Err(why) => Some(plain(advice::CHECKABLE, why)),
        };
    }
    checked
}

impl Common {
    fn new<T: Saga>(mut check: Check<T>) -> Self {
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
        if let Some(bytes_max) = state_bytes_max {
            always.push((advice::STATE_BYTES, state_at_most(bytes_max)));
        }
        let (tasks, together, may_drop) = (check.workers, check.together, check.may_drop);
        let notes = Shared::default();
        let (seen, all) = (notes.clone(), messages.clone());
        let manager = check.make(move |ports| Ports { stores: watched(&ports.stores, &all, &seen), ..ports });
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
        Self { scenario, notes, messages, own, state_bytes_max, is_stateless }
    }

    fn explore(&self, trial: Trial) -> Result<Report, Box<Failure>> {
        let report = explore_at_most(self.scenario_of(&trial), WORLDS_MAX);
        if let Some(differ) = lock(&self.notes).differ.clone() {
            let replay = differs_again(&trial);
            return Err(Box::new(Failure { replay, ..self.failure(differing(&differ), &trial) }));
        }
        report.map_err(|why| {
            let (claim, replay) = match why.contains("led to other") {
                true => (advice::RUNS_DIFFER, differs_again(&trial)),
                false => (advice::CHECKABLE, told_again(&trial)),
            };
            Box::new(Failure { messages: self.legend(), replay, ..plain(claim, why) })
        })
    }

    fn scenario_of(&self, (tasks, budgets): &Trial) -> Scenario {
        let Budgets { crashes, process_crashes, expiries, .. } = *budgets;
        let deliveries_max = crashes.saturating_add(process_crashes).saturating_add(expiries);
        let deliveries_max = deliveries_max.saturating_add(DELIVERIES_MIN);
        Scenario { tasks: *tasks, budgets: *budgets, deliveries_max, ..self.scenario.clone() }
    }

    fn add(&self, checked: &mut Checked, report: Report, trial: &Trial) {
        let what = typed(trial);
        if report.cut_short {
            checked.warnings.push(format!("{what}: cut short after {} worlds; take fewer messages", report.states));
        }
        let Report { states, histories, time, .. } = report;
        checked.explored.push(Explored { what, worlds: states, histories, time });
        checked.failure = report.story.map(|story| self.failure(story, trial));
    }

    fn failure(&self, story: Story, trial: &Trial) -> Failure {
        let (diagram, replay) = (story.mermaid(), replay_line(trial, &story.line()));
        let Story { broken: Broken { claim, seen }, steps, .. } = story;
        let own = self.own.contains(&claim);
        Failure {
            messages: self.legend(),
            steps,
            replay,
            diagram,
            advice: advice::on(claim, &seen, own).into(),
            claim: claim.into(),
            seen,
        }
    }

    fn legend(&self) -> Vec<String> {
        let text =
            |envelope: &Arc<Envelope>| format!("{} {}", envelope.message_type, String::from_utf8_lossy(&envelope.body));
        self.messages.iter().map(text).collect()
    }

    /// A path that was never taken was not checked.
    fn look_at_paths(&self, checked: &mut Checked, events: &BTreeMap<&'static str, usize>) {
        let sends = lock(&self.notes).sends;
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

    /// Lets the messages come again and again, each time under new ids, one after the other.
    fn look_at_growth(&self, checked: &mut Checked) {
        let count = self.messages.len();
        let rounds = (ROUNDS_MESSAGES_MAX / count).min(ROUNDS_MAX);
        let again = |round: usize| {
            self.messages.iter().enumerate().map(move |(number, envelope)| {
                let mut envelope = Envelope::clone(envelope);
                envelope.message_id = id(&format!("m{number}-{round}"));
                Arc::new(envelope)
            })
        };
        let messages = (0..rounds).flat_map(again).collect();
        let (always, at_rest, budgets) = (Vec::new(), Vec::new(), Budgets::NONE);
        let scenario =
            Scenario { messages, after: Vec::new(), always, at_rest, budgets, tasks: 1, ..self.scenario.clone() };
        // What cannot be explored has been told already, and a saga may well refuse its messages when they come again.
        let Ok(sizes) = one_by_one(&scenario) else { return };
        let (half, all) = (rounds / 2, rounds);
        let after = |rounds: usize| sizes.get(rounds * count - 1).copied().unwrap_or_default();
        let (bytes_half, bytes_all) = (after(half), after(all));
        let seen = format!(
            "the largest state has {bytes_half} bytes after {} messages and {bytes_all} after {}",
            half * count,
            all * count
        );
        if self.state_bytes_max.is_some_and(|bytes_max| bytes_all > bytes_max) {
            let steps =
                vec![format!("the messages are handled {rounds} times, one after the other, each under a new id")];
            let replay = "the same check: the last thing that it does".into();
            let failure = plain(advice::STATE_BYTES, seen);
            checked.failure = Some(Failure { messages: self.legend(), steps, replay, ..failure });
        } else if bytes_all >= bytes_half + (all - half) && self.state_bytes_max.is_none() {
            // A byte for each round: more than the digits of a counter, less than any list.
            checked.warnings.push(format!(
                "the state grows: {seen}. Fine if there is an end to them; else keep sums instead of lists. \
                 .state_at_most(bytes) makes it a failure"
            ));
        }
    }
}

fn plain(claim: &str, seen: String) -> Failure {
    Failure {
        claim: claim.into(),
        messages: Vec::new(),
        steps: Vec::new(),
        advice: advice::on(claim, &seen, false).into(),
        replay: "run the check again".into(),
        diagram: String::new(),
        seen,
    }
}

/// What finds a story again, and what goes its way once more.
fn replay_line(trial: &Trial, line: &str) -> String {
    format!("the same check with {} and, in place of .run(), .replay(\"{line}\")", typed(trial))
}

fn told_again(trial: &Trial) -> String {
    format!("the same check with {}: the search is not random, it tells the same story again", typed(trial))
}

fn differs_again(trial: &Trial) -> String {
    format!("the same check with {}: it finds a difference again, with other values", typed(trial))
}

/// The story of two runs that made different things of the same.
fn differing(differ: &Differ) -> Story {
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

fn nothing_set_aside() -> Sentence {
    Arc::new(|view| match view.letters {
        [] => Ok(()),
        [_] => Err("a message became a dead letter".into()),
        letters => Err(format!("{} messages became dead letters", letters.len())),
    })
}

fn state_at_most(bytes_max: usize) -> Sentence {
    Arc::new(move |view| {
        let bytes = view.entities.iter().map(|(_, entity)| entity.state.len()).max().unwrap_or_default();
        if bytes <= bytes_max {
            Ok(())
        } else {
            Err(format!("a state has {bytes} bytes; {bytes_max} were said at most"))
        }
    })
}
