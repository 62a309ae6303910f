//! Order is kept only of what was sent with a place in it. A sender that has not asked for it does not notice, so who receives says so.

use std::sync::atomic::{AtomicBool, Ordering};

use hapax_core::{envelope::Envelope, ids::EndpointName};

/// Where order is kept: says once of a queue that something with a key came without a place in the order. Its sender has not asked for order,
/// and nobody but who receives can know that it is kept.
#[derive(Debug, Default)]
pub(super) struct Unplaced(AtomicBool);

impl Unplaced {
    pub(super) fn came(&self, place: &str, endpoint: &EndpointName, envelope: &Envelope) {
        if envelope.partition_key.is_none() || self.0.swap(true, Ordering::Relaxed) {
            return;
        }
        let message_id = &envelope.message_id;
        tracing::warn!(
            place, %endpoint, %message_id,
            "a message with a key has no place in the order of its key: who sends it has to ask for `ordered_keys(true)`, too; it is said once"
        );
    }
}
