//! A transport that takes from one broker and gives to another.

use std::sync::Arc;

use async_trait::async_trait;
use hapax::{
    envelope::{Destination, Outgoing},
    ids::{EndpointName, TypeName},
    ports::{Connected, Delays, DispatchError, Dispatcher, Refused, Transport, TransportCapabilities, TransportError},
};

use crate::{BRIDGED_BY, Broker};

/// What an endpoint receives comes from here; what it sends goes there, unless it is for the endpoint itself.
#[derive(Debug, Clone)]
pub struct Across {
    name: String,
    here: Broker,
    there: Broker,
}

impl Across {
    /// From `here` to `there`; what is sent there is marked with `name`.
    #[must_use]
    pub fn new(name: &str, here: Broker, there: Broker) -> Self {
        Self { name: name.to_owned(), here, there }
    }
}

#[async_trait]
impl Transport for Across {
    /// Of a receiver those of the broker that is received from; of a dispatcher what both can.
    fn capabilities(&self) -> TransportCapabilities {
        let [here, there] = [&self.here, &self.there].map(|broker| broker.transport.capabilities());
        TransportCapabilities {
            name: "bridge",
            delays: if here.delays == there.delays { here.delays } else { Delays::Never },
            message_bytes_max: here.message_bytes_max.min(there.message_bytes_max),
            durable: here.durable && there.durable,
            ..here
        }
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        let connected = self.here.transport.connect(endpoint, types).await?;
        let itself = Destination::Endpoint(endpoint.clone());
        let (here, there) = (connected.dispatcher.clone(), self.there.dispatcher.clone());
        let dispatcher = Arc::new(Parted { name: self.name.clone(), itself, here, there });
        Ok(Connected { dispatcher, ..connected })
    }
}

/// Timeouts and what an endpoint tells itself stay where it receives.
#[derive(Debug)]
struct Parted {
    name: String,
    itself: Destination,
    here: Arc<dyn Dispatcher>,
    there: Arc<dyn Dispatcher>,
}

impl Parted {
    fn is_for_itself(&self, outgoing: &Outgoing) -> bool {
        outgoing.destination == self.itself
    }

    /// As it goes over the bridge.
    fn marked(&self, mut outgoing: Outgoing) -> Outgoing {
        // A name of an endpoint is a value that any header takes.
        let _ = Arc::make_mut(&mut outgoing.envelope).headers.set(BRIDGED_BY, &self.name);
        outgoing
    }
}

#[async_trait]
impl Dispatcher for Parted {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        if self.is_for_itself(outgoing) { self.here.check(outgoing) } else { self.there.check(outgoing) }
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        let (own, others): (Vec<Outgoing>, Vec<Outgoing>) =
            outgoing.iter().cloned().partition(|outgoing| self.is_for_itself(outgoing));
        let mut own = self.here.dispatch(&own).await.into_iter();
        let others: Vec<Outgoing> = others.into_iter().map(|outgoing| self.marked(outgoing)).collect();
        let mut others = self.there.dispatch(&others).await.into_iter();
        // One result for each, in the order of `outgoing`; a dispatcher that owes one is asked again for the rest.
        outgoing
            .iter()
            .map_while(|outgoing| if self.is_for_itself(outgoing) { own.next() } else { others.next() })
            .collect()
    }
}
