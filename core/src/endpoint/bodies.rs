//! Bodies that are too large to travel: what comes without its body gets it before it is read, and what no attempt has saved is collected.

use std::{sync::Arc, time::Duration};

use futures_util::FutureExt;
use tokio::time::sleep;
use tracing::Instrument;

use super::{
    Endpoint, EndpointBuilder, Settings,
    lanes::{Ended, Lanes, RETRY_SAGA},
    maintenance::UPKEEP_REST,
};
use crate::{
    claim::{Claim, Fetched, Spill},
    handler_error::chain,
    manager::WithBody,
    metrics::{Ending, Event},
    ports::{Bodies, Delivery, Receiver, Settlement, Staged, StoreError, TransportCapabilities},
    trace,
};

/// Rest of a message whose body cannot be fetched now: as of one that cannot be read yet.
const FETCH_REST: Duration = Duration::from_secs(5);
/// A body counts as so large at most: how large it says it is may have been written by anybody, and no store of bodies takes as much.
const CLAIMED_MAX: usize = 1 << 30;
/// Bodies that are collected at a time: each may be large.
const COLLECT_PAGE: usize = 100;
/// Staged bodies that are looked at in one round, at most: their names and entities, not the bodies.
const COLLECT_MAX: usize = 100 << 7;

impl EndpointBuilder {
    /// Large bodies do not travel: what sagas and handlers send with a body of more than `above` bytes, as it is sealed, leaves it in `bodies`,
    /// and what comes without its body gets it from there. Whoever is to receive such messages needs the same store, first.
    ///
    /// It may be the [`store`](Self::store) too. Where a body is in the store of the entities, one commit more keeps it out of every save.
    /// How it is collected is told in the chapter on claim checks. Replies travel with their bodies.
    pub fn bodies(mut self, bodies: impl Bodies + 'static, above: usize) -> Self {
        self.bodies = Some((Arc::new(bodies), above));
        self
    }
}

/// What is given to the sagas.
pub(super) fn spill(bodies: Option<(Arc<dyn Bodies>, usize)>, settings: &Settings) -> Option<Arc<Spill>> {
    let (bodies, above) = bodies?;
    let Settings { retention, published_retention, .. } = *settings;
    Some(Arc::new(Spill { bodies, above, published: published_retention, retention }))
}

/// What is put elsewhere is to be there for as long as a message may come for it.
pub(super) fn check_bodies(
    bodies: Option<&dyn Bodies>,
    transport: &TransportCapabilities,
    settings: &Settings,
) -> Result<(), String> {
    let Some(bodies) = bodies.map(Bodies::body_capabilities) else { return Ok(()) };
    if transport.durable && !bodies.durable {
        return Err(format!(
            "messages in {} outlive the process, but their bodies in {} do not; give a durable store of bodies",
            transport.name, bodies.name
        ));
    }
    let needed = settings.retention.saturating_add(transport.redelivery_max);
    if settings.published_retention < needed {
        return Err(format!(
            "published bodies are kept for {:?}, but a copy may come for {needed:?} (retention and the longest redelivery of {}); raise \
             published_retention",
            settings.published_retention, transport.name
        ));
    }
    Ok(())
}

impl<'e> Lanes<'e> {
    /// Gets the body that `delivery` has come without. What comes behind it does not wait. Answers whether it is under way: what says
    /// nothing that can be fetched is refused instead.
    pub(super) fn fetch(&mut self, delivery: Delivery) -> bool {
        let endpoint = self.endpoint;
        let claim = match Claim::of(&delivery.envelope) {
            Some(Ok(claim)) => claim,
            Some(Err(error)) => {
                self.refuse(&delivery, None, None, error);
                return false;
            }
            None => return false,
        };
        let Some(spill) = endpoint.spill.clone() else {
            let why = format!(
                "the body of {} is in a store of bodies, and endpoint {} has none; add .bodies(..)",
                delivery.envelope.message_type, endpoint.name
            );
            self.refuse(&delivery, None, None, crate::HandlerError::transient(why));
            return false;
        };
        let bytes = claim.bytes().min(CLAIMED_MAX);
        self.fetching(&delivery.receipt, bytes);
        let span = endpoint.spans.process(&endpoint.name, None, &delivery.envelope, delivery.attempts);
        let entered = span.clone();
        let fetching = async move {
            let only = delivery.envelope.headers.value(RETRY_SAGA).and_then(|saga| saga.parse().ok());
            let fetched = spill.fetch(&claim, &delivery.envelope, &endpoint.name, only).await;
            let settlement = match &fetched {
                Fetched::Over => {
                    tracing::debug!(message_id = %delivery.envelope.message_id, "a copy of what is over: its body is let go of");
                    Some(Settlement::Ack)
                }
                Fetched::Later(error) => {
                    let (message_id, error) = (&delivery.envelope.message_id, chain(error));
                    tracing::warn!(endpoint = %endpoint.name, %message_id, error, "a body cannot be fetched yet");
                    Some(Settlement::Retry { delay: FETCH_REST, counts: false })
                }
                Fetched::Whole(..) | Fetched::Never(_) => None,
            };
            if let Some(settlement) = settlement {
                // A copy of what is over is the course of things, and no refusal.
                let ending = if settlement == Settlement::Ack { Ending::Duplicate } else { Ending::Retried };
                trace::ended(&entered, ending);
                if ending == Ending::Retried {
                    endpoint.deliver.metrics.observe(Event::Refused(&endpoint.name, &delivery.envelope, ending));
                }
                endpoint.settle(&delivery, settlement).await;
            }
            Ended::Fetched { delivery, bytes, fetched }
        };
        self.running.push(fetching.instrument(span).boxed());
        true
    }

    /// What was fetched goes to its lanes; once the endpoint stops, back to the queue.
    pub(super) fn fetched(&mut self, delivery: Delivery, fetched: Fetched) {
        match fetched {
            Fetched::Over | Fetched::Later(_) => {}
            Fetched::Never(error) => self.refuse(&delivery, None, None, error),
            Fetched::Whole(..) if self.stopping => self.give_back_claim(delivery),
            Fetched::Whole(whole, hold) => {
                let takers = self.takers_of(&delivery.envelope).map_or(1, |takers| takers.len());
                let fetched = WithBody { whole, hold: hold.shared(takers) };
                self.take_one(&delivery, Some(&fetched));
            }
        }
    }

    fn give_back_claim(&mut self, delivery: Delivery) {
        let endpoint = self.endpoint;
        self.held_one_more();
        let giving = async move {
            endpoint.settle(&delivery, Settlement::Retry { delay: Duration::ZERO, counts: false }).await;
            Ended::Refused
        };
        self.running.push(giving.boxed());
    }
}

impl Endpoint {
    async fn settle(&self, delivery: &Delivery, settlement: Settlement) {
        if let Err(error) = self.receiver.settle(&delivery.receipt, settlement).await {
            tracing::debug!(%error, "settling a message whose body is elsewhere failed");
        }
    }

    /// Removes bodies that nobody needs any more, and those that no save refers to.
    ///
    /// A body is staged before the save that refers to it, so one that is staged may belong to a save that was lost, to one that has not
    /// landed yet, or to one whose entry still waits to be sent. Retention tells the first two apart, for a save that takes longer could
    /// not keep the promise either; the entity itself tells of the third, however long it waits.
    pub(super) async fn collect_bodies(&self) -> Result<(), StoreError> {
        let Some(spill) = &self.spill else { return Ok(()) };
        // What is wrong with one holds up no other.
        let unstaged = self.unstage_bodies(spill).await;
        while spill.bodies.collect(COLLECT_PAGE).await? == COLLECT_PAGE {
            sleep(UPKEEP_REST).await;
        }
        unstaged
    }

    /// Removes what was staged for saves that were lost. The first error, if there were any.
    async fn unstage_bodies(&self, spill: &Spill) -> Result<(), StoreError> {
        let (mut page, mut ended) = (COLLECT_PAGE, Ok(()));
        loop {
            let staged = spill.bodies.staged(&self.name, self.settings.retention, page).await?;
            let mut gone = 0;
            for body in &staged {
                match self.unstage_unless_it_waits(spill, body).await {
                    Ok(was_staged) => gone += usize::from(was_staged),
                    Err(error) => {
                        let (name, entity, why) = (&body.name, &body.entity, chain(&error));
                        tracing::warn!(%name, %entity, why, "whether a body is needed cannot be told: it stays");
                        ended = ended.and(Err(error));
                    }
                }
            }
            if staged.len() < page || page >= COLLECT_MAX {
                return ended;
            }
            if gone == 0 {
                // Those that stay come first again: behind a page of them nothing would ever be seen.
                page *= 2;
            }
            sleep(UPKEEP_REST).await;
        }
    }

    async fn unstage_unless_it_waits(&self, spill: &Spill, body: &Staged) -> Result<bool, StoreError> {
        let entity = self.stores.entities().load(&body.entity, &[]).await?.stored;
        let waits = entity.is_some_and(|stored| stored.entity.outbox.iter().any(|entry| entry.attempt == body.attempt));
        Ok(!waits && spill.bodies.unstage(&body.name).await?)
    }
}
