//! A transport that sends some messages twice, as a producer does that got no answer.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use hapax::{
    envelope::Outgoing,
    ids::{EndpointName, TypeName},
    ports::{Connected, DispatchError, Dispatcher, Refused, Transport, TransportCapabilities, TransportError},
};

/// Copies a share of what is dispatched.
#[derive(Debug)]
pub(crate) struct Doubled<T> {
    inner: T,
    share: f64,
    seed: u64,
}

impl<T> Doubled<T> {
    pub(crate) const fn new(inner: T, share: f64, seed: u64) -> Self {
        Self { inner, share, seed }
    }
}

#[async_trait]
impl<T: Transport> Transport for Doubled<T> {
    fn capabilities(&self) -> TransportCapabilities {
        self.inner.capabilities()
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        let connected = self.inner.connect(endpoint, types).await?;
        let random = Mutex::new(fastrand::Rng::with_seed(self.seed));
        let doubling = Doubling { inner: connected.dispatcher, share: self.share, random };
        Ok(Connected { dispatcher: Arc::new(doubling), ..connected })
    }
}

#[derive(Debug)]
struct Doubling {
    inner: Arc<dyn Dispatcher>,
    share: f64,
    random: Mutex<fastrand::Rng>,
}

#[async_trait]
impl Dispatcher for Doubling {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        self.inner.check(outgoing)
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        let copies: Vec<Outgoing> = {
            let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
            outgoing.iter().filter(|_| random.f64() < self.share).cloned().collect()
        };
        let results = self.inner.dispatch(outgoing).await;
        if !copies.is_empty() {
            self.inner.dispatch(&copies).await; // Nobody waits for the copies.
        }
        results
    }
}
