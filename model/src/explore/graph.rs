//! The graph of worlds, for other engines than our own: for a second opinion.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde::Serialize;

use super::{
    calls::Op,
    claims::Broken,
    space::{Scenario, Space},
    state::{Budgets, State},
    story::Story,
};

/// A scenario as a graph: worlds, and the steps between them. Our own search goes through the same one.
pub struct Graph(Mutex<Space>);

/// A world. Equal worlds of one graph are equal; those of two graphs cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Vertex(State);

/// A step out of a world.
#[derive(Clone, PartialEq)]
pub struct Move {
    /// What happens, for people.
    pub label: String,
    /// The world after it, or the claim that it breaks.
    pub to: Result<Vertex, Broken>,
}

/// What a world holds, in words that depend on no engine. Messages count from zero.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Snapshot {
    /// The entities, in the order of their first messages.
    pub rows: Vec<SnapshotRow>,
    /// Messages with a dedup entry.
    pub marks: Vec<u8>,
    /// The cause of each outgoing message that has left.
    pub sent: Vec<u8>,
    /// Copies of each message that wait.
    pub queue: Vec<u8>,
    /// What each worker waits for, and its first message; the sweeper has none.
    pub tasks: Vec<(String, Option<u8>)>,
    /// Workers that may still stop.
    pub crashes: u8,
    /// Calls that may still be done without being confirmed.
    pub unknown: u8,
    /// Calls that may still be refused.
    pub refused: u8,
    /// Copies that may still come.
    pub duplicates: u8,
}

/// An entity in a [`Snapshot`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SnapshotRow {
    /// 0: there is none.
    pub version: u8,
    /// Messages whose effects it holds, in their order; none if that cannot be told.
    pub effects: Vec<u8>,
    /// Messages with an outbox entry, in the order of their commits.
    pub outbox: Vec<u8>,
}

impl Graph {
    /// The graph of `scenario`.
    ///
    /// # Errors
    /// When a message has no handler.
    pub fn new(scenario: Scenario) -> Result<Self, String> {
        Space::new(scenario).map(|space| Self(Mutex::new(space)))
    }

    /// The world before anything has happened.
    #[must_use]
    pub fn initial(&self) -> Vertex {
        Vertex(self.space().initial())
    }

    /// Every step out of `vertex`; to where nothing may be claimed that does not hold, and, where all is over, one more if
    /// what must hold at rest does not.
    ///
    /// # Errors
    /// When the code under test cannot be explored: it waits for something that is no port, or does not do the same twice.
    pub fn steps(&self, vertex: &Vertex) -> Result<Vec<Move>, String> {
        let mut space = self.space();
        let steps = space.steps(&vertex.0)?;
        let end = space.claim_end(&vertex.0, &steps);
        let mut moves = Vec::with_capacity(steps.len());
        for (step, after) in steps {
            let after = after.and_then(|after| space.claim_always(&after).map(|()| after));
            let label = Story::text(&space, &vertex.0, &step);
            moves.push(Move { label, to: after.map(Vertex) });
        }
        if let Err(broken) = end {
            moves.push(Move { label: "all is over".into(), to: Err(broken) });
        }
        Ok(moves)
    }

    /// Nobody works, nothing waits, nothing is under way, and nothing is left to the sweeper.
    #[must_use]
    pub fn is_at_rest(&self, vertex: &Vertex) -> bool {
        let space = self.space();
        let waits = |row: &super::state::Row| row.version > 0 && !space.facts(row.entity).outbox.is_empty();
        vertex.0.is_quiet() && !vertex.0.rows.iter().any(waits)
    }

    /// What `vertex` holds.
    #[must_use]
    pub fn snapshot(&self, vertex: &Vertex) -> Snapshot {
        let (space, state) = (self.space(), &vertex.0);
        let row = |row: &super::state::Row| {
            let facts = (row.version > 0).then(|| space.facts(row.entity));
            let effects = facts.and_then(|facts| facts.lines.clone()).unwrap_or_default();
            let outbox = facts.map(|facts| facts.outbox.iter().map(|entry| entry.message).collect());
            let outbox: Vec<u8> = outbox.unwrap_or_default();
            SnapshotRow { version: row.version, effects, outbox }
        };
        let task = |task: &super::state::Task| {
            let calls = space.trie.nodes[task.node as usize].open.iter();
            let calls: Vec<&str> = calls.map(|(_, op)| name(space.trie.ops.get(*op))).collect();
            let message = space.messages_of(task.node).first().map(|(message, _)| *message);
            (calls.join("+"), message)
        };
        let marks: Vec<u8> = state.marks.iter().map(|mark| space.message_of_key(&space.marks.get(*mark).key)).collect();
        let sent: Vec<u8> = state.sent.iter().filter_map(|name| space.causes.get(name).copied()).collect();
        let copies = |message| state.ready.iter().filter(|(of, _)| usize::from(*of) == message).count();
        let copies = |message| u8::try_from(copies(message)).unwrap_or(u8::MAX);
        let Budgets { crashes, unknown, refused, duplicates, .. } = state.left;
        Snapshot {
            rows: state.rows.iter().map(row).collect(),
            marks: sorted(marks),
            sent: sorted(sent),
            queue: (0..space.scenario.messages.len()).map(copies).collect(),
            tasks: sorted(state.tasks.iter().map(task).collect()),
            crashes,
            unknown,
            refused,
            duplicates,
        }
    }

    fn space(&self) -> MutexGuard<'_, Space> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn sorted<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort_unstable();
    list
}

/// The names that the specification has for calls.
const fn name(op: &Op) -> &'static str {
    match op {
        Op::Now | Op::Monotonic => "clock",
        Op::Attempt => "attempt",
        Op::Pause { .. } => "pause",
        Op::Load { .. } => "load",
        Op::Contains(_) => "contains",
        Op::Save(_) => "save",
        Op::Finish { .. } => "finish",
        Op::Version(_) => "version",
        Op::Insert(_) => "insert",
        Op::Dispatch(_) => "dispatch",
        Op::SetAside(_) => "set aside",
        Op::Settle(..) => "settle",
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Graph")
    }
}

impl fmt::Debug for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label)
    }
}
