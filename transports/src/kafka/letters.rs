//! Dead letters: one topic for each endpoint, with one record for each letter.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use hapax_core::{
    envelope::{Destination, Envelope},
    ids::{EndpointName, SagaName},
    ports::{DeadLetter, DeadLetters, ErrorKind, Page, StoreError, TransportError},
    time::Timestamp,
};
use sha2::{Digest, Sha256};

use super::{
    Broker, Kafka,
    asker::{Kept, Place},
    errors::{failure, is_too_large, is_unknown_topic},
    lane::Unreadable,
    message::{Headers, cut, envelope_of, headers_of},
    names::{Names, hex},
    producing::Parcel,
    topology::Use,
};

const ENDPOINT: &str = "x-hapax-endpoint";
const SAGA: &str = "x-hapax-saga";
const DESTINATION: &str = "x-hapax-destination";
const REASON: &str = "x-hapax-reason";
const ATTEMPTS: &str = "x-hapax-attempts";
const TIME: &str = "x-hapax-time";
/// Where the message lies whose body was too large for a letter: topic, partition and offset.
const BODY_AT: &str = "x-hapax-body-at";
/// Who takes a letter away.
const TAKEN_BY: &str = "x-hapax-taken-by";
/// Longest reason of a letter that is too large with a longer one, in bytes.
const REASON_BYTES_SHORT: usize = 200;
/// Largest header that is kept in a letter without its body, and all of them together, in bytes.
const HEADER_BYTES_SHORT: usize = 1 << 10;
const HEADERS_BYTES_SHORT: usize = 16 << 10;

const ADDING: &str = "adding a dead letter";
const LISTING: &str = "listing dead letters";
const DISCARDING: &str = "discarding dead letters";

/// A letter on its way.
#[derive(Debug)]
pub(super) struct Letter {
    topic: String,
    key: String,
    headers: Headers,
    marks: Vec<(&'static str, String)>,
    reason: String,
    body: Bytes,
    /// Where the message is that is set aside, if it lies in a topic.
    lies: Option<(Place, i64)>,
}

/// How much of a letter is written: less where the topic does not take more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    Whole,
    ShortReason,
    NoBody,
}

impl Letter {
    pub(super) fn of(names: &Names, letter: &DeadLetter, headers: Headers, lies: Option<(Place, i64)>) -> Self {
        let mut marks = marks(&letter.endpoint, letter.attempts, letter.time);
        marks.extend(letter.saga.as_ref().map(|saga| (SAGA, saga.to_string())));
        marks.extend(letter.destination.as_ref().map(|destination| (DESTINATION, destination.to_string())));
        Self {
            topic: names.dead_letters(&letter.endpoint),
            key: key_of(letter),
            headers,
            marks,
            reason: letter.reason.clone(),
            body: letter.envelope.body.clone(),
            lies,
        }
    }

    /// Of what is no message, with its headers as they came.
    pub(super) fn unreadable(names: &Names, endpoint: &EndpointName, it: &Unreadable, lies: (Place, i64)) -> Self {
        let mut hasher = Sha256::new();
        for (name, value) in &it.headers {
            part(&mut hasher, name.as_bytes());
            part(&mut hasher, value);
        }
        part(&mut hasher, &it.body);
        Self {
            topic: names.dead_letters(endpoint),
            key: hex(&hasher.finalize()),
            headers: it.headers.clone(),
            marks: marks(endpoint, 1, Timestamp::now()),
            reason: it.reason.clone(),
            body: it.body.clone(),
            lies: Some(lies),
        }
    }

    fn parcel(&self, extent: Extent) -> Parcel {
        let mut headers = self.headers.clone();
        let (mut reason, mut body) = (cut(&self.reason, usize::MAX).to_owned(), self.body.clone());
        if extent != Extent::Whole {
            reason = cut(&reason, REASON_BYTES_SHORT).to_owned();
        }
        if extent == Extent::NoBody {
            let mut room = HEADERS_BYTES_SHORT;
            headers.retain(|(name, value)| {
                let bytes = name.len() + value.len();
                let fits = bytes <= HEADER_BYTES_SHORT.min(room);
                room -= if fits { bytes } else { 0 };
                fits
            });
            let at = self.lies.as_ref().map(|((topic, partition), offset)| format!("{topic} {partition} {offset}"));
            let at = at.unwrap_or_else(|| "nowhere else".to_owned());
            reason.push_str(&format!("; too large for a letter: its body of {} bytes lies at {at}", body.len()));
            headers.push((BODY_AT.to_owned(), at.into_bytes()));
            body = Bytes::new();
        }
        headers.extend(self.marks.iter().map(|(name, text)| ((*name).to_owned(), text.clone().into_bytes())));
        headers.push((REASON.to_owned(), reason.into_bytes()));
        Parcel { topic: self.topic.clone(), partition: Some(0), key: Some(self.key.clone()), headers, body: Some(body) }
    }
}

fn marks(endpoint: &EndpointName, attempts: u32, time: Timestamp) -> Vec<(&'static str, String)> {
    vec![(ENDPOINT, endpoint.to_string()), (ATTEMPTS, attempts.to_string()), (TIME, time.as_millis().to_string())]
}

#[async_trait]
impl DeadLetters for Kafka {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        let add = async {
            // The same again says nothing new, and would come to be the newest.
            let (letters, _) = self.0.letters(ADDING, &letter.endpoint).await?;
            if letters.iter().any(|(_, there)| there.is_same(letter)) {
                return Ok(());
            }
            let headers = headers_of(&letter.envelope, &self.0.options);
            self.0.put_letter(ADDING, &Letter::of(&self.0.names, letter, headers, None), false).await
        };
        add.await.map_err(|e| store_error(ADDING, e))
    }

    /// The topic is read from its beginning; what is found is sorted by time. What cannot be read as a message of hapax is in the topic and
    /// not in the list; of a message that was too large for a letter the body is empty, and the reason says where it lies.
    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        let (letters, _) = self.0.letters(LISTING, endpoint).await.map_err(|e| store_error(LISTING, e))?;
        let mut letters: Vec<DeadLetter> = letters.into_iter().map(|(_, letter)| letter).collect();
        letters.retain(|letter| page.wants(letter));
        letters.sort_by_key(|letter| letter.time);
        Ok(letters.into_iter().skip(page.skip).take(page.limit).collect())
    }

    /// The log tells who was the first to take a letter away.
    async fn discard(&self, letters: &[DeadLetter]) -> Result<usize, StoreError> {
        let mut discarded = 0;
        for (place, letter) in letters.iter().enumerate() {
            let is_repeated = letters.iter().take(place).any(|before| before.is_same(letter));
            if !is_repeated && self.0.take_out(letter).await.map_err(|e| store_error(DISCARDING, e))? {
                discarded += 1;
            }
        }
        Ok(discarded)
    }
}

impl Broker {
    /// Puts a letter where letters are, confirmed. `shorter`: as much of it as the topic takes.
    pub(super) async fn put_letter(
        &self,
        operation: &'static str,
        letter: &Letter,
        shorter: bool,
    ) -> Result<(), TransportError> {
        let extents: &[Extent] = if shorter {
            &[Extent::Whole, Extent::ShortReason, Extent::NoBody]
        } else {
            &[Extent::Whole, Extent::ShortReason]
        };
        if !self.link.is_known(&letter.topic) {
            self.declared(operation, &letter.topic, Use::Keys).await?;
        }
        let mut put = Ok(0);
        for extent in extents {
            put = self.link.producing.put_one(&letter.parcel(*extent)).await;
            if !put.as_ref().is_err_and(is_too_large) {
                break;
            }
        }
        put.map(drop).map_err(|e| {
            if is_unknown_topic(&e) {
                self.link.forget(&letter.topic); // It is looked for, and declared, the next time.
            }
            failure(operation, self.link.place(), &e, true)
        })
    }

    /// What letters there are, with their keys; and for each key who has taken the last one away.
    async fn letters(
        &self,
        operation: &'static str,
        endpoint: &EndpointName,
    ) -> Result<(Vec<(String, DeadLetter)>, Vec<(String, String)>), TransportError> {
        let topic = self.names.dead_letters(endpoint);
        if !self.link.is_known(&topic) && !self.is_there(operation, &topic).await? {
            return Ok((Vec::new(), Vec::new()));
        }
        let asker = self.link.asker_of(&self.names.group(endpoint)).await?;
        let kept = self
            .link
            .ask_as(operation, &asker, move |asker| {
                let mut kept: Vec<Kept> = Vec::new();
                let mut taken: Vec<(String, String)> = Vec::new();
                asker.read(&topic, |record| fold(&mut kept, &mut taken, record))?;
                Ok((kept, taken))
            })
            .await?;
        let (kept, taken) = kept;
        let letters = kept.into_iter().filter_map(|record| {
            let letter = letter_of(&record, endpoint, &self.names)?;
            Some((record.key, letter))
        });
        Ok((letters.collect(), taken))
    }

    /// Whether it was there, and this took it.
    async fn take_out(&self, letter: &DeadLetter) -> Result<bool, TransportError> {
        let (letters, _) = self.letters(DISCARDING, &letter.endpoint).await?;
        let Some((key, _)) = letters.into_iter().find(|(_, there)| there.is_same(letter)) else { return Ok(false) };
        let me = format!("{:016x}", fastrand::u64(..));
        let parcel = Parcel {
            topic: self.names.dead_letters(&letter.endpoint),
            partition: Some(0),
            key: Some(key.clone()),
            headers: vec![(TAKEN_BY.to_owned(), me.clone().into_bytes())],
            body: None,
        };
        let put = self.link.producing.put_one(&parcel).await;
        put.map_err(|e| failure(DISCARDING, self.link.place(), &e, true))?;
        let (_, taken) = self.letters(DISCARDING, &letter.endpoint).await?;
        Ok(taken.iter().any(|(of, by)| *of == key && *by == me))
    }
}

/// A record more of the topic: the first to take a letter away is who took it.
fn fold(kept: &mut Vec<Kept>, taken: &mut Vec<(String, String)>, record: Kept) {
    let there = kept.iter().position(|before| before.key == record.key);
    match (there, record.body.is_some()) {
        (Some(place), false) => {
            kept.remove(place);
            let by = text(&record.headers, TAKEN_BY).unwrap_or_default();
            taken.push((record.key, by));
        }
        (None, true) => kept.push(record),
        (Some(_), true) | (None, false) => {} // The same letter again, or it was gone already.
    }
}

fn letter_of(record: &Kept, endpoint: &EndpointName, names: &Names) -> Option<DeadLetter> {
    let body = record.body.clone().unwrap_or_default();
    let envelope = envelope_of(&names.dead_letters(endpoint), &record.headers, body, names).ok()?;
    let text = |name| text(&record.headers, name);
    let number = |name| text(name).and_then(|number| number.parse().ok());
    Some(DeadLetter {
        envelope,
        endpoint: endpoint.clone(),
        saga: text(SAGA).and_then(|name| SagaName::parse(name).ok()),
        destination: text(DESTINATION).and_then(|text| Destination::parse(&text).ok()),
        reason: text(REASON).unwrap_or_default(),
        attempts: number(ATTEMPTS).and_then(|attempts: u64| u32::try_from(attempts).ok()).unwrap_or_default(),
        time: Timestamp::from_millis(number(TIME).unwrap_or_default()),
    })
}

fn text(headers: &Headers, name: &str) -> Option<String> {
    let found = headers.iter().rev().find(|(found, _)| found == name);
    found.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
}

/// Which letter it is: the same for all that [are the same](DeadLetter::is_same).
fn key_of(letter: &DeadLetter) -> String {
    let envelope: &Arc<Envelope> = &letter.envelope;
    let mut hasher = Sha256::new();
    part(&mut hasher, envelope.message_id.to_string().as_bytes());
    part(&mut hasher, letter.saga.as_ref().map_or("", SagaName::as_str).as_bytes());
    part(&mut hasher, letter.destination.as_ref().map(ToString::to_string).unwrap_or_default().as_bytes());
    part(&mut hasher, envelope.message_type.as_str().as_bytes());
    part(&mut hasher, &envelope.body);
    hex(&hasher.finalize())
}

fn part(hasher: &mut Sha256, bytes: &[u8]) {
    hasher.update((bytes.len() as u64).to_be_bytes());
    hasher.update(bytes);
}

fn store_error(operation: &'static str, error: TransportError) -> StoreError {
    let kind: ErrorKind = error.kind();
    StoreError::new(kind, operation, "Kafka could not do it").caused_by(error)
}
