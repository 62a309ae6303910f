//! A door for the tests of decoders: documents.

use std::sync::Arc;

use hapax_core::ids::{EntityKey, Scope};
use serde::de::DeserializeOwned;

use super::{
    documents::{EntityDocument, LetterDocument, MarkDocument, WaitingRow},
    waiting::Waiting,
};

fn document<T: DeserializeOwned>(data: &[u8]) -> Option<T> {
    serde_json::from_slice(data).ok()
}

/// Documents as a container may hold them, whoever has written them: as an entity, as one that waits, as a dedup entry, and as a letter.
#[doc(hidden)]
pub fn fuzz(data: &[u8]) {
    let (Ok(endpoint), Ok(saga), Ok(name)) = ("shop".parse(), "order".parse(), "1".parse()) else { return };
    let scope = Arc::new(Scope { endpoint, saga });
    let key = EntityKey::new(scope.clone(), name);
    drop(document(data).map(|entity: EntityDocument| entity.into_stored(&key)));
    drop(document(data).map(|row: WaitingRow| (row.key(&scope), row.waiting())));
    drop(document(data).map(|mark: MarkDocument| mark.into_entry()));
    drop(document(data).map(|letter: LetterDocument| letter.into_letter(&scope.endpoint)));
    if let Some(waiting) = std::str::from_utf8(data).ok().and_then(Waiting::parse) {
        assert_eq!(Waiting::parse(&waiting.to_text()).map(|waiting| waiting.to_text()), Some(waiting.to_text()));
    }
}
