//! Dead letters: one partition for each endpoint, in the order in which they came; and beside each letter an item for its cause
//! that names the letter, so that it is kept once. Whoever deletes a letter by hand may leave its cause: that then names what is not
//! there, and the next letter takes it over.

use std::sync::Arc;

use async_trait::async_trait;
use aws_sdk_dynamodb::{
    operation::transact_write_items::TransactWriteItemsError,
    types::{AttributeValue, ReturnValuesOnConditionCheckFailure},
};
use futures_util::future::try_join_all;
use hapax_core::{
    codec::record,
    envelope::{Destination, Envelope},
    ids::{EndpointName, Fingerprint},
    ports::{DeadLetter, DeadLetters, ErrorKind, Page, StoreError},
    time::Timestamp,
};
use uuid::Uuid;

use super::{
    DynamoDb,
    call::{CONDITION_FAILED, Doing, Failed},
    entity::{CHUNK_BYTES_MAX, damaged, in_order, into_bytes},
    keys::{BYTES, Item, PK, Place, bytes, letters, number, text},
    token::CHUNKS_MAX,
};

const MESSAGE: &str = "m";
const SAGA: &str = "saga";
const DESTINATION: &str = "to";
const REASON: &str = "reason";
const ATTEMPTS: &str = "attempts";
const TIME: &str = "time";
/// Under what a large letter's chunks are found.
const CHUNKED: &str = "id";
/// How many chunks there are.
const CHUNKS: &str = "n";
/// Which letter a cause has: its sort key.
const LETTER: &str = "l";

/// What the item of a letter holds of its message; what is larger is kept in chunks.
const INLINE_BYTES_MAX: usize = 256 * 1024;
/// What is kept of a reason: more than any chain of errors says, and no reason to lose a letter.
const REASON_BYTES_MAX: usize = 64 * 1024;
/// Largest message, in bytes as it is stored: DynamoDB takes 4 MB in one transaction.
const LETTER_BYTES_MAX: usize = 3_800_000;
/// How often a cause may be another than it was a moment ago before that is an error.
const CAUSES_MAX: u32 = 5;
/// Letters in one answer.
const LETTERS_PAGE: usize = 100;

/// Whether a letter was written.
enum Kept {
    Now,
    /// Its cause has this letter already, or none any more.
    Not(Option<String>),
}

#[async_trait]
impl DeadLetters for DynamoDb {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        let doing = Doing::writing("setting a message aside");
        let envelope = record::encode_envelope(&letter.envelope);
        let envelope = envelope.map_err(|e| doing.error(ErrorKind::Malformed, "encoding a message").caused_by(e))?;
        if envelope.len() > LETTER_BYTES_MAX {
            let why = format!(
                "the message has {} bytes, more than the {LETTER_BYTES_MAX} that one write to DynamoDB takes",
                envelope.len()
            );
            return Err(doing.error(ErrorKind::TooLarge, why));
        }
        let doing = doing.of_bytes(envelope.len());
        let id = Uuid::now_v7(); // In order within this process, also within a millisecond.
        let (cause, items) = items_of(letter, envelope, self.0.clock.now(), id);
        let (looking, mut before) = (Doing::reading(doing.operation), None);
        for _ in 0..CAUSES_MAX {
            let Kept::Not(found) = self.keep(doing, &cause, before, &items).await? else { return Ok(()) };
            if let Some(order) = &found
                && self.get(looking, &Place::letter(&letter.endpoint, order), Some(PK)).await?.is_some()
            {
                return Ok(()); // It is there.
            }
            before = found;
        }
        Err(doing.error(ErrorKind::Unavailable, "others write and delete this letter all the time"))
    }

    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        let doing = Doing::reading("listing dead letters");
        let wanted = page.skip.saturating_add(page.limit).clamp(1, LETTERS_PAGE);
        let query = self.0.client.query().table_name(&self.0.table).consistent_read(true);
        let mut query = query
            .key_condition_expression("#pk = :pk")
            .expression_attribute_names("#pk", PK)
            .expression_attribute_values(":pk", text(letters(endpoint)))
            .limit(i32::try_from(wanted).unwrap_or(1));
        if let Some(id) = &page.message_id {
            query = query
                .filter_expression("#m = :m")
                .expression_attribute_names("#m", MESSAGE)
                .expression_attribute_values(":m", text(id.to_string()))
                .limit(LETTERS_PAGE as i32);
        }
        let (mut skip, mut start, mut is_asked_for) = (page.skip, None, true);
        let (mut found, mut is_all): (Vec<Item>, bool) = (Vec::new(), page.limit == 0);
        loop {
            while !is_all && found.len() < page.limit {
                let (items, next) = self.page(doing, &query, start.take()).await?;
                let skipped = skip.min(items.len());
                skip -= skipped;
                found.extend(items.into_iter().skip(skipped));
                is_all = next.is_none();
                start = next;
            }
            let later = found.split_off(found.len().min(page.limit));
            let letters = found.into_iter().map(|item| async move {
                let letter = self.whole(doing, endpoint, item).await;
                readable(letter, is_asked_for)
            });
            let letters: Vec<DeadLetter> = try_join_all(letters).await?.into_iter().flatten().collect();
            // Empty is the last page alone: where nothing of one can be read, the one behind it is looked at.
            if !letters.is_empty() || (is_all && later.is_empty()) {
                return Ok(letters);
            }
            (found, is_asked_for) = (later, false);
        }
    }

    async fn discard(&self, letters: &[DeadLetter]) -> Result<usize, StoreError> {
        let mut discarded = 0;
        for letter in letters {
            discarded += usize::from(self.discard_one(letter).await?);
        }
        Ok(discarded)
    }
}

impl DynamoDb {
    /// Writes the items of a letter, and its cause if that has the letter `before`, or none.
    async fn keep(
        &self,
        doing: Doing,
        cause: &Item,
        before: Option<String>,
        letter: &[Item],
    ) -> Result<Kept, StoreError> {
        let mut actions = vec![self.action(doing, |put| {
            let put = match before {
                None => put.condition_expression("attribute_not_exists(#l)"),
                Some(order) => put.condition_expression("#l = :l").expression_attribute_values(":l", text(order)),
            };
            put.set_item(Some(cause.clone()))
                .expression_attribute_names("#l", LETTER)
                .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
        })?];
        for item in letter {
            actions.push(self.action(doing, |put| put.set_item(Some(item.clone())))?);
        }
        match self.transaction(doing, actions).await {
            Ok(()) => Ok(Kept::Now),
            Err(Failed::Refused(TransactWriteItemsError::TransactionCanceledException(cancelled)))
                if cancelled.cancellation_reasons().first().and_then(|first| first.code())
                    == Some(CONDITION_FAILED) =>
            {
                let found = cancelled.cancellation_reasons().first().and_then(|first| first.item());
                Ok(Kept::Not(found.and_then(|found| string(found, LETTER)).map(str::to_owned)))
            }
            Err(failed) => Err(failed.into_error(doing)),
        }
    }

    /// Removes a letter with all its items. Whether it was there.
    async fn discard_one(&self, letter: &DeadLetter) -> Result<bool, StoreError> {
        let doing = Doing::writing("discarding a dead letter");
        let (looking, cause) = (Doing::reading(doing.operation), Place::cause(&letter.endpoint, &cause(letter)));
        for _ in 0..CAUSES_MAX {
            let found = self.get(looking, &cause, None).await?;
            let Some(order) = found.as_ref().and_then(|found| string(found, LETTER)) else { return Ok(false) };
            let place = Place::letter(&letter.endpoint, order);
            let Some(item) = self.get(looking, &place, None).await? else { return Ok(false) };
            let mut actions = vec![
                self.deletion_if(doing, &cause, |delete| {
                    delete
                        .condition_expression("#l = :l")
                        .expression_attribute_names("#l", LETTER)
                        .expression_attribute_values(":l", text(order))
                })?,
                self.deletion_if(doing, &place, |delete| {
                    delete.condition_expression("attribute_exists(#pk)").expression_attribute_names("#pk", PK)
                })?,
            ];
            let chunks = parsed::<u32>(&item, CHUNKS).unwrap_or_default().min(CHUNKS_MAX);
            if let Some(id) = string(&item, CHUNKED) {
                for number in 0..chunks {
                    actions.push(self.deletion(doing, &Place::letter_chunk(id, number))?);
                }
            }
            match self.transaction(doing, actions).await {
                Ok(()) => return Ok(true),
                // Somebody else has removed it, and may have added it again.
                Err(Failed::Refused(TransactWriteItemsError::TransactionCanceledException(cancelled)))
                    if cancelled
                        .cancellation_reasons()
                        .iter()
                        .any(|reason| reason.code() == Some(CONDITION_FAILED)) => {}
                Err(failed) => return Err(failed.into_error(doing)),
            }
        }
        Err(doing.error(ErrorKind::Unavailable, "others write and delete this letter all the time"))
    }

    async fn whole(&self, doing: Doing, endpoint: &EndpointName, mut item: Item) -> Result<DeadLetter, StoreError> {
        let place = Place::of(&item).unwrap_or_else(Place::meta);
        let damaged = || damaged(doing, &place);
        let envelope = match item.remove(BYTES) {
            Some(bytes) => into_bytes(bytes).map_err(|()| damaged())?,
            None => {
                let places = chunks_of(&item).ok_or_else(damaged)?;
                let mut found = self.chunks(doing, &places).await?;
                let whole = places.iter().map(|place| found.remove(place)).collect::<Option<Vec<_>>>();
                whole.ok_or_else(damaged)?.concat()
            }
        };
        let envelope = record::decode_envelope(&envelope).map_err(|e| damaged().caused_by(e))?;
        read(&item, endpoint, envelope).ok_or_else(damaged)
    }
}

/// The item of a letter's cause; that of the letter, with its chunks behind it. It comes at `now`, by the service's clock.
pub(super) fn items_of(letter: &DeadLetter, envelope: Vec<u8>, now: u64, id: Uuid) -> (Item, Vec<Item>) {
    let order = format!("{}#{}", in_order(now), id.simple());
    let reason = &letter.reason[..letter.reason.floor_char_boundary(REASON_BYTES_MAX)];
    let mut item = Place::letter(&letter.endpoint, &order).item([
        (MESSAGE, text(letter.envelope.message_id.to_string())),
        (REASON, text(reason)),
        (ATTEMPTS, number(letter.attempts)),
        (TIME, number(letter.time.as_millis())),
    ]);
    if let Some(saga) = &letter.saga {
        item.insert(SAGA.to_owned(), text(saga.as_str()));
    }
    if let Some(destination) = &letter.destination {
        item.insert(DESTINATION.to_owned(), text(in_text(destination)));
    }
    let mut chunks = Vec::new();
    if envelope.len() <= INLINE_BYTES_MAX {
        item.insert(BYTES.to_owned(), bytes(envelope));
    } else {
        let id = id.simple().to_string();
        let places = (0..).map(|number| Place::letter_chunk(&id, number));
        let all = places.zip(envelope.chunks(CHUNK_BYTES_MAX));
        chunks = all.map(|(place, chunk)| place.item([(BYTES, bytes(chunk))])).collect();
        item.extend([(CHUNKED.to_owned(), text(id)), (CHUNKS.to_owned(), number(chunks.len()))]);
    }
    let cause = Place::cause(&letter.endpoint, &cause(letter)).item([(LETTER, text(order))]);
    (cause, std::iter::once(item).chain(chunks).collect())
}

/// Where the chunks of a letter are that does not fit into its item.
pub(super) fn chunks_of(item: &Item) -> Option<Vec<Place>> {
    let id = string(item, CHUNKED)?;
    let chunks = parsed(item, CHUNKS).filter(|chunks| *chunks <= CHUNKS_MAX)?;
    Some((0..chunks).map(|number| Place::letter_chunk(id, number)).collect())
}

/// A letter that is damaged is told of and left out: it must not hide the others. One whose page was not asked for is told of when that is.
fn readable(letter: Result<DeadLetter, StoreError>, is_asked_for: bool) -> Result<Option<DeadLetter>, StoreError> {
    match letter {
        Err(error) if error.kind() == ErrorKind::Malformed => {
            if is_asked_for {
                tracing::warn!(%error, "a dead letter is left out of the list: a person has to repair or delete it");
            }
            Ok(None)
        }
        letter => letter.map(Some),
    }
}

/// What makes a letter the same one, see [`DeadLetter::is_same`]: at most some 500 bytes, of the 1024 that a key may have. Names
/// hold no `#`, and the message id comes last.
fn cause(letter: &DeadLetter) -> String {
    let fingerprint = u128::from_be_bytes(*Fingerprint::of(&letter.envelope).as_bytes());
    let saga = letter.saga.as_ref().map_or("", |saga| saga.as_str());
    let destination = letter.destination.as_ref().map(in_text).unwrap_or_default();
    format!("{fingerprint:032x}#{saga}#{destination}#{}", letter.envelope.message_id)
}

fn in_text(destination: &Destination) -> String {
    match destination {
        Destination::Endpoint(name) => format!("e:{name}"),
        Destination::Topic(name) => format!("t:{name}"),
    }
}

fn string<'a>(item: &'a Item, name: &str) -> Option<&'a str> {
    match item.get(name)? {
        AttributeValue::S(text) => Some(text),
        _ => None,
    }
}

fn parsed<T: std::str::FromStr>(item: &Item, name: &str) -> Option<T> {
    item.get(name)?.as_n().ok()?.parse().ok()
}

pub(super) fn read(item: &Item, endpoint: &EndpointName, envelope: Envelope) -> Option<DeadLetter> {
    let destination = match string(item, DESTINATION) {
        None => None,
        Some(text) => Some(match text.split_once(':')? {
            ("e", name) => Destination::Endpoint(name.parse().ok()?),
            ("t", name) => Destination::Topic(name.parse().ok()?),
            _ => return None,
        }),
    };
    Some(DeadLetter {
        envelope: Arc::new(envelope),
        endpoint: endpoint.clone(),
        saga: match string(item, SAGA) {
            None => None,
            Some(saga) => Some(saga.parse().ok()?),
        },
        destination,
        reason: string(item, REASON)?.to_owned(),
        attempts: parsed(item, ATTEMPTS)?,
        time: Timestamp::from_millis(parsed(item, TIME)?),
    })
}
