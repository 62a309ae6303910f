//! What tasks do after each history of answers, remembered: the shipped code is run once for each history, not for each
//! state of the world in which it occurs.
//!
//! This is sound if a task's code has no input but its messages and the ports' answers. Two guards look after that: a task
//! that waits for something that is not a port is an error, and so is one that asks something else when it is run again
//! with the same answers.

use std::{
    collections::HashMap,
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use hapax_core::ids::AttemptId;

use super::{
    calls::{Names, Op, Reply},
    wire::Wire,
};

/// What a task is for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// Handles messages of one entity together, each with the number of times it has been given, to their settlement.
    Deliver(Vec<(u8, u8)>),
    /// Finishes entries of one entity.
    Sweep(u8, Vec<AttemptId>),
}

/// A running task. `()` is its end; what it did is in its calls.
pub(super) type Running = Pin<Box<dyn Future<Output = ()> + Send>>;
/// Starts a task on a wire.
pub(super) type Start = Arc<dyn Fn(&Work, Wire) -> Running + Send + Sync>;

/// A task that yields more often than this without asking anything never ends.
const POLLS_MAX: u32 = 10_000;

/// After one history.
#[derive(Debug)]
pub(super) struct Node {
    parent: Option<(u32, u32, u32)>,
    pub(super) work: u32,
    /// Calls that wait for an answer: number and name. Empty: the task has ended.
    pub(super) open: Vec<(u32, u32)>,
    /// What was observed since the last answer.
    pub(super) events: Vec<&'static str>,
}

/// All histories that have occurred.
pub(super) struct Trie {
    start: Start,
    together: bool,
    pub(super) nodes: Vec<Node>,
    children: HashMap<(u32, u32, u32), u32>,
    roots: HashMap<u32, u32>,
    pub(super) works: Names<Work>,
    pub(super) ops: Names<Op>,
    pub(super) replies: Names<Reply>,
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
    pub(super) fn new(start: Start, together: bool) -> Self {
        let (nodes, works, ops, replies) = (Vec::new(), Names::default(), Names::default(), Names::default());
        Self { start, together, nodes, children: HashMap::new(), roots: HashMap::new(), works, ops, replies }
    }

    /// A task that has begun and was answered nothing yet.
    pub(super) fn root(&mut self, work: Work) -> Result<u32, String> {
        let work = self.works.of(work);
        if let Some(root) = self.roots.get(&work) {
            return Ok(*root);
        }
        let root = self.add(None, work)?;
        self.roots.insert(work, root);
        Ok(root)
    }

    /// The task at `node` after its call with number `call` was answered.
    pub(super) fn child(&mut self, node: u32, call: u32, reply: Reply) -> Result<u32, String> {
        let reply = self.replies.of(reply);
        if let Some(child) = self.children.get(&(node, call, reply)) {
            return Ok(*child);
        }
        let work = self.nodes[node as usize].work;
        let child = self.add(Some((node, call, reply)), work)?;
        self.children.insert((node, call, reply), child);
        Ok(child)
    }

    fn add(&mut self, parent: Option<(u32, u32, u32)>, work: u32) -> Result<u32, String> {
        let mut history = Vec::new();
        let mut at = parent;
        while let Some((node, call, reply)) = at {
            history.push((node, call, reply));
            at = self.nodes[node as usize].parent;
        }
        let wire = Wire::new(self.together);
        let mut task = (self.start)(self.works.get(work), wire.clone());
        poll(&mut task, &wire)?;
        for &(node, call, reply) in history.iter().rev() {
            self.compare(node, &wire)?;
            wire.line().events.clear();
            wire.line().answer(call as usize, self.replies.get(reply).clone());
            poll(&mut task, &wire)?;
        }
        let (open, events) = {
            let mut line = wire.line();
            let events = std::mem::take(&mut line.events);
            let number = |number: usize| u32::try_from(number).expect("few calls");
            let open = line.open().map(|(at, op)| (number(at), self.ops.of(op.clone()))).collect();
            (open, events)
        };
        self.nodes.push(Node { parent, work, open, events });
        Ok(u32::try_from(self.nodes.len() - 1).expect("fewer than four billion nodes"))
    }

    /// The same answers must lead to the same questions.
    fn compare(&self, node: u32, wire: &Wire) -> Result<(), String> {
        let line = wire.line();
        let asked: Vec<(usize, &Op)> = line.open().collect();
        let before = self.nodes[node as usize].open.iter().map(|(at, op)| (*at as usize, self.ops.get(*op)));
        if before.clone().eq(asked.iter().copied()) {
            return Ok(());
        }
        let before: Vec<_> = before.collect();
        Err(format!(
            "the same messages and the same answers led to other questions: {before:?} the first time, {asked:?} now; \
             something that is no port was asked: a clock, a random id, the order of a hash map, memory shared by tasks"
        ))
    }
}

/// Runs a task until it waits for an answer, or to its end.
fn poll(task: &mut Running, wire: &Wire) -> Result<(), String> {
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    for _ in 0..POLLS_MAX {
        woken.0.store(false, Ordering::Relaxed);
        match task.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(()) => return Ok(()),
            Poll::Pending if woken.0.load(Ordering::Relaxed) => {}
            Poll::Pending if wire.line().open().next().is_some() => return Ok(()),
            Poll::Pending => return Err("a task waits for something that is no port".into()),
        }
    }
    Err(format!("a task has given way {POLLS_MAX} times without asking anything"))
}
