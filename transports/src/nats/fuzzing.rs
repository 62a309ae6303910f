//! A door for the tests of decoders: what is handed over, and URLs.

use async_nats::HeaderMap;

use super::{
    link::addresses,
    message::{Place, as_letter, envelope_of},
    names::Names,
};
use crate::fuzzing::parts;

/// What a server may hand over: as a message, as what is set aside of it, and where it is settled.
#[doc(hidden)]
pub fn fuzz(data: &[u8]) {
    let Ok(names) = Names::new("hapax") else { return };
    let (headers, body) = parts(data);
    let (mut map, mut subject) = (HeaderMap::new(), String::from("hapax.queue.a"));
    for (name, value) in &headers {
        let Ok(value) = std::str::from_utf8(value) else { continue };
        if name == "subject" {
            value.clone_into(&mut subject);
        } else if let (Ok(name), Ok(value)) =
            (name.parse::<async_nats::HeaderName>(), value.parse::<async_nats::HeaderValue>())
        {
            map.append(name, value);
        }
    }
    drop(envelope_of(&subject, Some(&map), body.into(), &names));
    drop(as_letter(Some(&map)));
    drop(Place::parse(subject.into()));
}

/// A URL, as a user may write it; and what is said of it.
#[doc(hidden)]
#[must_use]
pub fn fuzz_url(url: &str) -> String {
    match addresses(url) {
        Ok(addresses) => addresses.iter().map(|address| format!("{}:{} ", address.host(), address.port())).collect(),
        Err(why) => why.to_owned(),
    }
}
