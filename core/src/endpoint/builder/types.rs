//! Message types, by what handles them.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use crate::{
    ids::{SagaName, TypeName},
    manager::Passes,
};

/// Those of all sagas, each once.
pub(super) fn all_types(known: Vec<(SagaName, Vec<TypeName>)>) -> Vec<TypeName> {
    let mut types: Vec<TypeName> = known.into_iter().flat_map(|(_, types)| types).collect();
    types.sort_unstable();
    types.dedup();
    types
}

/// One that several sagas take, if there is one.
pub(super) fn shared_type(known: &[(SagaName, Vec<TypeName>)]) -> Option<&TypeName> {
    let mut met = HashSet::new();
    known.iter().flat_map(|(_, types)| types).find(|message_type| !met.insert(*message_type))
}

/// Which sagas handle a type. There are few, and each message asks: comparing some costs less than hashing one.
pub(super) fn takers_by_type(managers: &[Arc<dyn Passes>]) -> BTreeMap<TypeName, Vec<usize>> {
    let mut takers: BTreeMap<TypeName, Vec<usize>> = BTreeMap::new();
    for (index, manager) in managers.iter().enumerate() {
        for message_type in manager.types() {
            takers.entry(message_type).or_default().push(index);
        }
    }
    takers
}
