//! Message types, by what handles them.

use std::{collections::HashMap, sync::Arc};

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

/// Which sagas handle a type.
pub(super) fn takers_by_type(managers: &[Arc<dyn Passes>]) -> HashMap<TypeName, Vec<usize>> {
    let mut takers: HashMap<TypeName, Vec<usize>> = HashMap::new();
    for (index, manager) in managers.iter().enumerate() {
        for message_type in manager.types() {
            takers.entry(message_type).or_default().push(index);
        }
    }
    takers
}
