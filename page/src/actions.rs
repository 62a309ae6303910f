//! What changes something: dead letters are retried and given up, one message at a time.

use std::{fmt, sync::Arc, time::Duration};

use axum::{
    Extension, Json, Router,
    extract::{FromRequest, Request, State, rejection::JsonRejection},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::post,
};
use hapax_core::{
    ids::{EndpointName, MessageId},
    time::Timestamp,
};
use serde::Deserialize;
use tokio::sync::OwnedSemaphorePermit;

use crate::{
    Asked, Token,
    answer::Wrong,
    api::{Names, named},
    guard::no_token,
    letters::about,
    shapes::{Done, LogLine},
};

/// How long an action is waited for. It goes on after that, and holds its place among what is asked at a time.
const ACTION_WITHIN: Duration = Duration::from_secs(30);
/// Longest name of who acts, in bytes.
const BY_BYTES_MAX: usize = 100;

type Writes = Arc<dyn Fn(&LogLine<'_>) + Send + Sync>;

/// Lets who knows a token retry and discard dead letters.
#[derive(Clone)]
#[must_use]
pub struct Actions {
    token: Token,
    by: String,
    store: String,
    writes: Writes,
}

impl Actions {
    /// By who knows `token`.
    pub fn new(token: Token) -> Self {
        let writes = |line: &LogLine<'_>| tracing::info!(line = line.json(), "done by hand");
        Self { token, by: "page".to_owned(), store: String::new(), writes: Arc::new(writes) }
    }

    /// Who does it for the record, where the reader does not say. Default `page`.
    pub fn by(mut self, name: impl Into<String>) -> Self {
        self.by = name.into();
        self
    }

    /// What the store is called in the log.
    pub fn store(mut self, name: impl Into<String>) -> Self {
        self.store = name.into();
        self
    }

    /// Where what was done is written down, beside the store's own record. The default is an event of `tracing`. It must not block for long.
    pub fn writes(mut self, writes: impl Fn(&LogLine<'_>) + Send + Sync + 'static) -> Self {
        self.writes = Arc::new(writes);
        self
    }
}

impl fmt::Debug for Actions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Actions").field("by", &self.by).field("store", &self.store).finish_non_exhaustive()
    }
}

pub(crate) fn routes(actions: &Actions) -> Router<Arc<Asked>> {
    let of = |deed: Deed| {
        let actions = actions.clone();
        post(move |state, permit, names, request| act(deed, actions, state, permit, names, request))
    };
    Router::new()
        .route("/api/dead-letters/{endpoint}/{id}/retry", of(Deed::Retry))
        .route("/api/dead-letters/{endpoint}/{id}/discard", of(Deed::Discard))
}

#[derive(Debug, Clone, Copy)]
enum Deed {
    Retry,
    Discard,
}

/// With what, beside the address.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct How {
    /// The letter of this saga alone.
    saga: Option<String>,
    /// Who does it.
    by: Option<String>,
}

async fn act(
    deed: Deed,
    actions: Actions,
    State(asked): State<Arc<Asked>>,
    Extension(permit): Extension<Arc<OwnedSemaphorePermit>>,
    Names((endpoint, id)): Names<(String, String)>,
    request: Request,
) -> Response {
    if !actions.token.is_in(request.headers()) {
        return no_token();
    }
    let how = match Json::<How>::from_request(request, &()).await {
        Ok(Json(how)) => how,
        Err(error) => return unread(&error).into_response(),
    };
    let (endpoint, id) = match (named(&endpoint), named(&id)) {
        (Ok(endpoint), Ok(id)) => (endpoint, id),
        (Err(wrong), _) | (_, Err(wrong)) => return wrong.into_response(),
    };
    // Whoever has asked may go: what has begun is done and written down, and holds its place until then.
    let deed = tokio::spawn(async move {
        let done = done(deed, &actions, &asked, (&endpoint, &id), &how).await;
        drop(permit);
        done
    });
    match tokio::time::timeout(ACTION_WITHIN, deed).await {
        Ok(Ok(done)) => done.map(Json).into_response(),
        Ok(Err(_)) => {
            let why = "the action has ended in the middle";
            Wrong::new(StatusCode::INTERNAL_SERVER_ERROR, why, "look at the letter again").into_response()
        }
        Err(_) => {
            let why = "it is not known yet whether it is done: the store has not answered within 30 s";
            let remedy = "it goes on; look at the letter again before it is tried once more";
            Wrong::new(StatusCode::GATEWAY_TIMEOUT, why, remedy).into_response()
        }
    }
}

fn unread(error: &JsonRejection) -> Wrong {
    Wrong::new(error.status(), error.body_text(), "send a body of JSON as {\"saga\": \"order\", \"by\": \"alice\"}")
}

async fn done(
    deed: Deed,
    actions: &Actions,
    asked: &Arc<Asked>,
    (endpoint, id): (&EndpointName, &MessageId),
    how: &How,
) -> Result<Done, Wrong> {
    let by = how.by.as_deref().map(str::trim).filter(|by| !by.is_empty()).unwrap_or(&actions.by);
    if by.len() > BY_BYTES_MAX || by.chars().any(char::is_control) {
        return Err(Wrong::bad("the name of who acts is too long or has control characters", "give a name"));
    }
    let letters = about(asked, endpoint, id, how.saga.as_ref()).await?;
    let operator = &asked.page.operator;
    let retention = operator.retention().await.map_err(|error| Wrong::store(&error))?;
    let office = operator.dead_letter_office(endpoint, by, retention);
    let name = match deed {
        Deed::Retry => "retried dead letters",
        Deed::Discard => "discarded dead letters",
    };
    let done = match deed {
        Deed::Retry => office.retry(&letters).await.map(|retried| (retried.done, Done::retried(endpoint, retried))),
        Deed::Discard => office.discard(&letters).await.map(|count| (count, Done::discarded(endpoint, count))),
    };
    let done = done.map_err(|error| Wrong::store(&error));
    // What has failed on the way may be done in part, and is written down too.
    let (count, failed) = match &done {
        Ok((count, _)) => (Some(*count as u64), None),
        Err(wrong) => (None, Some(wrong.said())),
    };
    let (time, of, store) = (Timestamp::now(), endpoint.as_str(), actions.store.as_str());
    (actions.writes)(&LogLine { time, by, deed: name, of, count, store, failed });
    done.map(|(_, done)| done)
}
