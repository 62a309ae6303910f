//! Who is let in, how many at a time and for how long, and what a browser is told to forbid.

use std::{net::IpAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{DefaultBodyLimit, Request, State},
    http::{
        HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri,
        header::{
            CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, ORIGIN, REFERRER_POLICY, RETRY_AFTER,
            WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
        },
    },
    middleware::{Next, from_fn, from_fn_with_state},
    response::{IntoResponse, Redirect, Response},
    routing::get,
};

use crate::{Asked, actions, answer::Wrong, api};

/// Longest address, in bytes: names and ids have up to 255 each, and three bytes of an address may stand for one of theirs.
const URI_BYTES_MAX: usize = 4096;
/// Largest body of a request, in bytes: names, and nothing of a message.
const BODY_BYTES_MAX: usize = 4096;
/// How long the store may take over an answer. Beyond it the question is dropped, so that a slow store is not asked more and more.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Scripts, styles and questions of the page itself, and nothing else from anywhere.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";
const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const ICON: &str = "image/svg+xml";

pub(crate) fn routes(asked: &Arc<Asked>) -> Router {
    let mut questions = api::routes();
    if let Some(actions) = &asked.page.actions {
        questions = questions.merge(actions::routes(actions));
    }
    let questions = questions
        .route("/api/{*path}", get(nowhere))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn_with_state(asked.clone(), bounded))
        .layer(from_fn_with_state(asked.clone(), guarded))
        .with_state(asked.clone());
    let file = |content_type: &'static str, text: &'static str| get(move || async move { file(content_type, text) });
    Router::new()
        .route("/", file(HTML, include_str!("../assets/index.html")))
        .route("/page.css", file(CSS, include_str!("../assets/page.css")))
        .route("/page.js", file(SCRIPT, include_str!("../assets/page.js")))
        .route("/life.js", file(SCRIPT, include_str!("../assets/life.js")))
        .route("/icon.svg", file(ICON, include_str!("../assets/icon.svg")))
        .route("/api/page", get(api::page).with_state(asked.clone()))
        .merge(questions)
        .layer(from_fn_with_state(asked.clone(), named))
        .layer(from_fn(forbids))
}

/// All of it below a path, and from the path itself to it.
pub(crate) fn below(path: &str, router: Router) -> Router {
    let to = format!("{path}/");
    let entrance = Router::new().route(path, get(move || async move { Redirect::permanent(&to) }));
    // Nested, its first page would be without the slash by which the others are found.
    Router::new().merge(entrance).nest(&format!("{path}/"), router)
}

fn file(content_type: &'static str, text: &'static str) -> Response {
    ([(CONTENT_TYPE, content_type), (CACHE_CONTROL, "no-cache")], text).into_response()
}

async fn nowhere() -> Wrong {
    Wrong::new(StatusCode::NOT_FOUND, "there is no such question", "docs/page.md lists those there are")
}

/// What a browser must not do with what is here, on every answer.
async fn forbids(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    // What is not a file of the page is of a store.
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Under a name that is ours, and with an address of a length that makes sense.
async fn named(State(asked): State<Arc<Asked>>, request: Request, next: Next) -> Response {
    let uri = request.uri();
    if uri.path_and_query().is_some_and(|uri| uri.as_str().len() > URI_BYTES_MAX) {
        let why = "the address is longer than 4096 bytes";
        return Wrong::bad(why, "ask for less at a time").into_response();
    }
    match host(request.headers(), uri) {
        None => Wrong::bad("the request does not say which host it is for", "send one `Host`").into_response(),
        Some(host) if is_ours(&host, &asked.page.hosts) => next.run(request).await,
        Some(_) => Wrong::new(
            StatusCode::MISDIRECTED_REQUEST,
            "the page is not known by this name",
            "use its address in digits or `localhost`, or give the name: --host NAME of `hapax page`, `Page::host`",
        )
        .into_response(),
    }
}

/// With its port, as it was asked for.
fn host(headers: &HeaderMap, uri: &Uri) -> Option<String> {
    let mut said = headers.get_all(HOST).iter();
    match (said.next(), said.next()) {
        (Some(host), None) => host.to_str().ok().map(str::to_ascii_lowercase),
        (None, None) => uri.authority().map(|host| host.as_str().to_ascii_lowercase()),
        _ => None,
    }
}

/// An address in digits cannot be made to mean another host by whoever answers for names.
fn is_ours(host: &str, hosts: &[String]) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name == "localhost" || name.parse::<IpAddr>().is_ok() || hosts.iter().any(|ours| ours == name)
}

/// By who knows the token, where that is needed for reading; and what changes something, from the page itself alone.
async fn guarded(State(asked): State<Arc<Asked>>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    if request.method() != Method::GET && request.method() != Method::HEAD && !is_same_origin(headers, request.uri()) {
        let remedy = "act from the page itself, or from a program that is no browser";
        return Wrong::new(StatusCode::FORBIDDEN, "the request comes from another page", remedy).into_response();
    }
    match &asked.page.guard {
        // Whoever may act may look.
        Some(token)
            if !token.is_in(headers) && !asked.page.actions.as_ref().is_some_and(|acts| acts.knows(headers)) =>
        {
            no_token()
        }
        _ => next.run(request).await,
    }
}

pub(crate) fn no_token() -> Response {
    let remedy = "send `Authorization: Bearer TOKEN`; on the page, give it under \"token\"";
    let wrong = Wrong::new(StatusCode::UNAUTHORIZED, "the token is missing or wrong", remedy);
    ([(WWW_AUTHENTICATE, "Bearer")], wrong).into_response()
}

/// What a browser says of where a request comes from agrees with where it goes to. A program says nothing.
fn is_same_origin(headers: &HeaderMap, uri: &Uri) -> bool {
    let site = headers.get(HeaderName::from_static("sec-fetch-site"));
    if site.is_some_and(|site| site != "same-origin") {
        return false;
    }
    let Some(origin) = headers.get(ORIGIN) else { return true };
    // Whether it is HTTP or HTTPS is not known here: TLS may end before.
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    origin.is_some_and(|(_, origin)| host(headers, uri).is_some_and(|host| origin.eq_ignore_ascii_case(&host)))
}

/// So many at a time, each for so long. Actions have their own way with time, for they go on.
async fn bounded(State(asked): State<Arc<Asked>>, mut request: Request, next: Next) -> Response {
    let Ok(permit) = asked.permits.clone().try_acquire_owned() else {
        let wrong = Wrong::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "the store is being asked as much as it may be",
            "the page asks again; look whether the store is slow",
        );
        return ([(RETRY_AFTER, "1")], wrong).into_response();
    };
    if request.method() == Method::POST {
        request.extensions_mut().insert(Arc::new(permit));
        return next.run(request).await;
    }
    let answered = tokio::time::timeout(ANSWER_WITHIN, next.run(request)).await;
    drop(permit);
    answered.unwrap_or_else(|_| {
        let remedy = "ask for less (an endpoint, a smaller limit), or look whether the store is slow";
        Wrong::new(StatusCode::GATEWAY_TIMEOUT, "the store has not answered within 10 s", remedy).into_response()
    })
}
