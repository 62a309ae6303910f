//! Calls of a transport as the checks make them: sent again while it is busy, and what is wrong is told as the promise that is broken.

use std::{collections::HashSet, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep, timeout_at};

use super::{Broken, Builder};
use crate::{
    envelope::{Envelope, Outgoing},
    ids::{EndpointName, TypeName},
    ports::{Connected, Delivery, DispatchError, Settled, Settlement, Transport, TransportCapabilities},
    testing::{samples, wait::PATIENCE},
};

/// How long nothing has to come before it counts as nothing.
pub(in crate::testing) const QUIET: Duration = Duration::from_millis(300);
/// Longest lease that the suite waits for.
const LEASE_TRIED_MAX: Duration = Duration::from_secs(30);
/// What a lease may last beyond what was said.
const LEASE_MARGIN: Duration = Duration::from_millis(100);

/// One connection of one endpoint, and the promise that is being checked with it.
pub(in crate::testing) struct Line {
    /// Held because a connection may live in it.
    _transport: Arc<dyn Transport>,
    pub(in crate::testing) capabilities: TransportCapabilities,
    pub(in crate::testing) ends: Connected,
    pub(in crate::testing) endpoint: EndpointName,
    pub(in crate::testing) promise: &'static str,
}

impl Line {
    /// A new endpoint, subscribed to nothing.
    pub(in crate::testing) async fn new(builder: &dyn Builder, promise: &'static str) -> Result<Self, Broken> {
        Self::of(builder, promise, &samples::endpoint(), &[]).await
    }

    /// Another connection of the same endpoint.
    pub(in crate::testing) async fn again(&self, builder: &dyn Builder) -> Result<Self, Broken> {
        Self::of(builder, self.promise, &self.endpoint, &[]).await
    }

    pub(in crate::testing) async fn of(
        builder: &dyn Builder,
        promise: &'static str,
        endpoint: &EndpointName,
        types: &[TypeName],
    ) -> Result<Self, Broken> {
        Self::on(builder.transport().await, promise, endpoint, types).await
    }

    /// On a connection that is there.
    pub(in crate::testing) async fn on(
        transport: Arc<dyn Transport>,
        promise: &'static str,
        endpoint: &EndpointName,
        types: &[TypeName],
    ) -> Result<Self, Broken> {
        let ends = transport.connect(endpoint, types).await.map_err(|e| Broken::failed(promise, "connecting", &e))?;
        Ok(Self {
            capabilities: transport.capabilities(),
            _transport: transport,
            ends,
            endpoint: endpoint.clone(),
            promise,
        })
    }

    pub(in crate::testing) fn broken(&self, what: impl Into<String>) -> Broken {
        Broken::new(self.promise, what)
    }

    /// Sends until each is confirmed, for a transport may be busy.
    pub(in crate::testing) async fn send(&self, outgoing: &[Outgoing]) -> Result<(), Broken> {
        let deadline = Instant::now() + PATIENCE;
        let mut left = outgoing.to_vec();
        loop {
            let results = self.ends.dispatcher.dispatch(&left).await;
            if results.len() != left.len() {
                return Err(self.broken(format!("{} messages have {} results", left.len(), results.len())));
            }
            let mut again = Vec::new();
            for (outgoing, result) in left.into_iter().zip(results) {
                match result {
                    Ok(()) => {}
                    Err(DispatchError::Transient(_)) if Instant::now() < deadline => again.push(outgoing),
                    Err(e) => return Err(Broken::failed(self.promise, "sending a message", &e)),
                }
            }
            if again.is_empty() {
                return Ok(());
            }
            left = again;
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Sends a message with `body` to this endpoint and gives it.
    pub(in crate::testing) async fn send_here(&self, body: &str) -> Result<Envelope, Broken> {
        let envelope = samples::envelope(body.to_owned());
        self.send(&[samples::outgoing(&self.endpoint, envelope.clone())]).await?;
        Ok(envelope)
    }

    /// Some messages, if any come in this time.
    pub(in crate::testing) async fn receive(&self, max: usize, within: Duration) -> Result<Vec<Delivery>, Broken> {
        match timeout_at(Instant::now() + within, self.ends.receiver.receive(max)).await {
            Err(_) => Ok(Vec::new()),
            Ok(Ok(deliveries)) if deliveries.is_empty() || deliveries.len() > max => {
                Err(self.broken(format!("a receive of 1 to {max} messages gave {}", deliveries.len())))
            }
            Ok(Ok(deliveries)) => Ok(deliveries),
            Ok(Err(e)) => Err(Broken::failed(self.promise, "receiving", &e)),
        }
    }

    /// The next message, which has to come sooner or later.
    pub(in crate::testing) async fn next(&self, why: &str) -> Result<Delivery, Broken> {
        let within = PATIENCE + self.lease().unwrap_or_default();
        self.receive(1, within).await?.pop().ok_or_else(|| self.broken(format!("no message comes {why}")))
    }

    /// A call that waits for a message, if one comes sooner or later. It holds the connection, which ends with it.
    pub(in crate::testing) fn waiting(self) -> BoxFuture<'static, Result<(Self, Option<Delivery>), Broken>> {
        // Twice, for another may have the message first.
        let within = (PATIENCE + self.lease().unwrap_or_default()) * 2;
        Box::pin(async move {
            let delivery = self.receive(1, within).await?.pop();
            Ok((self, delivery))
        })
    }

    pub(in crate::testing) async fn expect_none(&self, within: Duration, why: &str) -> Result<(), Broken> {
        match self.receive(1, within).await?.pop() {
            None => Ok(()),
            Some(delivery) => Err(self.broken(format!("a message is given {why}: {:?}", delivery.envelope))),
        }
    }

    pub(in crate::testing) async fn settle(
        &self,
        delivery: &Delivery,
        settlement: Settlement,
    ) -> Result<Settled, Broken> {
        let settled = self.ends.receiver.settle(&delivery.receipt, settlement).await;
        settled.map_err(|e| Broken::failed(self.promise, "settling", &e))
    }

    /// Settles under a lease that lasts.
    pub(in crate::testing) async fn end(&self, delivery: &Delivery, settlement: Settlement) -> Result<(), Broken> {
        match self.settle(delivery, settlement).await? {
            Settled::Done => Ok(()),
            Settled::LeaseLost => Err(self.broken("a lease that has just begun is lost")),
        }
    }

    /// Receives and acknowledges until there is a message with each of these bodies. By body, because this is about
    /// whether they come and not about what they have become on the way. In the order of their first coming.
    pub(in crate::testing) async fn drain(&self, max: usize, bodies: &[String]) -> Result<Vec<Arc<Envelope>>, Broken> {
        let within = PATIENCE + self.lease().unwrap_or_default();
        let deadline = Instant::now() + within;
        let mut missing: HashSet<&[u8]> = bodies.iter().map(String::as_bytes).collect();
        let mut came = Vec::with_capacity(bodies.len());
        while !missing.is_empty() {
            let deliveries = self.receive(max, deadline.saturating_duration_since(Instant::now())).await?;
            if deliveries.is_empty() {
                let (all, missing) = (bodies.len(), missing.len());
                return Err(self.broken(format!("of {all} confirmed messages {missing} never came")));
            }
            for delivery in deliveries {
                if missing.remove(&delivery.envelope.body[..]) {
                    came.push(delivery.envelope.clone());
                }
                // An ack that fails is a message that comes again, which is no harm here.
                drop(self.ends.receiver.settle(&delivery.receipt, Settlement::Ack).await);
            }
        }
        Ok(came)
    }

    /// The lease, unless it is too long to wait for.
    pub(in crate::testing) fn lease(&self) -> Option<Duration> {
        self.capabilities.lease.filter(|lease| *lease <= LEASE_TRIED_MAX)
    }

    /// Whether nothing can be seen of the end of a lease.
    pub(in crate::testing) fn lease_is_too_long(&self) -> bool {
        self.capabilities.lease.is_some() && self.lease().is_none()
    }

    /// Lets the leases of this connection end: waits for it, or takes leave where they last as long as that. Answers a
    /// connection that is there.
    pub(in crate::testing) async fn lose_leases(self, builder: &dyn Builder) -> Result<Self, Broken> {
        match self.lease() {
            Some(lease) => {
                sleep(lease + LEASE_MARGIN).await;
                Ok(self)
            }
            None => {
                let (endpoint, promise) = (self.endpoint.clone(), self.promise);
                drop(self);
                Self::of(builder, promise, &endpoint, &[]).await
            }
        }
    }
}

/// Numbered bodies that nobody else uses.
pub(in crate::testing) fn bodies(count: usize) -> Vec<String> {
    let run = samples::dedup_key();
    (0..count).map(|number| format!("{run} {number}")).collect()
}
