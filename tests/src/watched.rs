//! What a pass was (one that resumed, one of several messages, one of a timeout) no port sees. It is counted around the manager.

use std::sync::Arc;

use hapax::{
    HandlerError,
    envelope::Envelope,
    ids::{AttemptId, EntityKey, Scope, TypeName},
    manager::{Incoming, Outcome, Passes, Passing},
    ports::Receipt,
};
use hapax_model::{Seen, World};

/// A manager whose passes are counted as coverage.
#[derive(Debug, Clone)]
pub struct Watched {
    inner: Arc<dyn Passes>,
    world: World,
}

impl Watched {
    /// `inner`, watched.
    #[must_use]
    pub const fn new(inner: Arc<dyn Passes>, world: World) -> Self {
        Self { inner, world }
    }

    /// Whether the message's effect is committed already.
    fn is_committed(&self, key: &EntityKey, message: &Incoming) -> bool {
        let committed = self.world.ghost(|ghost| {
            let expected = ghost.expected().iter().find(|expected| expected.dedup == message.key);
            Ok(expected.is_some_and(|expected| ghost.has_effect(key, &expected.cause)))
        });
        committed == Some(true)
    }
}

impl Passes for Watched {
    fn scope(&self) -> &Arc<Scope> {
        self.inner.scope()
    }

    fn types(&self) -> Vec<TypeName> {
        self.inner.types()
    }

    fn route(
        &self,
        envelope: &Arc<Envelope>,
        receipt: Receipt,
        attempts: u32,
    ) -> Result<(EntityKey, Incoming), HandlerError> {
        self.inner.route(envelope, receipt, attempts)
    }

    fn pass<'p>(&'p self, key: &'p EntityKey, messages: &'p mut [Incoming], sweep: &'p [AttemptId]) -> Passing<'p> {
        Box::pin(async move {
            let before: Vec<bool> = messages.iter().map(|message| self.is_committed(key, message)).collect();
            let outcomes = self.inner.pass(key, messages, sweep).await;
            let handled = |outcome: &&Outcome| matches!(outcome, Outcome::Handled);
            if outcomes.iter().filter(handled).count() > 1 {
                self.world.count(Seen::PassOfSeveral);
            }
            for ((outcome, before), message) in outcomes.iter().zip(before).zip(messages.iter()) {
                match outcome {
                    Outcome::Handled if before => self.world.count(Seen::Resumed),
                    Outcome::Handled if message.envelope.timeout => self.world.count(Seen::TimeoutHandled),
                    Outcome::DeadLetter(reason) if reason.contains("complete") => self.world.count(Seen::Completed),
                    _ => {}
                }
            }
            outcomes
        })
    }
}
