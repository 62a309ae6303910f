//! The graph of worlds, for other engines than our own: for a second opinion.

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde::Serialize;

use super::{
    claims::Broken,
    scenario::Scenario,
    short::Ask,
    space::Space,
    state::{Budgets, Row, State, Task},
    steps::Steps,
    story::Teller,
    trie::Work,
};

/// A scenario as a graph: worlds, and the steps between them. Our own search goes through the same one. No world stands for
/// another here, as if [`reduced`](Scenario::reduced) were off.
pub struct Graph(Mutex<Space>);

/// A world. Equal worlds of one graph are equal; those of two graphs cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vertex(State);

/// A step out of a world.
#[derive(Clone, PartialEq)]
pub struct Move {
    /// What happens, for people. Workers have no names here.
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
        Space::new(Scenario { reduced: false, ..scenario }).map(|space| Self(Mutex::new(space)))
    }

    /// The world before anything has happened.
    #[must_use]
    pub fn initial(&self) -> Vertex {
        Vertex(self.space().initial())
    }

    /// Every step out of `vertex`, and where all is over, one more if what must hold then does not.
    ///
    /// # Errors
    /// When the code under test cannot be explored: it waits for something that is no port, or does not do the same twice.
    pub fn steps(&self, vertex: &Vertex) -> Result<Vec<Move>, String> {
        let mut space = self.space();
        let mut steps = Steps::new();
        space.steps(&vertex.0, &mut steps)?;
        let end = space.judge_end(&vertex.0, &steps);
        let mut moves = Vec::with_capacity(steps.len());
        for (step, after) in steps {
            let after = after.and_then(|after| space.judge_always(&after).map(|()| after));
            let label = Teller::default().label(&space, &vertex.0, &step);
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
        let waits = |row: &Row| row.version > 0 && !space.tables.facts(row.entity).outbox.is_empty();
        vertex.0.is_quiet() && !vertex.0.rows.iter().any(waits)
    }

    /// What `vertex` holds.
    #[must_use]
    pub fn snapshot(&self, vertex: &Vertex) -> Snapshot {
        let (space, state) = (self.space(), &vertex.0);
        let row = |row: &Row| {
            let facts = (row.version > 0).then(|| space.tables.facts(row.entity));
            let effects = facts.and_then(|facts| facts.lines.clone()).unwrap_or_default();
            let outbox = facts.map(|facts| facts.outbox.iter().map(|entry| entry.message).collect());
            let outbox: Vec<u8> = outbox.unwrap_or_default();
            SnapshotRow { version: row.version, effects, outbox }
        };
        let task = |task: &Task| {
            let calls = space.trie.nodes[task.node as usize].open.iter();
            let calls: Vec<&str> = calls.map(|(_, op)| name(&space.trie.ask(*op))).collect();
            let message = match space.trie.work(task.node) {
                Work::Deliver(messages) => messages.first().map(|(message, _)| *message),
                Work::Sweep(..) => None,
            };
            (calls.join("+"), message)
        };
        let marks = state.marks.iter().map(|mark| space.tables.mark_facts(*mark).message).collect();
        let sent = state.sent.iter().filter_map(|name| space.tables.outgoing_facts(*name).cause).collect();
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

impl Hash for Vertex {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let mut packed = Vec::new();
        self.0.pack(&mut packed);
        hasher.write(&packed);
        hasher.write_u64(self.0.left.packed());
    }
}

fn sorted<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort_unstable();
    list
}

/// The names that the specification has for calls.
const fn name(ask: &Ask) -> &'static str {
    match ask {
        Ask::Now | Ask::Monotonic => "clock",
        Ask::Attempt => "attempt",
        Ask::Pause(..) => "pause",
        Ask::Load { .. } => "load",
        Ask::Contains(_) => "contains",
        Ask::Save(_) => "save",
        Ask::Finish { .. } => "finish",
        Ask::Version(_) => "version",
        Ask::Insert(_) => "insert",
        Ask::Dispatch(_) => "dispatch",
        Ask::SetAside(_) | Ask::Park(_) => "set aside",
        Ask::Settle(..) => "settle",
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
