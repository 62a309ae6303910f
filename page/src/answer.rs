//! Answers: JSON, also where something is wrong.

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use hapax_core::{
    operator::{masked, with_causes},
    ports::{Answer, ErrorKind, StoreError},
};
use serde::Serialize;

/// Why there is no answer, and what to do.
#[derive(Debug, Serialize)]
pub(crate) struct Wrong {
    #[serde(skip)]
    status: StatusCode,
    error: String,
    remedy: String,
}

pub(crate) type Answered<T> = Result<Json<T>, Wrong>;

impl Wrong {
    pub(crate) fn new(status: StatusCode, error: impl AsRef<str>, remedy: impl Into<String>) -> Self {
        Self { status, error: masked(error.as_ref()), remedy: remedy.into() }
    }

    /// What it says, for a log.
    pub(crate) fn said(&self) -> &str {
        &self.error
    }

    /// What was asked makes no sense as it is.
    pub(crate) fn bad(error: impl AsRef<str>, remedy: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error, remedy)
    }

    /// A store, or what else is asked, has failed. What it says is for operators, and told without users and passwords.
    pub(crate) fn store(error: &StoreError) -> Self {
        let (status, remedy) = match error.kind() {
            ErrorKind::Unavailable => {
                (StatusCode::SERVICE_UNAVAILABLE, "look whether its server runs and is reached; the page asks again")
            }
            ErrorKind::Denied => {
                (StatusCode::BAD_GATEWAY, "give the user that the page connects as the right to do it")
            }
            _ => (StatusCode::BAD_GATEWAY, "`hapax doctor` on the same store looks for the cause"),
        };
        Self::new(status, with_causes(error), remedy)
    }
}

impl IntoResponse for Wrong {
    fn into_response(self) -> Response {
        (self.status, Json(self)).into_response()
    }
}

/// The answer where the whole of it may be unknown.
pub(crate) fn known<T>(answer: Answer<T>) -> Result<T, Wrong> {
    match answer {
        Answer::Is(answer) => Ok(answer),
        Answer::Unknown { why } => Err(Wrong::new(
            StatusCode::NOT_IMPLEMENTED,
            format!("not known here: {why}"),
            "name the endpoint (and the saga): on the page, or as --endpoint and --saga of `hapax page`",
        )),
    }
}
