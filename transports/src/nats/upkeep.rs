//! What people and programs ask of queues, beside sending and receiving.

use async_nats::jetstream::ErrorCode;
use hapax_core::{ids::EndpointName, ports::TransportError};

use super::Nats;

impl Nats {
    /// How many messages wait for `endpoint` that no process has been given: those under way and those that are not due are not counted,
    /// once they were looked at.
    ///
    /// # Errors
    /// [`TransportError`]; also when the endpoint has never connected.
    pub async fn backlog(&self, endpoint: &EndpointName) -> Result<u64, TransportError> {
        self.0.counted("counting messages", endpoint, "num_pending").await
    }

    /// How many messages of `endpoint` are given and not settled, are put off, or are known not to be due yet.
    ///
    /// # Errors
    /// [`TransportError`]; also when the endpoint has never connected.
    pub async fn unsettled(&self, endpoint: &EndpointName) -> Result<u64, TransportError> {
        self.0.counted("counting what is not settled", endpoint, "num_ack_pending").await
    }

    /// Removes all that was declared under this prefix, with every message in it: what waits for `endpoints`, dead letters and topics.
    /// For programs that had a [prefix](super::NatsOptions::prefix) to themselves, once all of them have ended.
    ///
    /// # Errors
    /// [`TransportError`]; some may be gone. Harmless when repeated.
    pub async fn remove(&self, endpoints: &[EndpointName]) -> Result<(), TransportError> {
        let names = &self.0.names;
        let of_endpoints = endpoints.iter().map(|endpoint| names.queue(endpoint));
        for stream in of_endpoints.chain([names.topics(), names.dead_letters(), names.uncounted()]) {
            let subject = format!("STREAM.DELETE.{stream}");
            self.0.removed("removing queues", subject, ErrorCode::STREAM_NOT_FOUND).await?;
        }
        Ok(())
    }
}
