//! Dead letters: one topic for each endpoint, with one record for each letter.

use std::sync::Arc;

use bytes::Bytes;
use hapax_core::{
    envelope::{Destination, Envelope},
    ids::{EndpointName, SagaName},
    ports::{DeadLetter, TransportError},
    time::Timestamp,
};
use sha2::{Digest, Sha256};

use super::{
    Broker,
    asker::{Kept, Place},
    errors::{failure, is_too_large},
    lane::Unreadable,
    message::{Headers, cut, envelope_of},
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
pub(super) const TAKEN_BY: &str = "x-hapax-taken-by";
/// Longest reason of a letter that is too large with a longer one, in bytes.
const REASON_BYTES_SHORT: usize = 200;
/// Largest header that is kept in a letter without its body, and all of them together, in bytes.
const HEADER_BYTES_SHORT: usize = 1 << 10;
const HEADERS_BYTES_SHORT: usize = 16 << 10;

/// A letter on its way.
#[derive(Debug)]
pub(super) struct Letter {
    topic: String,
    key: String,
    headers: Headers,
    extras: Vec<(&'static str, String)>,
    reason: String,
    body: Bytes,
    /// Where the message is that is set aside, if it lies in a topic.
    lies: Option<(Place, i64)>,
}

/// How much of a letter is written: less where the topic does not take more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    Whole,
    ShortReason,
    NoBody,
}

impl Letter {
    pub(super) fn of(names: &Names, letter: &DeadLetter, headers: Headers, lies: Option<(Place, i64)>) -> Self {
        let mut extras = extras(&letter.endpoint, letter.attempts, letter.time);
        extras.extend(letter.saga.as_ref().map(|saga| (SAGA, saga.to_string())));
        extras.extend(letter.destination.as_ref().map(|destination| (DESTINATION, destination.to_string())));
        Self {
            topic: names.dead_letters(&letter.endpoint),
            key: key_of(letter),
            headers,
            extras,
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
            extras: extras(endpoint, 1, Timestamp::now()),
            reason: it.reason.clone(),
            body: it.body.clone(),
            lies: Some(lies),
        }
    }

    pub(super) fn parcel(&self, extent: Extent) -> Parcel {
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
        headers.extend(self.extras.iter().map(|(name, text)| ((*name).to_owned(), text.clone().into_bytes())));
        headers.push((REASON.to_owned(), reason.into_bytes()));
        Parcel { topic: self.topic.clone(), partition: Some(0), key: Some(self.key.clone()), headers, body: Some(body) }
    }
}

fn extras(endpoint: &EndpointName, attempts: u32, time: Timestamp) -> Vec<(&'static str, String)> {
    vec![(ENDPOINT, endpoint.to_string()), (ATTEMPTS, attempts.to_string()), (TIME, time.as_millis().to_string())]
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
            // It may be gone, which the client library may call a timeout: it is looked for, and declared, the next time.
            self.link.forget(&letter.topic);
            failure(operation, self.link.place(), &e, true)
        })
    }
}

pub(super) fn letter_of(record: &Kept, endpoint: &EndpointName, names: &Names) -> Option<DeadLetter> {
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

pub(super) fn text(headers: &Headers, name: &str) -> Option<String> {
    let found = headers.iter().rev().find(|(found, _)| found == name);
    found.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
}

/// Which letter it is: the same for all that [are the same](DeadLetter::is_same).
pub(super) fn key_of(letter: &DeadLetter) -> String {
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
