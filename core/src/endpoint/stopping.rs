//! Back-off that ends when the endpoint is to stop.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::ports::{Backoff, Cause, Granted};

/// Waits as another one does, but grants nothing more once the endpoint stops: what is waiting for another try is given
/// back instead, and the stop does not wait for it.
#[derive(Debug)]
pub(super) struct Stopping {
    backoff: Arc<dyn Backoff>,
    stopped: watch::Receiver<bool>,
}

impl Stopping {
    pub(super) fn new(backoff: Arc<dyn Backoff>) -> (watch::Sender<bool>, Self) {
        let (stop, stopped) = watch::channel(false);
        (stop, Self { backoff, stopped })
    }
}

#[async_trait]
impl Backoff for Stopping {
    async fn pause(&self, cause: Cause, tries: u32) -> Granted {
        let mut stopped = self.stopped.clone();
        tokio::select! {
            biased;
            Ok(_) = stopped.wait_for(|stopped| *stopped) => Granted::Stop,
            granted = self.backoff.pause(cause, tries) => granted,
        }
    }
}
