//! The way to something that must not be, for people.

use std::fmt;

use hapax_core::{codec::FRAME_BYTES, entity::Entity, ports::Saved};

use super::{
    calls::{Op, Reply},
    claims::Broken,
    space::Space,
    state::State,
    steps::Step,
    trie::Work,
};

/// A shortest way to a broken claim.
#[derive(Debug, Clone)]
pub struct Story {
    /// What is broken.
    pub broken: Broken,
    /// What happened, in order.
    pub steps: Vec<String>,
}

impl Story {
    pub(super) fn new(broken: Broken) -> Self {
        Self { broken, steps: Vec::new() }
    }

    pub(super) fn add(&mut self, space: &Space, state: &State, step: &Step) {
        self.steps.push(Self::text(space, state, step));
    }

    /// One step out of `state`, for people.
    pub(super) fn text(space: &Space, state: &State, step: &Step) -> String {
        let worker = |task: usize| {
            let node = state.tasks[task].node;
            match space.trie.works.get(space.trie.nodes[node as usize].work) {
                Work::Deliver(messages) => format!("worker with {}", names(messages)),
                Work::Sweep(..) => "sweeper".to_owned(),
            }
        };
        match step {
            Step::Call { task, op, reply, fault } => {
                let (op, reply) = (space.trie.ops.get(*op), space.trie.replies.get(*reply));
                let fault = if fault.is_empty() { String::new() } else { format!(" ({fault})") };
                format!("{}: {} -> {}{fault}", worker(*task), asked(op, space), answered(reply, space))
            }
            Step::Begin(Work::Deliver(messages)) => format!("a worker is given {}", names(messages)),
            Step::Begin(Work::Sweep(_, entries)) => format!("the sweeper looks after {} entries", entries.len()),
            Step::Crash { task, sent: 0 } => format!("{}: crashes", worker(*task)),
            Step::Crash { task, sent } => format!("{}: crashes when {sent} messages have left", worker(*task)),
            Step::ProcessCrash => "the process crashes, and all workers with it".to_owned(),
            Step::Expire { task, message } => format!("the lease of m{message} runs out under the {}", worker(*task)),
            Step::Duplicate(message) => format!("a producer sends m{message} again"),
            Step::Land { op, done: true } => {
                format!("under way so far, now done: {}", asked(space.trie.ops.get(*op), space))
            }
            Step::Land { op, done: false } => {
                format!("under way so far, never done: {}", asked(space.trie.ops.get(*op), space))
            }
            Step::Evict(mark) => {
                let mark = space.marks.get(*mark);
                format!("the dedup store forgets m{}", space.message_of_key(&mark.key))
            }
        }
    }
}

fn names(messages: &[(u8, u8)]) -> String {
    let name = |(message, given): &(u8, u8)| match given {
        1 => format!("m{message}"),
        _ => format!("m{message} (given before)"),
    };
    messages.iter().map(name).collect::<Vec<_>>().join(" and ")
}

fn entity(entity: &Entity, space: &Space) -> String {
    let lines = match space.scenario.lines.map(|lines| lines(entity)) {
        Some(Some(lines)) => format!("effects {lines:?}"),
        _ if entity.state.is_empty() => "completed".to_owned(),
        _ => format!("state {}", String::from_utf8_lossy(entity.state.get(FRAME_BYTES..).unwrap_or_default())),
    };
    let outbox: Vec<u8> = entity.outbox.iter().map(|entry| space.message_of_key(&entry.key)).collect();
    format!("{lines}, outbox {outbox:?}")
}

fn asked(op: &Op, space: &Space) -> String {
    let of =
        |keys: &mut dyn Iterator<Item = u8>| keys.map(|message| format!("m{message}")).collect::<Vec<_>>().join(" ");
    match op {
        Op::Now | Op::Monotonic => "looks at the clock".to_owned(),
        Op::Attempt => "takes an attempt id".to_owned(),
        Op::Pause { cause, tries } => format!("asks for another try ({cause:?}, {tries} in a row)"),
        Op::Load { .. } => "load".to_owned(),
        Op::Contains(keys) => {
            format!("ask the dedup store for {}", of(&mut keys.iter().map(|key| space.message_of_key(key))))
        }
        Op::Save(save) => format!("save {} if {:?}", entity(&save.entity, space), save.expected),
        Op::Finish { done, clean_up, .. } => {
            let marks = of(&mut done.iter().map(|entry| space.message_of_key(&entry.key)));
            match clean_up {
                Some((version, clean)) => format!("mark {marks} and save {} if {version:?}", entity(clean, space)),
                None => format!("mark {marks}"),
            }
        }
        Op::Version(_) => "ask for the version".to_owned(),
        Op::Insert(entries) => {
            format!("mark {}", of(&mut entries.iter().map(|entry| space.message_of_key(&entry.key))))
        }
        Op::Dispatch(outgoing) => format!("dispatch {} messages", outgoing.len()),
        Op::SetAside(letter) => {
            format!("set m{} aside: {}", space.message_of(&letter.envelope.message_id), letter.reason)
        }
        Op::Settle(message, settlement) => format!("settle m{message}: {settlement:?}"),
    }
}

fn answered(reply: &Reply, space: &Space) -> String {
    let known = |known: &hapax_core::ports::Known| {
        let of = |message: &u8| {
            let key = space.keys[usize::from(*message)].0;
            known.entry(&key).is_some()
        };
        let messages = 0..u8::try_from(space.keys.len()).unwrap_or(u8::MAX);
        format!("seen {:?}", messages.filter(of).collect::<Vec<_>>())
    };
    match reply {
        Reply::Now | Reply::Done => "done".to_owned(),
        Reply::InTime(true) => "in time".to_owned(),
        Reply::InTime(false) => "too late".to_owned(),
        Reply::Attempt(_) => "a new one".to_owned(),
        Reply::Granted(granted) => format!("{granted:?}"),
        Reply::Loaded(stored, marks) => {
            let stored = stored.as_ref().map_or_else(
                || "nothing".to_owned(),
                |stored| format!("version {:?}, {}", stored.version, entity(&stored.entity, space)),
            );
            match marks {
                Some(marks) => format!("{stored}; {}", known(marks)),
                None => stored,
            }
        }
        Reply::Known(marks) => known(marks),
        Reply::Saved(Saved::At(version)) => format!("saved as version {version:?}"),
        Reply::Saved(Saved::Conflict) => "conflict".to_owned(),
        Reply::Finished(finished) => format!("{finished:?}"),
        Reply::Version(version) => format!("{version:?}"),
        Reply::Dispatched(results) if results.iter().all(Result::is_ok) => "all left".to_owned(),
        Reply::Dispatched(results) => format!("{results:?}"),
        Reply::Settled(settled) => format!("{settled:?}"),
        Reply::Failed(failure) => format!("fails, {failure:?}"),
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in (1..).zip(&self.steps) {
            writeln!(f, "{number:3}. {step}")?;
        }
        write!(f, "  => {}", self.broken)
    }
}
