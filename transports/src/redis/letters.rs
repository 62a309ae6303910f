//! Dead letters: a stream for each endpoint, and which entry is which letter.

use ::redis::{Cmd, cmd};
use async_trait::async_trait;
use hapax_core::{
    envelope::{Destination, Envelope},
    ids::{EndpointName, Fingerprint, SagaName},
    ports::{DeadLetter, DeadLetters, Page, StoreError, TransportError},
    time::Timestamp,
};

use super::{
    RedisStreams,
    answer::{Entry, Field, entries, number},
    errors::{malformed, store_error},
    message::{Fields, OURS, cut, envelope_of, text_of},
    scripts::Script,
};
use crate::written_as::WrittenAs;

const ENDPOINT: &str = "x-hapax-endpoint";
const SAGA: &str = "x-hapax-saga";
const DESTINATION: &str = "x-hapax-destination";
const REASON: &str = "x-hapax-reason";
const ATTEMPTS: &str = "x-hapax-attempts";
const TIME: &str = "x-hapax-time";

/// Letters that are read at a time.
const PAGE: usize = 256;
/// Fields of what is no message that are kept: a script of the server takes some thousands of arguments.
const FIELDS_MAX: usize = 1000;

const ADDING: &str = "adding a dead letter";
const LISTING: &str = "listing dead letters";
const DISCARDING: &str = "discarding dead letters";

/// A dead letter as it is written.
pub(super) struct Letter {
    identity: String,
    extras: Vec<(&'static str, String)>,
    message: Message,
}

enum Message {
    Envelope(Fields),
    /// As it came.
    Entry(Vec<Field>),
}

impl Letter {
    pub(super) fn of(letter: &DeadLetter) -> Self {
        let DeadLetter { envelope, endpoint, saga, destination, reason, attempts, time } = letter;
        let mut extras = extras(endpoint, reason, *attempts, *time);
        extras.extend(saga.as_ref().map(|saga| (SAGA, saga.to_string())));
        extras.extend(destination.as_ref().map(|destination| (DESTINATION, destination.to_string())));
        let message = Message::Envelope(Fields::of(envelope, &WrittenAs::Plain));
        Self { identity: identity(envelope, saga.as_ref(), destination.as_ref()), extras, message }
    }

    /// Of a message that was given as `entry`.
    pub(super) fn of_entry(entry: &Entry, reason: &str, attempts: u32, endpoint: &EndpointName) -> Self {
        match envelope_of(&entry.fields) {
            Ok(envelope) => Self {
                identity: identity(&envelope, None, None),
                extras: extras(endpoint, reason, attempts, Timestamp::now()),
                message: Message::Entry(kept(&entry.fields)),
            },
            Err(_) => Self::of_none(entry, reason, attempts, endpoint),
        }
    }

    /// Of what is no message. Nothing else is the same.
    pub(super) fn of_none(entry: &Entry, reason: &str, attempts: u32, endpoint: &EndpointName) -> Self {
        Self {
            identity: format!("entry {}", entry.id),
            extras: extras(endpoint, reason, attempts, Timestamp::now()),
            message: Message::Entry(kept(&entry.fields)),
        }
    }

    pub(super) fn identity(&self) -> &str {
        &self.identity
    }

    /// Adds its fields to the arguments of `command`.
    pub(super) fn write(&self, command: &mut Cmd) {
        for (name, value) in &self.extras {
            command.arg(name).arg(value);
        }
        match &self.message {
            Message::Envelope(fields) => fields.write(command),
            Message::Entry(fields) => {
                for (name, value) in fields {
                    command.arg(&name[..]).arg(&value[..]);
                }
            }
        }
    }
}

fn extras(endpoint: &EndpointName, reason: &str, attempts: u32, time: Timestamp) -> Vec<(&'static str, String)> {
    vec![
        (ENDPOINT, endpoint.to_string()),
        (REASON, cut(reason).to_owned()),
        (ATTEMPTS, attempts.to_string()),
        (TIME, time.as_millis().to_string()),
    ]
}

/// Without fields that would be taken for the letter's own.
fn kept(fields: &[Field]) -> Vec<Field> {
    fields.iter().filter(|(name, _)| !name.starts_with(OURS.as_bytes())).take(FIELDS_MAX).cloned().collect()
}

/// Which letter of its endpoint it is.
fn identity(envelope: &Envelope, saga: Option<&SagaName>, destination: Option<&Destination>) -> String {
    let fingerprint: String = Fingerprint::of(envelope).as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let saga = saga.map_or("", |saga| saga.as_str());
    let destination = destination.map_or_else(String::new, Destination::to_string);
    format!("{fingerprint} {saga} {destination} {}", envelope.message_id)
}

/// `None` for what is no message of hapax.
pub(super) fn letter_of(entry: Entry, endpoint: &EndpointName) -> Option<DeadLetter> {
    let text = |name| text_of(&entry.fields, name);
    let (saga, destination, reason) = (text(SAGA), text(DESTINATION), text(REASON));
    let (attempts, time) = (text(ATTEMPTS), text(TIME));
    Some(DeadLetter {
        envelope: envelope_of(&entry.fields).ok()?,
        endpoint: endpoint.clone(),
        saga: saga.and_then(|name| SagaName::parse(name).ok()),
        destination: destination.and_then(|text| Destination::parse(&text).ok()),
        reason: reason.unwrap_or_default(),
        attempts: attempts.and_then(|attempts| attempts.parse().ok()).unwrap_or_default(),
        time: Timestamp::from_millis(time.and_then(|millis| millis.parse().ok()).unwrap_or_default()),
    })
}

#[async_trait]
impl DeadLetters for RedisStreams {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        let broker = &self.0;
        let keys = [broker.names.dead_letters(&letter.endpoint), broker.names.dead_letter_ids(&letter.endpoint)];
        let letter = Letter::of(letter);
        let asked = broker.link.ask(&broker.lane, ADDING, true, |scripts| {
            let mut call = scripts.call(Script::AddLetter, &keys.each_ref().map(String::as_str));
            call.arg(letter.identity()).arg(broker.options.unused_millis());
            letter.write(&mut call);
            call
        });
        asked.await.map(drop).map_err(|e| store_error(ADDING, e))
    }

    /// What cannot be read as a message is in the stream and not in the list.
    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        self.look(endpoint, page).await.map_err(|e| store_error(LISTING, e))
    }

    async fn discard(&self, letters: &[DeadLetter]) -> Result<usize, StoreError> {
        let broker = &self.0;
        let mut discarded = 0;
        for letter in letters {
            let keys = [broker.names.dead_letters(&letter.endpoint), broker.names.dead_letter_ids(&letter.endpoint)];
            let identity = identity(&letter.envelope, letter.saga.as_ref(), letter.destination.as_ref());
            let asked = broker.link.ask(&broker.lane, DISCARDING, true, |scripts| {
                let mut call = scripts.call(Script::Discard, &keys.each_ref().map(String::as_str));
                call.arg(identity);
                call
            });
            let answer = asked.await.map_err(|e| store_error(DISCARDING, e))?;
            let bad = || store_error(DISCARDING, malformed(DISCARDING, broker.link.place()));
            discarded += number(&answer).and_then(|count| usize::try_from(count).ok()).ok_or_else(bad)?;
        }
        Ok(discarded)
    }
}

impl RedisStreams {
    async fn look(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, TransportError> {
        let broker = &self.0;
        let (letters, mut from) = (broker.names.dead_letters(endpoint), "-".to_owned());
        let (mut found, mut skipped) = (Vec::new(), 0);
        while found.len() < page.limit {
            let asked = broker.link.ask(&broker.lane, LISTING, false, |_| {
                let mut range = cmd("XRANGE");
                range.arg(&letters).arg(&from).arg("+").arg("COUNT").arg(PAGE);
                range
            });
            let read = entries(asked.await?).ok_or_else(|| malformed(LISTING, broker.link.place()))?;
            let Some(last) = read.last() else { break };
            // Behind the last one of this page.
            from = format!("({}", last.id);
            let is_last = read.len() < PAGE;
            let wanted = read.into_iter().filter_map(|entry| letter_of(entry, endpoint)).filter(|l| page.wants(l));
            for letter in wanted {
                if skipped < page.skip {
                    skipped += 1;
                } else if found.len() < page.limit {
                    found.push(letter);
                }
            }
            if is_last {
                break;
            }
        }
        Ok(found)
    }
}
