//! Dead letters: a queue for each endpoint, which is read by taking its messages and giving them back.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use hapax_core::{
    envelope::Destination,
    ids::{EndpointName, SagaName},
    ports::{DeadLetter, DeadLetters, ErrorKind, Page, StoreError, TransportError},
    time::Timestamp,
};
use lapin::{
    BasicProperties, Channel,
    options::{BasicAckOptions, BasicGetOptions, BasicNackOptions},
};
use tokio::{sync::Mutex, time::timeout};

use super::{
    Broker, RabbitMq, WrittenAs,
    dispatcher::{Fields, Parcel, Route},
    errors::{error_of, late},
    message::{Extras, envelope_of, properties_of, text_of},
    names::Names,
    topology::short,
};

const ENDPOINT: &str = "x-hapax-endpoint";
const SAGA: &str = "x-hapax-saga";
const DESTINATION: &str = "x-hapax-destination";
const REASON: &str = "x-hapax-reason";
const TIME: &str = "x-hapax-time";

/// Letters that one call looks at: all of them are taken from the queue meanwhile. A letter beyond them is found once some
/// before it are gone.
const LOOKED_AT_MAX: usize = 10_000;

const ADDING: &str = "adding a dead letter";
const LISTING: &str = "listing dead letters";
const DISCARDING: &str = "discarding dead letters";

/// Who looks has all letters for that moment, so one looks at a time.
#[derive(Default)]
pub(super) struct Letters(Mutex<()>);

/// The headers of a letter.
pub(super) fn letter_extras(
    endpoint: &EndpointName,
    saga: Option<&SagaName>,
    destination: Option<&Destination>,
    reason: &str,
    time: Timestamp,
) -> Vec<(&'static str, String)> {
    let mut extras =
        vec![(ENDPOINT, endpoint.to_string()), (REASON, reason.to_owned()), (TIME, time.as_millis().to_string())];
    extras.extend(saga.map(|saga| (SAGA, saga.to_string())));
    extras.extend(destination.map(|destination| (DESTINATION, destination.to_string())));
    extras
}

/// The properties of a letter, its message's among them.
pub(super) fn properties_of_letter(letter: &DeadLetter, names: &Names, written_as: &WrittenAs) -> BasicProperties {
    let DeadLetter { envelope, endpoint, saga, destination, reason, attempts, time } = letter;
    let letter = letter_extras(endpoint, saga.as_ref(), destination.as_ref(), reason, *time);
    let extras = Extras { attempts: *attempts, waits: true, letter };
    properties_of(envelope, &extras, names, written_as, Timestamp::now())
}

#[async_trait]
impl DeadLetters for RabbitMq {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        let broker = &self.0;
        let written_as = broker.options.written_as.with_body_as_it_is();
        let properties = properties_of_letter(letter, &broker.names, &written_as);
        let added = broker.put_letter(ADDING, &letter.endpoint, properties, &letter.envelope.body).await;
        added.map_err(|e| store_error(ADDING, e))
    }

    /// Every letter that is looked at is taken and given back, at most 10,000 in a call; meanwhile another program that
    /// looks does not see them, and may give them back in another order: what is found is sorted by time. What cannot be read as a message of hapax is in the queue and not in the list.
    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        let broker = &self.0;
        let _alone = broker.letters.0.lock().await;
        self.in_time(LISTING, false, async {
            broker.keep_letters(endpoint).await?;
            let failed = |e| error_of(LISTING, broker.link.place(), e, false);
            let open = broker.publisher.open(&broker.link).await?;
            let channel = open.connection.create_channel().await.map_err(failed)?;
            self.look(&channel, endpoint, page).await.map_err(failed)
        })
        .await
    }

    /// All copies of a letter that are among the 10,000 that are looked at, as for a list. What another program looks at in that moment
    /// is not found, not counted, and stays: let one program at a time work on the letters of an endpoint.
    async fn discard(&self, letters: &[DeadLetter]) -> Result<usize, StoreError> {
        let broker = &self.0;
        let endpoints: BTreeSet<&EndpointName> = letters.iter().map(|letter| &letter.endpoint).collect();
        let (_alone, mut discarded) = (broker.letters.0.lock().await, 0);
        for endpoint in endpoints {
            let discarding = self.in_time(DISCARDING, true, async {
                broker.keep_letters(endpoint).await?;
                let failed = |e| error_of(DISCARDING, broker.link.place(), e, true);
                let open = broker.publisher.open(&broker.link).await?;
                let channel = open.connection.create_channel().await.map_err(failed)?;
                self.take_out(&channel, endpoint, letters).await.map_err(failed)
            });
            discarded += discarding.await?;
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
        properties: BasicProperties,
        body: &Bytes,
    ) -> Result<(), TransportError> {
        let route = Route { exchange: String::new(), key: self.names.dead_letters(endpoint) };
        let parcel =
            [Parcel { route, may_go_nowhere: false, fields: Fields::Made(Box::new(properties)), body: body.clone() }];
        // The first letter finds no queue, and is returned.
        if self.publish(operation, &parcel).await.into_iter().all(|put| put.is_ok()) {
            return Ok(());
        }
        let kept = self.keep_letters(endpoint).await;
        let put: Result<(), TransportError> = self.publish(operation, &parcel).await.into_iter().collect();
        // Whoever declares it at the same moment may fail, and then it is there.
        if put.is_ok() { put } else { kept.and(put) }
    }
}

impl RabbitMq {
    async fn in_time<T>(
        &self,
        operation: &'static str,
        writes: bool,
        work: impl Future<Output = Result<T, TransportError>>,
    ) -> Result<T, StoreError> {
        let (place, patience) = (self.0.link.place(), self.0.options.patience);
        let done = match timeout(patience, work).await {
            Ok(done) => done,
            Err(_) => Err(late(operation, place, patience, writes)),
        };
        done.map_err(|e| store_error(operation, e))
    }

    /// Acknowledges what is among `letters` and gives the rest back. How many of `letters` were there.
    async fn take_out(
        &self,
        channel: &Channel,
        endpoint: &EndpointName,
        letters: &[DeadLetter],
    ) -> lapin::Result<usize> {
        let names = &self.0.names;
        let queue = short(&names.dead_letters(endpoint))?;
        let (mut gone, mut last) = (BTreeSet::new(), 0);
        for _ in 0..LOOKED_AT_MAX {
            let Some(given) = channel.basic_get(queue.clone(), BasicGetOptions::default()).await? else { break };
            let (tag, given) = (given.delivery.delivery_tag, given.delivery);
            let found = envelope_of(&given.properties, given.data, names).ok();
            let found = found.map(|(envelope, _)| letter_of(&given.properties, envelope, endpoint));
            let is_it = |found: &DeadLetter| letters.iter().position(|letter| letter.is_same(found));
            match found.as_ref().and_then(is_it) {
                Some(which) => {
                    channel.basic_ack(tag, BasicAckOptions::default()).await?;
                    gone.insert(which);
                }
                None => last = tag,
            }
        }
        self.give_back(channel, last).await?;
        Ok(gone.len())
    }

    async fn give_back(&self, channel: &Channel, last: u64) -> lapin::Result<()> {
        if last > 0 {
            channel.basic_nack(last, BasicNackOptions { multiple: true, requeue: true }).await?;
        }
        // The server has them back once the channel is closed, at the latest; waited for, so that who looks next sees them.
        channel.close(200, short("")?).await
    }

    async fn look(&self, channel: &Channel, endpoint: &EndpointName, page: &Page) -> lapin::Result<Vec<DeadLetter>> {
        let names = &self.0.names;
        let queue = short(&names.dead_letters(endpoint))?;
        let (mut found, mut last): (Vec<DeadLetter>, u64) = (Vec::new(), 0);
        for _ in 0..LOOKED_AT_MAX {
            if found.len() == page.skip.saturating_add(page.limit) {
                break;
            }
            let Some(given) = channel.basic_get(queue.clone(), BasicGetOptions::default()).await? else { break };
            last = given.delivery.delivery_tag;
            let given = given.delivery;
            let Ok((envelope, _)) = envelope_of(&given.properties, given.data, names) else { continue };
            let letter = letter_of(&given.properties, envelope, endpoint);
            // The queue keeps what was added twice twice; it is one letter (promise 2).
            if page.wants(&letter) && !found.iter().any(|other| other.is_same(&letter)) {
                found.push(letter);
            }
        }
        self.give_back(channel, last).await?;
        found.sort_by_key(|letter| letter.time);
        Ok(found.into_iter().skip(page.skip).collect())
    }
}

pub(super) fn letter_of(
    properties: &BasicProperties,
    envelope: Arc<hapax_core::envelope::Envelope>,
    endpoint: &EndpointName,
) -> DeadLetter {
    let text = |name| text_of(properties, name);
    DeadLetter {
        envelope,
        endpoint: endpoint.clone(),
        saga: text(SAGA).and_then(|name| SagaName::parse(name).ok()),
        destination: text(DESTINATION).and_then(|text| Destination::parse(&text).ok()),
        reason: text(REASON).unwrap_or_default(),
        attempts: super::message::attempts_of(properties),
        time: Timestamp::from_millis(text(TIME).and_then(|millis| millis.parse().ok()).unwrap_or_default()),
    }
}

fn store_error(operation: &'static str, error: TransportError) -> StoreError {
    let kind: ErrorKind = error.kind();
    StoreError::new(kind, operation, "RabbitMQ could not do it").caused_by(error)
}
