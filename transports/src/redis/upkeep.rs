//! What people and programs ask of queues, beside sending and receiving.

use ::redis::{Value, cmd};
use hapax_core::{ids::EndpointName, ports::TransportError};

use super::{
    RedisStreams,
    answer::{array, number, text},
    errors::malformed,
};

/// Keys that the server is asked for at a time.
const SCANNED: usize = 1000;

impl RedisStreams {
    /// How many messages wait for `endpoint` or are being handled there, those that are not due included.
    ///
    /// # Errors
    /// [`TransportError`].
    pub async fn backlog(&self, endpoint: &EndpointName) -> Result<u64, TransportError> {
        self.count("counting messages", "XLEN", self.0.names.queue(endpoint)).await
    }

    /// How many messages of `endpoint` wait until they are due: timeouts, what was sent with a delay, and what is to be tried again
    /// later. What was sent with a delay and has not been looked at by a receiver yet is not counted.
    ///
    /// # Errors
    /// [`TransportError`].
    pub async fn delayed(&self, endpoint: &EndpointName) -> Result<u64, TransportError> {
        self.count("counting what is not due", "ZCARD", self.0.names.later(endpoint)).await
    }

    /// Removes all keys under this prefix of `endpoints`, with every message that waits for them and their dead letters, and all
    /// subscriptions. For programs that had a [prefix](super::RedisStreamsOptions::prefix) to themselves, once all of them have
    /// ended.
    ///
    /// # Errors
    /// [`TransportError`]; some may be gone. Harmless when repeated.
    pub async fn remove(&self, endpoints: &[EndpointName]) -> Result<(), TransportError> {
        const REMOVING: &str = "removing queues";
        let names = &self.0.names;
        let mut keys: Vec<String> = endpoints.iter().flat_map(|endpoint| names.all(endpoint)).collect();
        let mut cursor = "0".to_owned();
        loop {
            let pattern = format!("{}*", names.topics());
            let asked = self.0.link.ask(&self.0.lane, REMOVING, false, |_| {
                let mut scan = cmd("SCAN");
                scan.arg(&cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(SCANNED);
                scan
            });
            let bad = || malformed(REMOVING, self.0.link.place());
            let [next, found]: [Value; 2] =
                array(asked.await?).and_then(|parts| parts.try_into().ok()).ok_or_else(bad)?;
            cursor = text(next).ok_or_else(bad)?;
            keys.extend(array(found).ok_or_else(bad)?.into_iter().filter_map(text));
            if cursor == "0" {
                break;
            }
        }
        for some in keys.chunks(SCANNED) {
            let asked = self.0.link.ask(&self.0.lane, REMOVING, true, |_| {
                let mut unlink = cmd("UNLINK");
                unlink.arg(some);
                unlink
            });
            asked.await?;
        }
        Ok(())
    }

    async fn count(&self, operation: &'static str, by: &str, key: String) -> Result<u64, TransportError> {
        let asked = self.0.link.ask(&self.0.lane, operation, false, |_| {
            let mut count = cmd(by);
            count.arg(key);
            count
        });
        let count = number(&asked.await?).and_then(|count| u64::try_from(count).ok());
        count.ok_or_else(|| malformed(operation, self.0.link.place()))
    }
}
