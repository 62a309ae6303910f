//! Bodies of letters that are elsewhere.

use bytes::Bytes;

use super::DeadLetterOffice;
use crate::{
    claim::{Claim, is_claim},
    envelope::Destination,
    ports::{BodyReference, DeadLetter, ErrorKind, Got, StoreError},
};

const FETCHING: &str = "fetching the body of a dead letter";

impl DeadLetterOffice {
    /// The body of a letter, as it is sealed, wherever it is kept; `None`: it is gone.
    ///
    /// # Errors
    /// Those of the store of bodies. [`ErrorKind::Misconfigured`] where the body is in one and the endpoint has none, and
    /// [`ErrorKind::Malformed`] where the letter does not say where it is.
    pub async fn body(&self, letter: &DeadLetter) -> Result<Option<Bytes>, StoreError> {
        let envelope = &letter.envelope;
        let Some(claim) = Claim::of(envelope) else { return Ok(Some(envelope.body.clone())) };
        let Some(spill) = &self.spill else {
            let why = "the body is in a store of bodies, and the endpoint has none; add .bodies(..)";
            return Err(StoreError::new(ErrorKind::Misconfigured, FETCHING, why));
        };
        let name = claim.and_then(|claim| claim.name());
        let name = name.map_err(|e| StoreError::new(ErrorKind::Malformed, FETCHING, e.chain()))?;
        Ok(match spill.bodies.get(&name, None).await? {
            Got::Body(body) => Some(body),
            Got::Released | Got::Missing => None,
        })
    }

    /// Lets go of the bodies of letters that are not there any more.
    pub(super) async fn let_go(&self, letters: &[DeadLetter]) -> Result<(), StoreError> {
        let Some(spill) = &self.spill else { return Ok(()) };
        for letter in letters.iter().filter(|letter| is_claim(&letter.envelope)) {
            let Some(Ok(name)) = Claim::of(&letter.envelope).map(|claim| claim.and_then(|claim| claim.name())) else {
                continue;
            };
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
