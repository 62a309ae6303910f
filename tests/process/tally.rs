//! What a crashed process is told, by the test that fills its queue.

use hapax::Message;
use serde::{Deserialize, Serialize};

/// Name of the endpoint.
pub(crate) const ENDPOINT: &str = "crashed";

/// A step of a tally.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Step {
    pub(crate) tally: String,
    pub(crate) step: String,
    /// How many notes to send.
    pub(crate) notes: u8,
    /// The last one: completes the tally.
    pub(crate) last: bool,
}

impl Message for Step {
    const TYPE: &'static str = "crash.step";
}
