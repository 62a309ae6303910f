//! An entity as items: one that holds all of it, or as much as fits, and chunks.

use std::sync::Arc;

use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;
use hapax_core::{
    codec::record,
    entity::{Entity, OutboxEntry, Version},
    ids::EntityKey,
    ports::{ErrorKind, StoreError},
};
use uuid::Uuid;

use super::{
    call::Doing,
    keys::{BYTES, Care, INDEX_PK, INDEX_SK, Item, OUTBOX, Place, STATE, VERSION, bytes, shard_of, text},
    token::{Kind, Part, Token},
};

/// Largest entity, in bytes as [`Entity::size`] counts. DynamoDB takes 4 MB in one transaction; the rest is for what hapax
/// adds and for the dedup entries that are stored with it.
pub const ENTITY_BYTES_MAX: usize = 3_500_000;
/// What an item holds of an entity: DynamoDB takes 400 KB with names and keys.
const ITEM_BYTES_MAX: usize = 390 * 1024;
/// What a chunk holds.
pub(super) const CHUNK_BYTES_MAX: usize = 390 * 1024;
/// What is smaller is kept together where not all fits into the item: so there are few chunks, and what stays as it is from
/// one save to the next is not written again where it is large.
const PART_BYTES_MIN: usize = 64 * 1024;

/// An entity, ready to be written.
#[derive(Debug)]
pub(super) struct Written {
    /// What the item's version must be; `None`: there is none.
    pub(super) expected: Option<Arc<str>>,
    pub(super) version: Arc<str>,
    pub(super) item: Item,
    /// Chunks that are new.
    pub(super) puts: Vec<Item>,
    /// Chunks that are no longer needed.
    pub(super) deletes: Vec<Place>,
    /// Bytes of all that is written, about.
    pub(super) bytes: usize,
}

/// What is known of the version before.
#[derive(Debug)]
pub(super) struct Before {
    pub(super) text: Arc<str>,
    pub(super) token: Token,
}

impl Before {
    /// `None` for a version that is none of this store's: nothing that is stored has it.
    pub(super) fn of(version: &Version) -> Option<Self> {
        let text = version.as_text()?;
        Some(Self { text: text.into(), token: Token::parse(text)? })
    }
}

/// How an entity is spread over items.
struct Spread<'a> {
    entity: &'a Entity,
    parts: Vec<Part>,
    /// The bytes of the parts that are new.
    new: Vec<(Part, Vec<u8>)>,
    state: Option<&'a Bytes>,
    outbox: Option<Vec<u8>>,
}

/// Makes items of `entity`, which follows on `before`. `same_state`: its state is that of `before`.
pub(super) fn write(
    doing: Doing,
    key: &EntityKey,
    before: Option<Before>,
    entity: &Entity,
    same_state: bool,
    now: u64,
) -> Result<Written, StoreError> {
    check_size(doing, entity)?;
    let write = Uuid::new_v4();
    let old = before.as_ref().map(|before| &before.token);
    let spread = Spread::of(entity, old, same_state, write)
        .map_err(|e| doing.error(ErrorKind::Malformed, "encoding").caused_by(e))?;
    let waiting = entity.outbox.iter().map(|entry| {
        let since = old.and_then(|old| old.since(&entry.attempt)).unwrap_or(now);
        (entry.attempt, since)
    });
    let first = now.saturating_mul(1000);
    let number = old.map_or(first, |old| old.number.saturating_add(1));
    let token = Token { number, write, waiting: waiting.collect(), parts: spread.parts.clone() };
    let place = Place::entity(key);
    let version: Arc<str> = token.to_string().into();
    let held = spread.state.map_or(0, |state| state.len()) + spread.outbox.as_ref().map_or(0, Vec::len) + version.len();
    if held > ITEM_BYTES_MAX {
        let why = format!(
            "{} entries of its outbox do not fit into one item: send them before it takes more",
            entity.outbox.len()
        );
        return Err(doing.error(ErrorKind::TooLarge, why));
    }
    let mut item = place.item([(VERSION, text(&*version))]);
    if let Some(state) = spread.state.filter(|state| !state.is_empty()) {
        item.insert(STATE.to_owned(), bytes(state.to_vec()));
    }
    if let Some(outbox) = spread.outbox {
        item.insert(OUTBOX.to_owned(), bytes(outbox));
    }
    if let Some((pk, sk)) = cared_for(key, entity, now) {
        item.extend([(INDEX_PK.to_owned(), text(pk)), (INDEX_SK.to_owned(), text(sk))]);
    }
    let gone = old.into_iter().flat_map(|old| &old.parts).filter(|old| !spread.parts.iter().any(|part| part.is(old)));
    let deletes = gone.flat_map(|part| places(&place, part)).collect();
    let chunked = spread.new.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
    let puts = spread.new.iter().flat_map(|(part, held)| {
        places(&place, part).zip(held.chunks(CHUNK_BYTES_MAX)).map(|(place, chunk)| place.item([(BYTES, bytes(chunk))]))
    });
    let puts = puts.collect();
    Ok(Written { expected: before.map(|before| before.text), version, item, puts, deletes, bytes: held + chunked })
}

/// Where the chunks of `part` are.
fn places(place: &Place, part: &Part) -> impl Iterator<Item = Place> {
    let name = part.name();
    (0..part.chunks).map(move |number| place.chunk(&name, number))
}

/// Where the index is to have it: with something to send by its key; as a tombstone by the time when it became one.
fn cared_for(key: &EntityKey, entity: &Entity, now: u64) -> Option<(String, String)> {
    let shard = shard_of(key);
    if !entity.outbox.is_empty() {
        return Some((Care::Pending.shard(key.scope(), shard), key.key().as_str().to_owned()));
    }
    entity.completed.then(|| (Care::Over.shard(key.scope(), shard), format!("{}#{}", in_order(now), key.key())))
}

/// A time as text that is ordered as the time.
pub(super) fn in_order(millis: u64) -> String {
    format!("{millis:020}")
}

fn check_size(doing: Doing, entity: &Entity) -> Result<(), StoreError> {
    let size = entity.size();
    if size > ENTITY_BYTES_MAX {
        let why = format!("it has {size} bytes, more than the {ENTITY_BYTES_MAX} that one write to DynamoDB takes");
        return Err(doing.error(ErrorKind::TooLarge, why));
    }
    Ok(())
}

impl<'a> Spread<'a> {
    fn of(
        entity: &'a Entity,
        old: Option<&Token>,
        same_state: bool,
        write: Uuid,
    ) -> Result<Self, hapax_core::codec::CodecError> {
        let mut spread = Self { entity, parts: Vec::new(), new: Vec::new(), state: Some(&entity.state), outbox: None };
        let old = old.map_or(&[][..], |old| &old.parts);
        let kept = old.iter().find(|part| same_state && part.kind == Kind::State);
        if let Some(kept) = kept {
            spread.parts.push(*kept);
            spread.state = None;
        }
        let whole = record::encode_outbox(&spread.without(&[]))?;
        let stays = |entry: &OutboxEntry| old.iter().find(|part| part.kind == Kind::Entry && part.id == id_of(entry));
        let stays_any = entity.outbox.iter().any(|entry| stays(entry).is_some());
        if !stays_any && spread.fits(whole.len()) {
            spread.outbox = Some(whole);
            return Ok(spread);
        }
        if spread.state.is_some_and(|state| state.len() >= PART_BYTES_MIN) && !spread.fits(whole.len()) {
            spread.add(Kind::State, write, 0, entity.state.to_vec());
            spread.state = None;
        }
        let mut apart = Vec::new();
        for (index, entry) in (0_u32..).zip(&entity.outbox) {
            match stays(entry) {
                Some(part) => spread.parts.push(Part { index, ..*part }),
                None if entry.size() >= PART_BYTES_MIN => {
                    let alone = Entity { outbox: vec![entry.clone()], ..Entity::default() };
                    spread.add(Kind::Entry, id_of(entry), index, record::encode_outbox(&alone)?);
                }
                None => continue,
            }
            apart.push(index as usize);
        }
        let rest = record::encode_outbox(&spread.without(&apart))?;
        if spread.fits(rest.len()) {
            spread.outbox = Some(rest);
        } else {
            spread.add(Kind::Outbox, write, 0, rest);
        }
        Ok(spread)
    }

    fn add(&mut self, kind: Kind, id: Uuid, index: u32, held: Vec<u8>) {
        let chunks = u32::try_from(held.len().div_ceil(CHUNK_BYTES_MAX)).unwrap_or(u32::MAX);
        let part = Part { kind, id, chunks, index };
        self.parts.push(part);
        self.new.push((part, held));
    }

    /// The entity but for its state and the entries that are kept apart.
    fn without(&self, apart: &[usize]) -> Entity {
        let outbox = self.entity.outbox.iter().enumerate().filter(|(index, _)| !apart.contains(index));
        Entity {
            state: Bytes::new(),
            completed: self.entity.completed,
            commits: self.entity.commits,
            timeouts: self.entity.timeouts.clone(),
            outbox: outbox.map(|(_, entry)| entry.clone()).collect(),
        }
    }

    /// Whether an outbox of so many bytes fits beside the state and the version.
    fn fits(&self, outbox: usize) -> bool {
        const PER_ENTRY_BYTES: usize = 2 * 32 + 24;
        let version = 100 + (self.entity.outbox.len() + self.parts.len()) * PER_ENTRY_BYTES;
        self.state.map_or(0, |state| state.len()) + outbox + version <= ITEM_BYTES_MAX
    }
}

/// Of an attempt and how much of it is left: what has been sent of an entry goes from it, and then its chunks are others.
fn id_of(entry: &OutboxEntry) -> Uuid {
    let mut id = *entry.attempt.as_bytes();
    let left = u32::try_from(entry.unsent().count()).unwrap_or(u32::MAX).to_be_bytes();
    for (byte, left) in id.iter_mut().rev().zip(left.iter().rev()) {
        *byte ^= left;
    }
    Uuid::from_bytes(id)
}

/// An entity's item, as read.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) version: Arc<str>,
    pub(super) token: Token,
    place: Place,
    state: Bytes,
    outbox: Option<Vec<u8>>,
}

impl Read {
    pub(super) fn of(doing: Doing, place: Place, mut item: Item) -> Result<Self, StoreError> {
        let version = version_of(&item).ok_or_else(|| damaged(doing, &place))?;
        let token = Token::parse(&version).ok_or_else(|| damaged(doing, &place))?;
        let mut taken = |name| item.remove(name).map(into_bytes).transpose().map_err(|()| damaged(doing, &place));
        let (state, outbox) = (taken(STATE)?, taken(OUTBOX)?);
        Ok(Self { version: version.into(), token, state: state.unwrap_or_default().into(), outbox, place })
    }

    /// Where all of its chunks are.
    pub(super) fn chunks(&self) -> Vec<Place> {
        self.token.parts.iter().flat_map(|part| places(&self.place, part)).collect()
    }

    /// The entity, put together with what was found of its chunks; `None` when one is missing.
    pub(super) fn into_entity(
        mut self,
        doing: Doing,
        mut chunk: impl FnMut(&Place) -> Option<Vec<u8>>,
    ) -> Result<Option<Entity>, StoreError> {
        let mut entries = Vec::new();
        for part in std::mem::take(&mut self.token.parts) {
            let mut whole = Vec::new();
            for place in places(&self.place, &part) {
                let Some(bytes) = chunk(&place) else { return Ok(None) };
                whole.extend(bytes);
            }
            match part.kind {
                Kind::State => self.state = whole.into(),
                Kind::Outbox => self.outbox = Some(whole),
                Kind::Entry => entries.push((part.index as usize, whole)),
            }
        }
        let damaged = |e| damaged(doing, &self.place).caused_by(e);
        let outbox = self.outbox.as_ref().ok_or_else(|| self::damaged(doing, &self.place))?;
        let mut entity = record::decode_outbox(self.state.clone(), outbox).map_err(damaged)?;
        entries.sort_unstable_by_key(|(index, _)| *index);
        for (index, whole) in entries {
            let alone = record::decode_outbox(Bytes::new(), &whole).map_err(damaged)?;
            if index > entity.outbox.len() {
                return Err(self::damaged(doing, &self.place));
            }
            entity.outbox.splice(index..index, alone.outbox);
        }
        Ok(Some(entity))
    }
}

/// The version that an entity's item says it has.
pub(super) fn version_of(item: &Item) -> Option<String> {
    item.get(VERSION)?.as_s().ok().cloned()
}

pub(super) fn into_bytes(value: AttributeValue) -> Result<Vec<u8>, ()> {
    match value {
        AttributeValue::B(blob) => Ok(blob.into_inner()),
        _ => Err(()),
    }
}

pub(super) fn damaged(doing: Doing, place: &Place) -> StoreError {
    let why = format!(
        "the item `{}`, `{}` is damaged or was written by another version of this program: upgrade it, or repair the item",
        place.pk, place.sk
    );
    doing.error(ErrorKind::Malformed, why)
}
