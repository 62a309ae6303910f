//! An audit of stores, without the endpoint.

use std::sync::Arc;

use super::{AuditReport, Audited, Auditor, subject::Subject};
use crate::{
    endpoint::Settings,
    ids::{EntityKey, Scope},
    manager::Stores,
    metrics::{Event, Metrics},
    ports::{Clock, StoreError},
    sync::AsyncMutex,
};

/// An audit from outside: from [`Operator::audit`](crate::operator::Operator::audit). It looks at what waits, and at the entities it was
/// given, and compares each look with those before it: that what is saved is in an outbox or remembered, that no entry is of another attempt
/// than is remembered, that what is over goes, and that entities only go on. Which messages were handled in between, only the endpoint's own
/// [audit](super::Audit) knows.
#[derive(Debug)]
pub struct StoreAudit {
    auditor: Arc<Auditor>,
    entities: AsyncMutex<Vec<Subject>>,
}

#[derive(Debug)]
struct Nobody;

impl Metrics for Nobody {
    fn observe(&self, _: Event<'_>) {}
}

impl StoreAudit {
    pub(crate) async fn new(
        stores: &Stores,
        clock: &Arc<dyn Clock>,
        scopes: Vec<Arc<Scope>>,
        entities: Vec<EntityKey>,
        settings: &Settings,
    ) -> Self {
        let is_handled = |scope: &Scope| !scope.saga.as_str().starts_with("hapax.");
        let audited = scopes.into_iter().map(|scope| Audited { is_handled: is_handled(&scope), scope }).collect();
        let (auditor, _) = Auditor::new(None, stores, clock, Arc::new(Nobody), audited, settings).await;
        let entities = AsyncMutex::new(entities.into_iter().map(Subject::new).collect());
        Self { auditor, entities }
    }

    /// Looks at all of it once more: what was found since the first look.
    ///
    /// # Errors
    /// [`StoreError`] of the first call that failed. What was seen before is counted; nothing was written.
    pub async fn look(&self) -> Result<AuditReport, StoreError> {
        self.auditor.everything().await?;
        let (mut entities, mut list) = (self.entities.lock().await, self.auditor.list.lock().await);
        for subject in entities.iter_mut() {
            self.auditor.look(&mut list, subject).await?;
        }
        drop((entities, list));
        Ok(self.auditor.report())
    }
}
