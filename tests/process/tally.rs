//! What a crashed process is told, by the test that fills its queue.

use hapax::Message;
use serde::{Deserialize, Serialize};

/// Name of the endpoint.
pub(crate) const ENDPOINT: &str = "crashed";

/// A step of a tally. Its name stands for it in the books, so that no other step has the same.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Step {
    pub(crate) tally: String,
    pub(crate) step: String,
    /// How many notes to send.
    pub(crate) notes: u8,
    /// The last one: completes the tally.
    pub(crate) last: bool,
    /// Not 0: the notes are due only after this time, and so is a timeout.
    pub(crate) delay_ms: u64,
}

impl Message for Step {
    const TYPE: &'static str = "crash.step";
}

#[allow(dead_code)] // Each program uses a part of it.
impl Step {
    /// Names of its notes.
    pub(crate) fn notes(&self) -> Vec<String> {
        (0..self.notes).map(|number| format!("{}/{number}", self.step)).collect()
    }

    /// Name of its timeout.
    pub(crate) fn ring(&self) -> String {
        format!("{}/ring", self.step)
    }
}
