//! A door for the tests of decoders: what is handed over, and URLs.

use super::{
    link::Link,
    message::{envelope_of, text_of},
    options::RedisStreamsOptions,
};
use crate::fuzzing::parts;

/// What a server may hand over: the fields of an entry.
#[doc(hidden)]
pub fn fuzz(data: &[u8]) {
    let (headers, body) = parts(data);
    let mut fields: Vec<(Vec<u8>, Vec<u8>)> =
        headers.into_iter().map(|(name, value)| (name.into_bytes(), value)).collect();
    fields.push((b"body".to_vec(), body));
    drop(envelope_of(&fields));
    drop(text_of(&fields, "hapax.id"));
}

/// A URL, as a user may write it; and what is said of it.
#[doc(hidden)]
#[must_use]
pub fn fuzz_url(url: &str) -> String {
    match Link::new(url, &RedisStreamsOptions::new()) {
        Ok(link) => link.place().to_owned(),
        Err(error) => format!("{error} {error:?}"),
    }
}
