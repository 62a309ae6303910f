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
    /// What happens, for people.
    pub label: String,
    /// The world after it, or the claim that it breaks.
    pub to: Result<Vertex, Broken>,
}

/// What a world holds, in words that depend on no engine. Messages are told by their numbers, from zero.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Snapshot {
    /// The entities, in the order of their first messages.
    pub rows: Vec<SnapshotRow>,
    /// Messages with a dedup entry.
    pub marks: Vec<u8>,
    /// The causes of the outgoing messages that have left.
    pub sent: Vec<u8>,
    /// Messages that wait, each as often as there are copies.
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
    /// When a message has no handler, or there are more messages or faults than can be explored.
    pub fn new(scenario: Scenario) -> Result<Self, String> {
        Space::new(Scenario { reduced: false, ..scenario }).map(|space| Self(Mutex::new(space)))
    }

    /// The world before anything has happened.
    #[must_use]
    pub fn initial(&self) -> Vertex {
        Vertex(self.space().initial())
    }

    /// Every step out of `vertex`, judged; and, where all is over, one more if what must hold then does not.
    ///
    /// # Errors
    /// When the code under test cannot be explored: it waits for something that is no port, or does not do the same twice.
    pub fn steps(&self, vertex: &Vertex) -> Result<Vec<Move>, String> {
        let mut space = self.space();
        let mut steps = Steps::new();
        space.steps(&vertex.0, &mut steps)?;
        let end = space.judge_end(&vertex.0, &steps);
        let teller = Teller::default();
        let judged = steps.into_iter().map(|(step, after)| Move {
            label: anonymous(&teller.label(&space, &vertex.0, &step)),
            to: after.and_then(|after| space.judge_always(&after).map(|()| Vertex(after))),
        });
        let mut moves: Vec<Move> = judged.collect();
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
        let tables = &space.tables;
        let message_of = |copy: u8| tables.copies[usize::from(copy)].identity;
        let row = |row: u8| {
            let Row { version, entity, .. } = state.row(row);
            let facts = (version > 0).then(|| tables.facts(entity));
            SnapshotRow {
                version,
                effects: facts.and_then(|facts| facts.lines.clone()).unwrap_or_default(),
                outbox: facts.into_iter().flat_map(|facts| &facts.outbox).map(|entry| entry.message).collect(),
            }
        };
        let task = |task: &Task| {
            let open = space.trie.nodes[task.node as usize].open.iter();
            let calls: Vec<&str> = open.map(|(_, op)| name(&space.trie.ask(*op))).collect();
            let message = match space.trie.work(task.node) {
                Work::Deliver(messages) => messages.first().map(|(copy, _)| message_of(*copy)),
                Work::Sweep(..) => None,
            };
            (calls.join("+"), message)
        };
        let Budgets { crashes, unknown, refused, duplicates, .. } = state.left;
        Snapshot {
            rows: (0..).take(tables.rows.len()).map(row).collect(),
            marks: sorted(state.marks.iter().map(|mark| tables.mark_facts(*mark).message)),
            sent: sorted(state.sent.iter().filter_map(|sent| tables.outgoing_facts(*sent).cause)),
            queue: sorted(state.ready.iter().map(|(copy, _)| message_of(*copy))),
            tasks: sorted(state.tasks.iter().map(task)),
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

fn sorted<T: Ord>(things: impl Iterator<Item = T>) -> Vec<T> {
    let mut list: Vec<T> = things.collect();
    list.sort_unstable();
    list
}

/// A teller who has not seen how workers began does not know their names.
fn anonymous(label: &str) -> String {
    label.strip_prefix("w? ").unwrap_or(label).to_owned()
}

/// The names that the specification has for calls.
const fn name(ask: &Ask) -> &'static str {
    match ask {
        Ask::Now | Ask::Monotonic => "clock",
        Ask::Attempt => "attempt",
        Ask::Pause(..) => "pause",
        Ask::Load { .. } => "load",
        Ask::Contains(_) => "contains",
        Ask::Recall(_) => "recall",
        Ask::Version(_) => "version",
        Ask::Save(_) => "save",
        Ask::Finish { .. } => "finish",
        Ask::Insert(_) => "insert",
        Ask::Dispatch(_) => "dispatch",
        Ask::SetAside(_) => "set aside",
        Ask::Park(_) => "park",
        Ask::Settle(..) => "settle",
    }
}

impl Hash for Vertex {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let mut packed = Vec::new();
        self.0.pack(&mut packed);
        (packed, self.0.left).hash(hasher);
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
