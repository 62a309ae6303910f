//! What tasks do after each history of answers, remembered: the shipped code is run once for each history, not for each
//! state of the world in which it occurs.
//!
//! This is sound if a task's code has no input but its messages and the ports' answers. Two guards look after that: a task
//! that waits for something that is not a port is an error, and so is one that asks something else when it is run again
//! with the same answers.
//!
//! One thing is forgotten: a delivery of one message that starts over, because the back-off has granted another try, is as
//! far as one that was granted the same tries, has saved and answered its message or has not as this one, and has seen other answers before. `deliver`
//! keeps nothing else of a pass; [`cross_check`](super::cross_check), whose tasks do remember, looks after that.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use hapax_core::{
    envelope::{Destination, Envelope},
    ids::AttemptId,
};
use smallvec::SmallVec;

use super::{
    calls::{Names, Op},
    outside::{Called, Outside, listen, placed},
    short::{Ask, QuickMap, Replies, Short, ask, attempts_of, versions_of},
    state::Ready,
    tables::Tables,
    wire::{SAVED, Wire, lock},
};

/// What a task is for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Work {
    /// Handles messages of one entity together, each with the number of times it has been given, to their settlement.
    Deliver(SmallVec<[Ready; 2]>),
    /// Finishes entries of one entity.
    Sweep(u8, SmallVec<[AttemptId; 2]>),
}

/// A running task. `()` is its end; what it did is in its calls.
pub(super) type Running = Pin<Box<dyn Future<Output = ()> + Send>>;
/// Starts a task on a wire.
pub(super) type Start = Arc<dyn Fn(&Tables, &Work, Wire) -> Running + Send + Sync>;

/// A task that yields more often than this without asking anything never ends.
const POLLS_MAX: u32 = 10_000;

/// After one history.
#[derive(Debug)]
pub(super) struct Node {
    parent: Option<(u32, u32, u32)>,
    pub(super) work: u32,
    /// Calls that wait for an answer: number and name. Empty: the task has ended.
    pub(super) open: SmallVec<[(u32, u32); 1]>,
    /// What was observed since the last answer.
    pub(super) events: Vec<&'static str>,
    /// What was called outside since the last answer.
    pub(super) outside: Vec<u32>,
    /// The versions that the task may remember, as bits.
    pub(super) versions: u64,
    /// The attempts that the task may remember, as bits.
    pub(super) attempts: u128,
    kept: Kept,
}

/// What a delivery keeps when it starts over.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
struct Kept {
    /// Tries that were granted, by cause.
    tries: [u8; 4],
    /// Its only message asked for an answer, and has it.
    answered: bool,
    /// It asked for one, and its effect was saved since it was given.
    saved: bool,
}

/// A call that was asked, in short, and what it is made of.
#[derive(Debug)]
struct Asked {
    ask: Arc<Ask>,
    versions: u64,
    attempts: u128,
}

/// All histories that have occurred.
pub(super) struct Trie {
    start: Start,
    /// What a new task is given the like of.
    wire: Wire,
    /// Deliveries that start over forget what was before.
    forgets: bool,
    pub(super) nodes: Vec<Node>,
    children: QuickMap<(u32, u32, u32), u32>,
    roots: QuickMap<Work, u32>,
    /// Deliveries that start over, by their work and what they have kept.
    again: QuickMap<(u32, Kept), u32>,
    pub(super) works: Vec<Work>,
    pub(super) ops: Names<Op>,
    asked: Vec<Asked>,
    pub(super) replies: Replies,
    pub(super) outside: Names<Outside>,
}

impl fmt::Debug for Trie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trie").field("nodes", &self.nodes.len()).finish_non_exhaustive()
    }
}

/// Says whether it was woken.
#[derive(Debug, Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Trie {
    pub(super) fn new(start: Start, wire: Wire, forgets: bool) -> Self {
        Self {
            start,
            wire,
            forgets,
            nodes: Vec::new(),
            children: QuickMap::default(),
            roots: QuickMap::default(),
            again: QuickMap::default(),
            works: Vec::new(),
            ops: Names::default(),
            asked: Vec::new(),
            replies: Replies::default(),
            outside: Names::default(),
        }
    }

    /// The call with this name.
    pub(super) fn ask(&self, op: u32) -> Arc<Ask> {
        self.asked[op as usize].ask.clone()
    }

    /// The versions and the attempts in the call with this name, as bits.
    pub(super) fn made_of(&self, op: u32) -> (u64, u128) {
        let asked = &self.asked[op as usize];
        (asked.versions, asked.attempts)
    }

    /// What the task at `node` is for.
    pub(super) fn work(&self, node: u32) -> &Work {
        &self.works[self.nodes[node as usize].work as usize]
    }

    /// The name of a call.
    pub(super) fn op(&mut self, tables: &mut Tables, work: u32, op: Op) -> u32 {
        let row = match &self.works[work as usize] {
            Work::Deliver(messages) => messages.first().map_or(0, |one| tables.copies[usize::from(one.0)].row),
            Work::Sweep(row, _) => *row,
        };
        let manager = tables.rows[usize::from(row)].1;
        let name = self.ops.of(op);
        if self.asked.len() < self.ops.len() {
            let ask = ask(tables, manager, row, self.ops.get(name));
            let (versions, attempts) = (versions_of(&ask), attempts_of(&ask, tables));
            self.asked.push(Asked { ask: Arc::new(ask), versions, attempts });
        }
        name
    }

    /// A task that has begun and was answered nothing yet.
    pub(super) fn root(&mut self, tables: &mut Tables, work: &Work) -> Result<u32, String> {
        if let Some(root) = self.roots.get(work) {
            return Ok(*root);
        }
        self.works.push(work.clone());
        let number = u32::try_from(self.works.len() - 1).expect("few works");
        let root = self.add(tables, None, number)?;
        self.roots.insert(work.clone(), root);
        Ok(root)
    }

    /// The task at `node` after its call with number `call` was answered.
    pub(super) fn child(&mut self, tables: &mut Tables, node: u32, call: u32, reply: u32) -> Result<u32, String> {
        if let Some(child) = self.children.get(&(node, call, reply)) {
            return Ok(*child);
        }
        let work = self.nodes[node as usize].work;
        let again = self.starts_over(node, call, reply);
        if let Some(known) = again.and_then(|kept| self.again.get(&(work, kept))) {
            self.children.insert((node, call, reply), *known);
            return Ok(*known);
        }
        let child = self.add(tables, Some((node, call, reply)), work)?;
        let asks = self.asked_of(tables, node).is_some();
        let (mut versions, mut attempts) = self.replies.get(reply).remembered(tables);
        let before = &self.nodes[node as usize];
        let mut kept = before.kept;
        if let Some(starts) = again {
            (versions, attempts, kept) = (0, 0, starts);
            self.again.insert((work, starts), child);
        } else {
            versions |= before.versions;
            attempts |= before.attempts;
            kept.answered |= self.answers(tables, node, call, reply);
        }
        let after = &mut self.nodes[child as usize];
        kept.saved |= asks && after.events.contains(&SAVED);
        (after.versions, after.attempts, after.kept) = (versions, attempts, kept);
        self.children.insert((node, call, reply), child);
        Ok(child)
    }

    /// Whether the answer of a delivery's only message has gone to its address by this, or was set aside since it never can.
    fn answers(&self, tables: &Tables, node: u32, call: u32, reply: u32) -> bool {
        let Some(copy) = self.asked_of(tables, node) else { return false };
        let its = |to: &Destination, envelope: &Envelope| {
            let caused = envelope.causation_id.as_ref().is_some_and(|id| id.0 == copy.message_id);
            caused && copy.reply_to.as_ref() == Some(to)
        };
        let open = self.nodes[node as usize].open.iter().find(|(number, _)| *number == call);
        match (open.map(|(_, op)| self.ops.get(*op)), self.replies.get(reply)) {
            (Some(Op::Dispatch(outgoing)), Short::Dispatched(results)) => {
                let mut sent = outgoing.iter().zip(results).filter(|(_, failed)| failed.is_none());
                sent.any(|(one, _)| its(&one.destination, &one.envelope))
            }
            (Some(Op::SetAside(letter)), Short::Done) => {
                letter.destination.as_ref().is_some_and(|to| its(to, &letter.envelope))
            }
            _ => false,
        }
    }

    /// The only message of a delivery, if it asks for an answer.
    fn asked_of<'t>(&self, tables: &'t Tables, node: u32) -> Option<&'t Envelope> {
        let Work::Deliver(messages) = self.work(node) else { return None };
        let [(copy, _)] = messages[..] else { return None };
        Some(&*tables.copies[usize::from(copy)].envelope).filter(|copy| copy.reply_to.is_some())
    }

    /// What is kept, if this answer lets a delivery of one message start over.
    fn starts_over(&self, node: u32, call: u32, reply: u32) -> Option<Kept> {
        if !self.forgets {
            return None;
        }
        let before = &self.nodes[node as usize];
        let (_, op) = before.open.iter().find(|(number, _)| *number == call)?;
        match (self.work(node), &*self.asked[*op as usize].ask, self.replies.get(reply)) {
            (Work::Deliver(messages), Ask::Pause(cause, _), Short::Granted(true)) if messages.len() == 1 => {
                let mut kept = before.kept;
                kept.tries[*cause] += 1;
                Some(kept)
            }
            _ => None,
        }
    }

    fn add(&mut self, tables: &mut Tables, parent: Option<(u32, u32, u32)>, work: u32) -> Result<u32, String> {
        let mut history = Vec::new();
        let mut at = parent;
        while let Some((node, call, reply)) = at {
            history.push((node, call, reply));
            at = self.nodes[node as usize].parent;
        }
        let wire = self.wire.anew();
        let mut task = (self.start)(tables, &self.works[work as usize], wire.clone());
        let line = wire.line();
        poll(&mut task, &wire)?;
        for &(node, call, reply) in history.iter().rev() {
            let asked: Vec<_> = lock(&line).open().map(|(at, op)| (at, op.clone())).collect();
            self.compare(node, &asked)?;
            let called = std::mem::take(&mut lock(&line).outside);
            self.compare_outside(tables, node, &called)?;
            lock(&line).events.clear();
            lock(&line).answer(call as usize, self.replies.get(reply).expand(tables));
            poll(&mut task, &wire)?;
        }
        let number = |number: usize| u32::try_from(number).expect("few calls");
        let asked: Vec<_> = lock(&line).open().map(|(at, op)| (number(at), op.clone())).collect();
        let open = asked.into_iter().map(|(at, op)| (at, self.op(tables, work, op))).collect();
        let events = std::mem::take(&mut lock(&line).events);
        let called = std::mem::take(&mut lock(&line).outside);
        let calls = placed(self.message_of(tables, work), &called);
        let outside = calls.into_iter().map(|call| self.outside.of(call)).collect();
        self.nodes.push(Node { parent, work, open, events, outside, versions: 0, attempts: 0, kept: Kept::default() });
        Ok(u32::try_from(self.nodes.len() - 1).expect("fewer than four billion nodes"))
    }

    /// Calls outside are counted for the first message of a task.
    fn message_of(&self, tables: &Tables, work: u32) -> u8 {
        match &self.works[work as usize] {
            Work::Deliver(messages) => {
                messages.first().map_or(u8::MAX, |(copy, _)| tables.copies[usize::from(*copy)].identity)
            }
            Work::Sweep(..) => u8::MAX,
        }
    }

    /// The same answers must lead to the same calls outside.
    fn compare_outside(&self, tables: &Tables, node: u32, called: &[Called]) -> Result<(), String> {
        let node = &self.nodes[node as usize];
        if node.outside.is_empty() && called.is_empty() {
            return Ok(());
        }
        let now = placed(self.message_of(tables, node.work), called);
        let before: Vec<&Outside> = node.outside.iter().map(|name| self.outside.get(*name)).collect();
        if before.iter().copied().eq(&now) {
            return Ok(());
        }
        Err(format!("the same messages led to other calls outside: {before:?} the first time, {now:?} now"))
    }

    /// The same answers must lead to the same questions.
    fn compare(&self, node: u32, asked: &[(usize, Op)]) -> Result<(), String> {
        let before = self.nodes[node as usize].open.iter().map(|(at, op)| (*at as usize, self.ops.get(*op)));
        if before.clone().eq(asked.iter().map(|(at, op)| (*at, op))) {
            return Ok(());
        }
        let before: Vec<_> = before.collect();
        Err(format!(
            "the same messages and the same answers led to other questions: {before:+?} the first time, {asked:+?} now; \
             something that is no port was asked: a clock, a random id, the order of a hash map, memory shared by tasks"
        ))
    }
}

/// Runs a task until it waits for an answer, or to its end.
pub(super) fn poll(task: &mut Running, wire: &Wire) -> Result<(), String> {
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let _listening = listen(wire);
    for _ in 0..POLLS_MAX {
        woken.0.store(false, Ordering::Relaxed);
        match task.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(()) => return Ok(()),
            Poll::Pending if woken.0.load(Ordering::Relaxed) => {}
            Poll::Pending if lock(&wire.line()).open().next().is_some() => return Ok(()),
            Poll::Pending => return Err("a task waits for something that is no port".into()),
        }
    }
    Err(format!("a task has given way {POLLS_MAX} times without asking anything"))
}
