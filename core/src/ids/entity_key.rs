//! Which entity: endpoint and saga are part of its key, so that two that share a store cannot meet.

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

use super::{EndpointName, PartitionKey, SagaKey, SagaName};

/// The endpoint and saga that a message is handled by: the first half of an [`EntityKey`], shared by all its entities.
#[derive(Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope {
    /// The endpoint that receives.
    pub endpoint: EndpointName,
    /// The saga or stateless handler that handles.
    pub saga: SagaName,
}

/// What an entity store is asked for: one instance of one saga at one endpoint.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntityKey {
    scope: Arc<Scope>,
    key: SagaKey,
    partition: Option<PartitionKey>,
}

/// Over the saga key alone, which tells nearly all entities apart: this is on the hot path several times a message.
impl Hash for EntityKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
    }
}

impl EntityKey {
    /// The entity of `key` within `scope`.
    #[must_use]
    pub const fn new(scope: Arc<Scope>, key: SagaKey) -> Self {
        Self { scope, key, partition: None }
    }

    /// The same, kept in the partition of this name, among documents of the user's own, by a store that has partitions and
    /// would choose one by itself; all others take no notice. It is a part of where the entity is and not of what a message
    /// is remembered under: see [`DedupKey::of`](super::DedupKey::of).
    #[must_use]
    pub fn in_partition(self, partition: PartitionKey) -> Self {
        Self { partition: Some(partition), ..self }
    }

    /// The endpoint and the saga.
    #[must_use]
    pub const fn scope(&self) -> &Arc<Scope> {
        &self.scope
    }

    /// The instance.
    #[must_use]
    pub const fn key(&self) -> &SagaKey {
        &self.key
    }

    /// The partition that a user has named for it.
    #[must_use]
    pub const fn partition(&self) -> Option<&PartitionKey> {
        self.partition.as_ref()
    }
}

impl fmt::Display for EntityKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.scope.endpoint, self.scope.saga, self.key)?;
        match &self.partition {
            Some(partition) => write!(f, " in {partition}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for EntityKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
