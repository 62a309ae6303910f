//! What must hold in every explored world, each sentence under its name.

use std::fmt;

/// A sentence that holds in every world, or the exploration tells how it is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// Its name, as it is in a [`Broken`].
    pub name: &'static str,
    /// What it says, in words for the user of the library.
    pub says: &'static str,
    /// Where it comes from.
    pub source: &'static str,
}

const fn one(name: &'static str, says: &'static str, source: &'static str) -> Claim {
    Claim { name, says, source }
}

/// All claims.
pub const CLAIMS: &[Claim] = &[
    one(
        "effect_at_most_once",
        "The effects of handling a message are saved at most once, however often it is given.",
        "verification.md 3.1, protocol.md I1",
    ),
    one(
        "no_lost_update",
        "What one message has changed is never overwritten by somebody who had not seen it.",
        "verification.md 3.2",
    ),
    one(
        "no_ghost_output",
        "A message leaves only if the handling that sends it is saved.",
        "verification.md 3.3, protocol.md I2",
    ),
    one(
        "output_stable",
        "However often an outgoing message is sent, it has the same id and the same body.",
        "verification.md 3.4, protocol.md I2",
    ),
    one(
        "ack_implies_done",
        "A message is acknowledged only when its effects are saved and what it sends has left or waits in the outbox.",
        "verification.md 3.5",
    ),
    one(
        "complete_at_rest",
        "When all is over, every message has had its effects, has sent everything it sends and is remembered.",
        "verification.md 3.6, protocol.md I7",
    ),
    one(
        "no_garbage_at_rest",
        "When all is over, no outbox entry is left, once the sweeper has passed.",
        "verification.md 3.7, protocol.md I8",
    ),
    one("every_run_ends", "Nothing goes round in circles: once faults stop, all work ends.", "verification.md 3.8"),
    one("no_deadlock", "As long as not all is done, something can be done.", "verification.md 3.8"),
    one(
        "marked_only_when_sent",
        "A message is remembered as over only when its effects are saved and everything it sends has left.",
        "verification.md 3.9, protocol.md I3 and I4",
    ),
    one(
        "no_gap",
        "A message whose effects are saved is in the outbox or in the dedup store, without interruption.",
        "verification.md 3.10, protocol.md I5",
    ),
    one(
        "no_letter_after_effect",
        "Nobody sets aside a message whose effects were saved when he last looked at its entity.",
        "verification.md 3 (still to add), protocol.md S64",
    ),
    one(
        "timeout_only_while_live",
        "A timeout that its saga has cancelled, or has handled, is never handled.",
        "design.md 4, timeouts",
    ),
    one(
        "outputs_in_order",
        "Where a saga promises ordered outputs, they first leave in the order in which it handled what caused them.",
        "protocol.md S31",
    ),
    one(
        "answer_repeated",
        "A copy of an answered message is acknowledged only when the stored answer has gone to its own address.",
        "protocol.md S77",
    ),
    one(
        "downstream_once",
        "A message that a saga sends takes effect at the next endpoint once, however often it was sent.",
        "protocol.md I9",
    ),
];

/// The claim with this name.
#[must_use]
pub fn claim(name: &str) -> Option<&'static Claim> {
    CLAIMS.iter().find(|claim| claim.name == name)
}

/// A sentence that an explored world has broken: one of [`CLAIMS`] or of the scenario's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// Its name.
    pub claim: &'static str,
    /// What was seen.
    pub seen: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.claim, self.seen)
    }
}

impl std::error::Error for Broken {}
