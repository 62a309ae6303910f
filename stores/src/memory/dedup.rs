//! Dedup entries in the order in which they came, and where to find each.

use std::{
    collections::{HashMap, VecDeque},
    hash::{Hash, Hasher},
    time::{Duration, Instant},
};

use hapax_core::{
    entity::DedupEntry,
    envelope::Outgoing,
    ids::{AttemptId, DedupKey, Fingerprint},
    ports::Evicted,
    time::Timestamp,
};
use hashbrown::HashTable;

use super::long;

/// Most dedup entries that one `evict` removes, so that it does not hold up the others.
const EVICT_MAX: u64 = 10_000;

pub(super) struct Dedup {
    /// What [`Kept::inserted`] counts from.
    born: Instant,
    entries: VecDeque<Kept>,
    places: HashTable<Place>,
    /// The number of the first of `entries`.
    evicted: u64,
    /// Old ones that wait until something has been shown.
    waiting: HashMap<DedupKey, DedupEntry>,
    /// Of these, in the order in which they came.
    order: VecDeque<(DedupKey, Instant)>,
    /// The longest that anybody asked for.
    retention: Duration,
}

/// An entry, in little room: there may be millions, and each message adds one.
struct Kept {
    key: DedupKey,
    attempt: AttemptId,
    fingerprint: Fingerprint,
    /// Few messages are answered.
    reply: Option<Box<Outgoing>>,
    time: Timestamp,
    /// Nanoseconds; they last for five centuries.
    inserted: u64,
}

/// Where an entry is. A map of keys and numbers would be four times as large.
#[derive(Clone, Copy)]
struct Place {
    hash: u32,
    /// Of the entry, modulo 2^32: so many do not fit into memory at a time.
    number: u32,
}

/// Of a key that is a hash already, or counts.
#[derive(Default)]
struct Folded(u32);

impl Hasher for Folded {
    fn finish(&self) -> u64 {
        spread(self.0)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // Both halves are in it.
        self.0 = self.0.rotate_left(5) ^ (number ^ number >> 32) as u32;
    }
}

fn folded(key: &DedupKey) -> u32 {
    let mut hasher = Folded::default();
    key.hash(&mut hasher);
    hasher.0
}

/// A table looks at the first bits and at the last: 2^64 over the golden ratio (Knuth, *The Art of Computer Programming*, 6.4) makes all depend on
/// what is there.
const fn spread(hash: u32) -> u64 {
    (hash as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl Default for Dedup {
    fn default() -> Self {
        Self {
            born: Instant::now(),
            entries: VecDeque::new(),
            places: HashTable::new(),
            evicted: 0,
            waiting: HashMap::new(),
            order: VecDeque::new(),
            retention: Duration::ZERO,
        }
    }
}

impl Dedup {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.entries.len() + self.waiting.len()
    }

    /// How long ago the first of them was inserted.
    pub(super) fn oldest(&self) -> Option<Duration> {
        let waiting = self.order.front().map(|(_, inserted)| *inserted);
        let first = self.entries.front().map(|kept| self.inserted(kept));
        waiting.into_iter().chain(first).min().map(|inserted| inserted.elapsed())
    }

    /// The longest that anybody asked for.
    pub(super) fn retention(&self) -> Option<Duration> {
        Some(self.retention).filter(|retention| !retention.is_zero())
    }

    pub(super) fn entry(&self, key: &DedupKey) -> Option<DedupEntry> {
        let hash = folded(key);
        match self.places.find(spread(hash), |place| self.is_of(*place, hash, key)) {
            Some(place) => self.entries.get(self.index(*place)).map(Kept::to_entry),
            None => self.waiting.get(key).cloned(),
        }
    }

    const fn index(&self, place: Place) -> usize {
        place.number.wrapping_sub(self.evicted as u32) as usize // Cut off as the number is.
    }

    fn is_of(&self, place: Place, hash: u32, key: &DedupKey) -> bool {
        place.hash == hash && self.entries.get(self.index(place)).is_some_and(|kept| kept.key == *key)
    }

    pub(super) fn insert(&mut self, entries: &[DedupEntry], now: Instant) {
        let inserted = now.saturating_duration_since(self.born).as_nanos();
        let inserted = u64::try_from(inserted).unwrap_or(u64::MAX);
        for entry in entries.iter().filter(|entry| !self.waiting.contains_key(&entry.key)) {
            let hash = folded(&entry.key);
            if self.places.find(spread(hash), |place| self.is_of(*place, hash, &entry.key)).is_some() {
                continue;
            }
            let number = (self.evicted + self.entries.len() as u64) as u32;
            self.places.insert_unique(spread(hash), Place { hash, number }, |place| spread(place.hash));
            self.entries.push_back(Kept::new(entry, inserted));
        }
    }

    pub(super) fn evict(&mut self, retention: Duration, long: &mut long::Long) -> Evicted {
        self.retention = self.retention.max(retention);
        let mut evicted = Evicted::default();
        while let Some(inserted) = self.entries.front().map(|kept| self.inserted(kept))
            && inserted.elapsed() > self.retention
        {
            if evicted.entries == EVICT_MAX {
                return Evicted { more: true, ..evicted };
            }
            if let Some(kept) = self.remove_first() {
                evicted.entries += 1;
                if let Some(waits) = long.take(kept.to_entry(), inserted) {
                    self.order.push_back((waits.key, inserted));
                    self.waiting.insert(waits.key, waits);
                }
            }
        }
        while self.order.front().is_some_and(|(_, inserted)| long.may_go(*inserted)) {
            if let Some((key, _)) = self.order.pop_front() {
                self.waiting.remove(&key);
            }
        }
        long.forget();
        evicted
    }

    fn inserted(&self, kept: &Kept) -> Instant {
        self.born + Duration::from_nanos(kept.inserted)
    }

    fn remove_first(&mut self) -> Option<Kept> {
        let key = self.entries.front()?.key;
        let hash = folded(&key);
        let found = self.places.find(spread(hash), |place| self.is_of(*place, hash, &key)).copied();
        if let Some(Place { number, .. }) = found
            && let Ok(place) = self.places.find_entry(spread(hash), |place| place.number == number)
        {
            place.remove();
        }
        self.evicted += 1;
        self.entries.pop_front()
    }
}

impl Kept {
    fn new(entry: &DedupEntry, inserted: u64) -> Self {
        let DedupEntry { key, attempt, fingerprint, ref reply, time } = *entry;
        Self { key, attempt, fingerprint, reply: reply.clone().map(Box::new), time, inserted }
    }

    fn to_entry(&self) -> DedupEntry {
        let Self { key, attempt, fingerprint, ref reply, time, .. } = *self;
        DedupEntry { key, attempt, fingerprint, reply: reply.as_deref().cloned(), time }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use hapax_core::{
        envelope::Envelope,
        ids::{EntityKey, MessageId, Scope},
    };

    use super::*;

    /// What is found, what is not, and what is gone, as in a map; across where numbers begin again.
    #[test]
    fn each_entry_is_found_until_it_is_evicted_wherever_its_number_is() {
        const ENTRIES: usize = 20_000;
        let scope = Scope { endpoint: "shop".parse().unwrap(), saga: "order".parse().unwrap() };
        let entity = EntityKey::new(scope.into(), "7".parse().unwrap());
        let entry = |number: usize| {
            let id = MessageId::parse(&format!("m-{number}")).unwrap();
            let message = Envelope::new(id, "shop.added".parse().unwrap(), number.to_string());
            DedupEntry {
                key: DedupKey::of(&entity, &message),
                attempt: AttemptId::from_bytes([0; AttemptId::BYTES]),
                fingerprint: Fingerprint::of(&message),
                reply: None,
                time: Timestamp::from_millis(number as u64),
            }
        };
        let entries: Vec<_> = (0..ENTRIES).map(entry).collect();
        let mut dedup = Dedup { evicted: u64::from(u32::MAX) - 100, ..Dedup::default() };
        for entry in &entries {
            assert_eq!(dedup.entry(&entry.key), None);
            dedup.insert(std::slice::from_ref(entry), Instant::now());
            let other = DedupEntry { attempt: AttemptId::from_bytes([1; AttemptId::BYTES]), ..entry.clone() };
            dedup.insert(&[other], Instant::now());
        }
        assert_eq!((dedup.len(), dedup.places.len()), (ENTRIES, ENTRIES), "who is there stays as it is");
        for (number, entry) in entries.iter().enumerate() {
            assert_eq!(dedup.entry(&entry.key).as_ref(), Some(entry));
            if number % 2 == 0 {
                let first = dedup.remove_first().unwrap();
                assert_eq!(dedup.entry(&first.key), None);
            }
        }
        assert_eq!((dedup.len(), dedup.places.len()), (ENTRIES / 2, ENTRIES / 2));
    }
}
