//! Answers that the command `hapax` puts together by itself: in the shape in which it prints them, which is tested with the command.

use hapax_core::{
    endpoint::office::Retried,
    ids::EndpointName,
    operator::{Operator, ShownRow, WaitingEntity},
    ports::{Answer, Page, RowStatus, StoreError},
    time::Timestamp,
};
use serde::{Serialize, Serializer};

/// As `hapax dead-letters retry` and `discard` answer.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Done {
    Retried { endpoint: String, done: usize, left: usize, reasons: Vec<LeftLetter> },
    Discarded { endpoint: String, discarded: usize },
}

#[derive(Debug, Serialize)]
pub(crate) struct LeftLetter {
    message_id: String,
    saga: Option<String>,
    reason: String,
}

impl Done {
    pub(crate) fn retried(endpoint: &EndpointName, retried: Retried) -> Self {
        let reasons = retried.reasons.into_iter().map(|left| LeftLetter {
            message_id: left.message_id.to_string(),
            saga: left.saga.map(|saga| saga.to_string()),
            reason: left.reason,
        });
        let reasons = reasons.collect();
        Self::Retried { endpoint: endpoint.to_string(), done: retried.done, left: retried.left, reasons }
    }

    pub(crate) fn discarded(endpoint: &EndpointName, discarded: usize) -> Self {
        Self::Discarded { endpoint: endpoint.to_string(), discarded }
    }
}

/// As `hapax outbox list` answers.
#[derive(Debug, Serialize)]
pub(crate) struct StoredToSend {
    pub(crate) entities: Answer<Vec<WaitingEntity>>,
    pub(crate) rows: Vec<ShownRow>,
}

/// Rows of outbox tables: those that have failed before those that wait.
pub(crate) async fn rows(operator: &Operator, limit: usize) -> Result<Vec<ShownRow>, StoreError> {
    let mut shown = Vec::new();
    for outbox in operator.outboxes() {
        for status in [RowStatus::Failed, RowStatus::Waits] {
            let page = Page::first(limit.saturating_sub(shown.len()));
            let rows = outbox.rows(Some(status), &page).await?;
            shown.extend(rows.iter().map(|row| ShownRow::of(outbox.name(), row)));
        }
    }
    Ok(shown)
}

/// What was done by hand: one line of JSON for a log, as the command writes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LogLine<'a> {
    /// When.
    #[serde(serialize_with = "text")]
    pub time: Timestamp,
    /// Who.
    pub by: &'a str,
    /// What.
    pub deed: &'a str,
    /// With what of which endpoint.
    pub of: &'a str,
    /// With how many; not known of what has failed on the way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Where.
    pub store: &'a str,
    /// Why it has failed on the way, when some of it may be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<&'a str>,
}

impl LogLine<'_> {
    /// The line, without its end.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default() // Texts and a number cannot fail.
    }
}

fn text<S: Serializer>(time: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(time)
}
