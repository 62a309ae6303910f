//! A dispatcher that fails.

use async_trait::async_trait;
use hapax_core::{
    envelope::Outgoing,
    ports::{DispatchError, Dispatcher, ErrorKind, Refused, TransportError},
};

use super::{Faulty, WRITE};
use crate::{Call, Fault, Side};

fn transient(kind: ErrorKind) -> DispatchError {
    DispatchError::Transient(TransportError::new(kind, "dispatching", "failed, as planned"))
}

#[async_trait]
impl<P: Dispatcher + 'static> Dispatcher for Faulty<P> {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        self.inner.check(outgoing)
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        self.world.point(Call::Dispatch, Side::Before).await;
        let mut results = Vec::with_capacity(outgoing.len());
        for (index, outgoing) in outgoing.iter().enumerate() {
            if index > 0 {
                self.world.point(Call::Dispatch, Side::Between).await;
            }
            results.push(self.dispatch_one(outgoing).await);
        }
        self.world.point(Call::Dispatch, Side::After).await;
        results
    }
}

impl<P: Dispatcher + 'static> Faulty<P> {
    async fn dispatch_one(&self, outgoing: &Outgoing) -> Result<(), DispatchError> {
        let fate = self.world.fate(Call::Dispatch, WRITE).await;
        match fate {
            Some(Fault::Refused) => return Err(transient(ErrorKind::Unavailable)),
            Some(Fault::UnknownNotApplied) => return Err(transient(ErrorKind::UnknownOutcome)),
            Some(Fault::Late) => {
                let (inner, outgoing) = (self.inner.clone(), outgoing.clone());
                self.world.delay(Box::pin(async move { drop(inner.dispatch(&[outgoing]).await) }));
                return Err(transient(ErrorKind::UnknownOutcome));
            }
            _ => {}
        }
        let result = self.inner.dispatch(std::slice::from_ref(outgoing)).await.pop();
        self.world.silence(Call::Dispatch, fate).await;
        match result {
            Some(Ok(())) if fate == Some(Fault::UnknownApplied) => Err(transient(ErrorKind::UnknownOutcome)),
            Some(result) => result,
            None => Err(transient(ErrorKind::Unavailable)),
        }
    }
}
