//! What topics and groups are called. A broker takes 249 letters, digits, `.`, `_` and `-`: so names of ours are escaped, or end in a digest.

use std::fmt::Write;

use hapax_core::{
    envelope::Destination,
    ids::{EndpointName, TypeName},
};
use sha2::{Digest, Sha256};

/// Longest prefix, in bytes: with the longest names it stays below what the broker takes as the name of a topic, 249.
const PREFIX_BYTES_MAX: usize = 40;
/// Longest name within another, in bytes; what is longer ends in its hash.
const WORD_BYTES_MAX: usize = 180;
/// Of a hash, in bytes: names that are the same by it are nowhere.
const DIGEST_BYTES: usize = 16;
/// Before the hash of a name that is too long. Nothing is escaped so.
const CUT: &str = "__";

/// What everything is called.
#[derive(Debug, Clone)]
pub(super) struct Names {
    prefix: String,
}

impl Names {
    pub(super) fn new(prefix: &str) -> Result<Self, String> {
        // No dot: names of two prefixes could be the same. No underscore: it begins what is escaped.
        let usual = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if prefix.is_empty() || prefix.len() > PREFIX_BYTES_MAX || !prefix.bytes().all(usual) {
            return Err(format!(
                "`{}` is no prefix: 1 to {PREFIX_BYTES_MAX} ASCII letters, digits and - are",
                prefix.escape_debug()
            ));
        }
        Ok(Self { prefix: prefix.to_owned() })
    }

    /// The topic of an endpoint.
    pub(super) fn queue(&self, endpoint: &EndpointName) -> String {
        self.name("queue", endpoint.as_str())
    }

    /// The topic of what is published of a type.
    pub(super) fn topic(&self, topic: &TypeName) -> String {
        self.name("topic", topic.as_str())
    }

    /// What the names of all of those begin with.
    pub(super) fn topics(&self) -> String {
        format!("{}.topic.", self.prefix)
    }

    pub(super) fn dead_letters(&self, endpoint: &EndpointName) -> String {
        self.name("dead-letters", endpoint.as_str())
    }

    /// The topic of what an endpoint notes of what it reads.
    pub(super) fn notes(&self, endpoint: &EndpointName) -> String {
        self.name("notes", endpoint.as_str())
    }

    /// No topic is called so. It begins as all do, for users that may ask of nothing else.
    pub(super) fn nobodys(&self) -> String {
        format!("{}.opening", self.prefix)
    }

    /// The consumer group of an endpoint.
    pub(super) fn group(&self, endpoint: &EndpointName) -> String {
        format!("{}.{}", self.prefix, word(endpoint.as_str()))
    }

    /// The transactional id of a process.
    #[cfg(feature = "preview-kafka-transactions")]
    pub(super) fn process(&self, name: &str) -> String {
        format!("{}.{name}", self.prefix)
    }

    /// The topic that a message for `destination` goes by.
    pub(super) fn address(&self, destination: &Destination) -> String {
        match destination {
            Destination::Endpoint(endpoint) => self.queue(endpoint),
            Destination::Topic(topic) => self.topic(topic),
        }
    }

    /// The type that is published in `topic`, if any is and its name was not too long.
    pub(super) fn type_of(&self, topic: &str) -> Option<TypeName> {
        let word = topic.strip_prefix(&self.topics())?;
        TypeName::parse(unescaped(word)?).ok()
    }

    fn name(&self, kind: &str, text: &str) -> String {
        format!("{}.{kind}.{}", self.prefix, word(text))
    }
}

/// With `_` and two hexadecimal digits for what is no letter, digit, `.` or `-`.
fn word(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b".-".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "_{byte:02x}"); // Text takes all that is written.
        }
    }
    if escaped.len() <= WORD_BYTES_MAX {
        return escaped;
    }
    let digest = &hex(&Sha256::digest(text.as_bytes()))[..2 * DIGEST_BYTES];
    let kept = WORD_BYTES_MAX - CUT.len() - digest.len();
    format!("{}{CUT}{digest}", escaped[..kept].trim_end_matches('_'))
}

/// What [`word`] was given, unless it was too long.
fn unescaped(word: &str) -> Option<String> {
    let (bytes, mut plain, mut at) = (word.as_bytes(), Vec::with_capacity(word.len()), 0);
    while let Some(byte) = bytes.get(at) {
        if *byte == b'_' {
            let code = bytes.get(at + 1..at + 3).and_then(|code| std::str::from_utf8(code).ok())?;
            plain.push(u8::from_str_radix(code, 16).ok()?);
            at += 3;
        } else {
            plain.push(*byte);
            at += 1;
        }
    }
    String::from_utf8(plain).ok()
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // Text takes all that is written.
        text
    })
}

/// A number for a topic's name, the same in each process: half of the half of its hash.
pub(super) fn number_of(topic: &str) -> u64 {
    let mut first = [0; 8];
    first.copy_from_slice(&Sha256::digest(topic.as_bytes())[..8]);
    u64::from_be_bytes(first)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn endpoint(name: &str) -> EndpointName {
        EndpointName::parse(name.to_owned()).unwrap()
    }

    #[test]
    fn the_longest_names_fit_into_what_the_broker_takes() {
        let names = Names::new(&"p".repeat(PREFIX_BYTES_MAX)).unwrap();
        for name in ["e".repeat(100), ":".repeat(100), "a:".repeat(50)] {
            let endpoint = endpoint(&name);
            for name in [names.queue(&endpoint), names.dead_letters(&endpoint), names.notes(&endpoint)] {
                assert!(name.len() <= 249, "{name}");
                assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)), "{name}");
            }
        }
    }

    #[test]
    fn names_that_differ_are_called_differently() {
        let names = Names::new("hapax").unwrap();
        let many = ["shop", "shop.a", "shop/a", "shop:a", "shop_3aa", "shop-a", &":".repeat(99), &":".repeat(100)];
        let many: Vec<_> = many.iter().filter_map(|name| EndpointName::parse(*name).ok()).collect();
        let mut queues: Vec<String> = many.iter().map(|endpoint| names.queue(endpoint)).collect();
        queues.sort();
        queues.dedup();
        assert_eq!(queues.len(), many.len());
    }

    #[test]
    fn a_type_is_read_from_the_topic_that_it_is_published_in() {
        let names = Names::new("hapax").unwrap();
        for name in ["shop.added", "urn:a/b.c", "a_b"] {
            let topic = TypeName::parse(name.to_owned()).unwrap();
            assert_eq!(names.type_of(&names.topic(&topic)), Some(topic));
        }
        assert_eq!(names.type_of("hapax.queue.shop"), None);
        assert_eq!(names.type_of("hapax.topic._zz"), None);
    }

    #[test]
    fn all_topics_begin_with_the_prefix_and_a_dot_as_permissions_are_given() {
        let (names, endpoint) = (Names::new("shop-1").unwrap(), endpoint("shop"));
        let topic = names.topic(&TypeName::parse("shop.added").unwrap());
        let all = [names.nobodys(), names.queue(&endpoint), names.dead_letters(&endpoint), names.notes(&endpoint)];
        for name in all.iter().chain([&topic, &names.group(&endpoint)]) {
            assert!(name.starts_with("shop-1."), "{name}");
        }
    }

    #[test]
    fn a_prefix_that_is_none_is_refused() {
        for bad in ["", "a b", "a.b", "a_b", "ü", "*", &"p".repeat(41)] {
            assert!(Names::new(bad).is_err(), "{bad}");
        }
    }
}
