//! What an endpoint notes on the broker of what it reads, in a topic of its own: where subscriptions begin, and which messages were given how
//! often. A committed offset says neither, and a broker forgets the offsets of a group that is away for a week.
//!
//! A record's key says what it is of, and the newest of a key counts; so the topic is compacted.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write,
};

use bytes::Bytes;
use hapax_core::ids::EndpointName;
use rdkafka::error::KafkaError;

use super::{
    asker::{Asker, Bounds, Place},
    producing::Parcel,
};

/// The endpoint was here, and has noted where its subscriptions begin ever since.
const HERE: &str = "here";
/// Where a subscription begins; behind it the partition, and who notes it.
const START: &str = "start";
/// Which messages were given; behind it the partition.
const GIVEN: &str = "given";
/// Messages of one partition whose counts are noted: those that were given more than once, or not as an attempt. Of others it is
/// known that they were given.
pub(super) const COUNTS_MAX: usize = 256;

/// All that is noted of an endpoint.
#[derive(Debug, Default)]
pub(super) struct Notes {
    is_here: bool,
    /// By the key of the record, so that it can be taken away.
    starts: HashMap<Place, BTreeMap<String, Start>>,
    given: HashMap<Place, Given>,
}

/// Where a subscription begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) at: i64,
    /// What was committed then, left from a subscription before.
    pub(super) over: Option<i64>,
}

/// Which messages of a partition were given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Given {
    /// All in front of it is settled.
    pub(super) position: i64,
    /// None from here on was given.
    pub(super) end: i64,
    /// How often, of those between the two that were not given once.
    pub(super) counts: BTreeMap<i64, u32>,
}

impl Given {
    /// How often the message at `offset` was given.
    pub(super) fn count(&self, offset: i64) -> u32 {
        if offset >= self.end { 0 } else { self.counts.get(&offset).copied().unwrap_or(1) }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let (position, end) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let counts: Option<_> = words
            .map(|word| {
                let (offset, count) = word.split_once(':')?;
                Some((offset.parse().ok()?, count.parse().ok()?))
            })
            .collect();
        Some(Self { position, end, counts: counts? })
    }

    /// The highest counts, if there are too many: poison is among them.
    fn text(&self) -> String {
        let mut counts: Vec<(i64, u32)> = self.counts.iter().map(|(offset, count)| (*offset, *count)).collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        counts.iter().take(COUNTS_MAX).fold(format!("{} {}", self.position, self.end), |mut text, (offset, count)| {
            let _ = write!(text, " {offset}:{count}"); // Text takes all that is written.
            text
        })
    }
}

impl Start {
    fn parse(text: &str) -> Option<Self> {
        let (at, over) = text.split_once(' ')?;
        let over = if over == "-" { None } else { Some(over.parse().ok()?) };
        Some(Self { at: at.parse().ok()?, over })
    }

    fn text(self) -> String {
        self.over.map_or_else(|| format!("{} -", self.at), |over| format!("{} {over}", self.at))
    }
}

impl Notes {
    pub(super) fn read(asker: &Asker, topic: &str) -> Result<Self, KafkaError> {
        let mut notes = Self::default();
        asker.read(topic, |kept| notes.take(&kept.key, kept.body))?;
        Ok(notes)
    }

    /// A record more. What is none of ours is left alone.
    fn take(&mut self, key: &str, body: Option<Bytes>) {
        let text = body.as_deref().map(String::from_utf8_lossy);
        let mut words = key.split(' ');
        let (kind, topic, partition) = (words.next(), words.next(), words.next());
        let place = topic.zip(partition.and_then(|partition| partition.parse().ok()));
        match (kind, place.map(|(topic, partition)| (topic.into(), partition))) {
            (Some(HERE), None) => self.is_here = text.is_some(),
            (Some(START), Some(place)) => {
                let starts = self.starts.entry(place).or_default();
                match text.and_then(|text| Start::parse(&text)) {
                    Some(start) => drop(starts.insert(key.to_owned(), start)),
                    None => drop(starts.remove(key)),
                }
            }
            (Some(GIVEN), Some(place)) => {
                if let Some(given) = text.and_then(|text| Given::parse(&text)) {
                    self.given.insert(place, given);
                }
            }
            _ => {}
        }
    }

    /// Whether the endpoint was here before, as far as it has noted.
    pub(super) const fn is_here(&self) -> bool {
        self.is_here
    }

    /// Topics that the endpoint subscribes to, by whatever process.
    pub(super) fn subscribed(&self) -> impl Iterator<Item = &Place> {
        self.starts.iter().filter(|(_, starts)| !starts.is_empty()).map(|(place, _)| place)
    }

    pub(super) fn is_subscribed(&self, topic: &str) -> bool {
        self.subscribed().any(|(subscribed, _)| &**subscribed == topic)
    }

    pub(super) fn given(&self, place: &Place) -> Given {
        self.given.get(place).cloned().unwrap_or_default()
    }

    /// Where the endpoint reads on in a partition: where it has committed; else, as a broker forgets that, where it has noted to be, or where
    /// its subscription begins. A partition of which nothing is known was added since, and nothing in it was read.
    pub(super) fn begin(&self, place: &Place, committed: Option<i64>, bounds: Bounds) -> i64 {
        // Of those who subscribed at the same time, the first.
        let start = self.starts.get(place).and_then(|starts| starts.values().min_by_key(|start| start.at));
        match (committed, start) {
            // What a subscription that was ended had committed is no place of this one.
            (Some(committed), Some(start)) if start.over == Some(committed) => start.at.max(committed),
            (Some(committed), _) => committed,
            (None, start) => {
                let noted = self.given.get(place).map(|given| given.position);
                noted.into_iter().chain(start.map(|start| start.at)).max().unwrap_or(bounds.low)
            }
        }
    }

    /// Keys of the records that say where subscriptions to `topic` begin.
    pub(super) fn starts_of(&self, topic: &str) -> impl Iterator<Item = &String> {
        let of_topic = self.starts.iter().filter(move |((of, _), _)| &**of == topic);
        of_topic.flat_map(|(_, starts)| starts.keys())
    }
}

/// What is noted, as records.
#[derive(Debug)]
pub(super) struct Pen {
    pub(super) topic: String,
    pub(super) endpoint: EndpointName,
}

impl Pen {
    pub(super) fn here(&self) -> Parcel {
        self.parcel(HERE.to_owned(), Some(self.endpoint.to_string()))
    }

    pub(super) fn start(&self, (topic, partition): &Place, start: Start, who: u64) -> Parcel {
        self.parcel(format!("{START} {topic} {partition} {who:016x}"), Some(start.text()))
    }

    pub(super) fn given(&self, (topic, partition): &Place, given: &Given) -> Parcel {
        self.parcel(format!("{GIVEN} {topic} {partition}"), Some(given.text()))
    }

    pub(super) fn away(&self, key: &str) -> Parcel {
        self.parcel(key.to_owned(), None)
    }

    fn parcel(&self, key: String, text: Option<String>) -> Parcel {
        Parcel {
            topic: self.topic.clone(),
            partition: Some(0),
            key: Some(key),
            headers: Vec::new(),
            body: text.map(|text| Bytes::from(text.into_bytes())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { low: 3, high: 50 };

    fn place() -> Place {
        ("hapax.topic.shop".into(), 1)
    }

    fn noted(records: &[(&str, &str)]) -> Notes {
        let mut notes = Notes::default();
        for (key, text) in records {
            notes.take(key, Some(Bytes::copy_from_slice(text.as_bytes())));
        }
        notes
    }

    #[test]
    fn what_is_committed_counts_and_what_a_broker_has_forgotten_is_noted() {
        let notes = noted(&[("start hapax.topic.shop 1 a", "20 -"), ("given hapax.topic.shop 1", "30 31")]);
        assert_eq!(notes.begin(&place(), Some(25), BOUNDS), 25, "a person may rewind it");
        assert_eq!(notes.begin(&place(), None, BOUNDS), 30);
        let fresh = noted(&[("start hapax.topic.shop 1 a", "20 -")]);
        assert_eq!(fresh.begin(&place(), None, BOUNDS), 20, "nothing that came since it was subscribed is left out");
        assert_eq!(
            Notes::default().begin(&place(), None, BOUNDS),
            3,
            "a partition that was added begins at its beginning"
        );
    }

    #[test]
    fn of_two_that_subscribed_at_once_the_first_counts() {
        let notes = noted(&[("start hapax.topic.shop 1 a", "22 -"), ("start hapax.topic.shop 1 b", "20 -")]);
        assert_eq!(notes.begin(&place(), None, BOUNDS), 20);
    }

    #[test]
    fn what_an_ended_subscription_had_committed_is_no_place_of_the_next() {
        let mut notes = noted(&[("start hapax.topic.shop 1 a", "20 -")]);
        notes.take("start hapax.topic.shop 1 a", None);
        assert!(!notes.is_subscribed("hapax.topic.shop"));
        notes.take("start hapax.topic.shop 1 b", Some(Bytes::from_static(b"40 25")));
        assert_eq!(notes.begin(&place(), Some(25), BOUNDS), 40);
        assert_eq!(notes.begin(&place(), Some(41), BOUNDS), 41);
    }

    #[test]
    fn counts_come_back_as_they_were_noted_the_highest_first() {
        let counts: BTreeMap<i64, u32> = (0..300).map(|offset| (offset, offset as u32 + 2)).collect();
        let given = Given { position: 0, end: 400, counts };
        let read = Given::parse(&given.text()).unwrap_or_default();
        assert_eq!((read.count(299), read.count(0), read.count(350), read.count(400)), (301, 1, 1, 0));
        for bad in ["", "1", "1 x", "1 2 3", "1 2 3:x"] {
            assert_eq!(Given::parse(bad), None, "{bad}");
        }
    }
}
