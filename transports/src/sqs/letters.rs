//! Dead letters: a queue for each endpoint, which is read by taking its messages and giving them back.

use std::{
    collections::{BTreeSet, HashSet},
    time::Duration,
};

use async_trait::async_trait;
use aws_sdk_sqs::types::{
    ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry, MessageSystemAttributeName as System,
};
use hapax_core::{
    envelope::Destination,
    ids::{EndpointName, SagaName},
    ports::{DeadLetter, DeadLetters, Page, StoreError, TransportError},
    time::Timestamp,
};
use tokio::sync::Mutex;

use super::{
    Broker, Sqs,
    addresses::Address,
    attributes::as_text,
    batches::TOGETHER_MAX,
    errors::{entry_refusal, is_lease_lost, store_error, untold},
    link::Asking,
    message::{Came, Parcel},
    publisher::Sent,
    stock::Held,
};
use crate::written_as::WrittenAs;

/// What a letter says beside its message, a line for each.
const LETTER: &str = "x-hapax-letter";
const ENDPOINT: &str = "endpoint";
const SAGA: &str = "saga";
const DESTINATION: &str = "destination";
const ATTEMPTS: &str = "attempts";
const TIME: &str = "time";
/// The last: all behind it, in however many lines.
const REASON: &str = "reason";

/// Longest reason that is written, in bytes.
const REASON_BYTES_MAX: usize = 8 << 10;
/// Of what a queue takes, kept for what is said beside a message that is set aside: the reason, names, and those of all headers, which are
/// said twice where there is less room for attributes.
pub(super) const LETTER_BYTES: usize = 16 << 10;
/// Letters that one call looks at: all of them are taken from the queue meanwhile, and are in memory. A letter beyond them is found
/// once some before it are gone.
const LOOKED_AT_MAX: usize = 10_000;
/// How long who looks keeps letters from others, if it dies.
const LOOK: Duration = Duration::from_secs(60);
/// How long the service waits for a letter that it has not shown, while more are said to be there.
const LOOK_WAIT: Duration = Duration::from_secs(1);

const ADDING: &str = "adding a dead letter";
const LISTING: &str = "listing dead letters";
const DISCARDING: &str = "discarding dead letters";

/// Who looks has all letters for that moment, so one looks at a time.
#[derive(Default)]
pub(super) struct Looks(Mutex<()>);

/// A dead letter as it is written.
pub(super) struct Letter(pub(super) Parcel);

impl Letter {
    pub(super) fn of(letter: &DeadLetter, written_as: &WrittenAs) -> Self {
        let DeadLetter { envelope, endpoint, saga, destination, reason, attempts, time } = letter;
        let mark = mark(endpoint, saga.as_ref(), destination.as_ref(), *attempts, *time, reason);
        // As it was sent: in another form it could be larger than was looked at.
        Self(Parcel::of(envelope, written_as, &[(LETTER, mark)]))
    }

    /// Of a message that was given, and could not be handled.
    pub(super) fn of_message(held: &Held, endpoint: &EndpointName, reason: &str, written_as: &WrittenAs) -> Self {
        let mark = mark(endpoint, None, None, held.attempts, Timestamp::now(), reason);
        Self(Parcel::of(&held.envelope, written_as, &[(LETTER, mark)]))
    }

    /// Of what is no message, as it came.
    pub(super) fn of_none(came: &Came, reason: &str, endpoint: &EndpointName) -> Self {
        let marked = |reason: &str| mark(endpoint, None, None, came.given, Timestamp::now(), reason);
        let (parcel, left_out) = Parcel::as_it_came(came, &[(LETTER, marked(reason))]);
        if left_out.is_empty() {
            return Self(parcel);
        }
        let reason = format!("{reason} (without its attributes {})", left_out.join(", "));
        Self(Parcel::as_it_came(came, &[(LETTER, marked(&reason))]).0)
    }
}

fn mark(
    endpoint: &EndpointName,
    saga: Option<&SagaName>,
    destination: Option<&Destination>,
    attempts: u32,
    time: Timestamp,
    reason: &str,
) -> String {
    let mut lines = vec![
        format!("{ENDPOINT}: {endpoint}"),
        format!("{ATTEMPTS}: {attempts}"),
        format!("{TIME}: {}", time.as_millis()),
    ];
    lines.extend(saga.map(|saga| format!("{SAGA}: {saga}")));
    lines.extend(destination.map(|destination| format!("{DESTINATION}: {destination}")));
    lines.push(format!("{REASON}: {}", as_text(cut(reason))));
    lines.join("\n")
}

/// A reason, or as much of it as is kept.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(REASON_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// `None` for what is no message of hapax.
pub(super) fn letter_of(came: &Came, endpoint: &EndpointName) -> Option<DeadLetter> {
    let envelope = came.envelope().ok()?;
    let mark = came.mark(LETTER).unwrap_or_default();
    // The reason comes last, and may hold lines that look like ours.
    let (ours, reason) = mark.split_once(&format!("\n{REASON}: ")).unwrap_or((mark, ""));
    let text = |name: &str| ours.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    Some(DeadLetter {
        envelope: envelope.into(),
        endpoint: endpoint.clone(),
        saga: text(SAGA).and_then(|name| SagaName::parse(name).ok()),
        destination: text(DESTINATION).and_then(|text| Destination::parse(text).ok()),
        reason: reason.to_owned(),
        attempts: text(ATTEMPTS).and_then(|attempts| attempts.parse().ok()).unwrap_or(came.given),
        time: text(TIME).and_then(|millis| millis.parse().ok()).map_or(came.sent, Timestamp::from_millis),
    })
}

#[async_trait]
impl DeadLetters for Sqs {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        let added = self.0.put_letter(ADDING, &letter.endpoint, Letter::of(letter, &self.0.options.written_as)).await;
        added.map_err(|e| store_error(ADDING, e))
    }

    /// Every letter is taken and given back, at most 10,000 in a call; meanwhile another program that looks does not see them. What
    /// cannot be read as a message of hapax is in the queue and not in the list.
    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        let listed = async {
            let broker = &self.0;
            let _alone = broker.looks.0.lock().await;
            let Some(address) = broker.queue_named(LISTING, &broker.names.dead_letters(endpoint)).await? else {
                return Ok(Vec::new());
            };
            let looked_at = broker.look(LISTING, &address).await;
            let handles: Vec<String> = looked_at.iter().flatten().map(|came| came.handle.clone()).collect();
            broker.give_back(LISTING, &address, &handles).await?;
            let mut found: Vec<DeadLetter> = Vec::new();
            for letter in looked_at?.iter().filter_map(|came| letter_of(came, endpoint)) {
                // The queue keeps what was added twice twice; it is one letter (promise 2).
                if page.wants(&letter) && !found.iter().any(|other| other.is_same(&letter)) {
                    found.push(letter);
                }
            }
            found.sort_by_key(|letter| letter.time);
            Ok(found.into_iter().skip(page.skip).take(page.limit).collect())
        };
        listed.await.map_err(|e| store_error(LISTING, e))
    }

    /// All copies of a letter that are among the 10,000 that are looked at, as for a list. What another program looks at in that moment
    /// is not found, not counted, and stays: let one program at a time work on the letters of an endpoint.
    async fn discard(&self, letters: &[DeadLetter]) -> Result<usize, StoreError> {
        let broker = &self.0;
        let endpoints: BTreeSet<&EndpointName> = letters.iter().map(|letter| &letter.endpoint).collect();
        let (_alone, mut discarded) = (broker.looks.0.lock().await, 0);
        for endpoint in endpoints {
            let taken_out = broker.take_out(endpoint, letters).await;
            discarded += taken_out.map_err(|e| store_error(DISCARDING, e))?;
        }
        Ok(discarded)
    }
}

impl Broker {
    /// Puts a message among the dead letters of `endpoint`, confirmed.
    pub(super) async fn put_letter(
        &self,
        operation: &'static str,
        endpoint: &EndpointName,
        letter: Letter,
    ) -> Result<(), TransportError> {
        let name = self.names.dead_letters(endpoint);
        let address = match self.queue_named(operation, &name).await? {
            Some(address) => address,
            None => self.declare_letters(operation, &name).await?,
        };
        let sent = Sent { parcel: letter.0, delay: Duration::ZERO, order: None };
        self.publish(operation, &address, &[&sent]).await.into_iter().collect()
    }

    async fn take_out(&self, endpoint: &EndpointName, letters: &[DeadLetter]) -> Result<usize, TransportError> {
        let Some(address) = self.queue_named(DISCARDING, &self.names.dead_letters(endpoint)).await? else {
            return Ok(0);
        };
        let looked_at = self.look(DISCARDING, &address).await;
        let (mut those, mut others): (Vec<(usize, String)>, Vec<String>) = (Vec::new(), Vec::new());
        for came in looked_at.iter().flatten() {
            let found = letter_of(came, endpoint);
            let which = found.and_then(|found| letters.iter().position(|letter| letter.is_same(&found)));
            match which {
                Some(which) => those.push((which, came.handle.clone())),
                None => others.push(came.handle.clone()),
            }
        }
        let removed = match &looked_at {
            Ok(_) => self.removed(&address, &those).await,
            Err(_) => Ok(HashSet::new()),
        };
        self.give_back(DISCARDING, &address, &others).await?;
        looked_at?;
        Ok(removed?.len())
    }

    /// Removes letters; which of them are gone.
    async fn removed(&self, address: &Address, those: &[(usize, String)]) -> Result<HashSet<usize>, TransportError> {
        let mut gone = HashSet::new();
        for some in those.chunks(TOGETHER_MAX) {
            let entry = |(number, (_, handle)): (usize, &(usize, String))| {
                DeleteMessageBatchRequestEntry::builder().id(number.to_string()).receipt_handle(handle).build().ok()
            };
            let entries: Vec<_> = some.iter().enumerate().filter_map(entry).collect();
            let request = self.link.client.delete_message_batch().queue_url(&address.url).set_entries(Some(entries));
            let answer = self.link.plainly(Asking::repeatable(DISCARDING), || request.clone().send()).await?;
            let (mut told, place) = (0, self.link.place());
            for done in answer.successful() {
                let number = done.id().parse::<usize>().ok();
                gone.extend(number.and_then(|number| some.get(number)).map(|(which, _)| *which));
                told += 1;
            }
            for refused in answer.failed() {
                // Another has it now, who may be told of it.
                if !is_lease_lost(refused.code(), refused.message().unwrap_or_default()) {
                    return Err(entry_refusal(DISCARDING, place, refused));
                }
                told += 1;
            }
            if told < some.len() {
                return Err(untold(DISCARDING, place));
            }
        }
        Ok(gone)
    }

    /// All that is in the queue, oldest first, hidden from others.
    async fn look(&self, operation: &'static str, address: &Address) -> Result<Vec<Came>, TransportError> {
        let expected = self.count(operation, address).await?;
        let (mut all, mut seen): (Vec<Came>, HashSet<String>) = (Vec::new(), HashSet::new());
        while all.len() < LOOKED_AT_MAX {
            // The service may show nothing although something is there; what it waits for comes from all of its places.
            let is_short = u64::try_from(all.len()).is_ok_and(|found| found < expected);
            let wait = if is_short { LOOK_WAIT } else { Duration::ZERO };
            let request = self
                .link
                .client
                .receive_message()
                .queue_url(&address.url)
                .max_number_of_messages(10)
                .wait_time_seconds(i32::from(is_short))
                .visibility_timeout(i32::try_from(LOOK.as_secs()).unwrap_or(i32::MAX))
                .message_attribute_names("All")
                .message_system_attribute_names(System::All);
            let answer = self.link.plainly(Asking::receiving(operation, wait), || request.clone().send()).await?;
            let came: Vec<Came> = answer.messages.unwrap_or_default().into_iter().filter_map(Came::of).collect();
            if came.is_empty() {
                break;
            }
            for came in came {
                // Who looks for long is shown the first ones again, under other receipts.
                match seen.insert(came.id.clone()) {
                    true => all.push(came),
                    false => all.iter_mut().filter(|known| known.id == came.id).for_each(|known| *known = came.clone()),
                }
            }
        }
        all.sort_by_key(|came| came.sent);
        Ok(all)
    }

    /// Shows to others what was looked at.
    async fn give_back(
        &self,
        operation: &'static str,
        address: &Address,
        handles: &[String],
    ) -> Result<(), TransportError> {
        for some in handles.chunks(TOGETHER_MAX) {
            let entry = |(number, handle): (usize, &String)| {
                let entry = ChangeMessageVisibilityBatchRequestEntry::builder().id(number.to_string());
                entry.receipt_handle(handle).visibility_timeout(0).build().ok()
            };
            let entries: Vec<_> = some.iter().enumerate().filter_map(entry).collect();
            let request = self.link.client.change_message_visibility_batch().queue_url(&address.url);
            let request = request.set_entries(Some(entries));
            // What fails of it comes back by itself.
            self.link.plainly(Asking::repeatable(operation), || request.clone().send()).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_cut_between_characters() {
        let long = "ü".repeat(REASON_BYTES_MAX);
        assert_eq!(cut(&long).len(), REASON_BYTES_MAX);
        assert_eq!(cut(&format!("a{long}")).len(), REASON_BYTES_MAX - 1);
        let mark = mark(&"shop".parse().unwrap(), None, None, 7, Timestamp::now(), &long);
        assert!(mark.len() < LETTER_BYTES);
    }
}
