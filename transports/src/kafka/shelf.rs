//! Letters that are there: their topic is read, and what is kept of it in memory is their bodies last.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use hapax_core::{
    ids::{EndpointName, MessageId},
    ports::{DeadLetter, DeadLetters, ErrorKind, Page, StoreError, TransportError},
    time::Timestamp,
};
use rdkafka::error::KafkaError;

use super::{
    Broker, Kafka,
    asker::{Asker, Kept},
    errors::failure,
    letters::{Letter, TAKEN_BY, key_of, letter_of, text},
    message::headers_of,
    names::Names,
    producing::Parcel,
};

const ADDING: &str = "adding a dead letter";
const LISTING: &str = "listing dead letters";
const DISCARDING: &str = "discarding dead letters";

/// What letters there are, without what is in them.
#[derive(Debug, Default)]
struct Shelf {
    /// By the keys of their records.
    there: HashMap<String, Entry>,
    /// Who has taken the last of a key away, of the keys that are asked for.
    taken: HashMap<String, String>,
}

#[derive(Debug)]
struct Entry {
    offset: i64,
    /// None if it cannot be read as a message.
    what: Option<What>,
}

#[derive(Debug)]
struct What {
    /// Which letter it is, as it reads: of one without its body, not the key of its record.
    letter: String,
    message_id: MessageId,
    time: Timestamp,
}

impl Shelf {
    /// A record more of the topic: the first to take a letter away is who took it.
    fn fold(&mut self, record: &Kept, read: impl FnOnce(&Kept) -> Option<What>, asked: &HashSet<String>) {
        match (self.there.contains_key(&record.key), record.body.is_some()) {
            (true, false) => {
                self.there.remove(&record.key);
                if asked.contains(&record.key) {
                    let by = text(&record.headers, TAKEN_BY).unwrap_or_default();
                    self.taken.insert(record.key.clone(), by);
                }
            }
            (false, true) => {
                let entry = Entry { offset: record.offset, what: read(record) };
                self.there.insert(record.key.clone(), entry);
            }
            (true, true) | (false, false) => {} // The same letter again, or it was gone already.
        }
    }

    /// All that can be read, with the keys of their records, in the order of the log.
    fn letters(&self) -> Vec<(&String, i64, &What)> {
        let all = self.there.iter().filter_map(|(key, entry)| Some((key, entry.offset, entry.what.as_ref()?)));
        let mut letters: Vec<_> = all.collect();
        letters.sort_by_key(|(_, offset, _)| *offset);
        letters
    }
}

fn what_of(record: &Kept, endpoint: &EndpointName, names: &Names) -> Option<What> {
    let letter = letter_of(record, endpoint, names)?;
    Some(What { letter: key_of(&letter), message_id: letter.envelope.message_id.clone(), time: letter.time })
}

#[async_trait]
impl DeadLetters for Kafka {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        let add = async {
            // The same again says nothing new, and would come to be the newest.
            let (shelf, key) = (self.0.shelf(ADDING, &letter.endpoint, HashSet::new()).await?, key_of(letter));
            if shelf.letters().iter().any(|(_, _, there)| there.letter == key) {
                return Ok(());
            }
            let headers = headers_of(&letter.envelope, &self.0.options.written_as);
            self.0.put_letter(ADDING, &Letter::of(&self.0.names, letter, headers, None), false).await
        };
        add.await.map_err(|e| store_error(ADDING, e))
    }

    /// The topic is read from its beginning; what is found is sorted by time, and read again for the bodies of the page. What cannot be read as
    /// a message of hapax is in the topic and not in the list; of a message that was too large for a letter the body is empty, and the reason
    /// says where it lies.
    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        let list = async {
            let shelf = self.0.shelf(LISTING, endpoint, HashSet::new()).await?;
            let mut letters = shelf.letters();
            letters.retain(|(_, _, what)| page.message_id.as_ref().is_none_or(|id| *id == what.message_id));
            letters.sort_by_key(|(_, _, what)| what.time);
            let wanted = letters.into_iter().skip(page.skip).take(page.limit);
            let wanted: Vec<(String, i64)> = wanted.map(|(key, offset, _)| (key.clone(), offset)).collect();
            self.0.whole(endpoint, wanted).await
        };
        list.await.map_err(|e| store_error(LISTING, e))
    }

    /// The log tells who was the first to take a letter away.
    async fn discard(&self, letters: &[DeadLetter]) -> Result<usize, StoreError> {
        let mut by_endpoint: HashMap<&EndpointName, HashSet<String>> = HashMap::new();
        for letter in letters {
            by_endpoint.entry(&letter.endpoint).or_default().insert(key_of(letter));
        }
        let mut discarded = 0;
        for (endpoint, letters) in by_endpoint {
            discarded += self.0.take_out(endpoint, &letters).await.map_err(|e| store_error(DISCARDING, e))?;
        }
        Ok(discarded)
    }
}

impl Broker {
    async fn shelf(
        &self,
        operation: &'static str,
        endpoint: &EndpointName,
        asked: HashSet<String>,
    ) -> Result<Shelf, TransportError> {
        let topic = self.names.dead_letters(endpoint);
        if !self.link.is_known(&topic) && !self.is_there(operation, &topic).await? {
            return Ok(Shelf::default());
        }
        let (asker, names, endpoint) = (self.shelves(endpoint).await?, self.names.clone(), endpoint.clone());
        let read = move |asker: &Asker| -> Result<_, KafkaError> {
            let mut shelf = Shelf::default();
            asker.read(&topic, |record| shelf.fold(&record, |record| what_of(record, &endpoint, &names), &asked))?;
            Ok(shelf)
        };
        self.link.ask_as(operation, &asker, read).await
    }

    /// Letters with all that is in them, in this order, by the keys and offsets of their records.
    async fn whole(
        &self,
        endpoint: &EndpointName,
        wanted: Vec<(String, i64)>,
    ) -> Result<Vec<DeadLetter>, TransportError> {
        let Some(first) = wanted.iter().map(|(_, offset)| *offset).min() else { return Ok(Vec::new()) };
        let (asker, topic) = (self.shelves(endpoint).await?, self.names.dead_letters(endpoint));
        let (names, endpoint) = (self.names.clone(), endpoint.clone());
        let read = move |asker: &Asker| -> Result<_, KafkaError> {
            let mut found: HashMap<&str, DeadLetter> = HashMap::with_capacity(wanted.len());
            let since: HashMap<&str, i64> = wanted.iter().map(|(key, offset)| (key.as_str(), *offset)).collect();
            asker.read_from(&topic, first, |record| {
                // The same letter may have been there before, and been taken away.
                if let Some((key, since)) = since.get_key_value(record.key.as_str())
                    && record.offset >= *since
                    && record.body.is_some()
                    && !found.contains_key(key)
                    && let Some(letter) = letter_of(&record, &endpoint, &names)
                {
                    found.insert(*key, letter);
                }
            })?;
            // One that was taken away and cleared meanwhile is none.
            Ok(wanted.iter().filter_map(|(key, _)| found.remove(key.as_str())).collect())
        };
        self.link.ask_as(LISTING, &asker, read).await
    }

    /// Takes letters away. How many were there, and were taken by this.
    async fn take_out(&self, endpoint: &EndpointName, letters: &HashSet<String>) -> Result<usize, TransportError> {
        let shelf = self.shelf(DISCARDING, endpoint, HashSet::new()).await?;
        // Of two that read the same, the first.
        let mut keys: HashMap<&String, &String> = HashMap::new();
        for (key, _, what) in shelf.letters() {
            if letters.contains(&what.letter) {
                keys.entry(&what.letter).or_insert(key);
            }
        }
        let keys: HashSet<String> = keys.into_values().cloned().collect();
        if keys.is_empty() {
            return Ok(0);
        }
        let me = format!("{:016x}", fastrand::u64(..));
        let parcels: Vec<Parcel> = keys
            .iter()
            .map(|key| Parcel {
                topic: self.names.dead_letters(endpoint),
                partition: Some(0),
                key: Some(key.clone()),
                headers: vec![(TAKEN_BY.to_owned(), me.clone().into_bytes())],
                body: None,
            })
            .collect();
        for put in self.link.producing.put_all(&parcels).await {
            put.map_err(|e| failure(DISCARDING, self.link.place(), &e, true))?;
        }
        let shelf = self.shelf(DISCARDING, endpoint, keys).await?;
        Ok(shelf.taken.values().filter(|by| **by == me).count())
    }

    /// Who reads letters, apart from whom an endpoint asks as it is given partitions: that must not wait for it.
    async fn shelves(&self, endpoint: &EndpointName) -> Result<Arc<Mutex<Asker>>, TransportError> {
        self.link.asker_for(&self.names.group(endpoint)).await
    }
}

fn store_error(operation: &'static str, error: TransportError) -> StoreError {
    let kind: ErrorKind = error.kind();
    StoreError::new(kind, operation, "Kafka could not do it").caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shelf(records: &[(&str, Option<&str>, &str)], asked: &[&str]) -> Shelf {
        let mut shelf = Shelf::default();
        let asked = asked.iter().map(|key| (*key).to_owned()).collect();
        for (offset, (key, body, by)) in (0..).zip(records) {
            let body = body.map(|body| body.to_owned().into());
            let headers = vec![(TAKEN_BY.to_owned(), by.as_bytes().to_vec())];
            shelf.fold(&Kept { offset, key: (*key).to_owned(), body, headers }, |_| None, &asked);
        }
        shelf
    }

    #[test]
    fn who_takes_a_letter_away_first_has_taken_it() {
        let records = [("a", Some("x"), ""), ("a", None, "first"), ("a", None, "second"), ("b", None, "nothing there")];
        let shelf = shelf(&records, &["a", "b"]);
        assert!(shelf.there.is_empty());
        assert_eq!(shelf.taken.into_iter().collect::<Vec<_>>(), [("a".to_owned(), "first".to_owned())]);
    }

    #[test]
    fn the_same_letter_again_is_as_old_as_before_and_one_after_it_was_taken_is_new() {
        let records =
            [("a", Some("x"), ""), ("a", Some("x"), ""), ("b", Some("y"), ""), ("b", None, "me"), ("b", Some("y"), "")];
        let shelf = shelf(&records, &[]);
        assert_eq!((shelf.there["a"].offset, shelf.there["b"].offset), (0, 4));
        assert!(shelf.taken.is_empty(), "nobody has asked");
    }
}
