//! What must hold in every explored world, each sentence under its name.
//!
//! These are the invariants of the algorithm, all but two that are no matter of a world. That versions are never used again
//! (I6) is promised by the entity store and checked by its suite; here versions are names, and the mutants
//! `versions-are-reused` and `update-resurrects` show what comes of it. How often a message is sent (I9, first half) is not
//! promised at all; that it takes effect once where it is received is.
//!
//! Other names that may stand in a [`Broken`]: a scenario's own sentences have theirs; `called_outside_once` is the test
//! kit's, about [services outside](crate::check) that a handler calls; and `asks_nothing_but_ports` is what is broken when the
//! code under test cannot be explored at all.

use std::fmt;

/// A sentence that holds in every world, or the exploration tells how it is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// Its name, as it is in a [`Broken`].
    pub name: &'static str,
    /// What it says of a world.
    pub says: &'static str,
    /// The sentence of the README that it shows to be true, word for word, or that would be false without it.
    pub readme: &'static str,
    /// Where it comes from.
    pub source: &'static str,
}

const fn one(name: &'static str, says: &'static str, readme: &'static str, source: &'static str) -> Claim {
    Claim { name, says, readme, source }
}

/// All claims.
pub const CLAIMS: &[Claim] = &[
    one(
        "effect_at_most_once",
        "The effects of handling a message are saved at most once, however often it is given.",
        "However often and in whatever order copies of a message come, to however many workers, its handler's \
         effect on the saga is committed once.",
        "verification.md 3.1, protocol.md I1 and I3",
    ),
    one(
        "no_lost_update",
        "What one message has changed is never overwritten by somebody who had not seen it.",
        "No save overwrites what it has not seen.",
        "verification.md 3.2",
    ),
    one(
        "no_ghost_output",
        "A message leaves only if the handling that sends it is saved.",
        "A run that was not saved sends nothing.",
        "verification.md 3.3, protocol.md I2",
    ),
    one(
        "output_stable",
        "However often an outgoing message is sent, it has the same id and the same body.",
        "Every outgoing message of a committed effect is sent, perhaps repeatedly, always with the same id and \
         body, so that a receiver which deduplicates (hapax does) handles it once.",
        "verification.md 3.4, protocol.md I2",
    ),
    one(
        "ack_implies_done",
        "A message is acknowledged only when its effects are saved and what it sends has left or waits in the \
         outbox.",
        "A message is acked when its effect is committed and its outgoing messages are sent, or safely in the \
         hands of the sweeper.",
        "verification.md 3.5",
    ),
    one(
        "complete_at_rest",
        "When all is over, every message has had its effects, has sent everything it sends and is remembered.",
        "What cannot be handled or sent is set aside among the dead letters with its body and reason; the rest \
         goes on.",
        "verification.md 3.6, protocol.md I7",
    ),
    one(
        "no_garbage_at_rest",
        "When all is over, no outbox entry is left, once the sweeper has passed.",
        "When all are sent, the message is entered in a strongly consistent dedup store, and only then its outbox \
         entry is removed.",
        "verification.md 3.7, protocol.md I8",
    ),
    one(
        "every_run_ends",
        "Nothing goes round in circles: once faults stop, all work ends.",
        "Once faults stop, all work ends: nothing goes round in circles, and nobody waits for somebody who is \
         gone.",
        "verification.md 3.8",
    ),
    one(
        "no_deadlock",
        "As long as not all is done, something can be done.",
        "Once faults stop, all work ends: nothing goes round in circles, and nobody waits for somebody who is \
         gone.",
        "verification.md 3.8",
    ),
    one(
        "marked_only_when_sent",
        "A message is remembered as over only when its effects are saved and everything it sends has left.",
        "When all are sent, the message is entered in a strongly consistent dedup store, and only then its outbox \
         entry is removed.",
        "verification.md 3.9, protocol.md I4",
    ),
    one(
        "no_gap",
        "A message whose effects are saved is in the outbox or in the dedup store, without interruption.",
        "Whoever comes in between finds either the entry (and sends what is stored, without running the handler \
         again) or the mark (and stops).",
        "verification.md 3.10, protocol.md I5",
    ),
    one(
        "no_letter_after_effect",
        "Nobody sets aside a message whose effects were saved when he last looked at its entity.",
        "Nobody sets aside a message whose effects were saved when he last looked at its entity.",
        "verification.md 3 (still to add), protocol.md S64",
    ),
    one(
        "letter_is_whole",
        "What is set aside is the message as it came, with its headers and body, and the reason.",
        "What cannot be handled or sent is set aside among the dead letters with its body and reason; the rest \
         goes on.",
        "ports/dead_letters.rs, promise 1",
    ),
    one(
        "timeout_only_while_live",
        "A timeout that its saga has cancelled, or has handled, is never handled.",
        "A timeout that its saga has cancelled, or has handled, is never handled.",
        "design.md 4, timeouts",
    ),
    one(
        "outputs_in_order",
        "Where a saga promises ordered outputs, they first leave in the order in which it handled what caused \
         them.",
        "With `ordered_outputs`, what a saga sends first leaves in the order in which it handled what caused it.",
        "protocol.md S31",
    ),
    one(
        "answer_repeated",
        "A copy of an answered message is acknowledged only when the stored answer has gone to its own address since the \
         copy was given, or waits for that in an entry that nobody has marked.",
        "A copy that asks for an answer gets the one that was given, at its own address.",
        "protocol.md S77",
    ),
    one(
        "downstream_once",
        "A message that a saga sends takes effect at the next endpoint once, however often it was sent.",
        "Every outgoing message of a committed effect is sent, perhaps repeatedly, always with the same id and \
         body, so that a receiver which deduplicates (hapax does) handles it once.",
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
