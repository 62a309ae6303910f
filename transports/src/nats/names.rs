//! What streams, subjects and consumers are called, and to which part of a queue a key belongs: all senders have to find the same, for ever.

use hapax_core::{
    envelope::Destination,
    ids::{EndpointName, PartitionKey, TypeName},
};
use sha2::{Digest, Sha256};

/// Longest prefix, in bytes: with the longest names it stays below what the server takes as a name, 255.
const PREFIX_BYTES_MAX: usize = 40;
/// Longest name within another, in bytes; what is longer ends in its hash.
const WORD_BYTES_MAX: usize = 100;
/// Parts of a queue whose messages may be in order: each is a consumer of its own, where order is asked for.
pub(super) const SLOTS: u8 = 16;
/// In place of a slot, for what has none.
const NO_SLOT: &str = "-";

/// What everything is called.
#[derive(Debug)]
pub(super) struct Names {
    prefix: String,
}

/// Which part of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    All,
    Slot(u8),
    /// What has no partition key.
    NoSlot,
}

impl Part {
    /// All parts that are received apart.
    pub(super) fn received(ordered: bool) -> Vec<Self> {
        if !ordered {
            return vec![Self::All];
        }
        (0..SLOTS).map(Self::Slot).chain([Self::NoSlot]).collect()
    }

    fn suffix(self) -> String {
        match self {
            Self::All => String::new(),
            Self::Slot(slot) => format!("~{slot}"),
            Self::NoSlot => format!("~{NO_SLOT}"),
        }
    }
}

/// The slot of a key: anybody can compute it.
pub(super) fn slot_of(key: &PartitionKey) -> u8 {
    Sha256::digest(key.as_str().as_bytes()).first().map_or(0, |byte| byte % SLOTS)
}

impl Names {
    pub(super) fn new(prefix: &str) -> Result<Self, String> {
        let usual = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if prefix.is_empty() || prefix.len() > PREFIX_BYTES_MAX || !prefix.bytes().all(usual) {
            return Err(format!(
                "`{}` is no prefix: 1 to {PREFIX_BYTES_MAX} ASCII letters, digits, - and _ are",
                prefix.escape_debug()
            ));
        }
        Ok(Self { prefix: prefix.to_owned() })
    }

    /// The stream of an endpoint.
    pub(super) fn queue(&self, endpoint: &EndpointName) -> String {
        format!("{}-queue-{}", self.prefix, word(endpoint.as_str()))
    }

    pub(super) fn topics(&self) -> String {
        format!("{}-topics", self.prefix)
    }

    pub(super) fn dead_letters(&self) -> String {
        format!("{}-dead-letters", self.prefix)
    }

    pub(super) fn uncounted(&self) -> String {
        format!("{}-uncounted", self.prefix)
    }

    /// What the stream of `endpoint` takes.
    pub(super) fn queue_subjects(&self, endpoint: &EndpointName) -> Vec<String> {
        let subject = self.queue_subject(endpoint, None);
        vec![format!("{subject}.*"), subject]
    }

    pub(super) fn topics_subjects(&self) -> Vec<String> {
        vec![format!("{}.topic.*.>", self.prefix)]
    }

    pub(super) fn dead_letters_subjects(&self) -> Vec<String> {
        vec![format!("{}.dead-letters.*.*", self.prefix)]
    }

    pub(super) fn uncounted_subjects(&self) -> Vec<String> {
        vec![format!("{}.uncounted.>", self.prefix)]
    }

    fn queue_subject(&self, endpoint: &EndpointName, slot: Option<u8>) -> String {
        let subject = format!("{}.queue.{}", self.prefix, word(endpoint.as_str()));
        slot.map_or_else(|| subject.clone(), |slot| format!("{subject}.{slot}"))
    }

    /// Where a message goes that is of this slot, if of any.
    pub(super) fn subject(&self, destination: &Destination, slot: Option<u8>) -> String {
        match destination {
            Destination::Endpoint(endpoint) => self.queue_subject(endpoint, slot),
            Destination::Topic(topic) => {
                let slot = slot.map_or_else(|| NO_SLOT.to_owned(), |slot| slot.to_string());
                format!("{}.topic.{slot}.{}", self.prefix, tokens(topic))
            }
        }
    }

    /// What a consumer of a part of a queue is given. Empty for all of it.
    pub(super) fn queue_filter(&self, endpoint: &EndpointName, part: Part) -> String {
        match part {
            Part::All => String::new(),
            Part::Slot(slot) => self.queue_subject(endpoint, Some(slot)),
            Part::NoSlot => self.queue_subject(endpoint, None),
        }
    }

    pub(super) fn topic_filter(&self, topic: &TypeName, part: Part) -> String {
        let slot = match part {
            Part::All => "*".to_owned(),
            Part::Slot(slot) => slot.to_string(),
            Part::NoSlot => NO_SLOT.to_owned(),
        };
        format!("{}.topic.{slot}.{}", self.prefix, tokens(topic))
    }

    /// The type that is published on `subject`, if any is.
    pub(super) fn topic_of(&self, subject: &str) -> Option<TypeName> {
        let rest = subject.strip_prefix(&self.prefix)?.strip_prefix(".topic.")?;
        let (_, topic) = rest.split_once('.')?;
        TypeName::parse(topic).ok()
    }

    /// The consumer of a part of a queue.
    pub(super) fn queue_consumer(part: Part) -> String {
        format!("receivers{}", part.suffix())
    }

    /// The consumer of `endpoint` for a part of what is published of a type.
    pub(super) fn topic_consumer(endpoint: &EndpointName, topic: &TypeName, part: Part) -> String {
        format!("{}{}{}", Self::topic_consumers(endpoint), word(topic.as_str()), part.suffix())
    }

    /// How the names of all consumers of `endpoint` for what is published begin, and no other's.
    pub(super) fn topic_consumers(endpoint: &EndpointName) -> String {
        format!("{}~", word(endpoint.as_str()))
    }

    /// Where the one copy of a letter is.
    pub(super) fn letter(&self, endpoint: &EndpointName, digest: &[u8]) -> String {
        format!("{}.dead-letters.{}.{}", self.prefix, word(endpoint.as_str()), hex(digest))
    }

    pub(super) fn letters_of(&self, endpoint: &EndpointName) -> String {
        format!("{}.dead-letters.{}.*", self.prefix, word(endpoint.as_str()))
    }

    /// Where it is noted how many deliveries of a message do not count.
    pub(super) fn uncounted_of(&self, stream: &str, consumer: &str, sequence: u64, published: &str) -> String {
        format!("{}.uncounted.{stream}.{consumer}.{sequence}.{published}", self.prefix)
    }
}

/// A name as one word of a subject, of a stream's name or of a consumer's: dots and slashes mean something there.
fn word(name: &str) -> String {
    let mut word = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            byte if byte.is_ascii_alphanumeric() || b"-_".contains(&byte) => word.push(char::from(byte)),
            byte => word.push_str(&format!("={byte:02X}")),
        }
    }
    if word.len() > WORD_BYTES_MAX {
        let hash = hex(&Sha256::digest(name.as_bytes()));
        word.truncate(WORD_BYTES_MAX - 33);
        word = format!("{word}={}", &hash[..32]);
    }
    word
}

/// A type as the end of a subject, with its dots where the server takes them.
fn tokens(topic: &TypeName) -> String {
    let name = topic.as_str();
    if name.split('.').any(str::is_empty) { word(name) } else { name.to_owned() }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn endpoint(name: &str) -> EndpointName {
        EndpointName::parse(name.to_owned()).unwrap()
    }

    fn topic(name: &str) -> TypeName {
        TypeName::parse(name.to_owned()).unwrap()
    }

    #[test]
    fn the_longest_names_fit_into_what_the_server_takes() {
        let names = Names::new(&"p".repeat(PREFIX_BYTES_MAX)).unwrap();
        for name in ["e".repeat(100), ".".repeat(100)] {
            let (endpoint, topic) = (endpoint(&name), topic(&name));
            assert!(names.queue(&endpoint).len() <= 255);
            assert!(Names::topic_consumer(&endpoint, &topic, Part::Slot(15)).len() <= 255);
        }
    }

    #[test]
    fn names_that_differ_are_called_differently_everywhere() {
        let names = Names::new("hapax").unwrap();
        let many = ["shop", "shop.a", "shop/a", "shop:a", "shop=2Ea", &".".repeat(99), &".".repeat(100)];
        let many: Vec<_> = many.iter().filter_map(|name| EndpointName::parse(*name).ok()).collect();
        let mut queues: Vec<String> = many.iter().map(|endpoint| names.queue(endpoint)).collect();
        queues.sort();
        queues.dedup();
        assert_eq!(queues.len(), many.len());
        assert!(queues.iter().all(|queue| !queue.contains(['.', '/', '*', '>'])), "{queues:?}");
    }

    #[test]
    fn a_type_is_read_from_the_subject_that_it_is_published_on() {
        let names = Names::new("hapax").unwrap();
        for (name, slot) in [("shop.added", None), ("added", Some(7)), ("urn:a/b.c", Some(15))] {
            let subject = names.subject(&Destination::Topic(topic(name)), slot);
            assert_eq!(names.topic_of(&subject).unwrap().as_str(), name);
        }
        assert_eq!(names.topic_of("hapax.queue.shop"), None);
        assert_eq!(names.topic_of("other.topic.-.shop"), None);
    }

    #[test]
    fn a_subject_with_dots_that_the_server_refuses_has_none() {
        let names = Names::new("hapax").unwrap();
        for name in ["..", ".a", "a.", "a..b"] {
            let subject = names.subject(&Destination::Topic(topic(name)), None);
            assert!(subject.split('.').all(|token| !token.is_empty()), "{subject}");
        }
    }

    #[test]
    fn the_slot_of_a_key_never_changes() {
        let slot = |key: &str| slot_of(&PartitionKey::parse(key.to_owned()).unwrap());
        // `printf order-1 | sha256sum`: the second hexadecimal digit.
        assert_eq!([slot("order-1"), slot("order-2"), slot("a")], [11, 13, 10]);
    }

    #[test]
    fn a_prefix_that_is_none_is_refused() {
        for bad in ["", "a b", "a.b", "ü", "*", &"p".repeat(41)] {
            assert!(Names::new(bad).is_err(), "{bad}");
        }
    }
}
