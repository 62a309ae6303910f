//! The documents that are stored, and what is in them.

use std::{sync::Arc, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD as BASE64, prelude::BASE64_URL_SAFE_NO_PAD as BASE64_URL};
use bytes::Bytes;
use hapax_core::{
    codec::record,
    entity::{DedupEntry, Entity, Version},
    envelope::Destination,
    ids::{AttemptId, DedupKey, EndpointName, EntityKey, Fingerprint, PartitionKey, Scope},
    ports::{DeadLetter, ErrorKind, StoreError, Stored},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    error::malformed,
    places::{entity_id, key_of, letters_of, name_of, order_of, partition_of, scope_of},
    waiting::Waiting,
};

/// Largest entity, in bytes: base64 makes it a third larger, and the service takes documents of 2 MiB.
pub(super) const ENTITY_BYTES_MAX: usize = 1_400 << 10;
/// Largest document, in bytes of JSON: what the service takes, without what it adds itself.
pub(super) const DOCUMENT_BYTES_MAX: usize = 2_000_000;
/// What a document has beside what is in it: names, quotes, the partition and the id, each byte of them escaped at worst.
pub(super) const FRAME_BYTES: usize = 6_000;
/// Largest reply that is kept, in bytes before base64.
pub(super) const REPLY_BYTES_MAX: usize = (DOCUMENT_BYTES_MAX - FRAME_BYTES) / 4 * 3;
/// What is kept of a dead letter's reason: more than any chain of errors says, and no reason to lose a letter.
const REASON_BYTES_MAX: usize = 64 * 1024;
/// Format of all documents. What has a larger one is refused.
pub(super) const FORMAT: u32 = 1;
/// A time to live is counted in seconds of an `i32`.
const TTL_SECONDS_MAX: u64 = i32::MAX as u64;

/// An entity. What is absent in most documents costs nothing in the index.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct EntityDocument {
    id: String,
    pk: String,
    /// Which entity it is, where its partition is one that a user has named and does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    entity: Option<String>,
    format: u32,
    /// Which save has written it.
    pub(super) save: String,
    state: String,
    /// All but the state.
    record: String,
    /// Where it stands among those that wait; absent when none of its entries does.
    #[serde(skip_serializing_if = "Option::is_none")]
    waits: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest: Option<u32>,
    /// The scope of a tombstone.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<String>,
    /// Of a tombstone in a partition that a user has named, in seconds: it goes also where no endpoint purges.
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<u64>,
    #[serde(rename = "_etag", default, skip_serializing)]
    etag: String,
    #[serde(rename = "_ts", default, skip_serializing)]
    stamp: u32,
}

impl EntityDocument {
    /// `kept`: for how long a tombstone guards, where the service removes it.
    pub(super) fn of(
        doing: &'static str,
        key: &EntityKey,
        entity: &Entity,
        waiting: &Waiting,
        kept: Duration,
    ) -> Result<Self, StoreError> {
        let bytes = entity.size();
        if bytes > ENTITY_BYTES_MAX {
            let why = format!("it has {bytes} bytes, more than the {ENTITY_BYTES_MAX} that fit into a document");
            return Err(StoreError::new(ErrorKind::TooLarge, doing, why));
        }
        let record = record::encode_outbox(entity).map_err(|e| malformed(doing, e))?;
        let waits = !waiting.is_empty();
        let (is_over, is_among_others) = (entity.completed && !waits, key.partition().is_some());
        let document = Self {
            id: entity_id(key),
            pk: partition_of(key),
            entity: is_among_others.then(|| name_of(key)),
            format: FORMAT,
            save: Uuid::new_v4().simple().to_string(),
            state: BASE64.encode(&entity.state),
            record: BASE64.encode(record),
            waits: waits.then(|| order_of(key)),
            waiting: waits.then(|| waiting.to_text()),
            oldest: waiting.oldest(),
            ended: is_over.then(|| scope_of(key.scope())),
            ttl: (is_over && is_among_others).then(|| ttl_of(kept)),
            etag: String::new(),
            stamp: 0,
        };
        check_bytes(doing, document.bytes())?;
        Ok(document)
    }

    /// About as large as it is going to be, and not smaller.
    pub(super) fn bytes(&self) -> usize {
        FRAME_BYTES + self.state.len() + self.record.len() + self.waiting.as_ref().map_or(0, String::len)
    }

    pub(super) fn partition(&self) -> &str {
        &self.pk
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn version(&self) -> Result<Version, StoreError> {
        let damaged = || malformed("reading an entity", "its list of what waits is damaged");
        let waiting = self.waiting.as_ref().map_or_else(|| Some(Waiting::default()), |text| Waiting::parse(text));
        Ok(waiting.ok_or_else(damaged)?.version(&self.etag, Some(self.stamp)))
    }

    pub(super) fn into_stored(self, key: &EntityKey) -> Result<Stored, StoreError> {
        const READING: &str = "reading an entity";
        check_format(READING, self.format)?;
        let named = key.partition().map(|_| name_of(key));
        if self.pk != partition_of(key) || self.entity != named {
            let found = self.entity.as_ref().unwrap_or(&self.pk);
            return Err(malformed(READING, format!("it is of {found}, not of {key}")));
        }
        let version = self.version()?;
        let state = bytes_of(READING, &self.state)?;
        let entity = record::decode_outbox(Bytes::from(state), &bytes_of(READING, &self.record)?);
        Ok(Stored { version, entity: entity.map_err(|e| malformed(READING, e))? })
    }
}

/// What is listed of an entity that waits.
#[derive(Debug, Deserialize)]
pub(super) struct WaitingRow {
    pub(super) pk: String,
    /// As in its document.
    entity: Option<String>,
    waiting: String,
    #[serde(rename = "_ts")]
    stamp: u32,
}

impl WaitingRow {
    pub(super) fn key(&self, scope: &Arc<Scope>) -> Option<EntityKey> {
        match &self.entity {
            Some(name) => Some(key_of(scope, name)?.in_partition(PartitionKey::parse(self.pk.as_str()).ok()?)),
            None => key_of(scope, &self.pk),
        }
    }

    pub(super) fn waiting(&self) -> Result<Waiting, StoreError> {
        let damaged = || malformed("listing what waits", format!("the list in {} is damaged", self.pk));
        Ok(Waiting::parse(&self.waiting).ok_or_else(damaged)?.stamped(self.stamp))
    }
}

/// A dedup entry. The service removes it when its time is over.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct MarkDocument {
    pub(super) id: String,
    pk: String,
    format: u32,
    pub(super) attempt: String,
    fingerprint: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply: Option<String>,
    time: u64,
    /// In seconds since the write.
    ttl: u64,
}

impl MarkDocument {
    pub(super) fn of(partition: &str, entry: &DedupEntry, keep: Duration) -> Result<Self, StoreError> {
        const ADDING: &str = "adding a dedup entry";
        let reply = entry.reply.as_ref().map(record::encode_outgoing).transpose().map_err(|e| malformed(ADDING, e))?;
        let document = Self {
            id: entry.key.to_string(),
            pk: partition.to_owned(),
            format: FORMAT,
            attempt: BASE64.encode(entry.attempt.as_bytes()),
            fingerprint: BASE64.encode(entry.fingerprint.as_bytes()),
            reply: reply.map(|reply| BASE64.encode(reply)),
            time: entry.time.as_millis(),
            ttl: ttl_of(keep),
        };
        check_bytes(ADDING, document.bytes())?;
        Ok(document)
    }

    pub(super) fn bytes(&self) -> usize {
        FRAME_BYTES + self.reply.as_ref().map_or(0, String::len)
    }

    pub(super) fn into_entry(self) -> Result<DedupEntry, StoreError> {
        const READING: &str = "reading a dedup entry";
        check_format(READING, self.format)?;
        let damaged = || malformed(READING, format!("the entry {} is damaged", self.id));
        let attempt = bytes_of(READING, &self.attempt)?.try_into().map_err(|_| damaged())?;
        let fingerprint = bytes_of(READING, &self.fingerprint)?.try_into().map_err(|_| damaged())?;
        let reply = self
            .reply
            .as_ref()
            .map(|reply| record::decode_outgoing(&bytes_of(READING, reply)?).map_err(|e| malformed(READING, e)));
        Ok(DedupEntry {
            key: DedupKey::from_hex(&self.id).ok_or_else(damaged)?,
            attempt: AttemptId::from_bytes(attempt),
            fingerprint: Fingerprint::from_bytes(fingerprint),
            reply: reply.transpose()?,
            time: Timestamp::from_millis(self.time),
        })
    }
}

fn ttl_of(keep: Duration) -> u64 {
    keep.as_secs().min(TTL_SECONDS_MAX)
}

/// A dead letter.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LetterDocument {
    pub(super) id: String,
    pk: String,
    format: u32,
    /// Oldest first.
    sorted: String,
    /// The message's id.
    message: String,
    envelope: String,
    saga: Option<String>,
    destination: Option<String>,
    reason: String,
    attempts: u32,
    time: u64,
}

impl LetterDocument {
    pub(super) fn of(letter: &DeadLetter) -> Result<Self, StoreError> {
        const ADDING: &str = "setting a message aside";
        let envelope = record::encode_envelope(&letter.envelope).map_err(|e| malformed(ADDING, e))?;
        let time = letter.time.as_millis();
        let document = Self {
            id: id_of(letter),
            pk: letters_of(&letter.endpoint),
            format: FORMAT,
            sorted: format!("{time:020} {}", Uuid::now_v7().simple()),
            message: letter.envelope.message_id.to_string(),
            envelope: BASE64.encode(envelope),
            saga: letter.saga.as_ref().map(ToString::to_string),
            destination: letter.destination.as_ref().map(ToString::to_string),
            reason: letter.reason[..letter.reason.floor_char_boundary(REASON_BYTES_MAX)].to_owned(),
            attempts: letter.attempts,
            time,
        };
        // Each byte of a reason may be one that JSON escapes.
        check_bytes(ADDING, FRAME_BYTES + document.envelope.len() + document.reason.len() * 6)?;
        Ok(document)
    }

    pub(super) fn partition(&self) -> &str {
        &self.pk
    }

    pub(super) fn into_letter(self, endpoint: &EndpointName) -> Result<DeadLetter, StoreError> {
        const READING: &str = "listing messages set aside";
        check_format(READING, self.format)?;
        let envelope = record::decode_envelope(&bytes_of(READING, &self.envelope)?);
        Ok(DeadLetter {
            envelope: Arc::new(envelope.map_err(|e| malformed(READING, e))?),
            endpoint: endpoint.clone(),
            saga: self.saga.map(|saga| saga.parse()).transpose().map_err(|e| malformed(READING, e))?,
            destination: self
                .destination
                .map(|destination| Destination::parse(&destination))
                .transpose()
                .map_err(|e| malformed(READING, e))?,
            reason: self.reason,
            attempts: self.attempts,
            time: Timestamp::from_millis(self.time),
        })
    }
}

/// The same for the same letter, see [`DeadLetter::is_same`], and for no other.
pub(super) fn id_of(letter: &DeadLetter) -> String {
    let mut cause = Fingerprint::of(&letter.envelope).as_bytes().to_vec();
    let saga = letter.saga.as_ref().map(ToString::to_string);
    let destination = letter.destination.as_ref().map(ToString::to_string);
    for part in [Some(letter.envelope.message_id.to_string()), saga, destination] {
        // None of them is longer than 255 bytes, or empty.
        let part = part.unwrap_or_default();
        cause.extend(u16::try_from(part.len()).unwrap_or(u16::MAX).to_be_bytes());
        cause.extend(part.as_bytes());
    }
    BASE64_URL.encode(cause)
}

/// What a container is used for, so that nobody opens it for something else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SettingsDocument {
    pub(super) id: String,
    pub(super) pk: String,
    pub(super) format: u32,
    pub(super) layout: String,
    pub(super) keeps_seconds: u64,
    /// Of the container of dedup entries: what it was called when it was new. Of one with entities: which one has theirs. Nothing
    /// where they are in one.
    #[serde(default)]
    pub(super) history: String,
}

/// Written to be told the time.
#[derive(Debug, Serialize)]
pub(super) struct ClockDocument {
    pub(super) id: &'static str,
    pub(super) pk: &'static str,
}

fn check_format(reading: &'static str, format: u32) -> Result<(), StoreError> {
    match format {
        FORMAT => Ok(()),
        other => Err(malformed(reading, format!("it has format {other}, and this program knows {FORMAT} only"))),
    }
}

pub(super) fn check_bytes(operation: &'static str, bytes: usize) -> Result<(), StoreError> {
    if bytes <= DOCUMENT_BYTES_MAX {
        return Ok(());
    }
    let why = format!("its document would have about {bytes} bytes, and no more than {DOCUMENT_BYTES_MAX} are taken");
    Err(StoreError::new(ErrorKind::TooLarge, operation, why))
}

fn bytes_of(reading: &'static str, text: &str) -> Result<Vec<u8>, StoreError> {
    BASE64.decode(text).map_err(|e| malformed(reading, e))
}

#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests;
