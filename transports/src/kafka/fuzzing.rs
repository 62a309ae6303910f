//! A door for the tests of decoders: what is handed over, and URLs.

use bytes::Bytes;

use super::{address::Address, message::message_of, names::Names, notes::Notes};
use crate::fuzzing::parts;

/// What a broker may hand over: a record's headers, its key, and its value; and what is noted, a record in each header.
#[doc(hidden)]
pub fn fuzz(data: &[u8]) {
    let Ok(names) = Names::new("hapax") else { return };
    let (headers, body) = parts(data);
    let key = headers.iter().find(|(name, _)| name == "@key").map(|(_, value)| value.clone());
    let mut notes = Notes::default();
    for (key, text) in &headers {
        notes.take(key, Some(Bytes::copy_from_slice(text)));
    }
    let place = ("hapax.queue.a".into(), 1);
    drop((notes.given(&place), notes.has_more(std::slice::from_ref(&place.0), &[])));
    drop(message_of("hapax.queue.a", key.as_deref(), &headers, body.into(), &names));
}

/// A URL, as a user may write it; and what is said of it.
#[doc(hidden)]
#[must_use]
pub fn fuzz_url(url: &str) -> String {
    match Address::parse(url) {
        Ok(address) => address.brokers,
        Err(why) => why.to_owned(),
    }
}
