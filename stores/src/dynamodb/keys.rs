//! Names: where an item is in the table, and what its attributes are called.
//!
//! Each kind of item has a partition key that begins with a letter of its own. Names of endpoints and sagas hold no `#`, so
//! that what is put together with it is one to one (promise 15), and a person can read it.

use std::collections::HashMap;

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use hapax_core::ids::{DedupKey, EndpointName, EntityKey, Scope};

/// Attributes and their values.
pub(super) type Item = HashMap<String, AttributeValue>;

/// The partition key of the table.
pub(super) const PK: &str = "pk";
/// The sort key of the table.
pub(super) const SK: &str = "sk";
/// An entity's version, see [`Token`](super::token::Token).
pub(super) const VERSION: &str = "v";
/// An entity's state, where it is kept in the item.
pub(super) const STATE: &str = "s";
/// An entity's outbox and the rest of it, where it is kept in the item.
pub(super) const OUTBOX: &str = "o";
/// The bytes of a chunk, of a dead letter or of a reply.
pub(super) const BYTES: &str = "b";
/// The attempt of a dedup entry.
pub(super) const ATTEMPT: &str = "a";
/// The fingerprint of a dedup entry.
pub(super) const FINGERPRINT: &str = "f";
/// When a dedup entry was saved by the saver's clock, in milliseconds since 1970.
pub(super) const TIME: &str = "t";
/// When the service may remove the item, in seconds since 1970.
pub(super) const EXPIRES: &str = "x";
/// The index of what has to be looked after.
pub(super) const INDEX: &str = "hapax_upkeep";
/// The index's partition key. Only entities with something to look after have it.
pub(super) const INDEX_PK: &str = "ipk";
/// The index's sort key.
pub(super) const INDEX_SK: &str = "isk";

/// Into how many partitions of the index a scope's entities are spread: one takes some 1000 writes a second, and a message
/// with something to send makes two. Fixed for ever: entities stay where they are.
pub(super) const SHARDS: u32 = 8;

pub(super) fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

pub(super) fn number(value: impl ToString) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

pub(super) fn bytes(value: impl Into<Vec<u8>>) -> AttributeValue {
    AttributeValue::B(Blob::new(value))
}

/// Where an item is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) pk: String,
    pub(super) sk: String,
}

impl Place {
    fn new(pk: String, sk: impl Into<String>) -> Self {
        Self { pk, sk: sk.into() }
    }

    /// What the store knows of the table itself.
    pub(super) fn meta() -> Self {
        Self::new("m".to_owned(), "m")
    }

    pub(super) fn entity(key: &EntityKey) -> Self {
        Self::new(format!("e#{}#{}", of_scope(key.scope()), key.key()), "e")
    }

    /// A piece of an entity too large for its item.
    pub(super) fn chunk(&self, part: &str, number: u32) -> Self {
        Self::new(self.pk.clone(), format!("c#{part}#{number}"))
    }

    pub(super) fn mark(key: &DedupKey) -> Self {
        Self::new(format!("d#{key}"), "d")
    }

    /// That a letter is there, whenever it came.
    pub(super) fn cause(endpoint: &EndpointName, cause: &str) -> Self {
        Self::new(format!("c#{endpoint}"), cause)
    }

    pub(super) fn letter(endpoint: &EndpointName, order: &str) -> Self {
        Self::new(letters(endpoint), order)
    }

    /// A piece of a letter.
    pub(super) fn letter_chunk(id: &str, number: u32) -> Self {
        Self::new(format!("b#{id}"), number.to_string())
    }

    /// The item that has `attributes` and is here.
    pub(super) fn item<const N: usize>(&self, attributes: [(&str, AttributeValue); N]) -> Item {
        let attributes = attributes.into_iter().map(|(name, value)| (name.to_owned(), value));
        attributes.chain(self.key()).collect()
    }

    /// The two keys.
    pub(super) fn key(&self) -> Item {
        [(PK.to_owned(), text(&self.pk)), (SK.to_owned(), text(&self.sk))].into()
    }

    /// Where `item` was found.
    pub(super) fn of(item: &Item) -> Option<Self> {
        Some(Self::new(item.get(PK)?.as_s().ok()?.clone(), item.get(SK)?.as_s().ok()?.clone()))
    }
}

/// The partition that holds an endpoint's letters.
pub(super) fn letters(endpoint: &EndpointName) -> String {
    format!("l#{endpoint}")
}

fn of_scope(scope: &Scope) -> String {
    format!("{}#{}", scope.endpoint, scope.saga)
}

/// What an entity is looked after for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Care {
    /// It has something to send.
    Pending,
    /// It is a tombstone.
    Over,
}

impl Care {
    /// The index's partition of `scope` with number `shard`.
    pub(super) fn shard(self, scope: &Scope, shard: u32) -> String {
        let kind = match self {
            Self::Pending => 'p',
            Self::Over => 't',
        };
        format!("{kind}#{}#{shard}", of_scope(scope))
    }
}

/// In which shard an entity is. Fixed for ever, so not the standard library's hash.
pub(super) fn shard_of(key: &EntityKey) -> u32 {
    const OFFSET: u32 = 0x811c_9dc5;
    const PRIME: u32 = 0x0100_0193;
    let hash = key.key().as_str().bytes().fold(OFFSET, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(PRIME));
    hash % SHARDS
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use super::*;

    fn key(endpoint: &str, saga: &str, key: &str) -> EntityKey {
        let scope = Scope { endpoint: endpoint.parse().unwrap(), saga: saga.parse().unwrap() };
        EntityKey::new(Arc::new(scope), key.parse().unwrap())
    }

    #[test]
    fn places_of_dynamodb_stay_where_they_are() {
        assert_eq!(Place::entity(&key("shop", "order", "7")), Place::new("e#shop#order#7".into(), "e"));
        assert_eq!(Place::mark(&DedupKey::from_bytes([7; 24])).pk, format!("d#{}", "07".repeat(24)));
        let shards = ["a", "b", "order 7", "é"].map(|name| shard_of(&key("shop", "order", name)));
        assert_eq!(shards, [4, 5, 6, 1]);
    }

    #[test]
    fn keys_with_the_separator_are_apart_in_dynamodb() {
        assert_ne!(Place::entity(&key("a", "b", "c#d")), Place::entity(&key("a", "b:c", "d")));
        assert_ne!(Place::entity(&key("a", "b", "c#d")), Place::entity(&key("a", "b", "c")));
    }
}
