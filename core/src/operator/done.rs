//! What was done by hand: the answer to who did it, and the line that is kept of it.

use serde::Serialize;

use super::{printable_json, shown::text};
use crate::{
    endpoint::office::{Action, Deed, Retried},
    ids::{EndpointName, MessageId},
    time::Timestamp,
};

/// What retrying dead letters of an endpoint has come to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RetriedLetters {
    /// Whose they are.
    pub endpoint: String,
    /// How many were sent again.
    pub done: usize,
    /// How many were not, and are dead letters still.
    pub left: usize,
    /// Why, of some of these.
    pub reasons: Vec<LeftLetter>,
}

/// A dead letter that was not sent again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LeftLetter {
    /// Its message.
    pub message_id: String,
    /// The saga that has set it aside, if it was one.
    pub saga: Option<String>,
    /// Why it was left.
    pub reason: String,
}

impl RetriedLetters {
    /// What the office says of letters of `endpoint`.
    #[must_use]
    pub fn of(endpoint: &EndpointName, retried: Retried) -> Self {
        let reasons = retried.reasons.into_iter().map(|left| LeftLetter {
            message_id: left.message_id.to_string(),
            saga: left.saga.map(|saga| saga.to_string()),
            reason: left.reason,
        });
        let reasons = reasons.collect();
        Self { endpoint: endpoint.to_string(), done: retried.done, left: retried.left, reasons }
    }
}

/// What discarding dead letters of an endpoint has come to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DiscardedLetters {
    /// Whose they were.
    pub endpoint: String,
    /// How many were discarded.
    pub discarded: usize,
}

impl DiscardedLetters {
    /// That so many of `endpoint` were discarded.
    #[must_use]
    pub fn of(endpoint: &EndpointName, discarded: usize) -> Self {
        Self { endpoint: endpoint.to_string(), discarded }
    }
}

/// What somebody has done with letters about a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TakenAction {
    /// Whose letters they were.
    pub endpoint: String,
    /// When.
    #[serde(serialize_with = "text")]
    pub time: Timestamp,
    /// Who.
    pub by: String,
    /// What.
    pub deed: Deed,
    /// With how many letters in that call, with those about other messages.
    pub count: usize,
}

impl TakenAction {
    /// Those of `actions` of `endpoint` that name the message `id`.
    pub(super) fn about(endpoint: &EndpointName, actions: Vec<Action>, id: &MessageId) -> Vec<Self> {
        let id = id.to_string();
        let named = actions.into_iter().filter(|action| action.messages.contains(&id));
        named
            .map(|Action { time, by, deed, count, .. }| Self { endpoint: endpoint.to_string(), time, by, deed, count })
            .collect()
    }
}

/// What was done by hand: one line of JSON for a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(clippy::exhaustive_structs, reason = "whoever does something by hand makes one")]
pub struct LogLine<'a> {
    /// When.
    #[serde(serialize_with = "text")]
    pub time: Timestamp,
    /// Who.
    pub by: &'a str,
    /// What.
    pub deed: &'a str,
    /// With what: of which endpoint, or which table.
    pub of: &'a str,
    /// With how many; not known of what has failed on the way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Where: an address without its password, see [`masked_url`](super::masked_url).
    pub store: &'a str,
    /// Why it has failed on the way, when some of it may be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<&'a str>,
}

impl LogLine<'_> {
    /// The line, without its end: one that a terminal may show.
    #[must_use]
    pub fn json(&self) -> String {
        printable_json(&serde_json::to_string(self).unwrap_or_default()) // Texts and a number cannot fail.
    }
}
