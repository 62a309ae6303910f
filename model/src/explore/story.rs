//! The way to something that must not be, for people, and under labels that last.

use std::fmt;

use hapax_core::{codec::FRAME_BYTES, entity::Entity};

use super::{
    calls::Op,
    claims::Broken,
    short::{Ask, Marks, Settling, Short},
    space::Space,
    state::{Ready, State, Task},
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
    /// The same as labels, which [`replay`](super::replay()) understands: they name workers, messages and outcomes, and
    /// nothing that changes with the explorer.
    pub labels: Vec<String>,
}

/// Stands between labels that are in one line.
pub(super) const BETWEEN: &str = " | ";

impl Story {
    /// All labels in one line, for [`replay`](super::replay()).
    #[must_use]
    pub fn line(&self) -> String {
        self.labels.join(BETWEEN)
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in (1..).zip(&self.steps) {
            writeln!(f, "{number:3}. {step}")?;
        }
        writeln!(f, "  => {}", self.broken)?;
        write!(f, "  replay line: {}", self.line())
    }
}

/// Tells a run step by step. Tasks have no names of their own, so it gives them some, in the order of their beginnings.
#[derive(Debug, Default)]
pub(super) struct Teller {
    workers: Vec<(String, Task)>,
    begun: usize,
    steps: Vec<String>,
    labels: Vec<String>,
}

impl Teller {
    pub(super) fn story(self, broken: Broken) -> Story {
        Story { broken, steps: self.steps, labels: self.labels }
    }

    pub(super) fn steps(self) -> Vec<String> {
        self.steps
    }

    /// All labels so far in one line.
    pub(super) fn line(&self) -> String {
        self.labels.join(BETWEEN)
    }

    /// Tells `step` from `state`, which leads to `after`.
    pub(super) fn add(&mut self, space: &Space, state: &State, step: &Step, after: Option<&State>) {
        self.labels.push(self.label(space, state, step));
        self.steps.push(self.text(space, state, step));
        if let Some(after) = after {
            if let Some(text) = self.steps.last_mut() {
                text.extend(space.called_outside(state, after));
            }
            self.follow(step, after);
        }
    }

    /// Who is who after a step.
    fn follow(&mut self, step: &Step, after: &State) {
        let mut new: Vec<Task> = after.tasks.to_vec();
        let mut lost = Vec::new();
        for (at, (_, task)) in self.workers.iter().enumerate() {
            match new.iter().position(|other| other == task) {
                Some(same) => drop(new.swap_remove(same)),
                None => lost.push(at),
            }
        }
        if matches!(step, Step::Begin { .. }) {
            self.begun += 1;
            self.workers.extend(new.into_iter().map(|task| (format!("w{}", self.begun), task)));
            return;
        }
        let by_node = |new: &[Task], node| new.iter().position(|other| other.node == node);
        for at in lost.into_iter().rev() {
            let node = self.workers[at].1.node;
            match by_node(&new, node).or_else(|| (!new.is_empty()).then_some(0)) {
                Some(same) => self.workers[at].1 = new.swap_remove(same),
                None => drop(self.workers.remove(at)),
            }
        }
    }

    fn worker(&self, space: &Space, task: Task) -> String {
        let name = self.workers.iter().find(|(_, other)| *other == task).map_or("w?", |(name, _)| name);
        format!("{name} {}", work(space, space.trie.work(task.node)))
    }

    /// What this step is called, whatever else the explorer knows.
    pub(super) fn label(&self, space: &Space, state: &State, step: &Step) -> String {
        match step {
            Step::Call { task, op, reply, how, told } => {
                let (ask, reply) = (space.trie.ask(*op), space.trie.replies.get(*reply));
                let node = state.tasks[*task].node;
                let worker = self.worker(space, state.tasks[*task]);
                let at = if how.at > 0 { format!(" {}", how.at) } else { String::new() };
                let fault = if how.fault.is_empty() { String::new() } else { format!(", {}{at}", how.fault) };
                format!("{worker} {} -> {}{fault}{}", verb(space, node, &ask), outcome(reply), stops(space, told))
            }
            Step::Begin { work: begun, once_more, .. } => {
                let more = match once_more {
                    0 => "",
                    1 => ", once more",
                    2 => ", second once more",
                    _ => ", both once more",
                };
                format!("begin {}{more}", work(space, begun))
            }
            Step::Crash { task, sent } => {
                let sent = if *sent > 0 { format!(", {sent} sent") } else { String::new() };
                format!("{} crash{sent}", self.worker(space, state.tasks[*task]))
            }
            Step::ProcessCrash => "process crash".to_owned(),
            Step::Expire { task, place } => {
                let worker = self.worker(space, state.tasks[*task]);
                format!("{worker} lease {} runs out", self.message_at(space, state.tasks[*task].node, *place))
            }
            Step::Land { op, done } => {
                let done = if *done { "done" } else { "never done" };
                format!("late {} -> {done}", verb(space, u32::MAX, &space.trie.ask(*op)))
            }
            Step::Evict(mark) => format!("forget {}", marked(space, &[*mark])),
            Step::Come(ready) => format!("{} comes once more", message(space, *ready)),
        }
    }

    fn message_at(&self, space: &Space, node: u32, place: usize) -> String {
        match space.trie.work(node) {
            Work::Deliver(messages) => messages.get(place).map_or_else(String::new, |ready| message(space, *ready)),
            Work::Sweep(..) => String::new(),
        }
    }

    fn text(&self, space: &Space, state: &State, step: &Step) -> String {
        match step {
            Step::Call { task, op, reply, how, told } => {
                let (ask, reply) = (space.trie.ask(*op), space.trie.replies.get(*reply));
                let at = if how.at > 0 { format!(" {}", how.at) } else { String::new() };
                let fault = if how.fault.is_empty() { String::new() } else { format!(" ({}{at})", how.fault) };
                let (worker, node) = (self.worker(space, state.tasks[*task]), state.tasks[*task].node);
                let mut asked = asked(space, node, &ask);
                if let Op::SetAside(letter) = space.trie.ops.get(*op) {
                    asked = format!("{asked}, since {}", letter.reason);
                }
                format!("{worker}: {asked} -> {}{fault}{}", answered(space, reply), stops(space, told))
            }
            Step::Begin { work: Work::Deliver(messages), once_more, .. } => {
                let more = if *once_more > 0 { ", given once more" } else { "" };
                let messages: Vec<_> = messages.iter().map(|ready| message(space, *ready)).collect();
                format!("worker w{} is given {}{more}", self.begun + 1, messages.join(" and "))
            }
            Step::Begin { work: Work::Sweep(_, entries), .. } => {
                format!("the sweeper, as w{}, looks after {} entries", self.begun + 1, entries.len())
            }
            Step::Land { op, done: true } => {
                format!("under way so far, now done: {}", asked(space, u32::MAX, &space.trie.ask(*op)))
            }
            Step::Land { op, done: false } => {
                format!("under way so far, never done: {}", asked(space, u32::MAX, &space.trie.ask(*op)))
            }
            Step::Evict(mark) => format!("the dedup store forgets {}", marked(space, &[*mark])),
            _ => self.label(space, state, step),
        }
    }
}

/// Whether a task was granted no other try where there might have been one.
fn stops(space: &Space, told: &[u32]) -> &'static str {
    let early = told.iter().any(|reply| *space.trie.replies.get(*reply) == Short::StopsEarly);
    if early { ", and there is no other try" } else { "" }
}

fn message(space: &Space, (copy, given): Ready) -> String {
    let copy_of = &space.tables.copies[usize::from(copy)];
    let name = space.tables.name_of(copy_of.identity);
    let first = space.tables.copies.iter().position(|other| other.identity == copy_of.identity);
    let which = if first == Some(copy.into()) { String::new() } else { format!(" (copy {copy})") };
    if given > 1 { format!("{name}{which} #{given}") } else { format!("{name}{which}") }
}

fn work(space: &Space, work: &Work) -> String {
    match work {
        Work::Deliver(messages) => messages.iter().map(|ready| message(space, *ready)).collect::<Vec<_>>().join("+"),
        Work::Sweep(row, _) => format!("sweep {}", space.tables.rows[usize::from(*row)].0.key()),
    }
}

fn marked(space: &Space, marks: &[u32]) -> String {
    let name = |mark: &u32| space.tables.name_of(space.tables.mark_facts(*mark).message).to_owned();
    marks.iter().map(name).collect::<Vec<_>>().join(" ")
}

fn of_bits(space: &Space, bits: u64) -> String {
    let set = (0..64_u8).filter(|message| bits >> message & 1 == 1);
    set.map(|message| space.tables.name_of(message).to_owned()).collect::<Vec<_>>().join(" ")
}

fn of_keys(space: &Space, bits: u64) -> String {
    let asked = space.tables.identities.iter().filter(|one| bits >> one.known_by & 1 == 1);
    asked.map(|one| one.name.as_str()).collect::<Vec<_>>().join(" ")
}

fn verb(space: &Space, node: u32, ask: &Ask) -> String {
    match ask {
        Ask::Now | Ask::Monotonic => "clock".to_owned(),
        Ask::Attempt => "attempt".to_owned(),
        Ask::Pause(..) => "pause".to_owned(),
        Ask::Load { .. } => "load".to_owned(),
        Ask::Contains(_) => "check".to_owned(),
        Ask::Recall(_) => "recall".to_owned(),
        Ask::Version(_) => "version".to_owned(),
        Ask::Save(_) => "save".to_owned(),
        Ask::Finish { done, clean_up, .. } => match (done.is_empty(), clean_up) {
            (true, _) => "clean up".to_owned(),
            (false, Some(_)) => format!("mark {} and clean up", marked(space, done)),
            (false, None) => format!("mark {}", marked(space, done)),
        },
        Ask::Insert(done) => format!("mark {}", marked(space, done)),
        Ask::Dispatch(_) => "dispatch".to_owned(),
        Ask::SetAside(_) => "set aside".to_owned(),
        Ask::Park(_) => "set aside what can never be sent".to_owned(),
        Ask::Settle(place, how) => {
            let messages = (node != u32::MAX).then(|| space.trie.work(node));
            let of = match messages {
                Some(Work::Deliver(messages)) if messages.len() > 1 => messages
                    .get(usize::from(*place))
                    .map_or_else(String::new, |ready| format!(" {}", message(space, *ready))),
                _ => String::new(),
            };
            match how {
                Settling::Ack => format!("ack{of}"),
                Settling::Retry { .. } => format!("retry{of}"),
                Settling::DeadLetter => format!("dead-letter{of}"),
            }
        }
    }
}

pub(super) fn outcome(reply: &Short) -> &'static str {
    match reply {
        Short::Now | Short::Later | Short::Attempt(..) | Short::Done => "done",
        Short::InTime(true) => "in time",
        Short::InTime(false) => "too late",
        Short::Granted(true) => "try",
        Short::Granted(false) | Short::StopsEarly => "stop",
        Short::Loaded(0, ..) => "nothing",
        Short::Loaded(..) => "loaded",
        Short::Known(marks) if marks.is_empty() => "unknown",
        Short::Known(_) => "known",
        Short::Recalled(0) => "not folded",
        Short::Recalled(_) => "folded",
        Short::Saved(0) => "conflict",
        Short::Saved(_) => "saved",
        Short::Finished(None) => "left",
        Short::Finished(Some(_)) => "finished",
        Short::Version(_) => "read",
        Short::Dispatched(results) if results.iter().all(Option::is_none) => "sent",
        Short::Dispatched(_) => "not all sent",
        Short::Settled(true) => "settled",
        Short::Settled(false) => "lease lost",
        Short::Failed(_) => "failed",
    }
}

fn entity(space: &Space, name: u32) -> String {
    let (entity, facts): (&Entity, _) = (space.tables.entities.get(name), space.tables.facts(name));
    let state = match &facts.lines {
        Some(lines) => format!("effects {lines:?}"),
        None if entity.completed => "completed".to_owned(),
        None => format!("state {}", String::from_utf8_lossy(entity.state.get(FRAME_BYTES..).unwrap_or_default())),
    };
    format!("{state}, outbox [{}]", of_bits(space, facts.messages))
}

fn asked(space: &Space, node: u32, ask: &Ask) -> String {
    let expected = |version: u8| match version {
        0 => "there is none".to_owned(),
        _ => format!("version is {version}"),
    };
    match ask {
        Ask::Contains(keys) => format!("ask the dedup store for {}", of_keys(space, *keys)),
        Ask::Recall(keys) => format!("ask what was folded of {}", of_keys(space, *keys)),
        Ask::Save(save) => {
            let marks = if save.processed.is_empty() {
                String::new()
            } else {
                format!(", marking {}", marked(space, &save.processed))
            };
            format!("save {}{marks}, if {}", entity(space, save.entity), expected(save.expected))
        }
        Ask::Finish { done, clean_up: Some((version, clean)), .. } => {
            format!("mark {}, then save {} if {}", marked(space, done), entity(space, *clean), expected(*version))
        }
        Ask::Dispatch(outgoing) => format!("dispatch {} messages", outgoing.len()),
        _ => verb(space, node, ask),
    }
}

fn answered(space: &Space, reply: &Short) -> String {
    let known = |marks: &Marks| format!("seen [{}]", marked(space, marks));
    match reply {
        Short::Loaded(version, name, marks) => {
            let stored = match version {
                0 => "nothing".to_owned(),
                _ => format!("version {version}, {}", entity(space, *name)),
            };
            marks.as_ref().map_or_else(|| stored.clone(), |marks| format!("{stored}; {}", known(marks)))
        }
        Short::Known(marks) => known(marks),
        Short::Saved(version @ 1..) => format!("saved as version {version}"),
        Short::Finished(Some(version @ 1..)) => format!("marked, and saved as version {version}"),
        Short::Finished(None) => "marked, and left".to_owned(),
        Short::Failed(failure) => format!("fails, {failure:?}"),
        _ => outcome(reply).to_owned(),
    }
}
