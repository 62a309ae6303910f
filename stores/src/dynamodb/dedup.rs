//! Dedup entries: an item each.

use std::{collections::HashSet, time::Duration};

use async_trait::async_trait;
use aws_sdk_dynamodb::{
    operation::put_item::{PutItemError, PutItemOutput},
    types::ReturnConsumedCapacity,
};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use hapax_core::{
    codec::record,
    entity::{DedupEntry, Entity},
    ids::{AttemptId, DedupKey, Fingerprint},
    ports::{DedupCapabilities, DedupStore, ErrorKind, Evicted, Known, LongMemory, StoreError},
    time::Timestamp,
};

use super::{
    DynamoDb, NAME,
    call::{Doing, Failed},
    entity::{CHUNK_BYTES_MAX, damaged, into_bytes},
    keys::{ATTEMPT, BYTES, EXPIRES, FINGERPRINT, Item, PK, Place, TIME, bytes, number},
    write::NEW_MARK,
};

/// Largest reply that is kept for duplicates, in bytes as it is stored: it has to fit into the dedup entry's item.
pub const REPLY_BYTES_MAX: usize = CHUNK_BYTES_MAX;
/// How many entries of one `insert` are on their way at once.
const INSERTS_AT_ONCE: usize = 16;

#[async_trait]
impl DedupStore for DynamoDb {
    fn dedup_capabilities(&self) -> DedupCapabilities {
        DedupCapabilities {
            name: NAME,
            keeps: Some(self.0.keeps),
            alone: true,
            durable: true,
            consistent: true,
            reply_bytes_max: REPLY_BYTES_MAX,
        }
    }

    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        self.known(Doing::reading("reading dedup entries"), keys.iter().copied()).await
    }

    async fn insert(&self, entries: &[DedupEntry]) -> Result<(), StoreError> {
        self.insert_marks(Doing::writing("adding dedup entries"), entries).await
    }

    async fn evict(&self, retention: Duration) -> Result<Evicted, StoreError> {
        let keeps = self.0.keeps;
        if retention <= keeps {
            return Ok(Evicted::default()); // The service does it.
        }
        let why = format!(
            "the table `{}` keeps dedup entries for {keeps:?}, less than the {retention:?} asked for: ask for \
             less, or open it with `keeps({retention:?})`, which says how a table is changed",
            self.0.table
        );
        Err(StoreError::new(ErrorKind::Misconfigured, "evicting dedup entries", why))
    }

    fn long_memory(&self) -> Option<&dyn LongMemory> {
        None
    }
}

impl DynamoDb {
    /// What is there under `keys`. All or an error.
    pub(super) async fn known(
        &self,
        doing: Doing,
        keys: impl IntoIterator<Item = DedupKey>,
    ) -> Result<Known, StoreError> {
        let mut asked = HashSet::new(); // One request must not hold a key twice.
        let places: Vec<Place> =
            keys.into_iter().filter(|key| asked.insert(*key)).map(|key| Place::mark(&key)).collect();
        if places.is_empty() {
            return Ok(Known::default());
        }
        let items = self.items_at_rest(doing, &places).await?;
        let entries = items.into_iter().map(|item| read(doing, item)).collect::<Result<_, _>>()?;
        Ok(Known::new(entries))
    }

    /// The items of `entries`, each key once.
    pub(super) fn marks(&self, doing: Doing, entries: &[DedupEntry]) -> Result<Vec<Item>, StoreError> {
        let mut keys = HashSet::new();
        let expires = self.expires();
        entries.iter().filter(|entry| keys.insert(entry.key)).map(|entry| item_of(doing, entry, expires)).collect()
    }

    /// When an entry that is inserted now may be removed, in seconds since 1970 by the service's clock.
    fn expires(&self) -> u64 {
        let now = self.0.clock.now() / 1000;
        now.saturating_add(self.0.keeps.as_secs()).saturating_add(self.0.margin.as_secs()).saturating_add(1)
    }

    pub(super) async fn insert_marks(&self, doing: Doing, entries: &[DedupEntry]) -> Result<(), StoreError> {
        self.put_marks(doing, self.marks(doing, entries)?).await
    }

    pub(super) async fn put_marks(&self, doing: Doing, marks: Vec<Item>) -> Result<(), StoreError> {
        if let [_] = marks[..] {
            for mark in marks {
                self.put_mark(doing, mark).await?;
            }
            return Ok(());
        }
        let puts = stream::iter(marks).map(|mark| self.put_mark(doing, mark));
        puts.buffer_unordered(INSERTS_AT_ONCE).try_collect().await.map_err(|e| partly(doing, e))
    }

    async fn put_mark(&self, doing: Doing, mark: Item) -> Result<(), StoreError> {
        let attempt = mark.get(ATTEMPT).cloned().map(|attempt| [(":a".to_owned(), attempt)].into());
        let request = self.0.client.put_item().table_name(&self.0.table).set_item(Some(mark));
        let request = request
            .condition_expression(NEW_MARK)
            .expression_attribute_names("#pk", PK)
            .expression_attribute_names("#a", ATTEMPT)
            .set_expression_attribute_values(attempt)
            .return_consumed_capacity(ReturnConsumedCapacity::Total);
        let whole = |answer: &PutItemOutput| answer.consumed_capacity().is_some();
        match self.0.limits.call_whole(doing, whole, || request.clone().send()).await {
            Ok(answer) => {
                self.spent(answer.consumed_capacity());
                Ok(())
            }
            // Another attempt's: it stays.
            Err(Failed::Refused(PutItemError::ConditionalCheckFailedException(_))) => Ok(()),
            Err(failed) => Err(failed.into_error(doing)),
        }
    }
}

/// Of several entries some may be in when one could not be written.
fn partly(doing: Doing, error: StoreError) -> StoreError {
    if error.is_unknown_outcome() {
        return error;
    }
    doing.error(ErrorKind::UnknownOutcome, "of several entries not all were written").caused_by(error)
}

/// Whether every reply in `entity` will fit into the dedup entry that is to keep it.
pub(super) fn check_replies(doing: Doing, entity: &Entity) -> Result<(), StoreError> {
    for entry in entity.outbox.iter().filter(|entry| entry.reply.is_some() && entry.size() > REPLY_BYTES_MAX / 2) {
        if let Some(reply) = entry.to_dedup_entry().reply {
            let reply = record::encode_outgoing(&reply);
            check_reply(doing, reply.map_or(usize::MAX, |reply| reply.len()))?;
        }
    }
    Ok(())
}

fn check_reply(doing: Doing, reply: usize) -> Result<(), StoreError> {
    if reply <= REPLY_BYTES_MAX {
        return Ok(());
    }
    let why = format!(
        "a reply has {reply} bytes, more than the {REPLY_BYTES_MAX} that are kept for duplicates: send a reference to it"
    );
    Err(doing.error(ErrorKind::TooLarge, why))
}

/// The item of `entry`, which the service may remove at `expires`, in seconds since 1970.
pub(super) fn item_of(doing: Doing, entry: &DedupEntry, expires: u64) -> Result<Item, StoreError> {
    let mut item = Place::mark(&entry.key).item([
        (ATTEMPT, bytes(*entry.attempt.as_bytes())),
        (FINGERPRINT, bytes(*entry.fingerprint.as_bytes())),
        (TIME, number(entry.time.as_millis())),
        (EXPIRES, number(expires)),
    ]);
    if let Some(reply) = &entry.reply {
        let reply = record::encode_outgoing(reply);
        let reply = reply.map_err(|e| doing.error(ErrorKind::Malformed, "encoding a reply").caused_by(e))?;
        check_reply(doing, reply.len())?;
        item.insert(BYTES.to_owned(), bytes(reply));
    }
    Ok(item)
}

pub(super) fn read(doing: Doing, mut item: Item) -> Result<DedupEntry, StoreError> {
    let place = Place::of(&item).unwrap_or_else(Place::meta);
    let reply = item.remove(BYTES).map(into_bytes);
    let entry = || {
        let field = |name| Some(item.get(name)?.as_b().ok()?.as_ref());
        Some(DedupEntry {
            key: DedupKey::from_hex(place.pk.strip_prefix("d#")?)?,
            attempt: AttemptId::from_bytes(field(ATTEMPT)?.try_into().ok()?),
            fingerprint: Fingerprint::from_bytes(field(FINGERPRINT)?.try_into().ok()?),
            reply: None,
            time: Timestamp::from_millis(item.get(TIME)?.as_n().ok()?.parse().ok()?),
        })
    };
    let mut entry = entry().ok_or_else(|| damaged(doing, &place))?;
    if let Some(reply) = reply {
        let reply = reply.map_err(|()| damaged(doing, &place))?;
        entry.reply = Some(record::decode_outgoing(&reply).map_err(|e| damaged(doing, &place).caused_by(e))?);
    }
    Ok(entry)
}
