//! What is explored: a saga, its messages, what may go wrong; and from each world the steps that lead on.

use std::{collections::HashMap, fmt, sync::Arc};

use hapax_core::{
    deliver::{Deliver, Recoverability},
    entity::{DedupEntry, Entity},
    envelope::{Envelope, Outgoing},
    ids::{AttemptId, DedupKey, EntityKey, MessageId},
    manager::{Limits, Passes, Ports, Stores},
    ports::Receipt,
};

use super::{
    calls::Names,
    state::{Budgets, Row, State},
    trie::{Start, Trie, Work},
    wire::Wire,
};

/// How fresh the dedup store's answers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// What was inserted is seen by everybody: what hapax needs.
    Linearizable,
    /// The newest entries, at most so many, may not be seen yet.
    Lagging(u8),
    /// Any number of the newest entries may not be seen yet.
    Eventual,
}

/// Makes the manager under test for the ports it is given.
pub type MakeManager = Arc<dyn Fn(Ports, Limits) -> Arc<dyn Passes> + Send + Sync>;
/// The messages whose effects a state holds, in their order; `None`: it cannot be told.
pub type ReadLines = fn(&Entity) -> Option<Vec<u8>>;
/// A sentence of the user's about a world; `Err` says what is wrong.
pub type Sentence = Arc<dyn Fn(&View<'_>) -> Result<(), String> + Send + Sync>;

/// What can be seen of a world: what the store holds and what has left.
#[derive(Debug)]
pub struct View<'a> {
    /// Entities that were ever saved, by the order of their first message.
    pub entities: Vec<(&'a EntityKey, &'a Entity)>,
    /// Outgoing messages that have left, each once.
    pub sent: Vec<&'a Outgoing>,
    /// Messages that were set aside, by their place in [`Scenario::messages`].
    pub letters: &'a [u8],
}

/// What is explored.
#[derive(Clone)]
pub struct Scenario {
    /// The shipped manager over a saga.
    pub manager: MakeManager,
    /// The messages, each queued once at the beginning.
    pub messages: Vec<Arc<Envelope>>,
    /// Reads the effects in a state. `None`: effects are told by outbox entries and marks alone.
    pub lines: Option<ReadLines>,
    /// Holds in every world.
    pub always: Vec<(&'static str, Sentence)>,
    /// Holds when all is over.
    pub at_rest: Vec<(&'static str, Sentence)>,
    /// Messages that a rule may drop.
    pub may_drop: Vec<u8>,
    /// Workers at most.
    pub tasks: usize,
    /// Messages of one pass at most.
    pub pass_max: usize,
    /// Tries that the back-off grants.
    pub tries: u32,
    /// Entities and dedup entries are in one store.
    pub together: bool,
    /// How fresh the dedup store's answers are.
    pub reads: Reads,
    /// What may go wrong.
    pub budgets: Budgets,
}

impl Scenario {
    /// `messages` for one worker, with all in one store and no faults.
    #[must_use]
    pub fn new(manager: MakeManager, messages: Vec<Arc<Envelope>>) -> Self {
        Self {
            manager,
            messages,
            lines: None,
            always: Vec::new(),
            at_rest: Vec::new(),
            may_drop: Vec::new(),
            tasks: 1,
            pass_max: 1,
            tries: 1,
            together: true,
            reads: Reads::Linearizable,
            budgets: Budgets::NONE,
        }
    }
}

impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scenario")
            .field("messages", &self.messages.len())
            .field("tasks", &self.tasks)
            .finish_non_exhaustive()
    }
}

/// An outbox entry, in short.
#[derive(Debug)]
pub(super) struct EntryFacts {
    pub(super) key: DedupKey,
    pub(super) attempt: AttemptId,
    pub(super) message: u8,
}

/// What the claims need to know of an entity.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) lines: Option<Vec<u8>>,
    pub(super) outbox: Vec<EntryFacts>,
    outgoing: Vec<u32>,
}

/// A scenario and everything that has been named in it.
pub(super) struct Space {
    pub(super) scenario: Scenario,
    pub(super) trie: Trie,
    pub(super) entities: Names<Entity>,
    pub(super) marks: Names<DedupEntry>,
    pub(super) outgoing: Names<Outgoing>,
    facts: Vec<Facts>,
    /// Which message has caused each outgoing message.
    pub(super) causes: HashMap<u32, u8>,
    /// Each message's key and the number of its entity's row.
    pub(super) keys: Vec<(DedupKey, u8)>,
    rows: Vec<EntityKey>,
}

impl Space {
    pub(super) fn new(scenario: Scenario) -> Result<Self, String> {
        let (tasks, together) = (scenario.clone(), scenario.together);
        let start: Start = Arc::new(move |work, wire| start(&tasks, work.clone(), wire));
        let mut space = Self {
            trie: Trie::new(start, together),
            scenario,
            entities: Names::default(),
            marks: Names::default(),
            outgoing: Names::default(),
            facts: Vec::new(),
            causes: HashMap::new(),
            keys: Vec::new(),
            rows: Vec::new(),
        };
        let manager = (space.scenario.manager)(ports(&Wire::new(together)), Limits::default());
        for message in space.scenario.messages.clone() {
            let routed = manager.route(&message, Receipt::text("0"), 1).map_err(|e| e.to_string())?;
            let row = match space.rows.iter().position(|row| *row == routed.0) {
                Some(row) => row,
                None => {
                    space.rows.push(routed.0);
                    space.rows.len() - 1
                }
            };
            space.keys.push((routed.1.key, u8::try_from(row).expect("few entities")));
        }
        Ok(space)
    }

    /// The world before anything has happened.
    pub(super) fn initial(&self) -> State {
        let messages = u8::try_from(self.scenario.messages.len()).expect("few messages");
        State {
            rows: vec![Row::default(); self.rows.len()],
            marks: Vec::new(),
            sent: Vec::new(),
            stored: Vec::new(),
            ready: (0..messages).map(|message| (message, 1)).collect(),
            tasks: Vec::new(),
            limbo: Vec::new(),
            letters: Vec::new(),
            effects: vec![0; messages.into()],
            attempts: vec![0; messages.into()],
            left: self.scenario.budgets,
        }
    }

    /// What can be seen of `state`.
    pub(super) fn view<'a>(&'a self, state: &'a State) -> View<'a> {
        let rows = self.rows.iter().zip(&state.rows).filter(|(_, row)| row.version > 0);
        View {
            entities: rows.map(|(key, row)| (key, self.entities.get(row.entity))).collect(),
            sent: state.sent.iter().map(|name| self.outgoing.get(*name)).collect(),
            letters: &state.letters,
        }
    }

    pub(super) fn row_of(&self, key: &EntityKey) -> usize {
        self.rows.iter().position(|row| row == key).expect("an entity of the scenario")
    }

    /// The messages of the task at `node`.
    pub(super) fn messages_of(&self, node: u32) -> Vec<(u8, u8)> {
        match self.trie.works.get(self.trie.nodes[node as usize].work) {
            Work::Deliver(messages) => messages.clone(),
            Work::Sweep(..) => Vec::new(),
        }
    }

    pub(super) fn message_of(&self, id: &MessageId) -> u8 {
        let at = self.scenario.messages.iter().position(|message| message.message_id == *id);
        at.and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX)
    }

    pub(super) fn message_of_key(&self, key: &DedupKey) -> u8 {
        let at = self.keys.iter().position(|(other, _)| other == key);
        at.and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX)
    }

    pub(super) fn facts(&self, entity: u32) -> &Facts {
        &self.facts[entity as usize]
    }

    pub(super) fn outgoing_of(&self, entity: u32) -> Vec<u32> {
        self.facts(entity).outgoing.clone()
    }

    /// The name of an entity; what the claims need of it is worked out once.
    pub(super) fn entity_name(&mut self, entity: &Entity) -> u32 {
        let name = self.entities.of(entity.clone());
        if self.facts.len() < self.entities.len() {
            let (mut outbox, mut names) = (Vec::new(), Vec::new());
            for entry in &entity.outbox {
                let message = self.message_of_key(&entry.key);
                outbox.push(EntryFacts { key: entry.key, attempt: entry.attempt, message });
                for outgoing in &entry.outgoing {
                    let name = self.outgoing.of(outgoing.clone());
                    self.causes.insert(name, message);
                    names.push(name);
                }
            }
            self.facts.push(Facts {
                lines: self.scenario.lines.and_then(|lines| lines(entity)),
                outbox,
                outgoing: names,
            });
        }
        name
    }
}

fn ports(wire: &Wire) -> Ports {
    let wire = Arc::new(wire.clone());
    let stores = if wire.together { Stores::one(wire.clone()) } else { Stores::two(wire.clone(), wire.clone()) };
    Ports {
        stores,
        dispatcher: wire.clone(),
        dead_letters: wire.clone(),
        clock: wire.clone(),
        ids: wire.clone(),
        metrics: wire,
    }
}

/// The shipped code on `wire`: `deliver` over a manager, or the manager's pass without a message.
fn start(scenario: &Scenario, work: Work, wire: Wire) -> super::trie::Running {
    let manager = (scenario.manager)(ports(&wire), Limits::default());
    match work {
        Work::Deliver(messages) => {
            let mut incoming = Vec::new();
            let mut entity = None;
            for (message, given) in messages {
                let envelope = &scenario.messages[usize::from(message)];
                let receipt = Receipt::text(message.to_string());
                let (key, one) = manager.route(envelope, receipt, given.into()).expect("it was routed before");
                entity = Some(key);
                incoming.push(one);
            }
            let key = entity.expect("a pass has messages");
            let wire = Arc::new(wire);
            let recoverability = Recoverability { pass_max: scenario.pass_max, ..Recoverability::default() };
            let deliver = Deliver {
                receiver: wire.clone(),
                dead_letters: Some(wire.clone()),
                backoff: wire.clone(),
                clock: wire.clone(),
                metrics: wire,
                recoverability,
            };
            Box::pin(async move { deliver.deliver(&*manager, &key, incoming).await })
        }
        Work::Sweep(row, entries) => {
            // Any message of the row names its entity.
            let envelopes = scenario.messages.iter();
            let routed = envelopes.filter_map(|envelope| manager.route(envelope, Receipt::text("0"), 1).ok());
            let mut rows: Vec<EntityKey> = Vec::new();
            for (key, _) in routed {
                if !rows.contains(&key) {
                    rows.push(key);
                }
            }
            let key = rows[usize::from(row)].clone();
            Box::pin(async move {
                drop(manager.pass(&key, &mut [], &entries).await);
            })
        }
    }
}
