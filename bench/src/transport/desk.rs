//! The handler of the loop by hand, with what it remembers: a state for each entity, and the ids that it has had.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use crate::{
    AnyError,
    workload::{Account, Deposit, key_of},
};

#[derive(Debug, Default)]
pub(super) struct Desk {
    /// As JSON, which is what the reference store of hapax holds, too.
    states: HashMap<String, Vec<u8>>,
    seen: HashSet<Uuid>,
}

/// What is sent for a message.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) id: String,
    pub(super) body: Vec<u8>,
}

impl Desk {
    pub(super) fn new(entities: u32) -> Result<Self, AnyError> {
        let state = serde_json::to_vec(&Account::default())?;
        let states = (0..entities).map(|entity| (key_of(entity), state.clone())).collect();
        Ok(Self { states, seen: HashSet::new() })
    }

    /// `None` for a repeat.
    pub(super) fn handle(&mut self, id: &str, body: &[u8]) -> Result<Option<Outgoing>, AnyError> {
        if !self.seen.insert(Uuid::parse_str(id)?) {
            return Ok(None);
        }
        let deposit: Deposit = serde_json::from_slice(body)?;
        let state = self.states.get_mut(deposit.account()).ok_or("an account is missing")?;
        let mut account: Account = serde_json::from_slice(state)?;
        let changed = account.apply(deposit);
        *state = serde_json::to_vec(&account)?;
        let id = uuid::Builder::from_random_bytes(fastrand::u128(..).to_be_bytes()).into_uuid();
        Ok(Some(Outgoing { id: id.to_string(), body: serde_json::to_vec(&changed)? }))
    }

    /// Effects in all states.
    pub(super) fn effects(&self) -> Result<u64, AnyError> {
        let effects = self.states.values().map(|state| Ok(serde_json::from_slice::<Account>(state)?.effects));
        effects.sum()
    }

    /// Ids that it has had.
    pub(super) fn seen(&self) -> u64 {
        self.seen.len() as u64
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::workload::Workload;

    #[test]
    fn a_message_has_its_effect_once_and_a_repeat_sends_nothing() {
        let (mut desk, message) = (Desk::new(10).unwrap(), Workload::new(10, 7).next());
        let id = Uuid::from_bytes(message.id).to_string();
        assert!(desk.handle(&id, &message.body).unwrap().is_some());
        assert!(desk.handle(&id, &message.body).unwrap().is_none());
        assert_eq!((desk.effects().unwrap(), desk.seen()), (1, 1));
    }
}
