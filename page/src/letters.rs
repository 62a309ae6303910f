//! Which dead letters are meant.

use std::sync::Arc;

use axum::http::StatusCode;
use hapax_core::{
    endpoint::office::Filter,
    ids::{EndpointName, MessageId},
    operator::ShownLetter,
    ports::DeadLetter,
    time::Timestamp,
};
use serde::Deserialize;

use crate::{
    Asked,
    answer::{Wrong, known},
    api::{SKIPPED_MAX, maybe, up_to},
};

/// Letters about one message: one of each saga that could not handle it.
const OF_A_MESSAGE_MAX: usize = 1_000;

/// Letters by what is known of them: words of `hapax dead-letters list`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    endpoint: Option<String>,
    saga: Option<String>,
    id: Option<String>,
    fingerprint: Option<String>,
    #[serde(rename = "type")]
    message_type: Option<String>,
    reason: Option<String>,
    since: Option<String>,
    before: Option<String>,
    skip: Option<usize>,
    pub(crate) limit: Option<usize>,
}

fn time(text: Option<&String>) -> Result<Option<Timestamp>, Wrong> {
    let said = text.filter(|text| !text.is_empty());
    said.map(|text| {
        Timestamp::parse(text).map_err(|_| Wrong::bad("that is no time", "write it as 2026-11-29T12:00:00Z"))
    })
    .transpose()
}

/// Without bodies, which a list does not show: no more are held than the store gives at once, whatever the list's length.
pub(crate) async fn list(asked: &Arc<Asked>, wanted: &Wanted, limit: usize) -> Result<Vec<ShownLetter>, Wrong> {
    let of = asked.selection(wanted.endpoint.as_ref(), wanted.saga.as_ref())?;
    let filter = Filter {
        message_id: maybe(wanted.id.as_ref())?,
        fingerprint: maybe(wanted.fingerprint.as_ref())?,
        message_type: maybe(wanted.message_type.as_ref())?,
        saga: of.saga,
        reason: wanted.reason.clone().filter(|reason| !reason.is_empty()),
        since: time(wanted.since.as_ref())?,
        before: time(wanted.before.as_ref())?,
    };
    let skip = up_to(wanted.skip, 0, SKIPPED_MAX, "skip")?;
    let letters = asked.page.operator.shown_letters(of.endpoint.as_ref(), &filter, skip, limit).await;
    known(letters.map_err(|error| Wrong::store(&error))?)
}

/// All about a message, or those of one saga. None is 404.
pub(crate) async fn about(
    asked: &Arc<Asked>,
    endpoint: &EndpointName,
    id: &MessageId,
    saga: Option<&String>,
) -> Result<Vec<DeadLetter>, Wrong> {
    let filter = Filter { message_id: Some(id.clone()), saga: maybe(saga)?, ..Filter::default() };
    let letters = asked.page.operator.dead_letters(Some(endpoint), &filter, 0, OF_A_MESSAGE_MAX).await;
    let letters = known(letters.map_err(|error| Wrong::store(&error))?)?;
    if letters.is_empty() {
        return Err(Wrong::new(
            StatusCode::NOT_FOUND,
            format!("there is no such dead letter about message {id} at endpoint {endpoint}"),
            "somebody may have retried or discarded it: look at the list again, and at what is known of the message",
        ));
    }
    Ok(letters)
}
