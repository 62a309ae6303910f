//! Since when each entry of an outbox waits, by the service's clock.
//!
//! The service stamps a document with the second of its last write and with nothing else, and a document that is saved
//! all the time never looks old. So each entry has a second of its own in the document: none in the write that brings the
//! entry, for nobody knows it yet and it is the document's stamp; from the next write on, that stamp. The writer knows it
//! from the version that it expects, which carries it.

use base64::{Engine, prelude::BASE64_STANDARD_NO_PAD as BASE64};
use hapax_core::{
    entity::{Entity, Version},
    ids::AttemptId,
};

/// An attempt and a second.
const BYTES: usize = AttemptId::BYTES + 4;
/// Stands for the stamp of the document itself.
const OWN_STAMP: u32 = 0;
/// Between the etag and what waits, in a version. No etag has it.
const SEPARATOR: char = '\n';

/// The entries of an outbox and the second since which each waits.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Waiting(Vec<(AttemptId, u32)>);

impl Waiting {
    /// Of an entity that is to be saved over one with `before`.
    pub(super) fn of(entity: &Entity, before: &Self) -> Self {
        let since = |attempt| before.0.iter().find(|(old, _)| *old == attempt).map_or(OWN_STAMP, |(_, since)| *since);
        Self(entity.outbox.iter().map(|entry| (entry.attempt, since(entry.attempt))).collect())
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The least second that is written; none where all are the document's own.
    pub(super) fn oldest(&self) -> Option<u32> {
        self.0.iter().map(|(_, since)| *since).filter(|since| *since != OWN_STAMP).min()
    }

    /// The same in a document with this stamp.
    pub(super) fn stamped(&self, stamp: u32) -> Self {
        Self(self.entries().map(|(attempt, since)| (attempt, if since == OWN_STAMP { stamp } else { since })).collect())
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (AttemptId, u32)> {
        self.0.iter().copied()
    }

    pub(super) fn to_text(&self) -> String {
        let bytes = self.0.iter().flat_map(|(attempt, since)| {
            let mut entry = [0; BYTES];
            entry[..AttemptId::BYTES].copy_from_slice(attempt.as_bytes());
            entry[AttemptId::BYTES..].copy_from_slice(&since.to_be_bytes());
            entry
        });
        BASE64.encode(bytes.collect::<Vec<u8>>())
    }

    /// What [`to_text`](Self::to_text) wrote; `None` for anything else.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let bytes = BASE64.decode(text).ok()?;
        let (entries, []) = bytes.as_chunks::<BYTES>() else { return None };
        let entry = |entry: &[u8; BYTES]| {
            let (attempt, since) = entry.split_first_chunk::<{ AttemptId::BYTES }>()?;
            Some((AttemptId::from_bytes(*attempt), u32::from_be_bytes(*since.first_chunk()?)))
        };
        Some(Self(entries.iter().map(entry).collect::<Option<_>>()?))
    }

    /// The version of a document with this etag and this stamp in which this waits.
    pub(super) fn version(&self, etag: &str, stamp: Option<u32>) -> Version {
        if self.is_empty() {
            return Version::text(etag);
        }
        let text = self.stamped(stamp.unwrap_or(OWN_STAMP)).to_text();
        Version::text(format!("{etag}{SEPARATOR}{text}"))
    }

    /// The etag of a version, and what waits in it. A version that no store of this kind gave matches nothing.
    pub(super) fn of_version(version: &Version) -> (&str, Self) {
        let text = version.as_text().unwrap_or_default();
        match text.split_once(SEPARATOR) {
            Some((etag, waiting)) => (etag, Self::parse(waiting).unwrap_or_default()),
            None => (text, Self::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_entry_takes_the_stamp_of_its_first_document_and_keeps_it() {
        let attempt = |n| AttemptId::from_bytes([n; AttemptId::BYTES]);
        let first = Waiting(vec![(attempt(1), OWN_STAMP)]);
        assert_eq!(first.oldest(), None);
        let version = first.version("\"e\"", Some(70));
        let (etag, carried) = Waiting::of_version(&version);
        assert_eq!((etag, &carried), ("\"e\"", &first.stamped(70)));
        let next = Waiting(vec![carried.0[0], (attempt(2), OWN_STAMP)]).stamped(90);
        assert_eq!(next.entries().map(|(_, since)| since).collect::<Vec<_>>(), [70, 90]);
        assert_eq!(next.oldest(), Some(70));
        assert_eq!(Waiting::parse(&next.to_text()), Some(next));
    }

    #[test]
    fn what_is_no_list_of_entries_is_refused() {
        for text in ["?", "AAAA", "AAAAAAAAAAAAAAAAAAAAAAAAAAAA"] {
            assert_eq!(Waiting::parse(text), None, "{text}");
        }
        assert_eq!(Waiting::of_version(&Version::number(3)), ("", Waiting::default()));
    }
}
