//! Clean-ups that wait for the next save of their entity, which makes them in passing: an update of an entity's row is the
//! dearest part of a message, and without waiting each message makes two.
//!
//! What waits here has its dedup entries on the disk, so that nothing is lost with it: whoever loads such an entity elsewhere
//! finds its entries known, and what a crash leaves behind is the sweeper's. In this process a load shows it as if it were
//! cleaned up. Where no save comes in time, the clean-up is written by itself, among others.

use std::{
    collections::HashMap,
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use hapax_core::ids::SagaKey;
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

use super::{
    group::{Answer, Change},
    rows::EntityRow,
};

/// How long a clean-up waits for a save, at least; at most twice as long. Entities that are busy are saved within it. The sweeper
/// begins with what has waited for many times as long, and a crash leaves it what has come in meanwhile.
pub(super) const WAIT: Duration = Duration::from_millis(500);
/// So many of one turn wait, and as many of the one before: some megabytes. With more, clean-ups are written at once.
const WAITING_MAX: usize = 16_384;
/// What is left of an outbox, in bytes, is rarely more than a few; of a saga with many timeouts it is, and that is not kept.
const OUTBOX_BYTES_MAX: usize = 256;
/// Where entities are rarely saved within [`WAIT`], a clean-up that waits is one more write among others: there, one of so many
/// waits, to notice when that changes.
const PROBE: u64 = 16;
/// So many are asked for at once, so that those who save find room in the writers' queues.
const WRITTEN_MAX: usize = 256;

/// Entities whose outbox entries are all over, and still there.
#[derive(Debug)]
pub(super) struct CleanUps<P> {
    /// How often a connection has been lost, or made in place of another: what has taken the server's place may lack the
    /// dedup entries.
    lost: Arc<AtomicU64>,
    waiting: Arc<Mutex<Waiting<P>>>,
    /// Tells the task that there is something. Gone with the store, and then the task ends.
    wake: Mutex<Option<mpsc::Sender<()>>>,
}

type ByKey<P> = HashMap<(i64, SagaKey), EntityRow<P>>;

#[derive(Debug)]
struct Waiting<P> {
    /// As [`CleanUps::since`] was.
    since: u64,
    young: ByKey<P>,
    /// Those that were young at the last turn.
    old: ByKey<P>,
    /// Saves have come for so many since the last turn.
    saved: usize,
    /// Of the last turn: they came for as many as were left to be written.
    pays: bool,
    asked: u64,
}

impl<P> Waiting<P> {
    fn new(since: u64) -> Self {
        Self { since, young: HashMap::new(), old: HashMap::new(), saved: 0, pays: true, asked: 0 }
    }

    fn is_empty(&self) -> bool {
        self.young.is_empty() && self.old.is_empty()
    }

    fn get(&self, key: &(i64, SagaKey)) -> Option<&EntityRow<P>> {
        self.young.get(key).or_else(|| self.old.get(key))
    }
}

impl<P> CleanUps<P> {
    /// With the task that writes what no save has come for after `wait`. None waits where that is zero.
    pub(super) fn new(wait: Duration, lost: Arc<AtomicU64>) -> (Self, Task<P>) {
        let (wake, woken) = mpsc::channel(1);
        let waiting = Arc::new(Mutex::new(Waiting::new(0)));
        let task = Task { wait, lost: lost.clone(), waiting: waiting.clone(), woken };
        let wake = Mutex::new((!wait.is_zero()).then_some(wake));
        (Self { lost, waiting, wake }, task)
    }

    /// Which connections there are, to be told to [`CleanUps::add`]: as they were before the dedup entries were written.
    pub(super) fn since(&self) -> u64 {
        self.lost.load(Ordering::Acquire)
    }

    /// Whether a clean-up that writes `row` is to wait, with so many dedup entries. Only what empties an outbox of one entry: a
    /// long one costs whoever loads and saves the entity more than a clean-up does.
    pub(super) fn takes(&self, row: &EntityRow<P>, done: usize) -> bool {
        let is_short = row.pending.is_none() && row.outbox.len() <= OUTBOX_BYTES_MAX;
        if done != 1 || !is_short || self.wake.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
            return false;
        }
        let mut waiting = locked(&self.waiting);
        waiting.asked += 1;
        waiting.young.len() < WAITING_MAX && (waiting.pays || waiting.asked.is_multiple_of(PROBE))
    }

    /// Takes the clean-up of an entity all of whose outbox entries have been sent and are known, as the server has confirmed.
    /// One that is not taken is left to the next save or to the sweeper.
    pub(super) fn add(&self, since: u64, mut row: EntityRow<P>) {
        let mut waiting = locked(&self.waiting);
        if since != self.since() {
            return;
        }
        if waiting.since != since {
            *waiting = Waiting::new(since);
        }
        let is_first = waiting.is_empty();
        row.state = Bytes::new(); // It stays as it is in the table, and may be large.
        let key = (row.scope, row.key.clone());
        drop(waiting.old.remove(&key));
        waiting.young.insert(key, row);
        if is_first && let Some(wake) = &*self.wake.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = wake.try_send(()); // Where it is full, the task has not looked yet.
        }
    }

    /// What is left of the entity's outbox, where nothing in it is left to do.
    pub(super) fn over(&self, scope: i64, key: &SagaKey) -> Option<Over> {
        let waiting = locked(&self.waiting);
        if waiting.since != self.since() {
            return None;
        }
        let row = waiting.get(&(scope, key.clone()))?;
        Some(Over { version: row.expected?, outbox: row.outbox.clone() })
    }

    /// The entity has been saved, and cleaned up with it.
    pub(super) fn saved(&self, scope: i64, key: &SagaKey) {
        let mut waiting = locked(&self.waiting);
        let key = (scope, key.clone());
        if waiting.young.remove(&key).or_else(|| waiting.old.remove(&key)).is_some() {
            waiting.saved += 1;
        }
    }

    /// Takes no more. The task writes what there is, and ends.
    pub(super) fn close(&self) {
        drop(self.wake.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// An entity of which nothing is left to do at a version, with its outbox as it will be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Over {
    pub(super) version: i64,
    pub(super) outbox: Vec<u8>,
}

fn locked<P>(waiting: &Mutex<Waiting<P>>) -> MutexGuard<'_, Waiting<P>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes what no save has come for.
#[derive(Debug)]
pub(super) struct Task<P> {
    wait: Duration,
    lost: Arc<AtomicU64>,
    waiting: Arc<Mutex<Waiting<P>>>,
    woken: mpsc::Receiver<()>,
}

impl<P> Task<P> {
    /// Runs until the store is gone or is being closed. `write` queues a change for its writer.
    pub(super) async fn run(mut self, write: impl AsyncFn(Change<P>)) {
        while self.woken.recv().await.is_some() {
            loop {
                let gone = async { while self.woken.recv().await.is_some() {} };
                if timeout(self.wait, gone).await.is_ok() {
                    break;
                }
                self.turn(&write).await;
                if locked(&self.waiting).is_empty() {
                    break;
                }
            }
        }
        self.turn(&write).await;
        self.turn(&write).await;
    }

    /// Writes what was there at the last turn. After an error the rest of it is left to the next saves and the sweeper: the
    /// server may not answer for long, and somebody may wait for the store to close.
    async fn turn(&self, write: &impl AsyncFn(Change<P>)) {
        let old = {
            let mut waiting = locked(&self.waiting);
            if waiting.since != self.lost.load(Ordering::Acquire) {
                *waiting = Waiting::new(waiting.since); // Without its dedup entry, a clean-up would lose a message.
            }
            waiting.pays = mem::take(&mut waiting.saved) >= waiting.old.len();
            let young = mem::take(&mut waiting.young);
            mem::replace(&mut waiting.old, young)
        };
        let mut rows = old.into_values().peekable();
        while rows.peek().is_some() {
            let mut answers: Vec<oneshot::Receiver<Answer>> = Vec::with_capacity(WRITTEN_MAX);
            for row in rows.by_ref().take(WRITTEN_MAX) {
                let (answer, answered) = oneshot::channel();
                let operation = "cleaning up";
                let change = Change {
                    operation,
                    entity: Some(row),
                    gives_way: true,
                    done: Vec::new(),
                    only_if_won: false,
                    answer,
                };
                write(change).await;
                answers.push(answered);
            }
            let mut failed = false;
            for answered in answers {
                if let Ok(Err(error)) = answered.await {
                    tracing::debug!(%error, "a clean-up is left to the next save or the sweeper");
                    failed = true;
                }
            }
            if failed {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use hapax_core::ports::{ErrorKind, StoreError};

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    fn row(number: usize, version: i64) -> EntityRow<Vec<u8>> {
        EntityRow {
            scope: 1,
            key: key(number),
            expected: Some(version),
            completed: false,
            pending: None,
            outbox: Vec::new(),
            state: vec![0; 100].into(),
        }
    }

    fn key(number: usize) -> SagaKey {
        format!("key-{number}").parse().unwrap()
    }

    fn clean_ups(wait: Duration) -> (CleanUps<Vec<u8>>, Task<Vec<u8>>, Arc<AtomicU64>) {
        let lost = Arc::new(AtomicU64::new(0));
        let (clean_ups, task) = CleanUps::new(wait, lost.clone());
        (clean_ups, task, lost)
    }

    fn version(clean_ups: &CleanUps<Vec<u8>>, scope: i64, key: &SagaKey) -> Option<i64> {
        clean_ups.over(scope, key).map(|over| over.version)
    }

    /// What a turn writes, as key and version.
    async fn turn(task: &Task<Vec<u8>>) -> Vec<(SagaKey, i64)> {
        let written = Mutex::new(Vec::new());
        task.turn(&async |change: Change<Vec<u8>>| {
            assert!(change.gives_way && change.done.is_empty());
            let row = change.entity.unwrap();
            assert!(row.state.is_empty(), "a clean-up carries no state");
            written.lock().unwrap().push((row.key, row.expected.unwrap()));
        })
        .await;
        let mut written = written.into_inner().unwrap();
        written.sort();
        written
    }

    #[tokio::test]
    async fn a_clean_up_waits_for_a_turn_and_is_written_with_the_next_unless_a_save_comes() {
        let (clean_ups, task, _) = clean_ups(LONG);
        for number in 0..3 {
            clean_ups.add(0, row(number, 7));
        }
        assert_eq!((version(&clean_ups, 1, &key(0)), version(&clean_ups, 2, &key(0))), (Some(7), None));
        clean_ups.saved(1, &key(0));
        assert_eq!(version(&clean_ups, 1, &key(0)), None);
        assert_eq!(turn(&task).await, []);
        assert_eq!(version(&clean_ups, 1, &key(1)), Some(7));
        clean_ups.saved(1, &key(1));
        clean_ups.add(0, row(2, 9)); // Has waited as long as nothing.
        clean_ups.add(0, row(3, 1));
        assert_eq!(turn(&task).await, []);
        assert_eq!(turn(&task).await, [(key(2), 9), (key(3), 1)]);
        assert_eq!(version(&clean_ups, 1, &key(2)), None);
    }

    #[tokio::test]
    async fn what_another_server_may_lack_is_forgotten() {
        let (clean_ups, task, lost) = clean_ups(LONG);
        clean_ups.add(0, row(1, 1));
        lost.fetch_add(1, Ordering::Release);
        assert_eq!(version(&clean_ups, 1, &key(1)), None);
        clean_ups.add(0, row(2, 1)); // Was marked before.
        assert_eq!(version(&clean_ups, 1, &key(2)), None);
        clean_ups.add(clean_ups.since(), row(3, 1));
        assert_eq!((version(&clean_ups, 1, &key(1)), version(&clean_ups, 1, &key(3))), (None, Some(1)));
        turn(&task).await;
        assert_eq!(turn(&task).await, [(key(3), 1)]);
        // Nor is it written, which would take a message away that nobody knows there.
        clean_ups.add(clean_ups.since(), row(4, 1));
        turn(&task).await;
        lost.fetch_add(1, Ordering::Release);
        assert_eq!(turn(&task).await, []);
        assert_eq!(turn(&task).await, []);
    }

    #[tokio::test]
    async fn after_an_error_the_rest_of_a_turn_is_not_tried() {
        let (clean_ups, task, _) = clean_ups(LONG);
        for number in 0..3 * WRITTEN_MAX {
            clean_ups.add(0, row(number, 1));
        }
        turn(&task).await;
        let asked = AtomicU64::new(0);
        task.turn(&async |change: Change<Vec<u8>>| {
            let error = StoreError::new(ErrorKind::Unavailable, "cleaning up", "nobody is there".to_owned());
            asked.fetch_add(1, Ordering::Relaxed);
            change.answer.send(Err(error)).unwrap();
        })
        .await;
        assert_eq!(asked.into_inner(), WRITTEN_MAX as u64);
        assert_eq!(turn(&task).await, []);
    }

    #[tokio::test]
    async fn few_wait_where_saves_rarely_come_in_time() {
        let (clean_ups, task, _) = clean_ups(LONG);
        let taken = || (0..10 * PROBE).filter(|_| clean_ups.takes(&row(0, 1), 1)).count() as u64;
        assert_eq!(taken(), 10 * PROBE);
        for number in 0..10 {
            clean_ups.add(0, row(number, 1));
        }
        clean_ups.saved(1, &key(0));
        turn(&task).await;
        turn(&task).await;
        assert_eq!(taken(), 10);
        // Until they do.
        for number in 0..10 {
            clean_ups.add(0, row(number, 2));
            clean_ups.saved(1, &key(number));
        }
        turn(&task).await;
        assert_eq!(taken(), 10 * PROBE);
    }

    #[tokio::test]
    async fn no_more_than_the_limit_wait_and_none_where_they_are_not_to_or_once_it_is_closed() {
        let (limited, _task, _) = clean_ups(LONG);
        for number in 0..WAITING_MAX {
            assert!(limited.takes(&row(0, 1), 1));
            limited.add(0, row(number, 1));
        }
        assert!(!limited.takes(&row(0, 1), 1));
        let (at_once, _task, _) = clean_ups(Duration::ZERO);
        assert!(!at_once.takes(&row(0, 1), 1));
        let (short, _task, _) = clean_ups(LONG);
        let row_of = |bytes| EntityRow { outbox: vec![0; bytes], ..row(0, 1) };
        assert!(short.takes(&row_of(OUTBOX_BYTES_MAX), 1) && !short.takes(&row_of(OUTBOX_BYTES_MAX + 1), 1));
        assert!(!short.takes(&row(0, 1), 2) && !short.takes(&row(0, 1), 0));
        assert!(!short.takes(&EntityRow { pending: Some(vec![0; 40]), ..row(0, 1) }, 1));
        short.close();
        assert!(!short.takes(&row(0, 1), 1));
    }
}
