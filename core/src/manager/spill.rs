//! Bodies that are too large to travel: staged before the save, kept before the dispatch.

use std::{sync::Arc, time::Duration};

use super::{Again, Few, SagaManager, tail::Unsent};
use crate::{
    claim::{Claim, Spill, reference_of},
    envelope::{Destination, Outgoing},
    handler_error::{HandlerError, chain},
    ids::{AttemptId, EntityKey},
    ports::{BodyName, NewBody, Staged},
    saga::Saga,
};

/// What is said where an endpoint has lost its store of bodies.
const NO_STORE: &str = "its body is in a store of bodies, and the endpoint has none; add .bodies(..)";

impl<T: Saga> SagaManager<T> {
    /// Replaces large bodies in `outgoing` by claims on them. What is to be staged, named after the attempt. Not that of a `reply`: it is kept
    /// for duplicates, and whoever asks may know no store.
    pub(super) fn spill(
        &self,
        key: &EntityKey,
        attempt: AttemptId,
        outgoing: &mut [Outgoing],
        reply: Option<u32>,
    ) -> Result<Vec<NewBody>, HandlerError> {
        let Some(Spill { bodies, above, .. }) = self.spill.as_deref() else { return Ok(Vec::new()) };
        let capabilities = bodies.body_capabilities();
        let mut staged: Vec<NewBody> = Vec::new();
        for (index, outgoing) in outgoing.iter_mut().enumerate() {
            let body = outgoing.envelope.body.clone();
            if body.len() <= *above || reply.is_some_and(|reply| reply as usize == index) {
                continue;
            }
            if body.len() > capabilities.body_bytes_max {
                let (message_type, bytes) = (&outgoing.envelope.message_type, body.len());
                let (name, bytes_max) = (capabilities.name, capabilities.body_bytes_max);
                return Err(HandlerError::permanent(format!(
                    "the body of {message_type} has {bytes} bytes; {name} takes {bytes_max}"
                )));
            }
            // The same bytes to several endpoints are put once.
            let place = staged.iter().position(|staged| staged.bytes == body).unwrap_or_else(|| {
                let staging = Staged { name: BodyName::of(&attempt, index), entity: key.clone(), attempt };
                staged.push(NewBody { staged: staging, references: Vec::new(), bytes: body.clone() });
                staged.len() - 1
            });
            let new = &mut staged[place];
            let reference = reference_of(outgoing);
            let claim = Claim::on(&new.staged.name, &body, reference.is_none());
            claim.put_into(Arc::make_mut(&mut outgoing.envelope), capabilities.name)?;
            new.references.extend(reference);
        }
        Ok(staged)
    }

    /// Before the save: an entry that is saved refers to nothing that is not there. What is staged for a save that is lost is collected when
    /// no save of it can land any more; where not all of it can be staged there will be none, and so it goes at once.
    pub(super) async fn stage(&self, staged: &[NewBody]) -> Result<(), Again> {
        let Some(spill) = &self.spill else { return Ok(()) };
        for (index, body) in staged.iter().enumerate() {
            let Err(error) = spill.bodies.put(body).await else { continue };
            for body in &staged[..=index] {
                // Best effort: what stays is collected with what lost attempts have staged.
                let _ = spill.bodies.unstage(&body.staged.name).await;
            }
            return Err(Again::Unavailable(chain(&error)));
        }
        Ok(())
    }

    /// Before the dispatch, and after the save was confirmed: from here on a body stays until it is released. Which of `outgoing` can never be
    /// sent, since their bodies are gone.
    pub(super) async fn keep(&self, outgoing: &[Outgoing]) -> Result<Few<(usize, String)>, Unsent> {
        let mut gone = Few::new();
        for (index, Outgoing { destination, envelope }) in outgoing.iter().enumerate() {
            let Some(claim) = Claim::of(envelope) else { continue };
            let Some(spill) = &self.spill else { return Err(Unsent::new(NO_STORE)) };
            let name = claim.and_then(|claim| claim.name()).map_err(|e| Unsent::new(e.chain()))?;
            let for_all = match destination {
                Destination::Topic(_) => spill.published,
                Destination::Endpoint(_) => Duration::ZERO,
            };
            if !spill.bodies.keep(&name, for_all).await.map_err(|e| Unsent::new(chain(&e)))? {
                let store = spill.bodies.body_capabilities().name;
                gone.push((index, format!("its body {name} is not in {store} any more")));
            }
        }
        Ok(gone)
    }
}
