//! A scenario and everything that has been named in it.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
};

use hapax_core::{
    deliver::{Deliver, Recoverability},
    ids::TypeName,
    manager::{Limits, Passes, Ports, Stores},
    ports::Receipt,
};

use super::{
    scenario::{Scenario, View},
    state::{State, push_sorted},
    tables::Tables,
    trie::{Running, Start, Trie, Work},
    wire::Wire,
};

pub(super) struct Space {
    pub(super) scenario: Scenario,
    pub(super) trie: Trie,
    pub(super) tables: Tables,
    /// Worlds that the user's sentences hold in, as far as these can see them.
    pub(super) right: Mutex<HashSet<Vec<u32>>>,
}

/// Messages of one pass at most.
const PASS_MAX: usize = 2;

impl Space {
    pub(super) fn new(scenario: Scenario) -> Result<Self, String> {
        if !scenario.budgets.fit() {
            return Err("a budget is 7 at most".into());
        }
        if scenario.pass_max > PASS_MAX {
            return Err(format!("pass_max is {PASS_MAX} at most"));
        }
        if let Some(name) = scenario.without.iter().find(|name| super::claims::claim(name).is_none()) {
            return Err(format!("{name} is no claim; they are listed in explore::CLAIMS"));
        }
        let wire = Wire::of(&scenario);
        let managers_of = managers(&scenario, &wire);
        let tables = Tables::new(managers_of, scenario.lines, &scenario.messages, &scenario.lower)?;
        let of = scenario.clone();
        let start: Start = Arc::new(move |tables, work, wire| {
            let managers = managers(&of, &wire);
            begin(&of, &managers, tables, work, wire)
        });
        Ok(Self { trie: Trie::new(start, wire, scenario.reduced), scenario, tables, right: Mutex::default() })
    }

    /// The world before anything has happened.
    pub(super) fn initial(&self) -> State {
        let copies = u8::try_from(self.tables.first_copies).expect("few messages");
        let drawn = if self.scenario.reduced { 0 } else { super::tables::MESSAGES_MAX };
        State {
            ready: (0..copies).filter(|copy| self.cause(*copy).is_none()).map(|copy| (copy, 1)).collect(),
            drawn: std::iter::repeat_n(0, drawn).collect(),
            left: self.scenario.budgets,
            ..State::default()
        }
    }

    /// The type of message that must have left before this one is queued.
    fn cause(&self, copy: u8) -> Option<&TypeName> {
        self.scenario.after.iter().find(|(caused, _)| *caused == copy).map(|(_, cause)| cause)
    }

    fn has_left(&self, state: &State, message_type: &TypeName) -> bool {
        state.sent.iter().any(|name| self.tables.outgoing.get(*name).envelope.message_type == *message_type)
    }

    /// Whether a message of the beginning has been queued.
    pub(super) fn is_queued(&self, state: &State, copy: u8) -> bool {
        self.cause(copy).is_none_or(|cause| self.has_left(state, cause))
    }

    /// Queues what a message of this name causes, if it is the first of its type that leaves.
    pub(super) fn queue_caused(&self, state: &mut State, name: u32) {
        if self.scenario.after.is_empty() {
            return;
        }
        let message_type = &self.tables.outgoing.get(name).envelope.message_type;
        if !self.has_left(state, message_type) {
            for (copy, _) in self.scenario.after.iter().filter(|(_, cause)| cause == message_type) {
                push_sorted(&mut state.ready, (*copy, 1));
            }
        }
    }

    /// What can be seen of `state`.
    pub(super) fn view<'a>(&'a self, state: &'a State) -> View<'a> {
        let rows = self.tables.rows.iter().zip(&state.rows).filter(|(_, row)| row.version > 0);
        View {
            entities: rows.map(|((key, _), row)| (key, self.tables.entities.get(row.entity))).collect(),
            sent: state.sent.iter().map(|name| self.tables.outgoing.get(*name)).collect(),
            outgoing_letters: state.parked.iter().map(|name| self.tables.outgoing.get(*name)).collect(),
            letters: &state.letters,
        }
    }

    /// How often a message has been given, once more, as far as it matters.
    pub(super) fn again(&self, given: u8) -> u8 {
        given.saturating_add(1).min(self.scenario.attempts_max.max(1))
    }
}

impl Scenario {
    /// How many endpoints there are.
    #[must_use]
    pub fn endpoints(&self) -> usize {
        let managers = managers(self, &Wire::of(self));
        let names: HashSet<_> = managers.iter().map(|manager| manager.scope().endpoint.clone()).collect();
        names.len()
    }
}

/// Ports that nobody answers.
pub(crate) fn ports_of_nothing() -> Ports {
    ports(&Wire::new(true))
}

pub(super) fn ports(wire: &Wire) -> Ports {
    let wire = Arc::new(wire.clone());
    let stores = if wire.together { Stores::one(wire.clone()) } else { Stores::two(wire.clone(), wire.clone()) };
    let stores = if wire.recalls { stores.recalling() } else { stores };
    Ports {
        stores,
        dispatcher: wire.clone(),
        dead_letters: wire.clone(),
        clock: wire.clone(),
        ids: wire.clone(),
        metrics: wire,
    }
}

/// The managers of `scenario`, whose calls go to `wire`.
pub(super) fn managers(scenario: &Scenario, wire: &Wire) -> Vec<Arc<dyn Passes>> {
    let make = std::iter::once(&scenario.manager).chain(&scenario.downstream);
    make.map(|make| make(ports(wire), Limits::default())).collect()
}

/// The shipped code on `wire`: `deliver` over a manager, or the manager's pass without a message.
pub(super) fn begin(
    scenario: &Scenario,
    managers: &[Arc<dyn Passes>],
    tables: &Tables,
    work: &Work,
    wire: Wire,
) -> Running {
    match work {
        Work::Deliver(messages) => {
            let (mut incoming, mut entity, mut manager) = (Vec::new(), None, None);
            for (place, (copy, given)) in (0..).zip(messages) {
                let copy = &tables.copies[usize::from(*copy)];
                let of = &managers[usize::from(copy.manager)];
                let routed = of.route(&copy.envelope, Receipt::number(place), (*given).into());
                let (key, one) = routed.expect("it was routed before");
                (entity, manager) = (Some(key), Some(of.clone()));
                incoming.push(one);
            }
            let (key, manager) = entity.zip(manager).expect("a pass has messages");
            let wire = Arc::new(wire);
            let recoverability =
                Recoverability { attempts_max: scenario.attempts_max.into(), ..Recoverability::default() };
            let deliver = Deliver {
                receiver: wire.clone(),
                dead_letters: Some(wire.clone()),
                backoff: wire.clone(),
                clock: wire.clone(),
                metrics: wire,
                recoverability,
                pass_max: scenario.pass_max,
            };
            Box::pin(async move { deliver.deliver(&*manager, &key, incoming).await })
        }
        Work::Sweep(row, entries) => {
            let (key, manager) = tables.rows[usize::from(*row)].clone();
            let (manager, entries) = (managers[usize::from(manager)].clone(), entries.to_vec());
            Box::pin(async move {
                drop(manager.pass(&key, &mut [], &entries).await);
            })
        }
    }
}
