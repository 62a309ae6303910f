//! What queues and exchanges are called; and how any delay becomes the sum of fixed ones, by a routing key that says of each whether a
//! message waits there.

use hapax_core::{
    envelope::Destination,
    ids::{EndpointName, TypeName},
};
use sha2::{Digest, Sha256};

/// Longest prefix, in bytes: with the longest endpoint name it stays below what AMQP takes as a name, 255.
const PREFIX_BYTES_MAX: usize = 40;
/// Powers of two that a delay in milliseconds is split into.
pub(super) const DELAY_LEVELS: u32 = 32;
/// Powers of two that one delay may be the sum of: it is rounded up to them, by less than a 2,048th.
const DELAY_BITS: u32 = 12;
/// The longest delay, in milliseconds.
pub(super) const DELAY_MAX: u64 = (1 << DELAY_LEVELS) - 1;

/// What everything is called.
#[derive(Debug)]
pub(super) struct Names {
    prefix: String,
}

impl Names {
    pub(super) fn new(prefix: &str) -> Result<Self, String> {
        let usual = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if prefix.is_empty() || prefix.len() > PREFIX_BYTES_MAX || !prefix.bytes().all(usual) {
            return Err(format!(
                "`{}` is no prefix: 1 to {PREFIX_BYTES_MAX} ASCII letters, digits, - _ and . are",
                prefix.escape_debug()
            ));
        }
        if prefix == "amq" || prefix.starts_with("amq.") {
            return Err("names that begin with `amq.` are the server's own; take another".into());
        }
        Ok(Self { prefix: prefix.to_owned() })
    }

    pub(super) fn queue(&self, endpoint: &EndpointName) -> String {
        format!("{}.queue.{endpoint}", self.prefix)
    }

    /// The endpoint whose queue is called `queue`.
    pub(super) fn endpoint(&self, queue: &str) -> Option<EndpointName> {
        let name = queue.strip_prefix(&self.prefix)?.strip_prefix(".queue.")?;
        EndpointName::parse(name).ok()
    }

    pub(super) fn dead_letters(&self, endpoint: &EndpointName) -> String {
        format!("{}.dead-letters.{endpoint}", self.prefix)
    }

    pub(super) fn topics(&self) -> String {
        format!("{}.topics", self.prefix)
    }

    pub(super) fn due(&self) -> String {
        format!("{}.due", self.prefix)
    }

    pub(super) fn unrouted(&self) -> String {
        format!("{}.unrouted", self.prefix)
    }

    /// Exchange and queue in which a message waits for 2^`level` milliseconds.
    pub(super) fn delay(&self, level: u32) -> String {
        format!("{}.delay.{level}", self.prefix)
    }

    /// What comes after `level`.
    pub(super) fn after_delay(&self, level: u32) -> String {
        if level == 0 { self.due() } else { self.delay(level - 1) }
    }
}

/// The routing key of a topic: AMQP takes 255 bytes, and names have at most 100.
pub(super) fn topic_key(topic: &TypeName) -> String {
    topic.as_str().to_owned()
}

/// The binding by which `level` catches (`1`) or passes on (`0`) a message.
pub(super) fn delay_binding(level: u32, bit: char) -> String {
    let stars = "*.".repeat((DELAY_LEVELS - 1 - level) as usize);
    format!("{stars}{bit}.#")
}

/// The binding for what has been delayed and is for `destination`.
pub(super) fn due_binding(destination: &Destination) -> String {
    format!("{}{}", "*.".repeat(DELAY_LEVELS as usize), word_of(destination))
}

/// How long a message waits: its first level, and its routing key. `None` if it need not wait.
pub(super) fn delayed(millis: u64, destination: &Destination) -> Option<(u32, String)> {
    let millis = rounded(millis.min(DELAY_MAX));
    let level = millis.checked_ilog2()?;
    let bits: String = (0..DELAY_LEVELS).rev().map(|bit| if millis >> bit & 1 == 1 { "1." } else { "0." }).collect();
    Some((level, format!("{bits}{}", word_of(destination))))
}

/// `millis` or a little more, of few powers of two.
fn rounded(millis: u64) -> u64 {
    let bits = u64::BITS - millis.leading_zeros();
    let step = 1_u64 << bits.saturating_sub(DELAY_BITS);
    millis.div_ceil(step).saturating_mul(step).min(DELAY_MAX)
}

/// A destination as one word of a routing key: names may be longer than the room there is, and hold what has a meaning in it.
fn word_of(destination: &Destination) -> String {
    let hash = Sha256::digest(destination.to_string().as_bytes());
    hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn shop() -> Destination {
        Destination::parse("endpoint:shop").unwrap()
    }

    #[test]
    fn a_delay_is_the_sum_of_its_levels_and_a_little_longer_at_most() {
        for millis in [1, 2, 3, 999, 4095, 4096, 4097, 60_001, 3_599_999, 86_400_000, DELAY_MAX - 1, DELAY_MAX] {
            let (level, key) = delayed(millis, &shop()).unwrap();
            let words: Vec<&str> = key.split('.').collect();
            assert_eq!(words.len(), DELAY_LEVELS as usize + 1);
            let waits: u64 = (0..DELAY_LEVELS)
                .filter(|bit| words[(DELAY_LEVELS - 1 - bit) as usize] == "1")
                .map(|bit| 1 << bit)
                .sum();
            assert!(waits >= millis && waits - millis <= millis / 2048, "{millis} ms became {waits}");
            assert_eq!(level, waits.ilog2());
        }
        assert_eq!(delayed(0, &shop()), None);
        assert!(delayed(u64::MAX, &shop()).is_some());
    }

    #[test]
    fn the_longest_names_fit_into_what_amqp_takes() {
        let names = Names::new(&"p".repeat(PREFIX_BYTES_MAX)).unwrap();
        let endpoint = EndpointName::parse("e".repeat(100)).unwrap();
        assert!(names.dead_letters(&endpoint).len() <= 255);
        assert_eq!(names.endpoint(&names.queue(&endpoint)), Some(endpoint.clone()));
        assert!(delayed(DELAY_MAX, &Destination::Endpoint(endpoint)).unwrap().1.len() <= 255);
    }

    #[test]
    fn a_prefix_that_is_none_is_refused() {
        for bad in ["", "a b", "amq", "amq.x", "ü", &"p".repeat(41)] {
            assert!(Names::new(bad).is_err(), "{bad}");
        }
    }
}
