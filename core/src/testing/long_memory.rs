//! Checks that a dedup store with a [`LongMemory`] keeps its promises, each by a function of the promise's name.
//!
//! ```ignore
//! hapax_core::long_memory_suite!(MyBuilder::new()); // one test for each promise; a builder of the dedup store's suite
//! ```
//!
//! or, in a test of your own, [`check_all`]`(&builder).await.assert()`. Every check evicts, so each works on a store of its own:
//! [`Builder::separate`].

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;

use super::{
    Broken, Checked, Kept, Report,
    dedup_store::Builder,
    entity_store::is_whole,
    report::run,
    samples,
    wait::{eventually, insistently},
};
use crate::{
    entity::DedupEntry,
    ids::{DedupKey, EndpointName},
    ports::{DedupStore, Evicted, Keep, Known, LongMemory, Moment, Passed},
};

const NO_GAP: &str = "long memory 1, no gap";
const EXACT: &str = "long memory 2, exact";
const KEYS_ARE_KEPT_WHOLE: &str = "long memory 3, keys are kept whole";
const BY_EVIDENCE: &str = "long memory 4, by evidence";
const WHOEVER_ASKS: &str = "long memory 5, whoever asks";
const IN_THE_END: &str = "long memory 6, in the end";

/// Longer than any run.
const HOUR: Duration = Duration::from_secs(3600);
/// Lets the clock of a store that counts in milliseconds go on.
const TICK: Duration = Duration::from_millis(3);
/// Calls that would have evicted everything several times over.
const CALLS: usize = 8;
const ABSENT: &str = "the store has no long memory, or the builder no data that no other test uses";

/// Checks every promise.
pub async fn check_all(builder: &dyn Builder) -> Report {
    crate::long_memory_suite!(@run [builder all])
}

/// Checks the promises one by one and ends at the first that is broken: for tests that a suite has teeth.
pub async fn first_broken(builder: &dyn Builder) -> Option<Broken> {
    crate::long_memory_suite!(@run [builder first_broken])
}

/// One test for each promise of a [`LongMemory`], named as the promise. The argument is an expression for a
/// [`dedup_store::Builder`](Builder), made anew in each test; the crate needs tokio with `macros` and `rt-multi-thread`.
#[macro_export]
macro_rules! long_memory_suite {
    (@run [$($args:tt)*]) => { $crate::long_memory_suite!(@each [run] [$($args)*]) };
    (@each [$($each:tt)*] [$($args:tt)*]) => {
        // In the order in which one rests on another, so that the first that fails says what is wrong.
        $($each)*! {
            [$($args)*]
            IN_THE_END in_the_end
            EXACT exact
            NO_GAP no_gap
            KEYS_ARE_KEPT_WHOLE keys_are_kept_whole
            BY_EVIDENCE by_evidence
            WHOEVER_ASKS whoever_asks
        }
    };
    ($builder:expr) => { $crate::long_memory_suite!(@each [$crate::suite_tests] [long_memory $builder]); };
}

/// A store of its own, and the promise that is being checked with it.
struct Hand {
    store: Arc<dyn DedupStore>,
    endpoint: EndpointName,
    promise: &'static str,
}

impl Hand {
    async fn new(builder: &dyn Builder, promise: &'static str) -> Option<Self> {
        let store = builder.separate().await?;
        let remembers = store.long_memory().is_some();
        remembers.then(|| Self { store, endpoint: samples::endpoint(), promise })
    }

    fn broken(&self, what: impl Into<String>) -> Broken {
        Broken::new(self.promise, what)
    }

    fn memory(&self) -> Result<&dyn LongMemory, Broken> {
        self.store.long_memory().ok_or_else(|| self.broken("the long memory is gone"))
    }

    const fn keep(&self) -> Keep<'_> {
        let (retention, keys) = (Duration::ZERO, Duration::ZERO);
        Keep { endpoint: &self.endpoint, retention, keys, fold: true, passed: Passed::Unasked }
    }

    async fn insert(&self, marks: &[DedupEntry]) -> Result<(), Broken> {
        insistently(self.promise, "inserting dedup entries", || self.store.insert(marks)).await
    }

    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, Broken> {
        insistently(self.promise, "asking the dedup store", || self.store.contains(keys)).await
    }

    async fn recall(&self, keys: &[DedupKey]) -> Result<Known, Broken> {
        let memory = self.memory()?;
        insistently(self.promise, "asking what is remembered", || memory.recall(keys)).await
    }

    async fn moment(&self) -> Result<Moment, Broken> {
        let memory = self.memory()?;
        insistently(self.promise, "asking for the time", || memory.moment()).await
    }

    async fn evict(&self, keep: &Keep<'_>) -> Result<Evicted, Broken> {
        let memory = self.memory()?;
        insistently(self.promise, "evicting", || memory.evict_keeping(keep)).await
    }

    /// As an endpoint that knows nothing of all this.
    async fn evict_plainly(&self) -> Result<Evicted, Broken> {
        insistently(self.promise, "evicting", || self.store.evict(Duration::ZERO)).await
    }

    /// Evicts until no entry of `marks` is left; whether what is known of them is right then, says `look` each time.
    async fn until_gone(&self, keep: &Keep<'_>, marks: &[DedupEntry]) -> Result<(), Broken> {
        let keys: Vec<DedupKey> = marks.iter().map(|mark| mark.key).collect();
        let never = || self.broken("entries are still there after many calls that were to evict them");
        let look = || async {
            self.evict(keep).await?;
            sleep(TICK).await;
            let known = self.contains(&keys).await?;
            Ok(keys.iter().all(|key| known.entry(key).is_none()).then_some(()))
        };
        eventually(never, look).await
    }

    async fn expect_folded(&self, marks: &[DedupEntry]) -> Result<(), Broken> {
        let keys: Vec<DedupKey> = marks.iter().map(|mark| mark.key).collect();
        let known = self.recall(&keys).await?;
        match keys.iter().find(|key| !known.is_folded(key)) {
            Some(key) => Err(self.broken(format!("{key} is over, its entry is gone, and nothing tells of it"))),
            None => Ok(()),
        }
    }

    /// By an entry or by what is remembered.
    async fn expect_whole(&self, mark: &DedupEntry, when: &str) -> Result<(), Broken> {
        let known = self.contains(&[mark.key]).await?.and(self.recall(&[mark.key]).await?);
        match known.entry(&mark.key) {
            Some(found) if is_whole(found, mark) => Ok(()),
            Some(found) => Err(self.broken(format!("inserted was {mark:+?}, found is {found:+?} {when}"))),
            None => Err(self.broken(format!("a dedup entry is missing {when}"))),
        }
    }
}

fn numbered(sequence: [u8; 12], number: u64) -> DedupEntry {
    let mut bytes = [0; DedupKey::BYTES];
    bytes[..4].copy_from_slice(&DedupKey::NUMBERED);
    bytes[4..16].copy_from_slice(&sequence);
    bytes[16..].copy_from_slice(&number.to_be_bytes());
    DedupEntry { key: DedupKey::from_bytes(bytes), ..samples::full_mark() }
}

fn keyed() -> DedupEntry {
    let mut bytes = *samples::dedup_key().as_bytes();
    bytes[..4].copy_from_slice(&DedupKey::KEYED);
    DedupEntry { key: DedupKey::from_bytes(bytes), ..samples::full_mark() }
}

/// The twelve bytes of a sequence that nobody else uses.
fn sequence() -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes.copy_from_slice(&samples::dedup_key().as_bytes()[12..]);
    bytes
}

/// Promise 1. *No gap:* what `contains` answers no more because its entry was folded or put by, each `recall` that begins
/// later answers.
pub async fn no_gap(builder: &dyn Builder) -> Checked {
    const MARKS: u64 = 200;
    let Some(hand) = Hand::new(builder, NO_GAP).await else { return Ok(Kept::NotClaimed(ABSENT)) };
    let sequence = sequence();
    let mut marks: Vec<DedupEntry> = (1..=MARKS).map(|number| numbered(sequence, number)).collect();
    marks.extend((0..20).map(|_| keyed()));
    hand.insert(&marks).await?;
    let keys: Vec<DedupKey> = marks.iter().map(|mark| mark.key).collect();
    let keep = Keep { keys: HOUR, ..hand.keep() };
    let never = || hand.broken("entries of numbers are still there after many calls that were to fold them");
    let ask = || async {
        let known = hand.contains(&keys).await?;
        let entries = keys.iter().filter(|key| known.entry(key).is_some()).count();
        let missing: Vec<DedupKey> = keys.iter().filter(|key| known.entry(key).is_none()).copied().collect();
        let later = hand.recall(&missing).await?;
        match missing.iter().find(|key| later.entry(key).is_none() && !later.is_folded(key)) {
            Some(key) => {
                Err(hand.broken(format!("{key} is over, and neither `contains` nor a later `recall` tells of it")))
            }
            None => Ok(entries),
        }
    };
    let look = || async {
        // Beside the eviction, not after it.
        let (evicted, ended) = futures_util::join!(hand.evict(&keep), async {
            for _ in 0..3 {
                tokio::task::yield_now().await; // A store that never waits is to be met within the call, not before it.
                ask().await?;
            }
            Ok(())
        });
        evicted?;
        ended?;
        sleep(TICK).await;
        Ok((ask().await? <= 20).then_some(()))
    };
    eventually(never, look).await?;
    Ok(Kept::Shown)
}

/// Promise 2. *Exact:* `recall` answers for a number whose entry was inserted, and for no other.
pub async fn exact(builder: &dyn Builder) -> Checked {
    let Some(hand) = Hand::new(builder, EXACT).await else { return Ok(Kept::NotClaimed(ABSENT)) };
    let (first, second) = (sequence(), sequence());
    let there = [3, 1, 2, 5, 9, 7, 4, 11, 12, u64::MAX, u64::MAX - 1];
    let marks: Vec<DedupEntry> = there.iter().map(|number| numbered(first, *number)).collect();
    hand.insert(&marks).await?;
    hand.insert(&[numbered(second, 6), numbered(second, 0)]).await?;
    hand.until_gone(&hand.keep(), &marks).await?;
    hand.expect_folded(&marks).await?;
    let absent = |sequence, numbers: &[u64]| -> Vec<DedupKey> {
        numbers.iter().map(|number| numbered(sequence, *number).key).collect()
    };
    let asked = [absent(first, &[0, 6, 8, 10, 13, u64::MAX - 2]), absent(second, &[1, 5, 7, u64::MAX])].concat();
    let known = hand.recall(&asked).await?.and(hand.contains(&asked).await?);
    if let Some(key) = asked.iter().find(|key| known.is_folded(key) || known.entry(key).is_some()) {
        return Err(hand.broken(format!("{key} was never inserted, and is said to be over")));
    }
    // What fills a gap joins what is on both sides of it.
    let gaps = [numbered(first, 6), numbered(first, 8), numbered(first, 10)];
    hand.insert(&gaps).await?;
    hand.until_gone(&hand.keep(), &gaps).await?;
    hand.expect_folded(&[marks.as_slice(), &gaps].concat()).await?;
    // And what was folded is folded again, when a late writer inserts it once more.
    hand.insert(&marks[..2]).await?;
    hand.until_gone(&hand.keep(), &marks[..2]).await?;
    hand.expect_folded(&marks).await?;
    let asked = absent(first, &[0, 13, u64::MAX - 2]);
    let known = hand.recall(&asked).await?;
    match asked.iter().find(|key| known.is_folded(key)) {
        Some(key) => {
            Err(hand.broken(format!("{key} was never inserted, and is said to be over once gaps were filled")))
        }
        None => Ok(Kept::Shown),
    }
}

/// Promise 3. *Keys are kept whole:* the entry of an idempotency key is found as it was inserted for as long as was asked.
pub async fn keys_are_kept_whole(builder: &dyn Builder) -> Checked {
    let Some(hand) = Hand::new(builder, KEYS_ARE_KEPT_WHOLE).await else { return Ok(Kept::NotClaimed(ABSENT)) };
    let (key, plain) = (keyed(), samples::full_mark());
    hand.insert(&[key.clone(), plain.clone()]).await?;
    let keep = Keep { keys: HOUR, ..hand.keep() };
    hand.until_gone(&keep, std::slice::from_ref(&plain)).await?;
    for _ in 0..CALLS {
        hand.evict(&keep).await?;
        hand.expect_whole(&key, "within the time that was asked for").await?;
        sleep(TICK).await;
    }
    // Inserted again by whoever did not see it: the first stays.
    let second = DedupEntry { key: key.key, ..samples::full_mark() };
    hand.insert(std::slice::from_ref(&second)).await?;
    for _ in 0..CALLS {
        hand.evict(&keep).await?;
        sleep(TICK).await;
    }
    let known = hand.contains(&[key.key]).await?.and(hand.recall(&[key.key]).await?);
    match known.entry(&key.key) {
        Some(found) if is_whole(found, &key) || is_whole(found, &second) => Ok(Kept::Shown),
        Some(found) => Err(hand.broken(format!("what was inserted is found as {found:+?}"))),
        None => Err(hand.broken("a dedup entry of an idempotency key is missing after it was inserted twice")),
    }
}

/// Promise 4. *By evidence:* an entry of an id stays until every endpoint that has asked so has shown that it may go.
pub async fn by_evidence(builder: &dyn Builder) -> Checked {
    let Some(hand) = Hand::new(builder, BY_EVIDENCE).await else { return Ok(Kept::NotClaimed(ABSENT)) };
    let (other, stranger) = (samples::endpoint(), samples::endpoint());
    let waits = Keep { passed: Passed::Waits, ..hand.keep() };
    hand.evict(&waits).await?;
    hand.evict(&Keep { endpoint: &other, ..waits }).await?;
    let before = hand.moment().await?;
    sleep(TICK).await;
    let mark = samples::full_mark();
    hand.insert(std::slice::from_ref(&mark)).await?;
    sleep(TICK).await;
    let after = hand.moment().await?;
    let stays = |when: &'static str| {
        let (hand, mark, stranger) = (&hand, &mark, &stranger);
        async move {
            for _ in 0..CALLS {
                hand.evict_plainly().await?;
                hand.evict(&Keep { endpoint: stranger, ..hand.keep() }).await?;
                hand.expect_whole(mark, when).await?;
                sleep(TICK).await;
            }
            Ok(())
        }
    };
    stays("before any endpoint has shown anything").await?;
    let until = |moment| Keep { passed: Passed::Until(moment), ..waits };
    hand.evict(&until(before)).await?;
    stays("though all that was shown was of before it was inserted").await?;
    hand.evict(&until(after)).await?;
    hand.evict(&waits).await?; // As after a restart.
    stays("though another endpoint has shown nothing").await?;
    hand.evict(&Keep { endpoint: &other, ..until(before) }).await?;
    stays("though another endpoint has shown too little").await?;
    let memory = hand.memory()?;
    insistently(BY_EVIDENCE, "withdrawing", || memory.withdraw(&other)).await?;
    // A store may know no better when an entry was inserted than that it was before some later moment.
    let never = || hand.broken("an entry is still there though all who have to show something have shown it");
    let look = || async {
        let now = hand.moment().await?;
        hand.evict(&until(now)).await?;
        sleep(TICK).await;
        Ok(hand.contains(&[mark.key]).await?.entry(&mark.key).is_none().then_some(()))
    };
    eventually(never, look).await?;
    Ok(Kept::Shown)
}

/// Promise 5. *Whoever asks:* what anybody asked for holds for all.
pub async fn whoever_asks(builder: &dyn Builder) -> Checked {
    let Some(hand) = Hand::new(builder, WHOEVER_ASKS).await else { return Ok(Kept::NotClaimed(ABSENT)) };
    hand.evict(&Keep { keys: HOUR, ..hand.keep() }).await?;
    let (number, key) = (numbered(sequence(), 1), keyed());
    hand.insert(&[number.clone(), key.clone()]).await?;
    let hasty = samples::endpoint();
    let forgets = Keep { endpoint: &hasty, fold: false, ..hand.keep() };
    let never = || hand.broken("an entry of a number is still there after many calls that were to fold it");
    let look = || async {
        hand.evict_plainly().await?;
        hand.evict(&forgets).await?;
        hand.expect_whole(&key, "though one asked for an hour, and another then for nothing").await?;
        sleep(TICK).await;
        Ok(hand.contains(&[number.key]).await?.entry(&number.key).is_none().then_some(()))
    };
    eventually(never, look).await?;
    hand.expect_folded(std::slice::from_ref(&number)).await?;
    Ok(Kept::Shown)
}

/// Promise 6. *In the end:* entries of numbers are folded by finitely many calls, beside others that have to wait.
pub async fn in_the_end(builder: &dyn Builder) -> Checked {
    const MARKS: u64 = 3000;
    let Some(hand) = Hand::new(builder, IN_THE_END).await else { return Ok(Kept::NotClaimed(ABSENT)) };
    let (sequence, waits) = (sequence(), samples::full_mark());
    let marks: Vec<DedupEntry> = (1..=MARKS).map(|number| numbered(sequence, number)).collect();
    hand.insert(std::slice::from_ref(&waits)).await?;
    for some in marks.chunks(500) {
        hand.insert(some).await?;
    }
    let keep = Keep { passed: Passed::Waits, ..hand.keep() };
    for some in marks.chunks(500) {
        hand.until_gone(&keep, some).await?;
        hand.expect_folded(some).await?;
    }
    hand.expect_whole(&waits, "though nothing has been shown of it").await?;
    Ok(Kept::Shown)
}
