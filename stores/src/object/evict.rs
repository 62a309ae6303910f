//! Evicting what is old, without listing everything.

use std::time::Duration;

use futures_util::future::try_join_all;
use hapax_core::{
    ids::DedupKey,
    ports::{ErrorKind, Evicted, StoreError},
};
use object_store::path::Path;

use super::{
    Shared,
    clock::{is_older, millis, stamp},
    error::{EVICTING, Failure},
    names::{Bucket, Names},
    objects::Walk,
    turn::Turn,
};

/// When so many marks were looked at, a call begins no other round. Default 10 000: some ten seconds of requests, beside which those
/// for a turn are nothing.
const MARKS_MAX: usize = 10_000;
/// Marks whose entries are looked at before any of them is removed. Default 256: what one request deletes where the service takes
/// several, and so few that a look is followed by its removal within a second or two.
const ROUND: usize = 256;
/// A mark without an entry is removed after so long, or the retention if that is longer: until then its writer may be about to
/// write the entry.
pub(super) const ABANDONED: Duration = Duration::from_secs(10 * 60);
/// A bucket further in the future was written while the service's clock was wrong.
const FUTURE: Duration = Duration::from_secs(24 * 60 * 60);

/// What is old, in milliseconds of the service's clock.
#[derive(Debug, Clone, Copy)]
struct Age {
    now: i64,
    /// Retention and margin.
    kept_for: i64,
}

impl Age {
    const fn is_over(self, then: i64) -> bool {
        is_older(then, self.now, self.kept_for)
    }

    /// How much of `bucket` is to be looked at.
    fn part(self, bucket: Bucket) -> Part {
        if self.is_over(bucket.end()) || bucket.start > self.now.saturating_add(millis(FUTURE)) {
            Part::Whole
        // Only where the retention is shorter than a bucket: else its old part can wait for the rest.
        } else if self.kept_for < bucket.length && self.is_over(bucket.start) {
            Part::Old
        } else {
            Part::None
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    None,
    /// Marks that are old themselves: an entry is written after its mark.
    Old,
    Whole,
}

/// A mark, and when it was written.
struct Mark {
    key: DedupKey,
    path: Path,
    written: i64,
}

/// What is to become of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Its entry is old.
    Evict,
    /// It has no entry, and no writer any more.
    Remove,
    /// Its entry is of another time.
    Move(Bucket),
    Keep,
}

/// What a call has done.
#[derive(Debug, Default)]
struct Done {
    /// Marks that were looked at.
    looked: usize,
    /// Entries that were evicted.
    entries: u64,
    /// Marks that are gone from where they were.
    gone: usize,
    /// Why the first of those that could not be removed was not.
    failed: Option<Failure>,
}

impl Shared {
    pub(super) async fn evict(&self, retention: Duration) -> Result<Evicted, StoreError> {
        let failed = |failure: Failure| failure.of_read(&self.place, EVICTING);
        // The time first: whoever asks for a longer retention after it was looked up inserts what is younger than this.
        let now = self.ask_time().await.map_err(failed)?;
        let longest = self.longest(retention).await?;
        let age = Age { now, kept_for: longest.saturating_add(self.clock_margin) };
        let mut buckets = Vec::new();
        for path in self.objects.folders(&self.names.buckets()).await.map_err(failed)? {
            buckets.extend(Names::to_bucket(&path).filter(|bucket| age.part(*bucket) != Part::None));
        }
        buckets.sort_unstable();
        if buckets.is_empty() {
            return Ok(Evicted::default());
        }
        let Some(turn) = Turn::take(&self.objects, &self.names, now).await.map_err(failed)? else {
            return Ok(Evicted::default());
        };
        let evicted = self.evict_buckets(&buckets, age, &turn).await;
        turn.end(&self.objects, &self.names).await;
        evicted.map_err(|failure| failure.of_eviction(&self.place))
    }

    /// What the service's clock says.
    pub(super) async fn ask_time(&self) -> Result<i64, Failure> {
        let path = self.names.now();
        self.objects.touch(&path).await?;
        let meta = self.objects.head(&path).await?;
        let now = stamp(&meta.ok_or(Failure::Vanished)?);
        self.clock.set(now);
        Ok(now)
    }

    /// The longest retention that anybody ever asked for, `retention` included, in milliseconds.
    async fn longest(&self, retention: Duration) -> Result<i64, StoreError> {
        let failed = |failure: Failure| failure.of_read(&self.place, EVICTING);
        let asked = millis(retention).unsigned_abs();
        let mut longest = self.listed_retention().await.map_err(failed)?;
        if longest.is_none_or(|longest| longest < asked) {
            self.objects.create(&self.names.retention(asked), Vec::new()).await.map_err(failed)?;
            longest = self.listed_retention().await.map_err(failed)?;
        }
        match longest {
            Some(longest) if longest >= asked => Ok(i64::try_from(longest).unwrap_or(i64::MAX)),
            _ => {
                let why = format!("{} does not show the retention that it has taken: nothing is evicted", self.place);
                Err(StoreError::new(ErrorKind::Unavailable, EVICTING, why))
            }
        }
    }

    async fn listed_retention(&self) -> Result<Option<u64>, Failure> {
        let listed = self.objects.list(&self.names.retentions()).await?;
        Ok(listed.iter().filter_map(|meta| Names::to_retention(&meta.location)).max())
    }

    async fn evict_buckets(&self, buckets: &[Bucket], age: Age, turn: &Turn) -> Result<Evicted, Failure> {
        let mut done = Done::default();
        for bucket in buckets {
            if !self.evict_bucket(*bucket, age, turn, &mut done).await? {
                if let (Some(failure), false) = (done.failed, done.gone > 0) {
                    return Err(failure);
                }
                return Ok(Evicted { entries: done.entries, more: done.gone > 0 });
            }
        }
        // Told when all the others are gone: the next call would meet it again, and first.
        done.failed.map_or(Ok(Evicted { entries: done.entries, more: false }), Err)
    }

    /// Goes through `bucket` in rounds; answers whether to its end.
    async fn evict_bucket(&self, bucket: Bucket, age: Age, turn: &Turn, done: &mut Done) -> Result<bool, Failure> {
        let mut walk = self.objects.walk(&self.names.bucket(bucket));
        let mut stays = false;
        loop {
            if done.looked >= MARKS_MAX || turn.is_over() {
                return Ok(false);
            }
            let marks = self.marks(&mut walk, bucket, age).await?;
            let fates = self.fates(bucket, &marks, age).await?;
            let before = done.gone;
            if !self.apply(&marks, &fates, turn, done).await? {
                return Ok(false);
            }
            done.looked += marks.len();
            stays |= done.gone - before < marks.len();
            if marks.len() < ROUND {
                break;
            }
        }
        if !stays {
            self.objects.remove_folder(&self.names.bucket(bucket)).await;
        }
        Ok(true)
    }

    /// The next marks in `walk` that are to be looked at; fewer than a round are the last.
    async fn marks(&self, walk: &mut Walk, bucket: Bucket, age: Age) -> Result<Vec<Mark>, Failure> {
        let whole = age.part(bucket) == Part::Whole;
        let mut marks = Vec::new();
        while marks.len() < ROUND
            && let Some(meta) = walk.next().await?
        {
            let written = stamp(&meta);
            if let Some(key) = Names::to_key(&meta.location).filter(|_| whole || age.is_over(written)) {
                marks.push(Mark { key, path: meta.location, written });
            }
        }
        Ok(marks)
    }

    async fn fates(&self, bucket: Bucket, marks: &[Mark], age: Age) -> Result<Vec<Fate>, Failure> {
        let mut fates = Vec::with_capacity(marks.len());
        for marks in marks.chunks(self.parallel) {
            fates.extend(try_join_all(marks.iter().map(|mark| self.fate(bucket, mark, age))).await?);
        }
        Ok(fates)
    }

    async fn fate(&self, bucket: Bucket, mark: &Mark, age: Age) -> Result<Fate, Failure> {
        let Some(entry) = self.objects.head(&self.names.entry(&mark.key)).await? else {
            let is_abandoned = age.is_over(mark.written) && is_older(mark.written, age.now, millis(ABANDONED));
            return Ok(if is_abandoned { Fate::Remove } else { Fate::Keep });
        };
        let right = Bucket::of(stamp(&entry), self.bucket);
        Ok(match age.part(bucket) {
            _ if age.is_over(stamp(&entry)) => Fate::Evict,
            Part::Whole if right != bucket => Fate::Move(right),
            _ => Fate::Keep,
        })
    }

    /// Whether it was done before the turn was over.
    async fn apply(&self, marks: &[Mark], fates: &[Fate], turn: &Turn, done: &mut Done) -> Result<bool, Failure> {
        let (mut entries, mut gone, mut moved) = (Vec::new(), Vec::new(), Vec::new());
        for (mark, fate) in marks.iter().zip(fates) {
            match fate {
                Fate::Keep => {}
                Fate::Evict => entries.push((self.names.entry(&mark.key), &mark.path)),
                Fate::Move(bucket) => {
                    moved.push(self.names.mark(*bucket, &mark.key));
                    gone.push(mark.path.clone());
                }
                Fate::Remove => gone.push(mark.path.clone()),
            }
        }
        // Marks last: what is cut short here is found by them again.
        for moved in moved.chunks(self.parallel) {
            try_join_all(moved.iter().map(|path| self.objects.touch(path))).await?;
        }
        // What these looks have found may be another's work by now, and then inserted again.
        if turn.is_over() {
            return Ok(false);
        }
        let paths = entries.iter().map(|(entry, _)| entry.clone()).collect();
        let evicted = turn.within(self.objects.delete_each(paths)).await?;
        // An entry that stays keeps its mark, by which it is found again.
        gone.extend(entries.iter().filter(|(entry, _)| evicted.gone.contains(entry)).map(|(_, mark)| (*mark).clone()));
        let removed = self.objects.delete_each(gone).await?;
        done.entries += evicted.gone.len() as u64;
        done.gone += removed.gone.len();
        done.failed = done.failed.take().or(evicted.failed).or(removed.failed);
        Ok(true)
    }
}
