//! Receiving answers: each goes to whoever waits for it, and is acknowledged whether anybody does or not.

use std::{sync::Arc, time::Duration};

use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use super::waiting::Waiting;
use crate::{
    ids::EndpointName,
    ports::{Delivery, Receiver, Settlement, TransportError},
};

/// Answers that are received and not acknowledged yet, at most. Their bodies are with those who wait; this many
/// acknowledgements fill a group commit.
const UNSETTLED_MAX: usize = 256;
/// Rest after receiving has failed, so that a broker that is down is not hammered: as an endpoint rests.
const RECEIVE_RETRY: Duration = Duration::from_millis(500);
/// How long a stop waits for acknowledgements. What is not acknowledged comes again and finds nobody.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// What the task that receives works with.
pub(super) struct Answers {
    pub(super) name: EndpointName,
    pub(super) receiver: Arc<dyn Receiver>,
    pub(super) waiting: Arc<Waiting>,
    pub(super) stop: watch::Receiver<bool>,
}

type Receiving<'r> = BoxFuture<'r, Result<Vec<Delivery>, TransportError>>;

/// What is received, if anything is being received.
async fn ready(receiving: &mut Option<Receiving<'_>>) -> Result<Vec<Delivery>, TransportError> {
    match receiving {
        Some(receiving) => receiving.await,
        None => std::future::pending().await,
    }
}

/// Tells those who wait when nothing is received any more, for whatever reason.
struct Ends(Arc<Waiting>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl Answers {
    pub(super) async fn run(self) {
        let ends = Ends(self.waiting.clone());
        let mut stop = self.stop.clone();
        let mut settling = FuturesUnordered::new();
        let mut receiving: Option<Receiving<'_>> = None;
        loop {
            let room = UNSETTLED_MAX.saturating_sub(settling.len());
            if receiving.is_none() && room > 0 {
                receiving = Some(self.receiver.receive(room));
            }
            tokio::select! {
                // An error means that the client is gone.
                _ = stop.wait_for(|stop| *stop) => break,
                received = ready(&mut receiving) => {
                    receiving = None;
                    match received {
                        Ok(deliveries) => settling.extend(deliveries.into_iter().map(|delivery| self.take(delivery))),
                        Err(error) => {
                            tracing::warn!(client = %self.name, %error, "receiving answers failed");
                            let receiver = &self.receiver;
                            receiving = Some(async move {
                                sleep(RECEIVE_RETRY).await;
                                receiver.receive(room).await
                            }.boxed());
                        }
                    }
                }
                Some(()) = settling.next(), if !settling.is_empty() => {}
            }
        }
        drop(receiving);
        drop(ends);
        let _ = timeout(STOP_LIMIT, settling.collect::<()>()).await;
    }

    /// Hands an answer over, at once, and acknowledges it. If that fails it comes again, and nobody waits for it.
    fn take(&self, delivery: Delivery) -> impl Future<Output = ()> + use<'_> {
        let settlement = match &delivery.envelope.correlation_id {
            Some(correlation) => {
                self.waiting.answer(correlation, &delivery.envelope);
                Settlement::Ack
            }
            None => {
                let reason = format!("{} takes answers, which bear the correlation id of a request", self.name);
                let (message_id, message_type) = (&delivery.envelope.message_id, &delivery.envelope.message_type);
                tracing::warn!(%message_id, %message_type, reason, "no answer; it is set aside");
                Settlement::DeadLetter { reason }
            }
        };
        async move {
            if let Err(error) = self.receiver.settle(&delivery.receipt, settlement).await {
                tracing::debug!(client = %self.name, %error, "settling an answer failed; it comes again");
            }
        }
    }
}
