//! Bodies of letters that are elsewhere.

use bytes::Bytes;

use super::DeadLetterOffice;
use crate::{
    claim::{BODY_IN, Claim, is_claim},
    envelope::{Destination, Envelope},
    handler_error::HandlerError,
    ports::{BodyName, BodyReference, DeadLetter, ErrorKind, Got, StoreError},
};

const FETCHING: &str = "fetching the body of a dead letter";

/// A body that was put in the place of the claim in `old` travels: `new` says no more that it is elsewhere.
pub(super) fn unclaim(old: &Envelope, new: &mut Envelope) -> Result<(), &'static str> {
    if !is_claim(old) {
        return Ok(());
    }
    match (is_claim(new), old.body == new.body) {
        (false, true) => Err(
            "its body is elsewhere, as the header `body-in` says, and what is here is only where: leave the header, or replace \
                              the body, too",
        ),
        (true, false) if !matches!(name_of(new), Some(Ok(_))) => {
            new.headers.remove(BODY_IN);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Whether both have a claim on one body.
pub(super) fn needs_the_same(old: &Envelope, new: &Envelope) -> bool {
    matches!((name_of(old), name_of(new)), (Some(Ok(old)), Some(Ok(new))) if old == new)
}

/// Of the body that `envelope` has a claim on.
fn name_of(envelope: &Envelope) -> Option<Result<BodyName, HandlerError>> {
    Claim::of(envelope).map(|claim| claim.and_then(|claim| claim.name()))
}

impl DeadLetterOffice {
    /// The body of a letter, as it is sealed, wherever it is kept; `None`: it is gone.
    ///
    /// # Errors
    /// Those of the store of bodies. [`ErrorKind::Misconfigured`] where the body is in one and the endpoint has none, and
    /// [`ErrorKind::Malformed`] where the letter does not say where it is.
    pub async fn body(&self, letter: &DeadLetter) -> Result<Option<Bytes>, StoreError> {
        let envelope = &letter.envelope;
        let Some(name) = name_of(envelope) else { return Ok(Some(envelope.body.clone())) };
        let Some(spill) = &self.spill else {
            let why = "the body is in a store of bodies, and the endpoint has none; add .bodies(..)";
            return Err(StoreError::new(ErrorKind::Misconfigured, FETCHING, why));
        };
        let name = name.map_err(|e| StoreError::new(ErrorKind::Malformed, FETCHING, e.chain()))?;
        Ok(match spill.bodies.get(&name, None).await? {
            Got::Body(body) => Some(body),
            Got::Released | Got::Missing => None,
        })
    }

    /// Lets go of the bodies of letters that are not there any more.
    pub(super) async fn let_go(&self, letters: &[DeadLetter]) -> Result<(), StoreError> {
        let Some(spill) = &self.spill else { return Ok(()) };
        for letter in letters {
            let Some(Ok(name)) = name_of(&letter.envelope) else { continue };
            let (endpoint, saga) = match &letter.destination {
                None => (&letter.endpoint, &letter.saga),
                Some(Destination::Endpoint(to)) => (to, &None),
                Some(Destination::Topic(_)) => continue,
            };
            let (endpoint, saga) = (endpoint.clone(), saga.clone());
            let reference = BodyReference { message_id: letter.envelope.message_id.clone(), endpoint, saga };
            spill.bodies.release(&name, &reference, &[], spill.retention).await?;
        }
        Ok(())
    }
}
