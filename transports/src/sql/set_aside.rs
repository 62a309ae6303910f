//! Dead letters as all SQL databases keep them: which columns say which letter it is; and one that cannot be read does not hide the others.

use std::sync::Arc;

use hapax_core::{
    codec::record,
    envelope::Destination,
    ids::{EndpointName, Fingerprint},
    ports::{DeadLetter, ErrorKind, StoreError},
    time::Timestamp,
};

/// What is being done where a letter is added.
pub(super) const ADDING: &str = "setting a message aside";

/// What is being done where letters are discarded.
pub(super) const DISCARDING: &str = "discarding dead letters";

/// A dead letter and what its queue knows of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    /// The letter.
    pub letter: DeadLetter,
    /// When the message was sent; `None` for one that was set aside by its endpoint and not by the queue.
    pub sent_at: Option<Timestamp>,
    /// When it was first given.
    pub first_given_at: Option<Timestamp>,
}

/// A letter as it is written, but for its reason: how much of that can be kept is the server's business.
pub(super) struct Columns<'l> {
    pub(super) identity: Identity<'l>,
    pub(super) attempts: i64,
    pub(super) time: i64,
    pub(super) envelope: Vec<u8>,
}

impl<'l> Columns<'l> {
    pub(super) fn of(letter: &'l DeadLetter) -> Result<Self, StoreError> {
        let envelope = record::encode_envelope(&letter.envelope)
            .map_err(|e| StoreError::new(ErrorKind::TooLarge, ADDING, "its envelope cannot be encoded").caused_by(e))?;
        Ok(Self {
            identity: Identity::of(letter),
            attempts: letter.attempts.into(),
            time: i64::try_from(letter.time.as_millis()).unwrap_or(i64::MAX),
            envelope,
        })
    }
}

/// Which letter it is.
pub(super) struct Identity<'l> {
    pub(super) endpoint: &'l str,
    pub(super) message_id: String,
    pub(super) saga: &'l str,
    pub(super) destination: String,
    pub(super) fingerprint: Fingerprint,
}

impl<'l> Identity<'l> {
    pub(super) fn of(letter: &'l DeadLetter) -> Self {
        Self {
            endpoint: letter.endpoint.as_str(),
            message_id: letter.envelope.message_id.to_string(),
            saga: letter.saga.as_ref().map_or("", |saga| saga.as_str()),
            destination: letter.destination.as_ref().map_or(String::new(), Destination::to_string),
            fingerprint: Fingerprint::of(&letter.envelope),
        }
    }
}

/// A letter as its row says.
pub(super) struct Row<'r> {
    pub(super) saga: &'r str,
    pub(super) destination: &'r str,
    pub(super) attempts: i64,
    pub(super) time: i64,
    pub(super) reason: String,
    pub(super) envelope: &'r [u8],
    pub(super) sent_at: Option<i64>,
    pub(super) first_given_at: Option<i64>,
}

impl Row<'_> {
    /// `None` for one that cannot be read.
    pub(super) fn of(self, endpoint: &EndpointName) -> Option<SetAside> {
        let time = |time: i64| u64::try_from(time).ok().map(Timestamp::from_millis);
        let letter = DeadLetter {
            envelope: Arc::new(record::decode_envelope(self.envelope).ok()?),
            endpoint: endpoint.clone(),
            saga: if self.saga.is_empty() { None } else { Some(self.saga.parse().ok()?) },
            destination: match self.destination {
                "" => None,
                destination => Some(Destination::parse(destination).ok()?),
            },
            attempts: u32::try_from(self.attempts).ok()?,
            time: time(self.time)?,
            reason: self.reason,
        };
        let sent_at = self.sent_at.map_or(Some(None), |at| time(at).map(Some))?;
        let first_given_at = self.first_given_at.map_or(Some(None), |at| time(at).map(Some))?;
        Some(SetAside { letter, sent_at, first_given_at })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::golden;

    /// What rows of all databases have in common: see [`crate::golden`].
    #[test]
    fn a_letter_keeps_its_columns_in_sql() {
        let letter = golden::letter();
        let Columns { identity, attempts, time, envelope } = Columns::of(&letter).unwrap();
        assert_eq!((identity.endpoint, &*identity.message_id), ("shop", "order 7/ü"));
        assert_eq!((identity.saga, &*identity.destination), ("order", "topic:shop.item-added"));
        assert_eq!(identity.fingerprint.to_string(), "2ba618f84101ad7001fcafdb0ad02f2a");
        assert_eq!((attempts, time), (5, 1_700_000_000_002));
        assert_eq!(hex(&envelope), golden::FULL);

        let bytes = unhex(golden::FULL);
        let row = Row {
            saga: "order",
            destination: "topic:shop.item-added",
            attempts: 5,
            time: 1_700_000_000_002,
            reason: letter.reason.clone(),
            envelope: &bytes,
            sent_at: None,
            first_given_at: Some(7),
        };
        let read = row.of(&letter.endpoint).unwrap();
        golden::same_letter(&read.letter, &letter);
        assert_eq!((read.sent_at, read.first_given_at), (None, Some(Timestamp::from_millis(7))));
        let none = DeadLetter { saga: None, destination: None, ..letter };
        assert_eq!((Identity::of(&none).saga, &*Identity::of(&none).destination), ("", ""));
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn unhex(text: &str) -> Vec<u8> {
        let digits = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        text.as_bytes().chunks(2).map(digits).collect()
    }
}
