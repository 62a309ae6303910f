//! What changes something: dead letters are retried and given up, one message at a time.

use std::{fmt, sync::Arc, time::Duration};

use axum::{
    Extension, Json, Router,
    extract::{FromRequest, Request, State, rejection::JsonRejection},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use hapax_core::{
    ids::{EndpointName, Fingerprint, MessageId},
    operator::{DiscardedLetters, LogLine, RetriedLetters},
    ports::DeadLetter,
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    ASKED_AT_ONCE_MAX, Asked, Token,
    answer::Wrong,
    api::{Names, maybe, named},
    guard::no_token,
    letters::about,
};

/// How long an action is waited for. It goes on after that, and holds its place among what is asked at a time.
const ACTION_WITHIN: Duration = Duration::from_secs(30);
/// How long the body of a request may take: it holds a place among what is asked at a time.
const BODY_WITHIN: Duration = Duration::from_secs(5);
/// Longest name of who acts, in bytes.
const BY_BYTES_MAX: usize = 100;

/// As the command `hapax` answers.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Done {
    Retried(RetriedLetters),
    Discarded(DiscardedLetters),
}

type Writes = Arc<dyn Fn(&LogLine<'_>) + Send + Sync>;

/// Lets who knows a token retry and discard dead letters.
#[derive(Clone)]
#[must_use]
pub struct Actions {
    token: Token,
    by: String,
    store: String,
    writes: Writes,
    /// A place for each that goes on.
    under_way: Arc<Semaphore>,
}

impl Actions {
    /// By who knows `token`.
    pub fn new(token: Token) -> Self {
        let writes = |line: &LogLine<'_>| tracing::info!(line = line.json(), "done by hand");
        Self {
            token,
            by: "page".to_owned(),
            store: String::new(),
            writes: Arc::new(writes),
            under_way: Arc::new(Semaphore::new(ASKED_AT_ONCE_MAX)),
        }
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

    /// Waits until those that have begun are done and written down, for 30 s at most: for the end of a program, when nothing is served any
    /// more. Whoever asked for one may be gone.
    pub async fn ended(&self) {
        let all = self.under_way.acquire_many(ASKED_AT_ONCE_MAX as u32);
        let _ = tokio::time::timeout(ACTION_WITHIN, all).await; // What then goes on is cut off; the store's own record has it.
    }

    /// Whether who sends `headers` may act.
    pub(crate) fn knows(&self, headers: &HeaderMap) -> bool {
        self.token.is_in(headers)
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
    /// The letter of this saga alone; empty: the one of none.
    saga: Option<String>,
    /// That of a message which could not be sent there; empty: the one of a message that could not be handled.
    destination: Option<String>,
    /// That whose message says this.
    fingerprint: Option<String>,
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
    if !actions.knows(request.headers()) {
        return no_token();
    }
    let how = match tokio::time::timeout(BODY_WITHIN, Json::<How>::from_request(request, &())).await {
        Ok(Ok(Json(how))) => how,
        Ok(Err(error)) => return unread(&error).into_response(),
        Err(_) => {
            let remedy = "send it in one go";
            return Wrong::new(StatusCode::REQUEST_TIMEOUT, "the body has not come within 5 s", remedy).into_response();
        }
    };
    let (endpoint, id) = match (named(&endpoint), named(&id)) {
        (Ok(endpoint), Ok(id)) => (endpoint, id),
        (Err(wrong), _) | (_, Err(wrong)) => return wrong.into_response(),
    };
    // Whoever has asked may go: what has begun is done and written down, and holds its place until then.
    let under_way = actions.under_way.clone().acquire_owned().await; // Waits for nobody: no more are asked at a time.
    let deed = tokio::spawn(async move {
        let done = done(deed, &actions, &asked, (&endpoint, &id), &how).await;
        drop((permit, under_way));
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

/// The one letter that is meant: of several about a message, one may have been edited, so that the other is to go.
fn one_of(mut letters: Vec<DeadLetter>, how: &How) -> Result<Vec<DeadLetter>, Wrong> {
    let fingerprint: Option<Fingerprint> = maybe(how.fingerprint.as_ref())?;
    let is_meant = |said: Option<&String>, is: String| said.is_none_or(|said| *said == is);
    letters.retain(|letter| {
        is_meant(how.saga.as_ref(), letter.saga.as_ref().map(ToString::to_string).unwrap_or_default())
            && is_meant(
                how.destination.as_ref(),
                letter.destination.as_ref().map(ToString::to_string).unwrap_or_default(),
            )
            && fingerprint.is_none_or(|meant| Fingerprint::of(&letter.envelope) == meant)
    });
    match letters.len() {
        1 => Ok(letters),
        0 => Err(Wrong::new(
            StatusCode::NOT_FOUND,
            "there is no such dead letter any more",
            "look at the list again: somebody may have retried, discarded or edited it",
        )),
        several => Err(Wrong::new(
            StatusCode::CONFLICT,
            format!("{several} dead letters are meant by that"),
            "say which: by its saga, destination and fingerprint, as they are listed; `hapax dead-letters` does several at once",
        )),
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
    let letters = one_of(about(asked, endpoint, id, how.saga.as_ref()).await?, how)?;
    let operator = &asked.page.operator;
    let retention = operator.retention().await.map_err(|error| Wrong::store(&error))?;
    let office = operator.dead_letter_office(endpoint, by, retention);
    let name = match deed {
        Deed::Retry => "retried dead letters",
        Deed::Discard => "discarded dead letters",
    };
    let done = match deed {
        Deed::Retry => office
            .retry(&letters)
            .await
            .map(|retried| (retried.done, Done::Retried(RetriedLetters::of(endpoint, retried)))),
        Deed::Discard => {
            office.discard(&letters).await.map(|count| (count, Done::Discarded(DiscardedLetters::of(endpoint, count))))
        }
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
