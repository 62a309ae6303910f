//! What is explored, as the user says it.

use std::{fmt, sync::Arc};

use hapax_core::{
    entity::Entity,
    envelope::{Envelope, Outgoing},
    ids::{EntityKey, TypeName},
    manager::{Limits, Passes, Ports},
};

use super::state::Budgets;

/// How fresh the dedup store's answers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// What was inserted is seen by everybody: what hapax needs.
    Linearizable,
    /// The newest entries, at most so many, may not be seen yet.
    Lagging(u8),
    /// A worker sees what it has inserted and what it has seen before; anything newer may not be seen yet.
    Session,
    /// Any number of the newest entries may not be seen yet.
    Eventual,
}

/// When a dedup entry may be evicted, and what is left of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evicts {
    /// At any time, and nothing is left: as after a time that was too short.
    Forgotten,
    /// At any time; it is folded, and passes ask what was.
    Folded,
    /// Once no copy of its message is left in its queue, with whoever may take that long to show it; nothing is left.
    Gone,
}

/// As what a call may be refused beside "not now". Nothing is done, and the caller goes other ways. (One that is denied goes
/// the way of one that is refused for now, and one that can never be sent has a budget of its own.)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// What is saved or set aside is over a limit.
    TooLarge,
    /// What is read was written by another version of the program.
    Malformed,
}

/// Makes the manager under test for the ports it is given.
pub type MakeManager = Arc<dyn Fn(Ports, Limits) -> Arc<dyn Passes> + Send + Sync>;
/// The messages whose effects a state holds, in their order, by their places in [`Scenario::messages`] (a higher number
/// for others, each its own); `None`: it cannot be told.
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
    /// Outgoing messages that can never be sent and were set aside.
    pub outgoing_letters: Vec<&'a Outgoing>,
    /// Messages that were set aside, by their place in [`Scenario::messages`]; what copies of one message are there has
    /// one place.
    pub letters: &'a [u8],
}

/// What is explored.
#[derive(Clone)]
pub struct Scenario {
    /// The shipped manager over a saga.
    pub manager: MakeManager,
    /// The manager of another endpoint, or of another saga at the same one, to which messages may be addressed.
    pub downstream: Option<MakeManager>,
    /// The messages, each queued once at the beginning. What they cause and is addressed to an endpoint of the scenario
    /// comes as a message too, once it has been sent.
    pub messages: Vec<Arc<Envelope>>,
    /// Messages, by their places, that are for the manager of `downstream`.
    pub lower: Vec<u8>,
    /// Messages, by their places, that are queued only once the first message of a type has left: what causes them.
    pub after: Vec<(u8, TypeName)>,
    /// Reads the effects in a state. `None`: effects are told by outbox entries and marks alone.
    pub lines: Option<ReadLines>,
    /// Holds in every world.
    pub always: Vec<(&'static str, Sentence)>,
    /// Holds when all is over.
    pub at_rest: Vec<(&'static str, Sentence)>,
    /// Messages that a rule may drop.
    pub may_drop: Vec<u8>,
    /// Messages that may be set aside. `None`: any.
    pub may_set_aside: Option<Vec<u8>>,
    /// Workers at most.
    pub tasks: usize,
    /// Messages of one pass at most: 1 or 2.
    pub pass_max: usize,
    /// Tries that the back-off grants at most: it may always grant fewer, as when a process is told to stop.
    pub tries: u32,
    /// Deliveries after which a message that fails is set aside. Deliveries are counted up to it, so a low one means
    /// fewer worlds: 1 where no handler fails.
    pub attempts_max: u8,
    /// A message whose handler has failed is given again only when nothing else is to be done for its entity: its rest is
    /// long beside a pass.
    pub rests: bool,
    /// A message that goes back uncounted, as one whose entity has a full outbox, is given again only when nothing else is
    /// to be done for its entity and its outbox is empty: the sweeper, which passes else when all is quiet, passes before.
    pub sweeper_first: bool,
    /// Entities and dedup entries are in one store.
    pub together: bool,
    /// The store may leave a clean-up to the next save of an entity that somebody else works on.
    pub rides: bool,
    /// The saga promises ordered outputs.
    pub ordered: bool,
    /// How fresh the dedup store's answers are.
    pub reads: Reads,
    /// What must be shown before a dedup entry goes, within the budget of evictions.
    pub evicts: Evicts,
    /// What may go wrong.
    pub budgets: Budgets,
    /// As what a call may be refused beside "not now", within the budget of refused calls.
    pub refused_as: Vec<Refusal>,
    /// Names of [claims](super::CLAIMS) that are not judged.
    pub without: Vec<&'static str>,
    /// One world stands for others that differ from it in nothing that matters. Off: each is gone through by itself, to
    /// check the explorer.
    pub reduced: bool,
}

impl Scenario {
    /// `messages` for one worker, with all in one store and no faults.
    #[must_use]
    pub fn new(manager: MakeManager, messages: Vec<Arc<Envelope>>) -> Self {
        Self {
            manager,
            downstream: None,
            messages,
            lower: Vec::new(),
            after: Vec::new(),
            lines: None,
            always: Vec::new(),
            at_rest: Vec::new(),
            may_drop: Vec::new(),
            may_set_aside: None,
            tasks: 1,
            pass_max: 1,
            tries: 1,
            attempts_max: 2,
            rests: false,
            sweeper_first: false,
            together: true,
            rides: false,
            ordered: false,
            reads: Reads::Linearizable,
            evicts: Evicts::Forgotten,
            budgets: Budgets::NONE,
            refused_as: Vec::new(),
            without: Vec::new(),
            reduced: true,
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
