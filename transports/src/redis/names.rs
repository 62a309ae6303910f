//! What every key is called. Names of endpoints may hold colons, so what stands before them keeps kinds apart.

use hapax_core::{
    envelope::Destination,
    ids::{EndpointName, TypeName},
};

/// Longest prefix, in bytes: as on the other brokers.
const PREFIX_BYTES_MAX: usize = 40;

/// What every key is called.
#[derive(Debug)]
pub(super) struct Names {
    prefix: String,
}

impl Names {
    pub(super) fn new(prefix: &str) -> Result<Self, String> {
        // No colon: keys of two prefixes could be the same.
        let usual = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if prefix.is_empty() || prefix.len() > PREFIX_BYTES_MAX || !prefix.bytes().all(usual) {
            return Err(format!(
                "`{}` is no prefix: 1 to {PREFIX_BYTES_MAX} ASCII letters, digits, - _ and . are",
                prefix.escape_debug()
            ));
        }
        Ok(Self { prefix: prefix.to_owned() })
    }

    pub(super) fn queue(&self, endpoint: &EndpointName) -> String {
        format!("{}{endpoint}", self.queues())
    }

    /// What the names of queues begin with.
    pub(super) fn queues(&self) -> String {
        format!("{}:queue:", self.prefix)
    }

    pub(super) fn later(&self, endpoint: &EndpointName) -> String {
        format!("{}:later:{endpoint}", self.prefix)
    }

    pub(super) fn uncounted(&self, endpoint: &EndpointName) -> String {
        format!("{}:uncounted:{endpoint}", self.prefix)
    }

    pub(super) fn active(&self, endpoint: &EndpointName) -> String {
        format!("{}:active:{endpoint}", self.prefix)
    }

    pub(super) fn dead_letters(&self, endpoint: &EndpointName) -> String {
        format!("{}:dead-letters:{endpoint}", self.prefix)
    }

    pub(super) fn dead_letter_ids(&self, endpoint: &EndpointName) -> String {
        format!("{}:dead-letter-ids:{endpoint}", self.prefix)
    }

    pub(super) fn topic(&self, topic: &TypeName) -> String {
        format!("{}{topic}", self.topics())
    }

    /// What the names of topics begin with.
    pub(super) fn topics(&self) -> String {
        format!("{}:topic:", self.prefix)
    }

    /// The key that a message for `destination` is sent by.
    pub(super) fn address(&self, destination: &Destination) -> String {
        match destination {
            Destination::Endpoint(endpoint) => self.queue(endpoint),
            Destination::Topic(topic) => self.topic(topic),
        }
    }

    /// All keys of an endpoint.
    pub(super) fn all(&self, endpoint: &EndpointName) -> [String; 6] {
        [
            self.queue(endpoint),
            self.later(endpoint),
            self.uncounted(endpoint),
            self.active(endpoint),
            self.dead_letters(endpoint),
            self.dead_letter_ids(endpoint),
        ]
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_that_is_none_is_refused() {
        for bad in ["", "a b", "a:b", "ü", &"p".repeat(41)] {
            assert!(Names::new(bad).is_err(), "{bad}");
        }
    }

    /// Names of endpoints may hold colons; what stands before them keeps kinds apart.
    #[test]
    fn keys_of_endpoints_with_colons_in_their_names_are_not_mixed_up() {
        let names = Names::new("p").unwrap();
        let mut keys: Vec<String> = ["queue:a", "a", "later:a", "a:ids", "dead-letters:a"]
            .into_iter()
            .flat_map(|name| names.all(&EndpointName::parse(name).unwrap()))
            .collect();
        let all = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), all);
    }
}
