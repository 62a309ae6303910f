//! What has been seen is not yet what is kept: the server shows a commit to others as soon as it is made, and confirms it once
//! it is on the disk. In between, a power failure takes it back. Whoever has acted on it by then, by giving up a message that
//! was seen or by sending what waited in an outbox, has acted on something that never was.
//!
//! What is written after it, and confirmed, is on the disk with all that came before it. So a later write of the caller's own
//! needs nothing; where there is none, a write is made for it, in the commit of the next group. A write that finds done what
//! it was to do is none: it changes nothing, and its commit waits for no disk.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{Mutex, PoisonError},
};

use hapax_core::{
    entity::Entity,
    ids::EntityKey,
    ports::{ErrorKind, StoreError, Stored},
};
use tokio::sync::oneshot;

use super::{
    MySql,
    write::{Settle, Write},
};

/// Forgetting costs a commit when it is loaded the next time.
const CONFIRMED_MAX: usize = 65_536;

/// Versions with outbox entries that the server has confirmed to this store: these are on its disk. By a hash of the entity.
#[derive(Debug, Default)]
pub(super) struct Confirmed {
    hasher: RandomState,
    versions: Mutex<HashMap<u64, i64>>,
}

impl Confirmed {
    /// Remembers that `version` of an entity is on the disk, if anything waits in it.
    pub(super) fn add(&self, key: &EntityKey, entity: &Entity, version: i64) {
        if entity.outbox.is_empty() {
            return;
        }
        let mut versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        if versions.len() >= CONFIRMED_MAX {
            versions.clear();
        }
        let known = versions.entry(self.hasher.hash_one(key)).or_insert(version);
        *known = version.max(*known);
    }

    /// Whether what waits in an entity that was shown is known to be on the disk.
    pub(super) fn holds(&self, key: &EntityKey, stored: Option<&Stored>) -> bool {
        let Some(stored) = stored.filter(|stored| !stored.entity.outbox.is_empty()) else { return true };
        let versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        versions.get(&self.hasher.hash_one(key)) >= stored.version.as_number().as_ref()
    }
}

impl MySql {
    /// Waits until all that has been seen is on the server's disk: it shows others' commits before they are.
    pub(super) async fn settle(&self, operation: &'static str) -> Result<(), StoreError> {
        let (answer, answered) = oneshot::channel();
        let settled = self.write(operation, 0, Write::Settle(Settle { operation, answer }), answered).await;
        // Whatever became of that write, nothing of the caller's was changed by it.
        settled.map_err(|e| match e.is_unknown_outcome() {
            true => {
                let why = format!("{}: the server did not confirm what it has shown: load again", self.place());
                StoreError::new(ErrorKind::Unavailable, operation, why).caused_by(e)
            }
            false => e,
        })
    }
}
