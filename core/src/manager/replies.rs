//! Whether a reply can be kept for duplicates: asked before anything is saved.

use super::SagaManager;
use crate::{codec::record, entity::OutboxEntry, handler_error::HandlerError, ports::DedupCapabilities, saga::Saga};

impl<T: Saga> SagaManager<T> {
    /// What cannot be kept for duplicates must not be sent either: its message could never be finished.
    pub(super) fn check_reply(&self, entry: &OutboxEntry) -> Result<(), HandlerError> {
        let DedupCapabilities { name, reply_bytes_max, .. } = self.ports.stores.dedup.dedup_capabilities();
        // What is stored is little more than what it is of: few have to be encoded to know that they fit.
        if entry.size() <= reply_bytes_max / 2 {
            return Ok(());
        }
        let Some(reply) = entry.to_dedup_entry().reply else { return Ok(()) };
        let bytes = record::encode_outgoing(&reply).map_or(usize::MAX, |reply| reply.len());
        if bytes <= reply_bytes_max {
            return Ok(());
        }
        Err(HandlerError::permanent(format!(
            "the reply has {bytes} bytes, more than the {reply_bytes_max} that {name} keeps for duplicates: send a reference to it"
        )))
    }
}
