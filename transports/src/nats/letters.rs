//! Dead letters: one stream for all endpoints, with a subject for each letter.

use std::sync::Arc;

use async_nats::{
    HeaderMap,
    jetstream::{message::StreamMessage, stream::LastRawMessageErrorKind},
};
use async_trait::async_trait;
use bytes::Bytes;
use hapax_core::{
    envelope::{Destination, Envelope},
    ids::{EndpointName, SagaName},
    ports::{DeadLetter, DeadLetters, ErrorKind, Page, StoreError, TransportError},
    time::Timestamp,
};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::{
    Broker, Nats,
    dispatcher::Headers,
    errors::{failed, refusal, unanswered},
    message::{ATTEMPTS, LAST_ON_SUBJECT, cut, envelope_of, escaped, text_of, unescaped, wire_bytes, written},
    publisher::Parcel,
};

const ENDPOINT: &str = "x-hapax-endpoint";
const SAGA: &str = "x-hapax-saga";
const DESTINATION: &str = "x-hapax-destination";
const REASON: &str = "x-hapax-reason";
const TIME: &str = "x-hapax-time";

/// Letters that one call looks at. A letter beyond them is found once some before it are gone.
const LOOKED_AT_MAX: usize = 10_000;

const ADDING: &str = "adding a dead letter";
const LISTING: &str = "listing dead letters";
const DISCARDING: &str = "discarding dead letters";

pub(super) type Extras = Vec<(&'static str, String)>;

/// What a letter says beside its message.
pub(super) fn letter_extras(
    endpoint: &EndpointName,
    saga: Option<&SagaName>,
    destination: Option<&Destination>,
    attempts: u32,
    reason: &str,
    time: Timestamp,
) -> Extras {
    let mut extras = vec![
        (ENDPOINT, endpoint.to_string()),
        (ATTEMPTS, attempts.to_string()),
        (TIME, time.as_millis().to_string()),
        (REASON, reason.to_owned()),
    ];
    extras.extend(saga.map(|saga| (SAGA, saga.to_string())));
    extras.extend(destination.map(|destination| (DESTINATION, destination.to_string())));
    extras
}

#[async_trait]
impl DeadLetters for Nats {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        let DeadLetter { envelope, endpoint, saga, destination, reason, attempts, time } = letter;
        let (saga, destination) = (saga.as_ref(), destination.as_ref());
        let extras = letter_extras(endpoint, saga, destination, *attempts, reason, *time);
        let added = self.0.put_letter(ADDING, endpoint, envelope, saga, destination, extras).await;
        added.map_err(|e| store_error(ADDING, e))
    }

    /// At most 10,000 letters are looked at in a call, in the order in which they came, and what is found is sorted by time. What cannot
    /// be read as a message of hapax is in the stream and not in the list.
    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        self.0.look(endpoint, page).await.map_err(|e| store_error(LISTING, e))
    }

    /// A letter has one copy, and the server removes it once: of several that discard it, one is told of it.
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
    /// Puts a message among the dead letters of `endpoint`, confirmed, unless it is there.
    pub(super) async fn put_letter(
        &self,
        operation: &'static str,
        endpoint: &EndpointName,
        envelope: &Envelope,
        saga: Option<&SagaName>,
        destination: Option<&Destination>,
        extras: Extras,
    ) -> Result<(), TransportError> {
        let subject = self.names.letter(endpoint, &digest(envelope, saga, destination));
        let (headers, body) = written(envelope, &self.options.written_as.with_body_as_it_is());
        self.put_once(operation, subject, headers, extras, body).await
    }

    /// The same for what is no message.
    pub(super) async fn put_unreadable(
        &self,
        operation: &'static str,
        endpoint: &EndpointName,
        body: &Bytes,
        headers: Vec<(String, String)>,
        extras: Extras,
    ) -> Result<(), TransportError> {
        let mut hasher = Sha256::new();
        let mut sorted: Vec<_> = headers.iter().collect();
        sorted.sort();
        for (name, value) in sorted {
            part(&mut hasher, name.as_bytes());
            part(&mut hasher, value.as_bytes());
        }
        part(&mut hasher, body);
        let subject = self.names.letter(endpoint, &hasher.finalize());
        self.put_once(operation, subject, headers, extras, body.clone()).await
    }

    async fn put_once(
        &self,
        operation: &'static str,
        subject: String,
        headers: Headers,
        extras: Extras,
        body: Bytes,
    ) -> Result<(), TransportError> {
        let headers = lettered(headers, &extras, &body, self.link.payload_max());
        let put = self.publish(operation, vec![Parcel { subject, headers, body }]).await;
        put.into_iter().try_for_each(|put| put.map(drop))
    }

    async fn look(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, TransportError> {
        let (subject, mut from, mut found) = (self.names.letters_of(endpoint), 1, Vec::new());
        let wanted = page.skip.saturating_add(page.limit);
        for _ in 0..LOOKED_AT_MAX {
            if found.len() >= wanted {
                break;
            }
            let Some(next) = self.next_on(LISTING, &self.names.dead_letters(), &subject, from).await? else { break };
            from = next.sequence + 1;
            let read = envelope_of(&next.subject, Some(&next.headers), next.payload, &self.names);
            let letter = read.ok().map(|envelope| letter_of(&next.headers, envelope, endpoint));
            found.extend(letter.filter(|letter| page.wants(letter)));
        }
        found.sort_by_key(|letter| letter.time);
        Ok(found.into_iter().skip(page.skip).collect())
    }

    /// Whether it was there, and this took it.
    async fn take_out(&self, letter: &DeadLetter) -> Result<bool, TransportError> {
        let digest = digest(&letter.envelope, letter.saga.as_ref(), letter.destination.as_ref());
        let (stream, subject) = (self.names.dead_letters(), self.names.letter(&letter.endpoint, &digest));
        let Some(there) = self.only_on(DISCARDING, &stream, &subject).await? else { return Ok(false) };
        let request = json!({ "seq": there.sequence });
        match self.link.request(format!("STREAM.MSG.DELETE.{stream}"), &request).await {
            Ok(Ok(answer)) => Ok(answer["success"].as_bool().unwrap_or_default()),
            // Another was faster.
            Ok(Err(_)) if self.only_on(DISCARDING, &stream, &subject).await?.is_none() => Ok(false),
            Ok(Err(error)) => Err(refusal(DISCARDING, self.link.place(), &error)),
            Err(e) => Err(unanswered(DISCARDING, self.link.place(), self.link.patience, e)),
        }
    }

    /// The first message of a stream on `subject`, from a number on.
    pub(super) async fn next_on(
        &self,
        operation: &'static str,
        stream: &str,
        subject: &str,
        from: u64,
    ) -> Result<Option<StreamMessage>, TransportError> {
        let place = self.link.place();
        let stream = self.link.jetstream.get_stream_no_info(stream).await;
        let stream = stream.map_err(|e| failed(ErrorKind::Unavailable, operation, place, e))?;
        match stream.raw_message_builder().sequence(from).next_by_subject(subject).send().await {
            Ok(message) => Ok(Some(message)),
            Err(e) if matches!(e.kind(), LastRawMessageErrorKind::NoMessageFound) => Ok(None),
            Err(e) => Err(failed(ErrorKind::Unavailable, operation, place, e)),
        }
    }

    /// The only message of a stream on `subject`: the server finds the last one without a search.
    pub(super) async fn only_on(
        &self,
        operation: &'static str,
        stream: &str,
        subject: &str,
    ) -> Result<Option<StreamMessage>, TransportError> {
        let place = self.link.place();
        let stream = self.link.jetstream.get_stream_no_info(stream).await;
        let stream = stream.map_err(|e| failed(ErrorKind::Unavailable, operation, place, e))?;
        match stream.get_last_raw_message_by_subject(subject).await {
            Ok(message) => Ok(Some(message)),
            Err(e) if matches!(e.kind(), LastRawMessageErrorKind::NoMessageFound) => Ok(None),
            Err(e) => Err(failed(ErrorKind::Unavailable, operation, place, e)),
        }
    }
}

/// The headers of a letter: those of its message, and what it says beside it. The server takes `bytes_max` of all of it.
pub(super) fn lettered(mut headers: Headers, extras: &Extras, body: &[u8], bytes_max: usize) -> Headers {
    headers.push((LAST_ON_SUBJECT.to_owned(), "0".to_owned()));
    headers.extend(
        extras.iter().filter(|(name, _)| *name != REASON).map(|(name, text)| ((*name).to_owned(), escaped(text))),
    );
    // As much of the reason as the server takes beside the message: a letter without one is better than none.
    let room = bytes_max.saturating_sub(wire_bytes(&headers, body) + REASON.len() + 8);
    let reason = extras.iter().find(|(name, _)| *name == REASON).map_or("", |(_, reason)| reason);
    headers.push((REASON.to_owned(), escaped(cut(reason, room / 3))));
    headers
}

/// Which letter it is: the same for all that [are the same](DeadLetter::is_same).
pub(super) fn digest(envelope: &Envelope, saga: Option<&SagaName>, destination: Option<&Destination>) -> Vec<u8> {
    let mut hasher = Sha256::new();
    part(&mut hasher, envelope.message_id.to_string().as_bytes());
    part(&mut hasher, saga.map_or("", SagaName::as_str).as_bytes());
    part(&mut hasher, destination.map(ToString::to_string).unwrap_or_default().as_bytes());
    part(&mut hasher, envelope.message_type.as_str().as_bytes());
    part(&mut hasher, &envelope.body);
    hasher.finalize().to_vec()
}

fn part(hasher: &mut Sha256, bytes: &[u8]) {
    hasher.update((bytes.len() as u64).to_be_bytes());
    hasher.update(bytes);
}

pub(super) fn letter_of(headers: &HeaderMap, envelope: Arc<Envelope>, endpoint: &EndpointName) -> DeadLetter {
    let text = |name| text_of(headers, name).map(|text| unescaped(&text));
    let number = |name| text(name).and_then(|number| number.parse().ok());
    DeadLetter {
        envelope,
        endpoint: endpoint.clone(),
        saga: text(SAGA).and_then(|name| SagaName::parse(name).ok()),
        destination: text(DESTINATION).and_then(|text| Destination::parse(&text).ok()),
        reason: text(REASON).unwrap_or_default(),
        attempts: number(ATTEMPTS).and_then(|attempts: u64| u32::try_from(attempts).ok()).unwrap_or_default(),
        time: Timestamp::from_millis(number(TIME).unwrap_or_default()),
    }
}

fn store_error(operation: &'static str, error: TransportError) -> StoreError {
    let kind: ErrorKind = error.kind();
    StoreError::new(kind, operation, "NATS could not do it").caused_by(error)
}
