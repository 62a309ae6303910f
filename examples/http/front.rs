//! The front: from HTTP to a message and back.
//!
//! A request that comes again while its first is still under way is neither refused nor booked: it waits for the same answer. One that waits
//! for longer than [`WITHIN`] is told to ask again.

use std::time::Duration;

use axum::{
    Json, Router,
    extract::{Path, State, rejection::JsonRejection},
    http::{HeaderMap, StatusCode, header},
    routing::post,
};
use hapax::{RequestClient, ids::IdempotencyKey};
use serde::{Deserialize, Serialize};

use crate::{
    bank::{BANK, Book, Booked},
    key::key_of,
    problem::Problem,
};

/// How long a request waits for its answer: below the patience of clients and of proxies on the way, which is 30 seconds as a rule.
const WITHIN: Duration = Duration::from_secs(5);
/// Longest name of an account, in bytes: the bank takes 255.
const ACCOUNT_BYTES_MAX: usize = 64;
/// Who may call, by the token with which he does. A real service asks who keeps its callers.
const CALLERS: [(&str, &str); 2] = [("ann-secret", "ann"), ("bob-secret", "bob")];

#[derive(Deserialize)]
struct Amount {
    cents: i64,
}

#[derive(Serialize)]
struct Booking {
    number: u64,
    balance_cents: i64,
}

type Answer = Result<(StatusCode, Json<Booking>), Problem>;
type Body = Result<Json<Amount>, JsonRejection>;

pub(crate) fn routes(client: RequestClient) -> Router {
    Router::new()
        .route("/accounts/{account}/deposits", post(deposit))
        .route("/accounts/{account}/withdrawals", post(withdraw))
        .with_state(client)
}

async fn deposit(client: State<RequestClient>, account: Path<String>, headers: HeaderMap, body: Body) -> Answer {
    book(&client, "deposits", account.0, &headers, body, 1).await
}

async fn withdraw(client: State<RequestClient>, account: Path<String>, headers: HeaderMap, body: Body) -> Answer {
    book(&client, "withdrawals", account.0, &headers, body, -1).await
}

async fn book(
    client: &RequestClient,
    route: &str,
    account: String,
    headers: &HeaderMap,
    body: Body,
    sign: i64,
) -> Answer {
    let caller = caller_of(headers)?;
    let key = key_of(headers).map_err(|why| Problem::new(StatusCode::BAD_REQUEST, why))?;
    let Json(Amount { cents }) = body.map_err(|why| Problem::new(why.status(), why.body_text()))?;
    if cents < 1 || account.len() > ACCOUNT_BYTES_MAX {
        let why = format!("cents must be 1 or more, and an account has a name of {ACCOUNT_BYTES_MAX} bytes at most");
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, why));
    }
    // What is one caller's key on one route says nothing on another, and nothing to anybody else.
    let key = IdempotencyKey::scoped(&[caller, "POST", "accounts", &account, route], &key);
    // The message says what is wanted and nothing else: a retry must be the same to the letter.
    let book = Book { account, cents: sign * cents };
    match client.request_with_key(key, BANK, &book, WITHIN).await? {
        Booked::Done { number, balance_cents } => Ok((StatusCode::CREATED, Json(Booking { number, balance_cents }))),
        Booked::OutOfCredit => Err(Problem::new(StatusCode::FORBIDDEN, "the account has not as much")),
    }
}

fn caller_of(headers: &HeaderMap) -> Result<&'static str, Problem> {
    let token = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let caller = CALLERS.iter().find(|(known, _)| Some(*known) == token);
    let (_, caller) = caller.ok_or_else(|| Problem::new(StatusCode::UNAUTHORIZED, "give the token of a caller"))?;
    Ok(caller)
}
