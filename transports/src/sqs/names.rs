//! What queues are called. The service takes 80 letters, digits, `-` and `_`: so names of ours are escaped, or end in a digest.

use hapax_core::{
    envelope::Destination,
    ids::{EndpointName, PartitionKey, TypeName},
};
use sha2::{Digest, Sha256};

/// Longest prefix, in bytes: with it, and with what says the kind, there is room for a digest in every name.
const PREFIX_BYTES_MAX: usize = 24;
/// What the service takes, in bytes.
const NAME_BYTES_MAX: usize = 80;
/// What the name of a queue that keeps order ends with, by the service's own rule.
pub(super) const FIFO: &str = ".fifo";
/// Before the digest of a name that is too long. Nothing is escaped so.
const CUT: &str = "__";
/// Of a digest, in bytes: names that are the same by it are nowhere.
const DIGEST_BYTES: usize = 16;
/// Longest group or deduplication id that the service takes.
const GROUP_BYTES_MAX: usize = 128;
/// A group that is a digest.
const DIGESTED: &str = "sha256-";

/// What every queue is called.
#[derive(Debug)]
pub(super) struct Names {
    prefix: String,
}

impl Names {
    pub(super) fn new(prefix: &str) -> Result<Self, String> {
        // No underscore: names of two prefixes could be the same.
        let usual = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if prefix.is_empty() || prefix.len() > PREFIX_BYTES_MAX || !prefix.bytes().all(usual) {
            return Err(format!(
                "`{}` is no prefix: 1 to {PREFIX_BYTES_MAX} ASCII letters, digits and - are",
                prefix.escape_debug()
            ));
        }
        Ok(Self { prefix: prefix.to_owned() })
    }

    pub(super) fn queue(&self, endpoint: &EndpointName, in_order: bool) -> String {
        let name = self.name("queue", endpoint.as_str());
        if in_order { name + FIFO } else { name }
    }

    pub(super) fn dead_letters(&self, endpoint: &EndpointName) -> String {
        self.name("dead-letters", endpoint.as_str())
    }

    /// The queue without messages whose tags are the subscribers of a type.
    pub(super) fn topic(&self, topic: &TypeName) -> String {
        self.name("topic", topic.as_str())
    }

    /// What the names of all topics begin with.
    pub(super) fn topics(&self) -> String {
        format!("{}_topic_", self.prefix)
    }

    /// The queue that a message for `destination` goes by, to tell people.
    pub(super) fn address(&self, destination: &Destination, in_order: bool) -> String {
        match destination {
            Destination::Endpoint(endpoint) => self.queue(endpoint, in_order),
            Destination::Topic(topic) => self.topic(topic),
        }
    }

    fn name(&self, kind: &str, text: &str) -> String {
        let head = format!("{}_{kind}_", self.prefix);
        let room = NAME_BYTES_MAX - FIFO.len() - head.len();
        let escaped = escaped(text);
        if escaped.len() <= room {
            return head + &escaped;
        }
        let digest = &hex(&Sha256::digest(text.as_bytes()))[..2 * DIGEST_BYTES];
        let kept = room - CUT.len() - digest.len();
        format!("{head}{}{CUT}{digest}", escaped[..kept].trim_end_matches('_'))
    }
}

/// With `_` and two hexadecimal digits for what is no letter, digit or `-`.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'-' {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("_{byte:02X}"));
        }
    }
    escaped
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The group of a partition key: the key itself where the service takes it, else a digest of it.
pub(super) fn group_of(key: &PartitionKey) -> String {
    fitting(key.as_str(), GROUP_BYTES_MAX)
}

/// `text` if it is of what groups and deduplication ids may be made of and not longer than `bytes_max`; else a digest of it.
pub(super) fn fitting(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max && !text.starts_with(DIGESTED) && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return text.to_owned();
    }
    format!("{DIGESTED}{}", hex(&Sha256::digest(text.as_bytes())))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_that_is_none_is_refused() {
        for bad in ["", "a b", "a_b", "a.b", "ü", &"p".repeat(25)] {
            assert!(Names::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_are_what_the_service_takes_and_no_two_are_the_same() {
        let names = Names::new(&"p".repeat(24)).unwrap();
        let long = "x".repeat(99);
        let texts = ["shop", "shop.orders", "shop_2Eorders", "a-b", "a_b", "a/b", &long, &format!("{long}y")[1..]];
        let mut all = Vec::new();
        for text in texts {
            let endpoint = EndpointName::parse(text).unwrap();
            all.push(names.queue(&endpoint, false));
            all.push(names.queue(&endpoint, true));
            all.push(names.dead_letters(&endpoint));
            all.push(names.topic(&TypeName::parse(text).unwrap()));
        }
        for name in &all {
            let base = name.strip_suffix(FIFO).unwrap_or(name);
            assert!(name.len() <= NAME_BYTES_MAX, "{name}");
            assert!(base.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)), "{name}");
        }
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn a_group_is_the_partition_key_where_it_can_be() {
        let group = |key: &str| group_of(&PartitionKey::parse(key).unwrap());
        assert_eq!(group("order/7:a"), "order/7:a");
        for key in ["order 7", "ü", &"k".repeat(129), "sha256-x"] {
            let group = group(key);
            assert!(group.starts_with(DIGESTED) && group.len() == DIGESTED.len() + 64, "{group}");
        }
        assert_ne!(group("order 7"), group("order 8"));
    }
}
