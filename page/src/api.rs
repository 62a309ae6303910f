//! What the page asks, in the JSON of the command `hapax` with `--json`.

use std::{str::FromStr, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::{
        FromRequestParts, Path, Query, State,
        rejection::{PathRejection, QueryRejection},
    },
    http::{StatusCode, request::Parts},
    routing::get,
};
use hapax_core::{
    ids::{EndpointName, InvalidId, MessageId},
    operator::{Hints, MessageLife, Selection, ShownLetter, ShownRow, Status, WaitingEntity},
    ports::Answer,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    Asked,
    answer::{Answered, Wrong},
    counts::Counted,
    letters::{Wanted, about},
};

/// Counting ends here, and says so, as the command does: a look along an index for each line.
const COUNTED_MAX: u64 = 10_000;
/// Dead letters, or what waits, of one answer: a page that is read, and their headers come with them.
const LISTED_MAX: usize = 200;
/// The same where nothing is said.
const LISTED: usize = 50;
/// Letters that are passed by: a filter looks at each of them, so that whoever wants more is to filter closer.
pub(crate) const SKIPPED_MAX: usize = 10_000;
/// Entities of each saga, and messages of each queue, that are looked at for one message.
const LOOKS_MAX: usize = 10_000;

pub(crate) fn routes() -> Router<Arc<Asked>> {
    Router::new()
        .route("/api/status", get(status))
        .route("/api/counts", get(counts))
        .route("/api/dead-letters", get(letters))
        .route("/api/dead-letters/{endpoint}/{id}", get(letter))
        .route("/api/message/{id}", get(message))
        .route("/api/outbox", get(outbox))
}

/// What is behind the `?`, of which each name has to be known.
pub(crate) struct Words<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Words<T> {
    type Rejection = Wrong;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Wrong> {
        let said = Query::<T>::from_request_parts(parts, state).await;
        said.map(|Query(said)| Self(said))
            .map_err(|error: QueryRejection| Wrong::bad(error.body_text(), "docs/page.md lists what may be asked"))
    }
}

/// Names in the address.
pub(crate) struct Names<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Names<T> {
    type Rejection = Wrong;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Wrong> {
        let said = Path::<T>::from_request_parts(parts, state).await;
        said.map(|Path(said)| Self(said))
            .map_err(|error: PathRejection| Wrong::bad(error.body_text(), "write names percent-encoded, as UTF-8"))
    }
}

/// A name or an id, as it may be.
pub(crate) fn named<T: FromStr<Err = InvalidId>>(text: &str) -> Result<T, Wrong> {
    text.parse().map_err(|error: InvalidId| Wrong::bad(error.to_string(), "look at how it is written"))
}

/// The same where an empty field is none.
pub(crate) fn maybe<T: FromStr<Err = InvalidId>>(text: Option<&String>) -> Result<Option<T>, Wrong> {
    text.filter(|text| !text.is_empty()).map(|text| named(text)).transpose()
}

/// A number that has a bound.
pub(crate) fn up_to<T: PartialOrd + ToString>(said: Option<T>, usual: T, most: T, name: &str) -> Result<T, Wrong> {
    match said {
        None => Ok(usual),
        Some(said) if said <= most => Ok(said),
        Some(_) => Err(Wrong::bad(format!("{name} is too large"), format!("{} is the most", most.to_string()))),
    }
}

/// What the page can do, for its script: known without the token, and tells nothing of the store.
#[derive(Debug, Serialize)]
pub(crate) struct About {
    version: &'static str,
    actions: bool,
    bodies: bool,
    guarded: bool,
}

pub(crate) async fn page(State(asked): State<Arc<Asked>>) -> Json<About> {
    let page = &asked.page;
    Json(About {
        version: env!("CARGO_PKG_VERSION"),
        actions: page.actions.is_some(),
        bodies: page.bodies,
        guarded: page.guard.is_some(),
    })
}

/// Which part of the store.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    endpoint: Option<String>,
    saga: Option<String>,
    limit: Option<u64>,
}

impl Asked {
    /// What the reader wants, and else what the page shows.
    pub(crate) fn selection(&self, endpoint: Option<&String>, saga: Option<&String>) -> Result<Selection, Wrong> {
        let of = &self.page.of;
        Ok(Selection {
            endpoint: maybe(endpoint)?.or_else(|| of.endpoint.clone()),
            saga: maybe(saga)?.or_else(|| of.saga.clone()),
        })
    }
}

async fn status(State(asked): State<Arc<Asked>>, Words(part): Words<Part>) -> Answered<Status> {
    let of = asked.selection(part.endpoint.as_ref(), part.saga.as_ref())?;
    let limit = up_to(part.limit, COUNTED_MAX, COUNTED_MAX, "limit")?;
    asked.page.operator.status(&of, limit).await.map(Json).map_err(|error| Wrong::store(&error))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NoWords {}

async fn counts(State(asked): State<Arc<Asked>>, Words(NoWords {}): Words<NoWords>) -> Json<Answer<Counted>> {
    Json(asked.page.counts.counted())
}

async fn letters(State(asked): State<Arc<Asked>>, Words(wanted): Words<Wanted>) -> Answered<Vec<ShownLetter>> {
    let limit = up_to(wanted.limit, LISTED, LISTED_MAX, "limit")?;
    crate::letters::list(&asked, &wanted, limit).await.map(Json)
}

/// Which of the letters about a message.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Whose {
    saga: Option<String>,
}

/// As `hapax dead-letters show`; without bodies, unless the page has them.
async fn letter(
    State(asked): State<Arc<Asked>>,
    Names((endpoint, id)): Names<(String, String)>,
    Words(Whose { saga }): Words<Whose>,
) -> Answered<Vec<ShownLetter>> {
    let (endpoint, id): (EndpointName, MessageId) = (named(&endpoint)?, named(&id)?);
    let letters = about(&asked, &endpoint, &id, saga.as_ref()).await?;
    let shown = if asked.page.bodies { ShownLetter::whole } else { ShownLetter::of };
    Ok(Json(letters.iter().map(shown).collect()))
}

/// How a message is looked for.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Looked {
    endpoint: Option<String>,
    saga: Option<String>,
    key: Option<String>,
    idempotency_key: Option<String>,
    limit: Option<usize>,
}

/// Of a message that nobody knows the parts are empty, which is 404: a reader has mistyped its id, or it was evicted.
async fn message(
    State(asked): State<Arc<Asked>>,
    Names(id): Names<String>,
    Words(looked): Words<Looked>,
) -> Answered<MessageLife> {
    let id: MessageId = named(&id)?;
    let hints = Hints {
        of: asked.selection(looked.endpoint.as_ref(), looked.saga.as_ref())?,
        key: maybe(looked.key.as_ref())?,
        idempotency_key: maybe(looked.idempotency_key.as_ref())?,
        looks_max: up_to(looked.limit, LOOKS_MAX, LOOKS_MAX, "limit")?,
    };
    let life = asked.page.operator.message(&id, &hints).await.map_err(|error| Wrong::store(&error))?;
    let is_unknown = life.outbox_rows.is_empty()
        && life.sent_by.is_empty()
        && life.dead_letters.is_empty()
        && life.actions.is_empty()
        && life.scheduled.is().is_none_or(Vec::is_empty)
        && life.queued.is().is_none_or(Vec::is_empty)
        && life.handled.is().is_some_and(Vec::is_empty);
    if is_unknown {
        return Err(Wrong::new(
            StatusCode::NOT_FOUND,
            format!("nothing is known of message {id} here; {} entities were asked", life.entities_asked),
            "look at how it is written; what has an idempotency key is remembered by that, and what was evicted has left no trace",
        ));
    }
    Ok(Json(life))
}

/// What is listed of what waits.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    endpoint: Option<String>,
    saga: Option<String>,
    limit: Option<usize>,
}

/// As `hapax outbox list` answers.
#[derive(Debug, Serialize)]
struct StoredToSend {
    entities: Answer<Vec<WaitingEntity>>,
    rows: Vec<ShownRow>,
}

async fn outbox(State(asked): State<Arc<Asked>>, Words(listed): Words<Listed>) -> Answered<StoredToSend> {
    let of = asked.selection(listed.endpoint.as_ref(), listed.saga.as_ref())?;
    let limit = up_to(listed.limit, LISTED, LISTED_MAX, "limit")?;
    let operator = &asked.page.operator;
    let entities = operator.waiting(&of, Duration::ZERO, 0, limit).await.map_err(|error| Wrong::store(&error))?;
    let rows = operator.rows(None, 0, limit).await.map_err(|error| Wrong::store(&error))?;
    Ok(Json(StoredToSend { entities, rows }))
}
