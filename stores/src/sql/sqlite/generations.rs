//! What a process knows of the generations of dedup entries, and the task that closes a full one.
//!
//! Inserts go into the newest generation, which is closed when it is full, so that they touch a small part of the file
//! however many entries there are. A closed one never changes until it is dropped whole. So a filter of its keys can be
//! kept in memory and in the file, and a check looks into the newest generations and into those few whose filter says
//! that they may hold its key.
//!
//! Nothing depends on how old this knowledge is: a generation without a filter in memory, and every later one, is looked
//! into for every key, and filters are only ever made of generations that were closed before.

use std::sync::{
    Arc, PoisonError, RwLock,
    atomic::{AtomicU64, Ordering},
};

use hapax_core::{ids::DedupKey, ports::StoreError};
use sqlx::{
    Row,
    sqlite::{SqliteArguments, SqliteRow},
};
use tokio::sync::{mpsc, oneshot};

use super::{
    arguments::Bind,
    filter::{Filter, Hashes, mixed},
    read::{self, Read},
    rows::now,
    statements,
    write::{self, Write},
};

/// Entries of one generation. Default 262,144: its pages stay in memory, and a million messages a day makes four of them.
pub(super) const GENERATION_ENTRIES: u64 = 1 << 18;
/// A generation is as large as this share of all the others, if that is more: so that there are never many hundreds.
const SHARE: u64 = 32;
/// How often the task is woken before a generation is full: what other processes have closed is learnt then.
const LOOKS: u64 = 8;
/// Filters in memory, in bytes. 128 million entries have room; of more, the oldest are looked into without a filter.
const FILTERS_BYTES_MAX: usize = 256 << 20;
/// Entries that are read at once to make a filter: about a millisecond of a reader.
const SCAN: i64 = 4096;
/// Hex digits of what of a key goes into a filter.
const DIGITS: usize = 32;

const KEEPING: &str = "keeping generations of dedup entries";

/// A dedup key's place among those that are asked for, and a closed generation that may hold it.
pub(super) type Place = (usize, i64);

/// What is known of the closed generations.
#[derive(Debug, Default)]
pub(super) struct View {
    /// Every closed generation below `from`, with its filter. Without one, every key may be in it.
    closed: Vec<(i64, Option<Arc<Filter>>)>,
    /// From here on, generations are looked into for every key.
    pub(super) from: i64,
}

impl View {
    /// How many closed generations have a filter.
    #[cfg(test)]
    pub(super) fn filters(&self) -> usize {
        self.closed.iter().filter(|(_, filter)| filter.is_some()).count()
    }

    /// Where else `keys` may be than in the generations that are looked into anyway.
    pub(super) fn places<'k>(&self, keys: impl IntoIterator<Item = &'k DedupKey>) -> Vec<Place> {
        let mut places = Vec::new();
        if self.closed.is_empty() {
            return places;
        }
        for (at, key) in keys.into_iter().enumerate() {
            let hash = Hashes::of(key);
            let may_hold = |filter: &Option<Arc<Filter>>| filter.as_ref().is_none_or(|filter| filter.may_hold(hash));
            places.extend(self.closed.iter().filter(|(_, filter)| may_hold(filter)).map(|(id, _)| (at, *id)));
        }
        places
    }
}

/// What all parts of a store share about generations.
#[derive(Debug)]
pub(super) struct Generations {
    view: RwLock<Arc<View>>,
    /// Entries that this process has inserted since the task looked last.
    inserted: AtomicU64,
    /// And since entries were evicted last.
    not_evicted: AtomicU64,
    entries_max: u64,
    wake: mpsc::Sender<()>,
}

impl Generations {
    pub(super) fn view(&self) -> Arc<View> {
        self.view.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says that dedup entries were inserted.
    pub(super) fn inserted(&self, entries: usize) {
        self.not_evicted.fetch_add(entries as u64, Ordering::Relaxed);
        let before = self.inserted.fetch_add(entries as u64, Ordering::Relaxed);
        if before + entries as u64 >= self.entries_max / LOOKS {
            self.look();
        }
    }

    /// How many entries this process has inserted since this was asked last.
    pub(super) fn since_evicted(&self) -> u64 {
        self.not_evicted.swap(0, Ordering::Relaxed)
    }

    /// Lets the task look at the file, soon.
    pub(super) fn look(&self) {
        let _ = self.wake.try_send(()); // Full: it will look anyway.
    }
}

/// The task that closes full generations and makes filters.
#[derive(Debug)]
pub(super) struct Keeper {
    wake: mpsc::Receiver<()>,
    /// Ends with the last handle: it holds none itself.
    reads: mpsc::WeakSender<Read>,
    writes: mpsc::WeakSender<Write>,
    generations: std::sync::Weak<Generations>,
    file: Arc<str>,
    /// The newest generation, and how many entries it has, as far as is known.
    newest: Option<(i64, u64)>,
}

/// What is in the way of looking.
#[derive(Debug)]
enum Stop {
    Closed,
    Failed(StoreError),
}

impl Keeper {
    pub(super) fn new(
        entries_max: u64,
        reads: &mpsc::Sender<Read>,
        writes: &mpsc::Sender<Write>,
        file: Arc<str>,
    ) -> (Self, Arc<Generations>) {
        let (wake, woken) = mpsc::channel(1);
        let entries_max = entries_max.max(1);
        let (inserted, not_evicted) = (AtomicU64::new(0), AtomicU64::new(0));
        let generations = Generations { view: RwLock::default(), inserted, not_evicted, entries_max, wake };
        let generations = Arc::new(generations);
        generations.look();
        let weak = Arc::downgrade(&generations);
        let (reads, writes) = (reads.downgrade(), writes.downgrade());
        (Self { wake: woken, reads, writes, generations: weak, file, newest: None }, generations)
    }

    /// Ends when the store is gone.
    pub(super) async fn run(mut self) {
        while self.wake.recv().await.is_some() {
            match self.keep().await {
                Ok(()) => {}
                Err(Stop::Closed) => break,
                // Slower from now on, and as right; the next look tries again.
                Err(Stop::Failed(error)) => tracing::warn!(file = %self.file, %error, "dedup entries are not filtered"),
            }
        }
    }

    /// Brings the view up to date; closes the newest generation if it is full.
    async fn keep(&mut self) -> Result<(), Stop> {
        loop {
            let rows = self.read(statements::GENERATIONS, SqliteArguments::default()).await?;
            let mut ids = Vec::with_capacity(rows.len());
            for row in &rows {
                ids.push(row.try_get::<i64, _>(0).map_err(|_| self.damaged("the list of generations"))?);
            }
            let Some(newest) = ids.pop() else { return Ok(()) };
            self.learn(&ids, newest).await?;
            let (count, limit) = self.count(newest).await?;
            if count < limit {
                return Ok(());
            }
            let mut arguments = SqliteArguments::default();
            arguments.bind(newest);
            let rows = self.read(statements::LATEST, arguments).await?;
            let latest: Option<i64> = match rows.first().map(|row| row.try_get(0)) {
                Some(Ok(latest)) => latest,
                _ => return Err(self.damaged("the time of an entry")),
            };
            let mut arguments = SqliteArguments::default();
            arguments.bind(now()).bind(newest).bind(latest);
            self.write(&statements::CLOSE_GENERATION, statements::CLOSE_GENERATION_STATEMENTS, arguments).await?;
        }
    }

    /// Entries of the newest generation, and at how many it is full.
    async fn count(&mut self, newest: i64) -> Result<(u64, u64), Stop> {
        let Some(generations) = self.generations.upgrade() else { return Err(Stop::Closed) };
        let mine = generations.inserted.swap(0, Ordering::Relaxed);
        let known = match self.newest {
            Some((id, known)) if id == newest => known + mine,
            Some(_) => mine,
            None => self.counted(newest, generations.entries_max).await?,
        };
        self.newest = Some((newest, known));
        let filtered: usize =
            generations.view().closed.iter().flat_map(|(_, filter)| filter).map(|filter| filter.entries()).sum();
        Ok((known, generations.entries_max.max(filtered as u64 / SHARE)))
    }

    /// Entries of a generation that was there before this process, up to `max`.
    async fn counted(&self, generation: i64, max: u64) -> Result<u64, Stop> {
        let mut arguments = SqliteArguments::default();
        arguments.bind(generation).bind(i64::try_from(max).unwrap_or(i64::MAX));
        let rows = self.read(statements::COUNT_GENERATION, arguments).await?;
        let count = rows.first().and_then(|row| row.try_get::<i64, _>(0).ok());
        count.and_then(|count| u64::try_from(count).ok()).ok_or_else(|| self.damaged("a count"))
    }

    /// Makes the view one of the `closed` generations, given in the order of their closing.
    async fn learn(&self, closed: &[i64], newest: i64) -> Result<(), Stop> {
        let Some(generations) = self.generations.upgrade() else { return Err(Stop::Closed) };
        let old = generations.view();
        let mut known = old.closed.iter().rev().peekable();
        let (mut filters, mut room) = (Vec::with_capacity(closed.len()), FILTERS_BYTES_MAX);
        // The newest first: what there is no room for is the oldest.
        for &id in closed.iter().rev() {
            while known.next_if(|(known, _)| *known > id).is_some() {}
            let filter = match known.next_if(|(known, _)| *known == id) {
                Some((_, Some(filter))) => Some(filter.clone()),
                _ if room == 0 => None,
                _ => self.filter_if_readable(id).await?,
            };
            room = room.saturating_sub(filter.as_ref().map_or(0, |filter| filter.bytes()));
            filters.push((id, filter));
        }
        filters.reverse();
        let view = Arc::new(View { closed: filters, from: newest });
        *generations.view.write().unwrap_or_else(PoisonError::into_inner) = view;
        Ok(())
    }

    /// Without a filter, a generation is looked into for every key.
    async fn filter_if_readable(&self, generation: i64) -> Result<Option<Arc<Filter>>, Stop> {
        match self.filter(generation).await {
            Ok(filter) => Ok(Some(Arc::new(filter))),
            Err(Stop::Failed(error)) => {
                tracing::warn!(file = %self.file, generation, %error, "dedup entries without a filter: checks are slower");
                Ok(None)
            }
            Err(Stop::Closed) => Err(Stop::Closed),
        }
    }

    /// The filter of a closed generation, from the file or made anew.
    async fn filter(&self, generation: i64) -> Result<Filter, Stop> {
        let mut arguments = SqliteArguments::default();
        arguments.bind(generation);
        let rows = self.read(statements::FILTER, arguments).await?;
        let stored = rows.first().and_then(|row| row.try_get::<&[u8], _>(0).ok());
        if let Some(filter) = stored.and_then(Filter::decode) {
            return Ok(filter);
        }
        let filter = Filter::of(&self.hashes(generation).await?);
        let mut arguments = SqliteArguments::default();
        arguments.bind(generation).bind(filter.encode());
        self.write(statements::FILTER_ADD, 1, arguments).await?;
        Ok(filter)
    }

    /// Reads a whole generation, in steps that do not keep the loads waiting.
    async fn hashes(&self, generation: i64) -> Result<Vec<u64>, Stop> {
        let mut hashes = Vec::new();
        let mut after: Vec<u8> = Vec::new();
        loop {
            let mut arguments = SqliteArguments::default();
            arguments.bind(generation).bind(&*after).bind(SCAN);
            let rows = self.read(statements::SCAN_GENERATION, arguments).await?;
            let damaged = || self.damaged("a dedup entry");
            let row = rows.first().ok_or_else(damaged)?;
            let count: i64 = row.try_get(0).map_err(|_| damaged())?;
            if count == 0 {
                return Ok(hashes);
            }
            let digits: &str = row.try_get(1).map_err(|_| damaged())?;
            after = row.try_get::<&[u8], _>(2).map_err(|_| damaged())?.to_vec();
            // A key that is cut short would shift all that follow.
            if i64::try_from(digits.len()).ok() != count.checked_mul(DIGITS as i64) {
                return Err(damaged());
            }
            for hash in digits.as_bytes().chunks_exact(DIGITS) {
                let half = |at: usize| {
                    let half = str::from_utf8(&hash[at..at + DIGITS / 2]).ok();
                    half.and_then(|half| u64::from_str_radix(half, 16).ok()).ok_or_else(damaged)
                };
                hashes.push(mixed(half(0)?, half(DIGITS / 2)?));
            }
        }
    }

    async fn read(&self, sql: &'static str, arguments: SqliteArguments) -> Result<Vec<SqliteRow>, Stop> {
        let (answer, answered) = oneshot::channel();
        let read = Read::Alone(read::Alone { operation: KEEPING, sql, arguments, answer });
        let reads = self.reads.upgrade().ok_or(Stop::Closed)?;
        reads.send(read).await.map_err(|_| Stop::Closed)?;
        drop(reads); // The last handle may be dropped while this waits.
        answered.await.map_err(|_| Stop::Closed)?.map_err(Stop::Failed)
    }

    async fn write(&self, sql: &'static str, statements: usize, arguments: SqliteArguments) -> Result<(), Stop> {
        let (answer, answered) = oneshot::channel();
        let write = Write::Alone(write::Alone { operation: KEEPING, sql, statements, arguments, answer });
        let writes = self.writes.upgrade().ok_or(Stop::Closed)?;
        writes.send(write).await.map_err(|_| Stop::Closed)?;
        drop(writes);
        answered.await.map_err(|_| Stop::Closed)?.map_err(Stop::Failed)?;
        Ok(())
    }

    fn damaged(&self, what: &str) -> Stop {
        Stop::Failed(super::error::malformed(KEEPING, &self.file, what))
    }
}
