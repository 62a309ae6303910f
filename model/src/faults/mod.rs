//! Port wrappers that fail in every way their contracts allow, one budgeted fault at a time.
//!
//! What took effect is written down in the world's ghost in the moment in which the store says so, and the sentences of
//! [`invariants::always`] are checked there and then.

mod dead_letters;
mod dedup_store;
mod dispatcher;
mod entity_store;
mod receiver;

use std::sync::Arc;

use hapax_core::{
    entity::{DedupEntry, Entity, Version},
    ids::EntityKey,
    ports::{ErrorKind, StoreError},
};

use crate::{Fault, Seen, World, invariants};

/// A port that fails as the world's plan says.
#[derive(Debug)]
pub struct Faulty<P> {
    inner: Arc<P>,
    world: World,
}

impl<P> Faulty<P> {
    /// `inner`, with faults.
    #[must_use]
    pub fn new(inner: P, world: World) -> Self {
        Self { inner: Arc::new(inner), world }
    }

    /// The port without faults.
    #[must_use]
    pub fn inner(&self) -> &Arc<P> {
        &self.inner
    }
}

impl<P> Clone for Faulty<P> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), world: self.world.clone() }
    }
}

/// How a write may fail.
const WRITE: &[Fault] = &[Fault::Refused, Fault::UnknownApplied, Fault::UnknownNotApplied, Fault::Late];

fn refused(operation: &'static str) -> StoreError {
    StoreError::new(ErrorKind::Unavailable, operation, "refused, as planned")
}

/// One and the same for every unknown outcome: the caller cannot tell what happened.
fn unknown(operation: &'static str) -> StoreError {
    StoreError::new(ErrorKind::UnknownOutcome, operation, "the answer was lost, as planned")
}

impl World {
    fn saw(&self, key: &EntityKey, version: &Version, entity: &Entity) {
        let helped = self.ghost(|ghost| {
            let helped = ghost.saw(key, version, entity)?;
            if helped.is_some() {
                invariants::always(ghost)?;
            }
            Ok(helped)
        });
        if let Some(Some(helped)) = helped
            && helped.0
        {
            self.count(Seen::Helped);
        }
    }

    fn marked(&self, entries: &[DedupEntry]) {
        self.ghost(|ghost| {
            ghost.marked(entries);
            if entries.is_empty() { Ok(()) } else { invariants::marked_only_when_sent(ghost) }
        });
    }
}
