//! Where documents are: partitions, ids, and in which order they are listed.

use std::sync::Arc;

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD as BASE64_URL};
use hapax_core::ids::{EndpointName, EntityKey, SagaKey, Scope};

/// The id of the one entity in a partition of its own.
const ENTITY: &str = "entity";
/// Before the ids of entities in a partition that a user has named, beside documents of his own.
const AMONG_OTHERS: &str = "hapax-";
/// Where the store keeps what is its own. No entity's own partition is without a space.
pub(super) const OWN_PARTITION: &str = "hapax";
/// Before the endpoint, in the partition of its dead letters.
const LETTERS: &str = "letters ";

/// Where the partition key stands in a document, unless the user has said so.
pub(super) const PARTITION_PATH: &str = "/pk";
/// Properties of the store's documents, which are none of a partition key's.
const PROPERTIES: &[&str] = &[
    "id",
    "pk",
    "entity",
    "format",
    "save",
    "state",
    "record",
    "waits",
    "waiting",
    "oldest",
    "ended",
    "ttl",
    "attempt",
    "fingerprint",
    "reply",
    "time",
    "sorted",
    "message",
    "envelope",
    "saga",
    "destination",
    "reason",
    "attempts",
    "layout",
    "keeps_seconds",
    "history",
];

/// Of an entity: endpoints and sagas have no spaces in their names, so no two keys share one.
pub(super) fn name_of(key: &EntityKey) -> String {
    format!("{} {}", scope_of(key.scope()), key.key())
}

/// The key with this name.
pub(super) fn key_of(scope: &Arc<Scope>, name: &str) -> Option<EntityKey> {
    let key = name.strip_prefix(&scope_of(scope))?.strip_prefix(' ')?;
    Some(EntityKey::new(scope.clone(), SagaKey::parse(key).ok()?))
}

/// Of an entity's document: its own, or the one that a user has named.
pub(super) fn partition_of(key: &EntityKey) -> String {
    key.partition().map_or_else(|| name_of(key), ToString::to_string)
}

/// Of an entity's document in its partition. An id has neither slashes nor more than 1023 bytes.
pub(super) fn entity_id(key: &EntityKey) -> String {
    match key.partition() {
        None => ENTITY.to_owned(),
        Some(_) => format!("{AMONG_OTHERS}{}", BASE64_URL.encode(name_of(key))),
    }
}

pub(super) fn scope_of(scope: &Scope) -> String {
    format!("{} {}", scope.endpoint, scope.saga)
}

/// Of a dead letter's document: one space, where an entity's own has two.
pub(super) fn letters_of(endpoint: &EndpointName) -> String {
    format!("{LETTERS}{endpoint}")
}

/// Whether no document of a user's own may be there.
pub(super) fn is_the_stores(partition: &str) -> bool {
    partition == OWN_PARTITION || partition.starts_with(LETTERS)
}

/// In the order of the keys' bytes, whatever the service takes for the order of text.
pub(super) fn order_of(key: &EntityKey) -> String {
    let order = format!("{} {}", scope_of(key.scope()), in_hex(key.key().as_str()));
    match key.partition() {
        Some(partition) => format!("{order} {}", in_hex(partition.as_str())),
        None => order,
    }
}

fn in_hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// The property in which the partition key stands, by a path that a user has given: `None` where it is none for this store.
pub(super) fn property_of(path: &str) -> Option<&str> {
    let name = path.strip_prefix('/')?;
    let is_one = !name.is_empty() && !name.contains(['/', '"', '\\']);
    let is_free = !PROPERTIES.contains(&name) && !name.starts_with('_');
    (path == PARTITION_PATH || is_one && is_free).then_some(name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn key(name: &str, partition: Option<&str>) -> EntityKey {
        let scope = Scope { endpoint: "front".parse().unwrap(), saga: "hapax.outbox".parse().unwrap() };
        let key = EntityKey::new(Arc::new(scope), name.parse().unwrap());
        match partition {
            Some(partition) => key.in_partition(partition.parse().unwrap()),
            None => key,
        }
    }

    #[test]
    fn keys_of_one_partition_have_ids_of_their_own_that_the_service_takes() {
        let longest = "/".repeat(255);
        let ids = ["a", "b", "a b", "a/b", &longest].map(|name| entity_id(&key(name, Some("one"))));
        assert!(ids.iter().all(|id| id.len() < 1023 && !id.contains(['/', '\\', '?', '#'])), "{ids:?}");
        assert!((1..ids.len()).all(|end| !ids[..end].contains(&ids[end])), "{ids:?}");
        assert_eq!(
            (entity_id(&key("a", None)), partition_of(&key("a", None))),
            ("entity".into(), "front hapax.outbox a".into())
        );
        assert_eq!(partition_of(&key("a", Some("one"))), "one");
    }

    #[test]
    fn the_order_is_that_of_the_keys() {
        let keys = [("a", None), ("a", Some("a")), ("a", Some("b")), ("a!", None), ("ab", Some("a")), ("b", None)];
        let keys = keys.map(|(name, partition)| key(name, partition));
        assert!(keys.is_sorted() && keys.each_ref().map(order_of).is_sorted());
    }

    #[test]
    fn a_partition_key_is_one_property_at_the_top_and_none_of_the_stores() {
        for (path, property) in [("/pk", "pk"), ("/customer", "customer"), ("/customer-id", "customer-id")] {
            assert_eq!(property_of(path), Some(property));
        }
        for path in ["", "/", "customer", "/customer/id", "/\"customer\"", "/id", "/state", "/_rid"] {
            assert_eq!(property_of(path), None, "{path}");
        }
    }
}
