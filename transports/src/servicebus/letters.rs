//! Dead letters: a queue for each endpoint and the sub-queue in which the service sets messages aside, both read by taking what is there
//! and giving it back.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use fe2o3_amqp::{
    Receiver,
    link::{RecvError, delivery::DeliveryInfo},
    types::{messaging::Body, primitives::Value},
};
use hapax_core::{
    envelope::{Destination, Envelope},
    ids::{EndpointName, SagaName},
    ports::{DeadLetter, DeadLetters, Page, StoreError, TransportError},
    time::Timestamp,
};
use tokio::{sync::Mutex, time::timeout};

use super::{
    Broker, ServiceBus, WrittenAs,
    address::Server,
    errors::{gone, late, of_recv, store_error},
    message::{Carried, Extras, REASONS, attempts_of, carried, enqueued, envelope_of, text},
    names::Names,
};

const ENDPOINT: &str = "x-hapax-endpoint";
const SAGA: &str = "x-hapax-saga";
const DESTINATION: &str = "x-hapax-destination";
const REASON: &str = "x-hapax-reason";
const ATTEMPTS: &str = "x-hapax-attempts";
const TIME: &str = "x-hapax-time";

/// Letters that one call looks at in each queue: all of them are taken meanwhile. A letter beyond them is found once some before it are gone.
const LOOKED_AT_MAX: u32 = 10_000;
/// Letters that are asked for at a time: as many are in memory with their bodies, and are taken although the last one that is wanted is among
/// them.
const ASKED_FOR_MAX: u32 = 100;
/// With nothing for so long there is nothing more: AMQP has no end of a queue.
const QUIET: Duration = Duration::from_secs(1);

/// Longest look, where letters are not locked.
const LOOK_LIMIT: Duration = Duration::from_secs(60);

const ADDING: &str = "adding a dead letter";
const LISTING: &str = "listing dead letters";
const DISCARDING: &str = "discarding dead letters";

/// Who looks has all letters for that moment, so one looks at a time.
#[derive(Default)]
pub(super) struct Letters(Mutex<()>);

/// What becomes of a letter that is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Stays,
    Goes,
    /// It stays, and nothing behind it is looked at.
    Last,
}

/// The properties of a letter.
pub(super) fn letter_extras(
    endpoint: &EndpointName,
    saga: Option<&SagaName>,
    destination: Option<&Destination>,
    reason: &str,
    attempts: u32,
    time: Timestamp,
) -> Vec<(&'static str, String)> {
    let mut extras = vec![
        (ENDPOINT, endpoint.to_string()),
        (REASON, reason.to_owned()),
        (ATTEMPTS, attempts.to_string()),
        (TIME, time.as_millis().to_string()),
    ];
    extras.extend(saga.map(|saga| (SAGA, saga.to_string())));
    extras.extend(destination.map(|destination| (DESTINATION, destination.to_string())));
    extras
}

#[async_trait]
impl DeadLetters for ServiceBus {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        let DeadLetter { envelope, endpoint, saga, destination, reason, attempts, time } = letter;
        let extras = letter_extras(endpoint, saga.as_ref(), destination.as_ref(), reason, *attempts, *time);
        let added = self.0.put_letter(ADDING, endpoint, envelope, extras).await;
        added.map_err(|e| store_error(ADDING, e))
    }

    /// Every letter that is looked at is taken and given back, at most 10,000 of each queue in a call, which takes a second more than that;
    /// meanwhile another program that looks does not see them, and the service may count it as a delivery. Where that takes longer than a lock
    /// lasts ([`ServiceBusOptions::lock_duration`](super::ServiceBusOptions::lock_duration), less two seconds; on another server a minute) it
    /// fails. What cannot be read as a message of hapax is in the queue and not in the list.
    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        let _alone = self.0.letters.0.lock().await;
        let mut found: Vec<DeadLetter> = Vec::new();
        let wanted = page.skip.saturating_add(page.limit);
        for address in self.0.places_of_letters(endpoint) {
            let mut count = 0;
            let looked = self.0.look_through(LISTING, false, &address, endpoint, |letter| {
                // What was added twice is there twice; it is one letter (promise 2).
                if page.wants(&letter) && !found.iter().any(|other| other.is_same(&letter)) {
                    found.push(letter);
                    count += 1;
                }
                if count >= wanted { Fate::Last } else { Fate::Stays }
            });
            looked.await.map_err(|e| store_error(LISTING, e))?;
        }
        found.sort_by_key(|letter| letter.time);
        Ok(found.into_iter().skip(page.skip).take(page.limit).collect())
    }

    /// All copies of a letter that are among the 10,000 that are looked at, as for a list. What another program looks at in that moment
    /// is not found, not counted, and stays: let one program at a time work on the letters of an endpoint.
    async fn discard(&self, letters: &[DeadLetter]) -> Result<usize, StoreError> {
        let _alone = self.0.letters.0.lock().await;
        let mut gone = vec![false; letters.len()];
        let mut endpoints: Vec<&EndpointName> = letters.iter().map(|letter| &letter.endpoint).collect();
        endpoints.sort_unstable();
        endpoints.dedup();
        for endpoint in endpoints {
            for address in self.0.places_of_letters(endpoint) {
                let looked = self.0.look_through(DISCARDING, true, &address, endpoint, |found| {
                    let mut fate = Fate::Stays;
                    for (letter, is_gone) in letters.iter().zip(&mut gone) {
                        if letter.is_same(&found) {
                            (*is_gone, fate) = (true, Fate::Goes);
                        }
                    }
                    fate
                });
                looked.await.map_err(|e| store_error(DISCARDING, e))?;
            }
        }
        Ok(gone.into_iter().filter(|is_gone| *is_gone).count())
    }
}

impl Broker {
    fn places_of_letters(&self, endpoint: &EndpointName) -> Vec<String> {
        let mut places = vec![self.names.letters_address(endpoint)];
        if self.names.server() == Server::ServiceBus {
            places.push(self.names.set_aside_address(endpoint));
        }
        places
    }

    /// Puts a message among the dead letters of `endpoint`, confirmed.
    pub(super) async fn put_letter(
        &self,
        operation: &'static str,
        endpoint: &EndpointName,
        envelope: &Arc<Envelope>,
        letter: Vec<(&'static str, String)>,
    ) -> Result<(), TransportError> {
        let carried = to_be_set_aside(envelope, letter, &self.options.written_as, &self.names);
        self.put_carried(operation, endpoint, carried).await
    }

    pub(super) async fn put_carried(
        &self,
        operation: &'static str,
        endpoint: &EndpointName,
        letter: Carried,
    ) -> Result<(), TransportError> {
        self.publish(operation, &self.names.letters_address(endpoint), vec![letter]).await.into_iter().collect()
    }

    /// Shows `judge` each letter at `address`, and does with it what it says. `writes`: some of them are to go.
    async fn look_through(
        &self,
        operation: &'static str,
        writes: bool,
        address: &str,
        endpoint: &EndpointName,
        mut judge: impl FnMut(DeadLetter) -> Fate + Send,
    ) -> Result<(), TransportError> {
        let (place, patience) = (self.link.place(), self.link.patience);
        let names = &self.names;
        let mut linked = self.link.connect().await?;
        let receiver = self.link.receiver(operation, &mut linked.session, address, None).await?;
        let mut look = Look { operation, writes, place, receiver, stay: Vec::new() };
        let judge = |message: &Carried| match envelope_of(message, names) {
            Ok(envelope) => judge(letter_of(message, envelope, endpoint)),
            Err(_) => Fate::Stays,
        };
        // Within the first lock: what has lapsed is nobody's to take out, and comes again, and again.
        let limit = if names.server() == Server::ServiceBus { self.options.lease() } else { LOOK_LIMIT };
        let looked = match timeout(limit, look.through(judge)).await {
            Ok(looked) => looked,
            Err(_) => Err(late(operation, place, limit, writes)),
        };
        let Look { mut receiver, stay, .. } = look;
        // Waited for, so that who looks next sees them; and what is to go has gone when the server says that the session has ended.
        let left = async {
            receiver.set_credit(0).await.ok()?;
            receiver.release_all(stay).await.ok()?;
            linked.close().await
        };
        let left = timeout(patience, left).await;
        looked?;
        match left {
            Ok(Some(())) => Ok(()),
            Ok(None) => Err(gone(operation, place, None, writes)),
            Err(_) => Err(late(operation, place, patience, writes)),
        }
    }
}

/// A queue of letters that is looked through.
struct Look<'p> {
    operation: &'static str,
    writes: bool,
    place: &'p str,
    receiver: Receiver,
    /// To be given back.
    stay: Vec<DeliveryInfo>,
}

impl Look<'_> {
    async fn through(&mut self, mut judge: impl FnMut(&Carried) -> Fate) -> Result<(), TransportError> {
        let (mut asked_for, mut is_last) = (0, false);
        loop {
            // Not while some are on their way: see the pump's.
            if self.receiver.credit() == 0 {
                if is_last || asked_for >= LOOKED_AT_MAX {
                    return Ok(());
                }
                let more = ASKED_FOR_MAX.min(LOOKED_AT_MAX - asked_for);
                let given = self.receiver.set_credit(more).await;
                given.map_err(|_| gone(self.operation, self.place, None, self.writes))?;
                asked_for += more;
            }
            // What was asked for may come after the last that is wanted, and then it is to be given back as well.
            let Ok(given) = timeout(QUIET, self.receiver.recv::<Body<Value>>()).await else { return Ok(()) };
            let (info, message) = match given {
                Ok(delivery) => delivery.into_parts(),
                Err(RecvError::MessageDecode(unreadable)) => {
                    self.stay.push(unreadable.info);
                    continue;
                }
                Err(error) => return Err(of_recv(self.operation, self.place, &error)),
            };
            match if is_last { Fate::Stays } else { judge(&message) } {
                Fate::Goes => {
                    let accepted = self.receiver.accept(info).await;
                    accepted.map_err(|_| gone(self.operation, self.place, None, self.writes))?;
                }
                fate => {
                    is_last |= fate == Fate::Last;
                    self.stay.push(info);
                }
            }
        }
    }
}

/// A message as it is put among the letters, with the properties that say so.
pub(super) fn to_be_set_aside(
    envelope: &Envelope,
    letter: Vec<(&'static str, String)>,
    written_as: &WrittenAs,
    names: &Names,
) -> Carried {
    let extras = Extras { is_again: true, waits: true, letter, ..Extras::default() };
    carried(envelope, written_as, &extras, names, Timestamp::now())
}

/// A letter as hapax wrote it, or as the service set it aside.
pub(super) fn letter_of(message: &Carried, envelope: Envelope, endpoint: &EndpointName) -> DeadLetter {
    let number = |name| text(message, name).and_then(|text| text.parse::<u64>().ok());
    let [why, description] = REASONS.map(|name| text(message, name));
    // The service gives both, or the first alone; we give the same twice.
    let of_service = match (why, description) {
        (Some(why), Some(description)) if why != description => Some(format!("{why}: {description}")),
        (why, description) => description.or(why),
    };
    let attempts = number(ATTEMPTS).and_then(|attempts| u32::try_from(attempts).ok());
    DeadLetter {
        envelope: envelope.into(),
        endpoint: endpoint.clone(),
        saga: text(message, SAGA).and_then(|name| SagaName::parse(name).ok()),
        destination: text(message, DESTINATION).and_then(|text| Destination::parse(&text).ok()),
        reason: text(message, REASON).or(of_service).unwrap_or_default(),
        // This time was to look at it.
        attempts: attempts.unwrap_or_else(|| attempts_of(message).saturating_sub(1)),
        time: Timestamp::from_millis(
            number(TIME).or_else(|| enqueued(message).map(Timestamp::as_millis)).unwrap_or_default(),
        ),
    }
}
