//! Errors as problem details (RFC 9457).

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use hapax::requests::RequestError;
use serde_json::json;

/// What is answered in place of a booking.
pub(crate) struct Problem {
    status: StatusCode,
    detail: String,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into() }
    }
}

impl From<RequestError> for Problem {
    fn from(error: RequestError) -> Self {
        eprintln!("a request has no answer: {error}");
        let (status, detail) = match error {
            RequestError::KeyReused => {
                (StatusCode::UNPROCESSABLE_ENTITY, "this Idempotency-Key was used for another request: use a new one")
            }
            RequestError::TooMany { .. } => {
                (StatusCode::SERVICE_UNAVAILABLE, "too many requests wait: try again later")
            }
            // Nobody here knows what has become of it; who asks again under the same key will.
            RequestError::TimedOut { .. } | RequestError::Stopped => {
                (StatusCode::SERVICE_UNAVAILABLE, "no answer yet: try again with the same Idempotency-Key")
            }
            RequestError::NotSent(_) => {
                (StatusCode::SERVICE_UNAVAILABLE, "nothing was booked: try again with the same Idempotency-Key")
            }
            RequestError::SetAside { .. } => {
                (StatusCode::INTERNAL_SERVER_ERROR, "set aside for a person: try later with the same Idempotency-Key")
            }
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "this is a defect of the service"),
        };
        Self::new(status, detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let title = self.status.canonical_reason().unwrap_or_default();
        let body = json!({ "title": title, "status": self.status.as_u16(), "detail": self.detail });
        let mut response = (self.status, Json(body)).into_response();
        let mut set = |name, value| response.headers_mut().insert(name, HeaderValue::from_static(value));
        set(header::CONTENT_TYPE, "application/problem+json");
        match self.status {
            StatusCode::SERVICE_UNAVAILABLE => drop(set(header::RETRY_AFTER, "1")),
            StatusCode::UNAUTHORIZED => drop(set(header::WWW_AUTHENTICATE, "Bearer")),
            _ => {}
        }
        response
    }
}
