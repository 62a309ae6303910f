//! What queues and topics are called. The service does not tell `A` from `a` and takes names of some length only: so ours are escaped, or end in
//! a digest.

use hapax_core::{
    envelope::Destination,
    ids::{EndpointName, PartitionKey, TypeName},
};
use sha2::{Digest, Sha256};

use super::address::Server;

/// Longest prefix, in bytes: with it there is room for a digest in every name.
const PREFIX_BYTES_MAX: usize = 40;
/// What the service takes, in bytes.
const NAME_BYTES_MAX: usize = 260;
/// Before the digest of a name that is too long. Nothing is escaped so.
const CUT: &str = "__";
/// Of a digest, in bytes: names that are the same by it are nowhere.
const DIGEST_BYTES: usize = 16;
/// Longest message, session and correlation id and address for replies that the service takes, in characters; taken for bytes here.
pub(super) const FIELD_BYTES_MAX: usize = 128;
/// A group or an id that is a digest.
const DIGESTED: &str = "sha256-";
/// The sub-queue in which the service sets messages aside.
const DEAD_LETTER_QUEUE: &str = "/$DeadLetterQueue";
/// Where an entity is asked for what is no sending or receiving.
const MANAGEMENT: &str = "/$management";

/// What everything is called, and where AMQP finds it.
#[derive(Debug)]
pub(super) struct Names {
    prefix: String,
    server: Server,
    /// What stands before the name of a queue and of a topic in an address; nothing in Service Bus.
    queues: String,
    topics: String,
}

impl Names {
    pub(super) fn new(prefix: &str, server: Server, queues: &str, topics: &str) -> Result<Self, String> {
        let usual = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let begins = prefix.bytes().next().is_some_and(|byte| byte != b'-');
        if !begins || prefix.len() > PREFIX_BYTES_MAX || !prefix.bytes().all(usual) {
            return Err(format!(
                "`{}` is no prefix: 1 to {PREFIX_BYTES_MAX} lower-case ASCII letters, digits and -, which it does not begin with, are",
                prefix.escape_debug()
            ));
        }
        if server == Server::ServiceBus && !(queues.is_empty() && topics.is_empty()) {
            return Err("Service Bus finds queues and topics by their names alone: leave `addresses` out".into());
        }
        Ok(Self { prefix: prefix.to_owned(), server, queues: queues.to_owned(), topics: topics.to_owned() })
    }

    pub(super) const fn server(&self) -> Server {
        self.server
    }

    pub(super) fn queue(&self, endpoint: &EndpointName) -> String {
        self.name("queue", endpoint.as_str())
    }

    pub(super) fn dead_letters(&self, endpoint: &EndpointName) -> String {
        self.name("dead-letters", endpoint.as_str())
    }

    pub(super) fn topic(&self, topic: &TypeName) -> String {
        self.name("topic", topic.as_str())
    }

    /// The endpoint whose queue is called `queue`, unless its name is a digest.
    pub(super) fn endpoint(&self, queue: &str) -> Option<EndpointName> {
        let name = queue.strip_prefix(&self.queues)?.strip_prefix(&self.prefix)?.strip_prefix(".queue.")?;
        EndpointName::parse(unescaped(name)?).ok()
    }

    pub(super) fn queue_address(&self, endpoint: &EndpointName) -> String {
        format!("{}{}", self.queues, self.queue(endpoint))
    }

    pub(super) fn letters_address(&self, endpoint: &EndpointName) -> String {
        format!("{}{}", self.queues, self.dead_letters(endpoint))
    }

    /// Where the service sets aside what was in an endpoint's queue.
    pub(super) fn set_aside_address(&self, endpoint: &EndpointName) -> String {
        self.queue_address(endpoint) + DEAD_LETTER_QUEUE
    }

    pub(super) fn management_address(&self, endpoint: &EndpointName) -> String {
        self.queue_address(endpoint) + MANAGEMENT
    }

    pub(super) fn address(&self, destination: &Destination) -> String {
        match destination {
            Destination::Endpoint(endpoint) => self.queue_address(endpoint),
            Destination::Topic(topic) => format!("{}{}", self.topics, self.topic(topic)),
        }
    }

    fn name(&self, kind: &str, text: &str) -> String {
        let head = format!("{}.{kind}.", self.prefix);
        let escaped = escaped(text);
        let room = NAME_BYTES_MAX - head.len();
        if escaped.len() <= room {
            return head + &escaped;
        }
        let digest = digest_of(text);
        let kept = room - CUT.len() - digest.len();
        format!("{head}{}{CUT}{digest}", escaped[..kept].trim_end_matches('_'))
    }
}

/// With `_` and two hexadecimal digits for what is no lower-case letter, digit, `.` or `-`: the service does not tell `A` from `a`, and takes
/// names only that end with a letter or a digit.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for (place, byte) in text.bytes().enumerate() {
        let is_last = place + 1 == text.len();
        let is_plain = byte.is_ascii_lowercase() || byte.is_ascii_digit() || (b".-".contains(&byte) && !is_last);
        if is_plain {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("_{byte:02x}"));
        }
    }
    escaped
}

fn unescaped(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.bytes());
    while let Some(byte) = rest.next() {
        if byte != b'_' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let (high, low) = (digit(rest.next())?, digit(rest.next())?);
        bytes.push(u8::try_from(high << 4 | low).ok()?);
    }
    String::from_utf8(bytes).ok()
}

/// What tells one long name from another.
pub(super) fn digest_of(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes())[..DIGEST_BYTES])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The group (the session, in Service Bus) of a partition key: the key itself where the service takes it, else a digest of it.
pub(super) fn group_of(key: &PartitionKey) -> String {
    fitting(key.as_str(), FIELD_BYTES_MAX)
}

/// `text` if it is not longer than `bytes_max`; else a digest of it.
pub(super) fn fitting(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max && !text.starts_with(DIGESTED) {
        return text.to_owned();
    }
    format!("{DIGESTED}{}", hex(&Sha256::digest(text.as_bytes())))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn names(prefix: &str) -> Names {
        Names::new(prefix, Server::ServiceBus, "", "").unwrap()
    }

    #[test]
    fn a_prefix_that_is_none_is_refused() {
        for bad in ["", "a b", "a_b", "a.b", "A", "-a", "ü", &"p".repeat(41)] {
            assert!(Names::new(bad, Server::ServiceBus, "", "").is_err(), "{bad}");
        }
        assert!(Names::new("a", Server::ServiceBus, "/queue/", "").is_err());
    }

    #[test]
    fn names_are_what_the_service_takes_and_no_two_are_the_same() {
        let names = names(&"p".repeat(40));
        let long = "X".repeat(99);
        let texts = ["shop", "Shop", "shop.orders", "shop_2eorders", "a-b", "a_b", "a-", &long, &format!("{long}y")];
        let mut all = Vec::new();
        for text in texts {
            let endpoint = EndpointName::parse(text).unwrap();
            assert!(text.len() > 50 || names.endpoint(&names.queue(&endpoint)).as_ref() == Some(&endpoint), "{text}");
            all.push(names.queue(&endpoint));
            all.push(names.dead_letters(&endpoint));
            all.push(names.topic(&TypeName::parse(text).unwrap()));
        }
        for name in &all {
            assert!(name.len() <= NAME_BYTES_MAX, "{name}");
            assert!(
                name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte))
            );
            assert!(name.bytes().last().unwrap().is_ascii_alphanumeric(), "{name}");
        }
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn a_group_is_the_partition_key_where_it_can_be() {
        let group = |key: &str| group_of(&PartitionKey::parse(key).unwrap());
        assert_eq!(group("order 7"), "order 7");
        for key in [&"k".repeat(129), "sha256-x"] {
            assert_eq!(group(key).len(), DIGESTED.len() + 64);
        }
    }

    #[test]
    fn what_is_no_queue_of_ours_is_nobodys() {
        let names = names("hapax");
        for queue in ["hapax.queue.", "hapax.queue._", "hapax.queue._zz", "hapax.queue._ff", "shop", "hapax.topic.shop"]
        {
            assert_eq!(names.endpoint(queue), None, "{queue}");
        }
    }
}
