//! A door for the tests of decoders: what is handed over, and URLs.

use super::{address::Address, message::message_of, names::Names};
use crate::fuzzing::parts;

/// What a broker may hand over: a record's headers, its key, and its value.
#[doc(hidden)]
pub fn fuzz(data: &[u8]) {
    let Ok(names) = Names::new("hapax") else { return };
    let (headers, body) = parts(data);
    let key = headers.iter().find(|(name, _)| name == "@key").map(|(_, value)| value.clone());
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
