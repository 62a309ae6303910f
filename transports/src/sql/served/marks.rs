//! Shows which messages of a queue are gone.

use async_trait::async_trait;
use hapax_core::ports::{Mark, Marks, TransportError};

use super::{
    super::{
        errors::transport_error,
        marks::{ASKING, MARKING, mark, number},
    },
    Queues,
    receiver::EndpointQueue,
};

/// A message keeps its number for as long as it is in the queue: while it is leased, when it is put off or retried. Numbers are never
/// given twice. What a transaction that is still open sends may have a lower number than the mark and come later: a sender's matter, and
/// until it is gone the mark has not passed.
#[async_trait]
impl<Q: Queues> Marks for EndpointQueue<Q> {
    async fn end(&self) -> Result<Mark, TransportError> {
        self.is_still_there(MARKING).await?;
        self.queue.newest().await.map(mark).map_err(|e| transport_error(MARKING, e))
    }

    async fn passed(&self, mark: &Mark) -> Result<bool, TransportError> {
        let last = number(mark)?;
        self.is_still_there(ASKING).await?;
        let left = self.queue.is_left(self.signal.queue, last).await;
        left.map(|left| !left).map_err(|e| transport_error(ASKING, e))
    }
}
