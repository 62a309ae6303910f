//! Claim check: bodies that are too large to travel wait in a store of [`Bodies`], and what travels is a [`Claim`] on them.
//!
//! An endpoint with [`bodies`](crate::endpoint::EndpointBuilder::bodies) puts a body there before it saves the entity whose outbox entry
//! refers to it, keeps it before the message leaves, and fetches what comes to it before the message is read. A handler sees nothing of it.
//!
//! The name of a body is of one attempt: what a lost attempt has put is nobody else's. A body is released when its message is over at
//! the endpoint that it went to, before the message is acknowledged: its dedup entry is there, or its outbox entry is saved. A copy that
//! comes later is told so, and is acknowledged.
//!
//! What a message says is compared by its own body, sealed or not, here or there: copies of a message are copies however they travel, and
//! two attempts that have put the same body under two names have sent the same. What was put, as it was put, is compared with the hash
//! in the claim, which gives nothing away of a body that is encrypted.

use std::{
    fmt::Write,
    sync::{Arc, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    envelope::{Destination, Envelope, Outgoing},
    handler_error::{HandlerError, chain},
    ids::{EndpointName, SagaName, hex},
    ports::{Bodies, BodyName, BodyReference, Got, StoreError},
    sync::{Mutex, MutexGuard},
};

/// Header of a message whose body is elsewhere: what the store of [`Bodies`] calls itself. In place of the body is the [`Claim`].
pub const BODY_IN: &str = "body-in";

/// What travels in place of a body, as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    body: String,
    bytes: usize,
    sha256: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    published: bool,
}

impl Claim {
    /// On `body`, which waits under `name`.
    pub(crate) fn on(name: &BodyName, body: &[u8], published: bool) -> Self {
        let sha256 = hex(&Sha256::digest(body));
        Self { body: name.to_string(), bytes: body.len(), sha256, published }
    }

    /// The claim in `envelope`; `None`: it has its body with it.
    ///
    /// # Errors
    /// A permanent one where the envelope says that its body is elsewhere, and not where.
    pub fn of(envelope: &Envelope) -> Option<Result<Self, HandlerError>> {
        if !is_claim(envelope) {
            return None;
        }
        let read = serde_json::from_slice(&envelope.body);
        Some(read.map_err(|e| {
            // Not what stands there, which may be a body after all.
            let (message_type, line, column) = (&envelope.message_type, e.line(), e.column());
            HandlerError::permanent(format!(
                "{message_type} says that its body is elsewhere, and not where: line {line}, column {column}"
            ))
        }))
    }

    /// How many bytes the body has.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Under which name the body waits.
    ///
    /// # Errors
    /// A permanent one for what is no name.
    pub fn name(&self) -> Result<BodyName, HandlerError> {
        BodyName::parse(&self.body).map_err(HandlerError::permanent)
    }

    /// Puts it in the place of the body, which waits in `store`.
    pub(crate) fn put_into(&self, envelope: &mut Envelope, store: &str) -> Result<(), HandlerError> {
        envelope.headers.set(BODY_IN, store).map_err(HandlerError::permanent)?;
        envelope.body = serde_json::to_vec(self).map_err(HandlerError::permanent)?.into();
        Ok(())
    }

    /// Whether any number of endpoints may come for it.
    #[must_use]
    pub const fn is_published(&self) -> bool {
        self.published
    }

    /// `envelope` with `body` in its place, if that is what was put.
    fn redeem(&self, envelope: &Envelope, body: Bytes) -> Result<Envelope, HandlerError> {
        if body.len() != self.bytes || hex(&Sha256::digest(&body)) != self.sha256 {
            let (name, bytes, found) = (&self.body, self.bytes, body.len());
            return Err(HandlerError::permanent(format!(
                "the body {name} is not what was put: {bytes} bytes with another hash were, it has {found}; restore it, and retry the \
                 dead letter"
            )));
        }
        let mut whole = envelope.clone();
        whole.headers.remove(BODY_IN);
        whole.body = body;
        Ok(whole)
    }
}

/// Whether the body of `envelope` is elsewhere.
pub(crate) fn is_claim(envelope: &Envelope) -> bool {
    envelope.headers.value(BODY_IN).is_some()
}

/// Who needs the body of what is sent as `outgoing`; `None`: nobody knows, it is published.
pub(crate) fn reference_of(outgoing: &Outgoing) -> Option<BodyReference> {
    match &outgoing.destination {
        Destination::Endpoint(endpoint) => {
            let message_id = outgoing.envelope.message_id.clone();
            Some(BodyReference { message_id, endpoint: endpoint.clone(), saga: None })
        }
        Destination::Topic(_) => None,
    }
}

/// An endpoint's store of bodies, and what goes there.
#[derive(Debug, Clone)]
pub(crate) struct Spill {
    pub(crate) bodies: Arc<dyn Bodies>,
    /// Bodies of more bytes.
    pub(crate) above: usize,
    /// How long a published body stays after it was sent.
    pub(crate) published: Duration,
    /// How long what is over is remembered.
    pub(crate) retention: Duration,
}

/// What came of fetching a body.
pub(crate) enum Fetched {
    /// The message with its body, and what holds the body until it is over.
    Whole(Arc<Envelope>, Hold),
    /// The message is over here.
    Over,
    /// The store cannot be asked now.
    Later(StoreError),
    /// It is not to be had.
    Never(HandlerError),
}

impl Spill {
    /// The body that `envelope` has a claim on, for `endpoint`; `only`: for one of its sagas, which had set it aside.
    pub(crate) async fn fetch(
        &self,
        claim: &Claim,
        envelope: &Envelope,
        endpoint: &EndpointName,
        only: Option<SagaName>,
    ) -> Fetched {
        let name = match claim.name() {
            Ok(name) => name,
            Err(error) => return Fetched::Never(error),
        };
        let message_id = envelope.message_id.clone();
        let reference = BodyReference { message_id, endpoint: endpoint.clone(), saga: only };
        let reference = (!claim.published).then_some(reference);
        let body = match self.bodies.get(&name, reference.as_ref()).await {
            Ok(Got::Body(body)) => body,
            Ok(Got::Released) => return Fetched::Over,
            Ok(Got::Missing) => return Fetched::Never(self.missing(envelope, &name)),
            Err(error) => return Fetched::Later(error),
        };
        match claim.redeem(envelope, body) {
            Ok(whole) => {
                let (bodies, told) = (self.bodies.clone(), self.retention);
                Fetched::Whole(Arc::new(whole), Hold { bodies, name, reference, told, left: Mutex::default() })
            }
            Err(error) => Fetched::Never(error),
        }
    }

    fn missing(&self, envelope: &Envelope, name: &BodyName) -> HandlerError {
        let here = self.bodies.body_capabilities().name;
        let there = envelope.headers.value(BODY_IN).unwrap_or(here);
        let mut why = format!("the body {name} of {} is not in {here}", envelope.message_type);
        // Writing to a text does not fail.
        let _ = match there == here {
            true => write!(why, ": it was removed, or is kept in another place of that kind"),
            false => write!(why, ", it was put into {}: give this endpoint that store", there.escape_debug()),
        };
        HandlerError::permanent(why)
    }
}

/// Holds a body that was fetched until its message is over here.
#[derive(Debug)]
pub(crate) struct Hold {
    bodies: Arc<dyn Bodies>,
    name: BodyName,
    /// `None`: it was published, and goes when its time has come.
    reference: Option<BodyReference>,
    told: Duration,
    /// Sagas that are not done with the message.
    left: Mutex<usize>,
}

impl Hold {
    /// So many sagas take the message.
    pub(crate) fn shared(self, takers: usize) -> Arc<Self> {
        *self.left() = takers;
        Arc::new(self)
    }

    fn left(&self) -> MutexGuard<'_, usize> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One of the sagas is done with the message; `aside`: this one has set it aside, and its letter needs the body. The last of them lets
    /// the body go. Before the message is acknowledged: who dies in between is told by the next copy.
    ///
    /// A letter has its reference as soon as it is there, whatever becomes of the message at the others: they may try again for long, and
    /// in the delivery that ends it there may be nobody any more who sets it aside.
    pub(crate) async fn over(&self, aside: Option<&SagaName>) -> Result<(), StoreError> {
        let Some(reference) = &self.reference else { return Ok(()) };
        let letter = aside.map(|saga| BodyReference { saga: Some(saga.clone()), ..reference.clone() });
        if *self.left() > 1 {
            if let Some(letter) = letter {
                // Counted as done only after that: the last one must not let go before.
                self.release(reference, &[reference.clone(), letter]).await?;
            }
            let left = {
                let mut left = self.left();
                *left = left.saturating_sub(1);
                *left
            };
            return if left > 0 { Ok(()) } else { self.release(reference, &[]).await };
        }
        self.release(reference, letter.as_slice()).await?;
        *self.left() = 0;
        Ok(())
    }

    async fn release(&self, reference: &BodyReference, instead: &[BodyReference]) -> Result<(), StoreError> {
        self.bodies.release(&self.name, reference, instead, self.told).await.inspect_err(|error| {
            let (name, error) = (&self.name, chain(error));
            tracing::warn!(%name, error, "a body cannot be let go of yet: its message comes again");
        })
    }
}

#[cfg(all(test, shuttle))]
mod interleaved;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::ids::AttemptId;

    /// In queues, outboxes and dead letters as long as the messages are, with the name that the body has in its store. What is published
    /// was not told at first.
    #[test]
    fn a_claim_keeps_its_text_its_header_and_the_name_of_its_body() {
        const SENT: &str = r#"{"body":"22222222222222222222222222222222-1","bytes":13,"sha256":"2a82a5a01f55d84bf9832d8525b400ee999b1186545962fdef1f6125a83695a0"}"#;
        const PUBLISHED: &str = r#"{"body":"22222222222222222222222222222222-1","bytes":13,"sha256":"2a82a5a01f55d84bf9832d8525b400ee999b1186545962fdef1f6125a83695a0","published":true}"#;
        let body = br#"{"order":"7"}"#;
        let message = Envelope::new("m-1".parse().unwrap(), "shop.add-item".parse().unwrap(), &body[..]);
        let name = BodyName::of(&AttemptId::from_bytes([0x22; AttemptId::BYTES]), 1);
        for (is_published, kept) in [(false, SENT), (true, PUBLISHED)] {
            let mut sent = message.clone();
            Claim::on(&name, body, is_published).put_into(&mut sent, "sqlite").unwrap();
            assert_eq!(String::from_utf8_lossy(&sent.body), kept);
            assert_eq!(sent.headers.iter().collect::<Vec<_>>(), [("body-in", "sqlite")]);

            let mut came = message.clone();
            came.headers.set("body-in", "sqlite").unwrap();
            came.body = Bytes::from_static(kept.as_bytes());
            let claim = Claim::of(&came).unwrap().unwrap();
            assert_eq!((claim.name().unwrap(), claim.bytes(), claim.is_published()), (name.clone(), 13, is_published));
            assert_eq!(claim.redeem(&came, Bytes::from_static(body)).unwrap(), message);
        }
    }
}
