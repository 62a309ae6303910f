//! Traces: what runs of the explorer ask of a store, so that a real one can be asked the same.
//!
//! What is asked comes from the shipped code, which has no input but its messages and the answers of its ports. So a store
//! that answers all of a trace as the explorer's world did would have led the code the same way, and what is claimed of
//! that run holds on it. Answers that got lost, writes that came late and crashes are part of a trace: each write is in it
//! at the moment at which it took effect, and whether anybody was told.

use std::collections::{BTreeMap, BTreeSet};

use hapax_core::{
    entity::{DedupEntry, Entity, Expected, Version},
    ids::{DedupKey, EntityKey},
    ports::{DeadLetter, Finished, Known, Loaded, Saved},
};

use super::{
    answers,
    calls::{Op, Reply},
    partly,
    scenario::{Reads, Scenario},
    short::{Ask, Short},
    space::Space,
    state::{Budgets, State},
    steps::{Step, Steps},
    story::{Teller, outcome},
};

/// Steps of one run at most; all end long before.
const STEPS_MAX: usize = 10_000;

/// One step in so many is any, and may spend what is needed later.
const RARELY: u8 = 12;

/// What one run asks of a store, and what must be there at its end.
#[derive(Debug, Clone)]
pub struct Trace {
    /// In order.
    pub asked: Vec<Asked>,
    /// Every entity that is stored, with its version.
    pub entities: Vec<(EntityKey, Version, Entity)>,
    /// Every dedup entry.
    pub marks: Vec<DedupEntry>,
    /// The way, for [`replay`](super::replay()) in the same scenario without the merging of worlds.
    pub line: String,
}

/// One question.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Who asks: its place among those who work at that moment.
    pub worker: usize,
    /// What.
    pub what: What,
    /// Whether the answer arrived. A write was made all the same.
    pub told: bool,
    /// Which kind of step it was: call, outcome and fault.
    pub kind: String,
}

/// What is asked, and the answer. Versions are the world's own: a real store has others in their place.
#[derive(Debug, Clone)]
pub enum What {
    /// Reads an entity and, where one store keeps both, what is known.
    Load {
        /// Which entity.
        key: EntityKey,
        /// Which messages.
        ids: Vec<DedupKey>,
        /// What is stored and known.
        answer: Loaded,
    },
    /// Asks the dedup store.
    Contains {
        /// Which messages.
        ids: Vec<DedupKey>,
        /// What is known.
        answer: Known,
    },
    /// Reads a version.
    Version {
        /// Which entity.
        key: EntityKey,
        /// What it is.
        answer: Option<Version>,
    },
    /// Saves by compare-and-set.
    Save {
        /// Which entity.
        key: EntityKey,
        /// What must still be stored.
        expected: Expected,
        /// What is to be stored.
        entity: Entity,
        /// Marks that go with it.
        processed: Vec<DedupEntry>,
        /// How it ends.
        answer: Saved,
    },
    /// Marks, and cleans up if the version still is what it was.
    Finish {
        /// Which entity.
        key: EntityKey,
        /// The marks.
        done: Vec<DedupEntry>,
        /// The version and the entity without its entries.
        clean_up: Option<(Version, Entity)>,
        /// How it ends.
        answer: Option<Finished>,
    },
    /// Adds marks.
    Insert(Vec<DedupEntry>),
    /// Sets a message aside.
    SetAside(Box<DeadLetter>),
}

/// Takes runs, of as many scenarios as one likes; the same ones for the same seed. Each makes for a kind of step that was
/// seldom taken so far, and spends little of what may go wrong before. What only a lax store may do is left out: old answers,
/// and entries that are forgotten.
#[derive(Debug)]
pub struct Tracer {
    random: fastrand::Rng,
    /// How often a step of a kind was taken.
    taken: BTreeMap<String, u32>,
}

impl Tracer {
    /// One that has taken none.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { random: fastrand::Rng::with_seed(seed), taken: BTreeMap::new() }
    }

    /// `count` runs of `scenario`, from its beginning to its end.
    ///
    /// # Errors
    /// As [`explore`](super::explore()); a scenario whose dedup store may answer late; a claim that is broken.
    pub fn runs(&mut self, scenario: Scenario, count: usize) -> Result<Vec<Trace>, String> {
        if scenario.reads != Reads::Linearizable {
            return Err("a store that answers at once cannot follow one that may answer late".into());
        }
        let budgets = Budgets { evictions: 0, stale_loads: 0, ..scenario.budgets };
        // Each version and each attempt has a number of its own.
        let mut space = Space::new(Scenario { budgets, reduced: false, ..scenario })?;
        let mut possible = BTreeSet::new();
        (0..count).map(|_| self.run(&mut space, &mut possible)).collect()
    }

    /// One run; `possible`: the kinds of steps that there were in this scenario.
    fn run(&mut self, space: &mut Space, possible: &mut BTreeSet<String>) -> Result<Trace, String> {
        let (mut state, mut steps, mut teller) = (space.initial(), Steps::new(), Teller::default());
        let times = |kind: &&String| self.taken.get(*kind).copied().unwrap_or_default();
        let goal = possible.iter().min_by_key(times).cloned();
        let mut asked = Vec::new();
        for _ in 0..STEPS_MAX {
            space.steps(&state, &mut steps)?;
            if steps.is_empty() {
                return Ok(trace(space, &state, asked, &teller));
            }
            let kinds: Vec<String> = steps.iter().map(|(step, _)| kind(space, step)).collect();
            possible.extend(kinds.iter().cloned());
            let at = self.choose(&state, &steps, &kinds, goal.as_ref());
            let (step, after) = steps.swap_remove(at);
            let after = after.map_err(|broken| broken.to_string())?;
            space.judge_always(&after).map_err(|broken| broken.to_string())?;
            *self.taken.entry(kinds[at].clone()).or_default() += 1;
            asked.extend(asks(space, &state, &step, &after));
            teller.add(space, &state, &step, Some(&after));
            state = after;
        }
        Err(format!("a run has not ended after {STEPS_MAX} steps"))
    }

    fn choose(&mut self, state: &State, steps: &Steps, kinds: &[String], goal: Option<&String>) -> usize {
        let all = 0..steps.len();
        let any = self.random.u8(..RARELY) == 0;
        let free = |at: &usize| steps[*at].1.as_ref().is_ok_and(|after| after.left == state.left);
        let there: Vec<usize> = match () {
            () if any => all.collect(),
            () if kinds.iter().any(|kind| Some(kind) == goal) => all.filter(|at| Some(&kinds[*at]) == goal).collect(),
            () if all.clone().any(|at| free(&at)) => all.filter(free).collect(),
            () => all.collect(),
        };
        there[self.random.usize(..there.len())]
    }
}

fn trace(space: &Space, state: &State, asked: Vec<Asked>, teller: &Teller) -> Trace {
    let rows = (0..).zip(&state.rows).filter(|(_, row)| row.version > 0);
    let entity = |(at, row): (usize, &super::state::Row)| {
        let (key, entity) = (&space.tables.rows[at].0, space.tables.entities.get(row.entity));
        (key.clone(), Version::number(row.version.into()), entity.clone())
    };
    Trace {
        asked,
        entities: rows.map(entity).collect(),
        marks: state.marks.iter().map(|mark| space.tables.marks.get(*mark).clone()).collect(),
        line: teller.line(),
    }
}

/// What a step is, whoever takes it for whichever message.
fn kind(space: &Space, step: &Step) -> String {
    let call = |op: u32| match &*space.trie.ask(op) {
        Ask::Now | Ask::Monotonic => "clock",
        Ask::Attempt => "attempt",
        Ask::Pause(..) => "pause",
        Ask::Load { .. } => "load",
        Ask::Contains(_) => "check",
        Ask::Recall(_) => "recall",
        Ask::Version(_) => "version",
        Ask::Save(_) => "save",
        Ask::Finish { clean_up: None, .. } => "mark",
        Ask::Finish { .. } => "finish",
        Ask::Insert(_) => "insert",
        Ask::Dispatch(_) => "dispatch",
        Ask::SetAside(_) => "set aside",
        Ask::Park(_) => "park",
        Ask::Settle(..) => "settle",
    };
    match step {
        Step::Call { op, reply, how, .. } => {
            let fault = if how.fault.is_empty() { String::new() } else { format!(", {}", how.fault) };
            format!("{}: {}{fault}", call(*op), outcome(space.trie.replies.get(*reply)))
        }
        Step::Land { op, done: true } => format!("{}: late", call(*op)),
        Step::Land { op, done: false } => format!("{}: never", call(*op)),
        Step::Begin { .. } => "begin".to_owned(),
        Step::Crash { .. } => "crash".to_owned(),
        Step::ProcessCrash => "process crash".to_owned(),
        Step::Expire { .. } => "lease runs out".to_owned(),
        Step::Evict(_) => "forgotten".to_owned(),
        Step::Come(_) => "comes once more".to_owned(),
    }
}

/// What a step asks of a store, if it does anything there.
fn asks(space: &Space, state: &State, step: &Step, after: &State) -> Option<Asked> {
    let kind = kind(space, step);
    match step {
        Step::Call { task, op, how, .. } => {
            let (what, told) = match how.fault {
                "" => (what(space, state, *op, after)?, true),
                answers::DONE | answers::TOLD_LOST => (what(space, state, *op, after)?, false),
                partly::PART | partly::NOT_CLEANED_UP | answers::LEFT => {
                    let (Op::Finish { done, .. } | Op::Insert(done)) = space.trie.ops.get(*op) else { return None };
                    let part = |at: usize| how.fault != partly::PART || how.at >> at & 1 == 1;
                    let done = done.iter().enumerate().filter(|(at, _)| part(*at)).map(|(_, mark)| mark.clone());
                    (only_marks(space, *op, done.collect()), false)
                }
                _ => return None, // Nothing was done.
            };
            Some(Asked { worker: *task, what, told, kind })
        }
        Step::Land { op, done: true } => {
            Some(Asked { worker: 0, what: what(space, state, *op, after)?, told: false, kind })
        }
        _ => None,
    }
}

/// What a call has done of which only the marks are there: asked of the store that keeps them.
fn only_marks(space: &Space, op: u32, done: Vec<DedupEntry>) -> What {
    match space.trie.ops.get(op) {
        Op::Finish { key, .. } => {
            let answer = Some(Finished::Cleaned(None));
            What::Finish { key: key.clone(), done, clean_up: None, answer }
        }
        _ => What::Insert(done),
    }
}

/// A call of the store and its answer, as it is in truth.
fn what(space: &Space, state: &State, op: u32, after: &State) -> Option<What> {
    let ask = space.trie.ask(op);
    let truth = |short: Short| short.expand(&space.tables);
    Some(match (space.trie.ops.get(op).clone(), &*ask) {
        (Op::Load { key, ids }, Ask::Load { row, keys }) => {
            let stored = state.row(*row);
            let entity = if stored.version > 0 { stored.entity } else { 0 };
            let entries = if stored.version > 0 { space.tables.facts(entity).keys } else { 0 };
            let known = space.scenario.together.then(|| known(space, state, keys | entries));
            let Reply::Loaded(stored, known) = truth(Short::Loaded(stored.version, entity, known)) else { return None };
            What::Load { key, ids, answer: Loaded { stored, known } }
        }
        (Op::Contains(ids), Ask::Contains(keys)) => {
            let Reply::Known(answer) = truth(Short::Known(known(space, state, *keys))) else { return None };
            What::Contains { ids, answer }
        }
        (Op::Version(key), Ask::Version(row)) => {
            let Reply::Version(answer) = truth(Short::Version(state.row(*row).version)) else { return None };
            What::Version { key, answer }
        }
        (Op::Save(save), Ask::Save(asked)) => {
            let wins = state.row(asked.row).version == asked.expected;
            let version = if wins { after.row(asked.row).version } else { 0 };
            let Reply::Saved(answer) = truth(Short::Saved(version)) else { return None };
            let super::calls::Save { key, expected, entity, processed } = save;
            What::Save { key, expected, entity, processed, answer }
        }
        (Op::Finish { key, done, clean_up }, Ask::Finish { row, clean_up: asked, .. }) => {
            let version = match asked {
                None => Some(0),
                Some((expected, _)) => (state.row(*row).version == *expected).then(|| after.row(*row).version),
            };
            let Reply::Finished(answer) = truth(Short::Finished(version)) else { return None };
            What::Finish { key, done, clean_up, answer }
        }
        (Op::Insert(done), _) => What::Insert(done),
        (Op::SetAside(letter), _) => What::SetAside(letter),
        _ => return None,
    })
}

fn known(space: &Space, state: &State, keys: u64) -> super::short::Marks {
    let asked = |mark: &&u32| keys >> space.tables.mark_facts(**mark).key & 1 == 1;
    state.marks.iter().filter(asked).copied().collect()
}
