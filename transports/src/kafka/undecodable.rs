//! Batches that the client library cannot decode. It tells of them again and again, and not in which partition they are: that is looked for, and
//! that partition alone is held back.

use std::{
    sync::PoisonError,
    time::{Duration, Instant},
};

use hapax_core::ports::{ErrorKind, TransportError};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

use super::{
    asker::Place,
    errors::failure,
    receiver::{End, RECEIVING},
};

/// How long a partition is held back before it is tried again: the batch may have been cleared away meanwhile.
const HELD: Duration = Duration::from_secs(60);
/// How long is looked for it, at most: messages of all partitions wait meanwhile.
const LOOKING: Duration = Duration::from_secs(30);

/// Whether the client library cannot make messages of what it was given.
pub(super) fn is_undecodable(error: &KafkaError) -> bool {
    matches!(error.rdkafka_error_code(), Some(Code::BadCompression | Code::NotImplemented | Code::BadMessage))
}

impl End {
    /// Holds back each partition whose next batch cannot be decoded, and tells of it. All before such a batch has come: so it is the next.
    /// Whether there was one.
    pub(super) fn hold_undecodable(&self) -> bool {
        let link = &self.broker().link;
        let (until, mut is_found) = (Instant::now() + LOOKING, false);
        let ahead = self.state().ahead();
        for (place, epoch, next) in ahead {
            if Instant::now() > until {
                break;
            }
            let asker = self.asker.lock().unwrap_or_else(PoisonError::into_inner);
            let decodes = asker.decodes(&place, next);
            drop(asker);
            match decodes {
                Ok(true) => {}
                Ok(false) => {
                    is_found = true;
                    if let Some(lane) = self.state().lane(&place, epoch) {
                        lane.hold(Instant::now() + HELD);
                    }
                    self.failed(self.undecodable(&place, next));
                }
                Err(e) => self.failed(failure(RECEIVING, link.place(), &e, false)),
            }
        }
        is_found
    }

    fn undecodable(&self, (topic, partition): &Place, offset: i64) -> TransportError {
        let (place, group) = (self.broker().link.place(), self.broker().names.group(&self.endpoint));
        let why = format!(
            "topic `{topic}`, partition {partition}, has a batch at offset {offset} or behind it that cannot be decoded: it is damaged, or compressed in a way that this program is built without. The partition is held back and tried again every {HELD:?}; the others go on. To go on without the batch, stop the endpoint and commit an offset behind it for group `{group}`"
        );
        tracing::error!(endpoint = %self.endpoint, "{place}: {why}");
        TransportError::new(ErrorKind::Malformed, RECEIVING, format!("{place}: {why}"))
    }
}
