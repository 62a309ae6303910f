//! What an endpoint notes on the broker of what it reads, in a topic of its own: where subscriptions begin, and which messages were given how
//! often. A committed offset says neither, and a broker forgets the offsets of a group that is away for a week.
//!
//! A record's key says what it is of, and the newest of a key counts; so the topic is compacted.

use std::{
    collections::{BTreeMap, HashMap, HashSet, hash_map::Entry},
    fmt::Write,
    sync::Arc,
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
/// Where a subscription begins, in each partition: in one record, so that none is left out if whoever notes it dies. Behind it the topic, and
/// who notes it.
const START: &str = "start";
/// A subscription was ended; behind it the topic. The record that said where it began is taken away, and no trace of it is left.
const ENDED: &str = "ended";
/// Which messages were given; behind it the partition. The record says first who gives them.
const GIVEN: &str = "given";
/// Messages of one partition whose counts are noted: those that were given more than once, or not as an attempt. Of others it is
/// known that they were given.
pub(super) const COUNTS_MAX: usize = 256;

/// All that is noted of an endpoint.
#[derive(Debug, Default)]
pub(super) struct Notes {
    is_here: bool,
    /// By topic, and by the key of the record, so that it can be taken away.
    starts: HashMap<Arc<str>, BTreeMap<String, Vec<Start>>>,
    ended: HashSet<Arc<str>>,
    given: HashMap<Place, Noted>,
}

/// What was noted of a partition.
#[derive(Debug)]
struct Noted {
    given: Given,
    who: String,
    /// Who had it before. One that stood still does not know that it is another's, and notes what it believes.
    before: HashSet<String>,
}

impl Noted {
    fn take(&mut self, who: &str, given: Given) {
        if self.before.contains(who) {
            return self.given.raise(&given);
        }
        if self.who != who {
            self.before.insert(std::mem::replace(&mut self.who, who.to_owned()));
        }
        self.given = given;
    }
}

/// Where a subscription begins in a partition.
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

    /// What another counted higher counts, of what was given.
    fn raise(&mut self, other: &Self) {
        for (offset, count) in &other.counts {
            if *offset < self.end && *count > self.count(*offset) {
                self.counts.insert(*offset, *count);
            }
        }
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
    pub(super) fn take(&mut self, key: &str, body: Option<Bytes>) {
        let text = body.as_deref().map(String::from_utf8_lossy);
        let mut words = key.split(' ');
        match (words.next(), words.next().map(Arc::<str>::from)) {
            (Some(HERE), None) => self.is_here = text.is_some(),
            (Some(START), Some(topic)) => {
                let starts = self.starts.entry(topic).or_default();
                match text.and_then(|text| text.split(';').map(Start::parse).collect::<Option<Vec<_>>>()) {
                    Some(start) => drop(starts.insert(key.to_owned(), start)),
                    None => drop(starts.remove(key)),
                }
            }
            (Some(ENDED), Some(topic)) => drop(self.ended.insert(topic)),
            (Some(GIVEN), Some(topic)) => {
                let partition = words.next().and_then(|partition| partition.parse().ok());
                let (Some(partition), Some(text)) = (partition, text) else { return };
                let Some((who, given)) = text.split_once(' ') else { return };
                let Some(given) = Given::parse(given) else { return };
                match self.given.entry((topic, partition)) {
                    Entry::Occupied(mut noted) => noted.get_mut().take(who, given),
                    Entry::Vacant(noted) => {
                        noted.insert(Noted { given, who: who.to_owned(), before: HashSet::new() });
                    }
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
    pub(super) fn subscribed(&self) -> impl Iterator<Item = &Arc<str>> {
        self.starts.iter().filter(|(_, starts)| !starts.is_empty()).map(|(topic, _)| topic)
    }

    pub(super) fn is_subscribed(&self, topic: &str) -> bool {
        self.starts.get(topic).is_some_and(|starts| !starts.is_empty())
    }

    /// Whether a subscription to the topic is known to have been ended.
    pub(super) fn has_ended(&self, topic: &str) -> bool {
        self.ended.contains(topic) || self.starts.get(topic).is_some_and(BTreeMap::is_empty)
    }

    /// Whether something is noted of a partition of these topics that is not among `places`.
    pub(super) fn has_more(&self, topics: &[Arc<str>], places: &[Place]) -> bool {
        let (topics, places): (HashSet<_>, HashSet<_>) = (topics.iter().collect(), places.iter().collect());
        let counts = self.starts.iter().map(|(topic, starts)| (topic, starts.values().map(Vec::len).max()));
        let begun = counts.flat_map(|(topic, count)| {
            let count = i32::try_from(count.unwrap_or_default()).unwrap_or(i32::MAX);
            (0..count).map(move |partition| (topic.clone(), partition))
        });
        let mut noted = begun.chain(self.given.keys().cloned());
        noted.any(|place| topics.contains(&place.0) && !places.contains(&place))
    }

    pub(super) fn given(&self, place: &Place) -> Given {
        self.given.get(place).map(|noted| noted.given.clone()).unwrap_or_default()
    }

    /// Where the endpoint reads on in a partition: where it has committed; else, as a broker forgets that, where it has noted to be, or where
    /// its subscription begins. A partition of which nothing is known was added since, and nothing in it was read.
    pub(super) fn begin(&self, place: &Place, committed: Option<i64>, bounds: Bounds) -> i64 {
        // Of those who subscribed at the same time, the first.
        let partition = usize::try_from(place.1).unwrap_or(usize::MAX);
        let starts = self.starts.get(&place.0).into_iter().flat_map(BTreeMap::values);
        let start = starts.filter_map(|starts| starts.get(partition)).min_by_key(|start| start.at);
        match (committed, start) {
            // What a subscription that was ended had committed is no place of this one.
            (Some(committed), Some(start)) if start.over == Some(committed) => start.at.max(committed),
            (Some(committed), _) => committed,
            (None, start) => {
                let noted = self.given.get(place).map(|noted| noted.given.position);
                noted.into_iter().chain(start.map(|start| start.at)).max().unwrap_or(bounds.low)
            }
        }
    }

    /// Keys of the records that say where subscriptions to `topic` begin.
    pub(super) fn starts_of(&self, topic: &str) -> impl Iterator<Item = &String> {
        self.starts.get(topic).into_iter().flat_map(BTreeMap::keys)
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

    pub(super) fn starts(&self, topic: &str, starts: &[Start], who: u64) -> Parcel {
        let starts: Vec<String> = starts.iter().map(|start| start.text()).collect();
        self.parcel(format!("{START} {topic} {who:016x}"), Some(starts.join(";")))
    }

    pub(super) fn ended(&self, topic: &str) -> Parcel {
        self.parcel(format!("{ENDED} {topic}"), Some(self.endpoint.to_string()))
    }

    /// `who` has the partition, and had it not before: it is another who has it again.
    pub(super) fn given(&self, (topic, partition): &Place, who: &str, given: &Given) -> Parcel {
        self.parcel(format!("{GIVEN} {topic} {partition}"), Some(format!("{who} {}", given.text())))
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
        let notes = noted(&[("start hapax.topic.shop a", "7 -;20 -"), ("given hapax.topic.shop 1", "x.1 30 31")]);
        assert_eq!(notes.begin(&place(), Some(25), BOUNDS), 25, "a person may rewind it");
        assert_eq!(notes.begin(&place(), None, BOUNDS), 30);
        let fresh = noted(&[("start hapax.topic.shop a", "7 -;20 -")]);
        assert_eq!(fresh.begin(&place(), None, BOUNDS), 20, "nothing that came since it was subscribed is left out");
        assert_eq!(
            Notes::default().begin(&place(), None, BOUNDS),
            3,
            "a partition that was added begins at its beginning"
        );
    }

    #[test]
    fn of_two_that_subscribed_at_once_the_first_counts() {
        let notes = noted(&[("start hapax.topic.shop a", "7 -;22 -"), ("start hapax.topic.shop b", "8 -;20 -")]);
        assert_eq!(notes.begin(&place(), None, BOUNDS), 20);
    }

    #[test]
    fn what_an_ended_subscription_had_committed_is_no_place_of_the_next() {
        let mut notes = noted(&[("start hapax.topic.shop a", "7 -;20 -")]);
        assert!(!notes.has_ended("hapax.topic.shop"));
        notes.take("start hapax.topic.shop a", None);
        assert!(!notes.is_subscribed("hapax.topic.shop") && notes.has_ended("hapax.topic.shop"));
        notes.take("start hapax.topic.shop b", Some(Bytes::from_static(b"50 -;40 25")));
        assert_eq!(notes.begin(&place(), Some(25), BOUNDS), 40);
        assert_eq!(notes.begin(&place(), Some(41), BOUNDS), 41);
    }

    #[test]
    fn that_a_subscription_was_ended_is_known_when_the_broker_has_forgotten_where_it_began() {
        let notes = noted(&[("ended hapax.topic.shop", "shop")]);
        assert!(notes.has_ended("hapax.topic.shop") && !notes.has_ended("hapax.topic.other"));
    }

    #[test]
    fn a_partition_that_a_broker_does_not_list_is_missed() {
        let topics: Vec<Arc<str>> = vec!["hapax.topic.shop".into(), "hapax.queue.shop".into()];
        let places = |counts: [i32; 2]| -> Vec<Place> {
            let of_topic = topics.iter().zip(counts);
            of_topic.flat_map(|(topic, count)| (0..count).map(move |partition| (topic.clone(), partition))).collect()
        };
        let notes = noted(&[
            ("start hapax.topic.shop a", "7 -;20 -"),
            ("given hapax.queue.shop 2", "x.1 1 2"),
            ("given hapax.topic.left 9", "x.1 1 2"),
        ]);
        assert!(!notes.has_more(&topics, &places([2, 3])));
        assert!(notes.has_more(&topics, &places([1, 3])), "a subscription began in another");
        assert!(notes.has_more(&topics, &places([2, 2])), "another was read");
        assert!(!notes.has_more(&topics[1..], &places([0, 3])), "it is not subscribed to any more");
    }

    #[test]
    fn one_that_stood_still_takes_nothing_from_who_has_its_partition_now() {
        const KEY: &str = "given hapax.topic.shop 1";
        let before = [(KEY, "x.1 10 20 11:7"), (KEY, "y.1 12 20 13:2 14:3"), (KEY, "x.1 10 20 13:5 14:2 30:9")];
        let given = noted(&before).given(&place());
        assert_eq!((given.position, given.end), (12, 20), "it is where the new one is");
        assert_eq!((given.count(13), given.count(14), given.count(30)), (5, 3, 0));
        let mut again = noted(&before);
        again.take(KEY, Some(Bytes::from_static(b"x.2 15 16")));
        assert_eq!(again.given(&place()), Given { position: 15, end: 16, counts: BTreeMap::new() }, "it has it again");
    }

    /// The next version reads on where this one has been, and so does one of before beside it.
    #[test]
    fn what_is_noted_keeps_its_keys_and_texts() {
        const BEGUN: &str = "start hapax.topic.shop 00000000000000ab";
        let endpoint = EndpointName::parse("shop").expect("a name");
        let pen = Pen { topic: "hapax.notes.shop".to_owned(), endpoint };
        let starts = [Start { at: 7, over: None }, Start { at: 20, over: Some(5) }];
        let given = Given { position: 30, end: 40, counts: BTreeMap::from([(31, 2), (33, 5)]) };
        let written = [
            pen.here(),
            pen.starts("hapax.topic.shop", &starts, 0xab),
            pen.ended("hapax.topic.old"),
            pen.given(&place(), "x.1", &given),
        ];
        let kept = [
            ("here", "shop"),
            (BEGUN, "7 -;20 5"),
            ("ended hapax.topic.old", "shop"),
            ("given hapax.topic.shop 1", "x.1 30 40 33:5 31:2"),
        ];
        let said = |parcel: &Parcel| parcel.body.as_deref().map(|body| String::from_utf8_lossy(body).into_owned());
        for (parcel, (key, text)) in written.iter().zip(kept) {
            assert_eq!((parcel.topic.as_str(), parcel.partition), ("hapax.notes.shop", Some(0)));
            assert_eq!((parcel.key.as_deref(), said(parcel).as_deref()), (Some(key), Some(text)));
        }
        assert_eq!(pen.away(BEGUN).body, None);
        let notes = noted(&kept);
        assert!(notes.is_here() && notes.has_ended("hapax.topic.old"));
        assert_eq!(notes.starts["hapax.topic.shop"][BEGUN], starts);
        assert_eq!(notes.given(&place()), given);
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
