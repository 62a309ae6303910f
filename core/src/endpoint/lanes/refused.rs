//! What no lane takes: no saga handles it, or it names none, or cannot be read.

use std::{sync::Arc, time::Duration};

use futures_util::FutureExt;
use tracing::Instrument;

use super::{Ended, Lanes};
use crate::{
    handler_error::HandlerError,
    manager::{Passes, WithBody},
    metrics::{Ending, Event},
    ports::{DeadLetter, Delivery, Receiver, Settlement},
    time::Timestamp,
    trace,
};

impl Lanes<'_> {
    /// Sets aside a message that no saga can take; one that another version of the program may take is given back.
    pub(in super::super) fn refuse(
        &mut self,
        delivery: &Delivery,
        manager: Option<&Arc<dyn Passes>>,
        fetched: Option<&WithBody>,
        error: HandlerError,
    ) {
        self.held.messages += 1;
        let endpoint = self.endpoint;
        let given_up =
            error.is_permanent() || delivery.attempts >= endpoint.deliver.recoverability.rule(&error).0.attempts_max;
        let mut letter = DeadLetter {
            envelope: delivery.envelope.clone(),
            endpoint: endpoint.name.clone(),
            saga: manager.map(|manager| manager.scope().saga.clone()),
            destination: None,
            reason: error.chain(),
            attempts: delivery.attempts,
            time: Timestamp::MAX,
        };
        let receipt = delivery.receipt.clone();
        let hold = fetched.map(|fetched| fetched.hold.clone());
        let span = endpoint.spans.process(&endpoint.name, None, &delivery.envelope, delivery.attempts);
        let refused = span.clone();
        let refusing = async move {
            letter.time = endpoint.deliver.clock.now().await.0;
            let kept = match &endpoint.deliver.dead_letters {
                Some(dead_letters) if given_up => dead_letters.add(&letter).await.is_ok(),
                _ => false,
            };
            let kept = kept
                && match (&hold, &letter.saga) {
                    (Some(hold), Some(saga)) => hold.over(Some(saga)).await.is_ok(),
                    _ => true,
                };
            const REST: Duration = Duration::from_secs(5);
            let settlement = if kept { Settlement::Ack } else { Settlement::Retry { delay: REST, counts: !given_up } };
            tracing::warn!(
                message_id = %letter.envelope.message_id,
                message_type = %letter.envelope.message_type,
                reason = letter.reason,
                kept,
                "message refused"
            );
            let ending = if kept { Ending::DeadLettered } else { Ending::Retried };
            trace::ended(&refused, ending);
            endpoint.deliver.metrics.observe(Event::Refused(&endpoint.name, &letter.envelope, ending));
            if let Err(error) = endpoint.receiver.settle(&receipt, settlement).await {
                tracing::debug!(%error, "settling a refused message failed");
            }
            Ended::Refused
        };
        self.running.push(refusing.instrument(span).boxed());
    }
}
