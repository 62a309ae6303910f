//! The header field `Idempotency-Key`.
//!
//! # Source
//! "The Idempotency-Key HTTP Header Field" (IETF draft `draft-ietf-httpapi-idempotency-key-header`): a string of structured fields (RFC 9651),
//! in quotes. Many clients send it without; it is taken as the same key.

use axum::http::HeaderMap;

/// Longest key, in bytes: a UUID has 36.
const BYTES_MAX: usize = 255;

/// The key of a request.
///
/// # Errors
/// What is wrong, for whoever sent it.
pub(crate) fn key_of(headers: &HeaderMap) -> Result<String, &'static str> {
    let mut given = headers.get_all("Idempotency-Key").iter();
    let (Some(key), None) = (given.next(), given.next()) else {
        return Err("give one Idempotency-Key, a new one for each booking and the same for its retries");
    };
    let text = key.to_str().ok().map(str::trim).unwrap_or_default();
    let key = match text.strip_prefix('"') {
        Some(quoted) => unquoted(quoted),
        None => Some(text.to_owned()),
    };
    key.filter(|key| (1..=BYTES_MAX).contains(&key.len()) && !key.contains(char::is_control))
        .ok_or("the Idempotency-Key must be a string of 1 to 255 printable ASCII characters")
}

/// What stands between the quotes, of which the first is gone.
fn unquoted(quoted: &str) -> Option<String> {
    let (mut key, mut rest) = (String::new(), quoted.chars());
    loop {
        match rest.next()? {
            '"' => return rest.next().is_none().then_some(key),
            '\\' => key.push(rest.next().filter(|escaped| ['"', '\\'].contains(escaped))?),
            plain => key.push(plain),
        }
    }
}
