//! Whoever was given no transport can look at everything and send nothing. That is refused for now and not for good, so that nothing is set
//! aside for want of an option.

use async_trait::async_trait;

use crate::{
    envelope::Outgoing,
    ports::{DispatchError, Dispatcher, ErrorKind, Refused, TransportError},
};

/// No way out: who looks need not reach a broker.
#[derive(Debug)]
pub(super) struct Refusing;

const WHY: &str = "no transport was given to send by: name the one of the endpoint";

#[async_trait]
impl Dispatcher for Refusing {
    fn check(&self, _: &Outgoing) -> Result<(), Refused> {
        Err(Refused(WHY.to_owned()))
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        let refused = || TransportError::new(ErrorKind::Misconfigured, "dispatching", WHY);
        // Not for good: what waits must not be set aside for want of an option.
        outgoing.iter().map(|_| Err(DispatchError::Transient(refused()))).collect()
    }
}
