//! Checks that a [`DedupStore`] keeps its promises, each by a function of the promise's name.
//!
//! ```ignore
//! hapax_core::dedup_store_suite!(MyBuilder::new()); // one test for each promise
//! ```
//!
//! or, in a test of your own, [`check_all`]`(&builder).await.assert()`.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::{task::yield_now, time::sleep};

use super::{
    Broken, Checked, Kept, Report,
    entity_store::is_whole,
    report::run,
    samples,
    wait::{SideBySide, eventually, insistently},
};
use crate::{
    entity::DedupEntry,
    ids::DedupKey,
    ports::{DedupStore, ErrorKind, Evicted, Known},
    time::Timestamp,
};

const VISIBLE: &str = "dedup store 1, visible";
const PRESENT_MEANS_SEEN: &str = "dedup store 2, present means seen";
const IDEMPOTENT: &str = "dedup store 3, idempotent";
const ALL_OR_AN_ERROR: &str = "dedup store 4, all or an error";
const NOT_EARLY: &str = "dedup store 5, not early";
const WHOLE_ENTRY: &str = "dedup store 6, whole entry";
const NOTHING_ELSE: &str = "dedup store 7, nothing else";
const IN_THE_END: &str = "dedup store 8, in the end";
const CAPABILITIES: &str = "dedup store, capabilities";

/// Lets the clock of a store that counts in milliseconds go on, so that what is to be evicted at once would be.
const TICK: Duration = Duration::from_millis(2);
/// Why a check does not apply.
const NOT_ALONE: &str = "the store takes entries with their entities only: see the suite of the entity store";
/// Longer than any run.
const HOUR: Duration = Duration::from_secs(3600);

/// Opens the store under test.
#[async_trait]
pub trait Builder: fmt::Debug + Send + Sync {
    /// Another handle onto the same data, as another process would open it: with connections and caches of its own.
    async fn dedup(&self) -> Arc<dyn DedupStore>;

    /// A handle onto data that no other test uses: all of it is evicted. `None` where there is no such data.
    async fn separate(&self) -> Option<Arc<dyn DedupStore>>;
}

/// Checks every promise.
pub async fn check_all(builder: &dyn Builder) -> Report {
    crate::dedup_store_suite!(@run [builder all])
}

/// Checks the promises one by one and ends at the first that is broken: for tests that a suite has teeth.
pub async fn first_broken(builder: &dyn Builder) -> Option<Broken> {
    crate::dedup_store_suite!(@run [builder first_broken])
}

/// One test for each promise of a [`DedupStore`], named as the promise. The argument is an
/// expression for a [`Builder`], made anew in each test; the crate needs tokio
/// with `macros` and `rt-multi-thread`.
#[macro_export]
macro_rules! dedup_store_suite {
    (@run [$($args:tt)*]) => { $crate::dedup_store_suite!(@each [run] [$($args)*]) };
    (@each [$($each:tt)*] [$($args:tt)*]) => {
        // In the order in which one rests on another, so that the first that fails says what is wrong.
        $($each)*! {
            [$($args)*]
            CAPABILITIES capabilities
            VISIBLE visible
            WHOLE_ENTRY whole_entry
            NOTHING_ELSE nothing_else
            PRESENT_MEANS_SEEN present_means_seen
            IDEMPOTENT idempotent
            ALL_OR_AN_ERROR all_or_an_error
            NOT_EARLY not_early
            IN_THE_END in_the_end
        }
    };
    ($builder:expr) => { $crate::dedup_store_suite!(@each [$crate::suite_tests] [dedup_store $builder]); };
}

/// One handle, and the promise that is being checked with it.
#[derive(Clone)]
struct Hand {
    store: Arc<dyn DedupStore>,
    promise: &'static str,
}

impl Hand {
    async fn new(builder: &dyn Builder, promise: &'static str) -> Self {
        Self { store: builder.dedup().await, promise }
    }

    /// `None` where entries are not to be added by themselves.
    async fn alone(builder: &dyn Builder, promise: &'static str) -> Option<Self> {
        let hand = Self::new(builder, promise).await;
        hand.store.dedup_capabilities().alone.then_some(hand)
    }

    fn broken(&self, what: impl Into<String>) -> Broken {
        Broken::new(self.promise, what)
    }

    async fn insert(&self, marks: &[DedupEntry]) -> Result<(), Broken> {
        insistently(self.promise, "inserting dedup entries", || self.store.insert(marks)).await
    }

    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, Broken> {
        insistently(self.promise, "asking the dedup store", || self.store.contains(keys)).await
    }

    async fn evict(&self, retention: Duration) -> Result<Evicted, Broken> {
        insistently(self.promise, "evicting", || self.store.evict(retention)).await
    }

    async fn expect(&self, mark: &DedupEntry, when: &str) -> Result<(), Broken> {
        match self.contains(&[mark.key]).await?.entry(&mark.key) {
            Some(found) if is_whole(found, mark) => Ok(()),
            Some(found) => Err(self.broken(format!("inserted was {mark:+?}, found is {found:+?} {when}"))),
            None => Err(self.broken(format!("a dedup entry is missing {when}"))),
        }
    }
}

/// Handles on the same entries say the same; a store that keeps entries for a fixed time refuses a longer retention, and one
/// that takes none alone refuses them before it writes.
pub async fn capabilities(builder: &dyn Builder) -> Checked {
    let (hand, other) = (Hand::new(builder, CAPABILITIES).await, Hand::new(builder, CAPABILITIES).await);
    let (said, again) = (hand.store.dedup_capabilities(), other.store.dedup_capabilities());
    if said != again {
        return Err(hand.broken(format!("one handle says {said:?}, another {again:?}")));
    }
    if !said.alone {
        refuses_entries(&hand).await?;
    }
    let Some(keeps) = said.keeps else { return Ok(Kept::Shown) };
    hand.evict(keeps).await?;
    match hand.store.evict(keeps + Duration::from_secs(1)).await {
        Err(error) if error.kind() == ErrorKind::Misconfigured => Ok(Kept::Shown),
        answer => {
            Err(hand.broken(format!("it keeps entries for {keeps:?}, and asked for a second more says {answer:?}")))
        }
    }
}

/// Of a store that says that it takes none without their entity.
async fn refuses_entries(hand: &Hand) -> Result<(), Broken> {
    let mark = samples::mark();
    match hand.store.insert(std::slice::from_ref(&mark)).await {
        Err(error) if error.kind() == ErrorKind::Misconfigured => {}
        answer => {
            return Err(hand.broken(format!("it says that it takes no entry alone, and given one says {answer:?}")));
        }
    }
    match hand.contains(&[mark.key]).await?.entry(&mark.key) {
        None => Ok(()),
        Some(_) => Err(hand.broken("an entry that was refused is there")),
    }
}

/// Promise 1. *Visible:* once `insert` has returned, every `contains` that begins later, on any connection of any process,
/// answers with the entry, until it is evicted (S47).
///
/// Also on handles that have been told "not seen" a moment ago, on new ones, and while others insert.
pub async fn visible(builder: &dyn Builder) -> Checked {
    const ROUNDS: usize = 50;
    let mut checks = SideBySide::default();
    for _ in 0..2 {
        let Some(writer) = Hand::alone(builder, VISIBLE).await else { return Ok(Kept::NotClaimed(NOT_ALONE)) };
        let reader = Hand::new(builder, VISIBLE).await;
        checks.add(async move {
            for round in 0..ROUNDS {
                let mark = samples::mark();
                if reader.contains(&[mark.key]).await?.entry(&mark.key).is_some() {
                    return Err(Broken::new(NOTHING_ELSE, "an entry is there before it was inserted"));
                }
                writer.insert(std::slice::from_ref(&mark)).await?;
                for hand in [&reader, &writer] {
                    hand.expect(&mark, &format!("right after its insert was confirmed, in round {round}")).await?;
                }
                yield_now().await;
            }
            Ok(())
        });
    }
    checks.end().await?;

    let marks: Vec<DedupEntry> = (0..3).map(|_| samples::mark()).collect();
    Hand::new(builder, VISIBLE).await.insert(&marks).await?;
    let late = Hand::new(builder, VISIBLE).await;
    for mark in &marks {
        late.expect(mark, "on a handle opened after the insert").await?;
    }
    Ok(Kept::Shown)
}

/// Promise 2. *Present means seen:* whatever its age; being evicted late is always safe.
pub async fn present_means_seen(builder: &dyn Builder) -> Checked {
    let Some(hand) = Hand::alone(builder, PRESENT_MEANS_SEEN).await else { return Ok(Kept::NotClaimed(NOT_ALONE)) };
    for time in [Timestamp::from_millis(0), Timestamp::MAX] {
        let mark = DedupEntry { time, ..samples::mark() };
        hand.insert(std::slice::from_ref(&mark)).await?;
        hand.expect(&mark, &format!("although it is there, stamped {time}")).await?;
    }
    Ok(Kept::Shown)
}

/// Promise 3. *Idempotent:* inserting an entry that is there is success and changes nothing (S22).
pub async fn idempotent(builder: &dyn Builder) -> Checked {
    const TIMES: usize = 4;
    let Some(hand) = Hand::alone(builder, IDEMPOTENT).await else { return Ok(Kept::NotClaimed(NOT_ALONE)) };
    let (first, new) = (samples::full_mark(), samples::mark());
    hand.insert(std::slice::from_ref(&first)).await?;
    hand.insert(std::slice::from_ref(&first)).await?;
    let second = DedupEntry { key: first.key, ..samples::mark() };
    Hand::new(builder, IDEMPOTENT).await.insert(&[second, new.clone()]).await?;
    hand.expect(&first, "after another attempt was inserted").await?;
    hand.expect(&new, "after it was inserted beside one that was there").await?;

    let mark = samples::mark();
    hand.insert(&[mark.clone(), mark.clone()]).await?;
    hand.expect(&mark, "after it was inserted twice in one call").await?;
    hand.insert(&[]).await?;

    let mark = samples::full_mark();
    let mut checks = SideBySide::default();
    for _ in 0..TIMES {
        let (hand, mark) = (Hand::new(builder, IDEMPOTENT).await, mark.clone());
        checks.add(async move {
            hand.insert(std::slice::from_ref(&mark)).await?;
            hand.expect(&mark, "after several inserted it at once").await
        });
    }
    checks.end().await
}

/// Promise 4. *All or an error:* a `contains` that cannot answer for every key is an error, never "not seen" (S25).
pub async fn all_or_an_error(builder: &dyn Builder) -> Checked {
    const MARKS: usize = 600;
    let Some(hand) = Hand::alone(builder, ALL_OR_AN_ERROR).await else { return Ok(Kept::NotClaimed(NOT_ALONE)) };
    let marks: Vec<DedupEntry> = (0..MARKS).map(|_| samples::mark()).collect();
    hand.insert(&marks).await?;
    let others: Vec<DedupKey> = (0..MARKS).map(|_| samples::dedup_key()).collect();
    // Each asked for twice, between keys that are not there.
    let mut keys: Vec<DedupKey> = marks.iter().map(|mark| mark.key).chain(others.iter().copied()).collect();
    keys.sort_unstable_by_key(|key| key.as_bytes()[DedupKey::BYTES - 1]);
    keys.extend(marks.iter().rev().map(|mark| mark.key));
    match hand.store.contains(&keys).await {
        Err(_) => {} // As promised: the caller asks again, or for less.
        Ok(known) => {
            let found = marks.iter().filter(|mark| known.attempt(&mark.key, &mark.attempt)).count();
            if found < MARKS {
                return Err(hand.broken(format!("of {MARKS} entries asked for in one call, {found} were found")));
            }
        }
    }
    // No pass has more than this.
    const PASS: usize = 64;
    for marks in marks.chunks(PASS) {
        let keys: Vec<DedupKey> = marks.iter().map(|mark| mark.key).collect();
        let known = hand.contains(&keys).await?;
        if marks.iter().any(|mark| !known.attempt(&mark.key, &mark.attempt)) {
            return Err(hand.broken(format!("of {PASS} entries asked for in one call, not all were found")));
        }
    }
    hand.contains(&[]).await?;
    Ok(Kept::Shown)
}

/// Promise 5. *Not early:* `evict` removes nothing that was inserted within the retention, by the store's own clock, and
/// nothing within the longest retention that anybody ever asked for: on another handle, or a moment ago.
pub async fn not_early(builder: &dyn Builder) -> Checked {
    const CALLS: usize = 5;
    let Some(hand) = Hand::alone(builder, NOT_EARLY).await else { return Ok(Kept::NotClaimed(NOT_ALONE)) };
    let stamps = [Timestamp::from_millis(0), Timestamp::now(), Timestamp::MAX];
    let marks = stamps.map(|time| DedupEntry { time, ..samples::full_mark() });
    hand.insert(&marks).await?;
    for _ in 0..CALLS {
        hand.evict(HOUR).await?;
        for mark in &marks {
            hand.expect(mark, &format!("after an eviction of what is older than an hour; stamped {}", mark.time))
                .await?;
        }
        yield_now().await;
    }

    let hasty = Hand::new(builder, NOT_EARLY).await;
    for _ in 0..CALLS {
        hasty.evict(Duration::ZERO).await?;
        for (hand, whose) in [(&hasty, "that handle"), (&hand, "another")] {
            let when =
                format!("after an eviction of everything on one handle and of an hour on another, seen by {whose}");
            hand.expect(&marks[0], &when).await?;
        }
        sleep(TICK).await;
    }
    Hand::new(builder, NOT_EARLY).await.evict(Duration::ZERO).await?;
    let late = "after an eviction of everything on a handle opened after one of an hour";
    hand.expect(&marks[1], late).await?;
    Ok(Kept::Shown)
}

/// Promise 6. *Whole entry:* attempt, fingerprint and reply come back as they were inserted.
pub async fn whole_entry(builder: &dyn Builder) -> Checked {
    let Some(writer) = Hand::alone(builder, WHOLE_ENTRY).await else { return Ok(Kept::NotClaimed(NOT_ALONE)) };
    let reader = Hand::new(builder, WHOLE_ENTRY).await;
    let marks = [samples::full_mark(), samples::mark(), samples::full_mark()];
    writer.insert(&marks).await?;
    for mark in &marks {
        reader.expect(mark, "").await?;
    }
    Ok(Kept::Shown)
}

/// Promise 7. *Nothing else:* a key that was not inserted is not known, however much of it is the same.
pub async fn nothing_else(builder: &dyn Builder) -> Checked {
    let Some(hand) = Hand::alone(builder, NOTHING_ELSE).await else { return Ok(Kept::NotClaimed(NOT_ALONE)) };
    let mark = samples::mark();
    hand.insert(std::slice::from_ref(&mark)).await?;
    let mut asked: Vec<DedupKey> = Vec::with_capacity(DedupKey::BYTES + 2);
    for index in 0..DedupKey::BYTES {
        let mut bytes = *mark.key.as_bytes();
        bytes[index] ^= 0x20; // The case of a letter, where it is one.
        asked.push(DedupKey::from_bytes(bytes));
    }
    asked.extend([[0; DedupKey::BYTES], [0xff; DedupKey::BYTES]].map(DedupKey::from_bytes));
    let known = hand.contains(&asked).await?;
    if let Some(key) = asked.iter().find(|key| known.entry(key).is_some()) {
        return Err(hand.broken(format!("inserted was {}, and {key} is known", mark.key)));
    }
    hand.expect(&mark, "beside others that are not there").await?;
    Ok(Kept::Shown)
}

/// Promise 8. *In the end:* what was inserted longer ago than the retention is removed by finitely many calls of `evict`.
/// Not claimed by a store whose service does it.
pub async fn in_the_end(builder: &dyn Builder) -> Checked {
    const MARKS: usize = 20;
    let Some(store) = builder.separate().await else {
        return Ok(Kept::NotClaimed("the builder has no data that no other test uses"));
    };
    let hand = Hand { store, promise: IN_THE_END };
    let said = hand.store.dedup_capabilities();
    if said.keeps.is_some() {
        return Ok(Kept::NotClaimed("the service removes entries by itself"));
    }
    if !said.alone {
        return Ok(Kept::NotClaimed(NOT_ALONE));
    }
    let marks: Vec<DedupEntry> = (0..MARKS).map(|_| samples::full_mark()).collect();
    hand.insert(&marks).await?;
    let keys: Vec<DedupKey> = marks.iter().map(|mark| mark.key).collect();
    let never = || hand.broken("entries are still there after many calls that were to remove everything");
    let look = || async {
        hand.evict(Duration::ZERO).await?;
        let known = hand.contains(&keys).await?;
        // What is left is left whole.
        for (mark, found) in marks.iter().filter_map(|mark| Some((mark, known.entry(&mark.key)?))) {
            if !is_whole(found, mark) {
                return Err(hand.broken(format!("inserted was {mark:+?}, left is {found:+?}")));
            }
        }
        Ok(keys.iter().all(|key| known.entry(key).is_none()).then_some(()))
    };
    eventually(never, look).await?;
    hand.insert(&marks).await?;
    hand.evict(HOUR).await?;
    hand.expect(&marks[0], "after it was evicted and inserted again").await?;
    Ok(Kept::Shown)
}
