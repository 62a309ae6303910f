//! What a message failed with before, told in its dead letter: a person sees whether it was always the same.
//!
//! It is what this process has seen, in memory and bounded: the promise does not rest on it, so neither brokers nor stores have to
//! keep it. The attempts of other processes are counted in the letter and not told of. A message that is over without a letter is
//! forgotten, so that one which failed now and then costs nothing afterwards.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    fmt::{self, Write},
    sync::{Arc, PoisonError},
};

use async_trait::async_trait;

use crate::{
    ids::{EndpointName, MessageId, SagaName},
    metrics::{Ending, Event, Metrics},
    ports::{DeadLetter, DeadLetters, Page, StoreError},
    sync::Mutex,
};

/// Messages whose failures are remembered; the oldest are forgotten first.
const MESSAGES_MAX: usize = 10_000;
/// Failures of one message that are told, the newest of them.
const FAILURES_MAX: usize = 10;
/// Of each error, so much: a letter has the last error whole.
const ERROR_BYTES_MAX: usize = 500;

/// Between the last error of a letter and those before.
pub(super) const BEFORE: &str = "\nbefore:";

/// Watches what fails and adds it to the letters that go through it.
pub(super) struct History {
    metrics: Arc<dyn Metrics>,
    letters: Arc<dyn DeadLetters>,
    failed: Mutex<Failed>,
}

type Key = (SagaName, MessageId);

#[derive(Default)]
struct Failed {
    of: HashMap<Key, Failures>,
    /// In the order of their first failure.
    order: BTreeMap<u64, Key>,
    next: u64,
}

struct Failures {
    /// Its place in the order.
    number: u64,
    newest: VecDeque<(u32, String)>,
}

impl History {
    pub(super) fn new(metrics: Arc<dyn Metrics>, letters: Arc<dyn DeadLetters>) -> Self {
        Self { metrics, letters, failed: Mutex::default() }
    }

    fn failed<T>(&self, act: impl FnOnce(&mut Failed) -> T) -> T {
        act(&mut self.failed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Failed {
    fn add(&mut self, key: Key, attempt: u32, error: &str) {
        let error = error[..error.floor_char_boundary(ERROR_BYTES_MAX)].to_owned();
        if let Some(failures) = self.of.get_mut(&key) {
            if failures.newest.len() >= FAILURES_MAX {
                failures.newest.pop_front();
            }
            failures.newest.push_back((attempt, error));
            return;
        }
        if self.order.len() >= MESSAGES_MAX
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.of.remove(&oldest);
        }
        self.order.insert(self.next, key.clone());
        self.of.insert(key, Failures { number: self.next, newest: VecDeque::from([(attempt, error)]) });
        self.next += 1;
    }

    fn forget(&mut self, key: &Key) {
        if let Some(failures) = self.of.remove(key) {
            self.order.remove(&failures.number);
        }
    }

    /// `reason` with what went before it.
    fn told(&self, key: &Key, reason: &str) -> Option<String> {
        let failures = self.of.get(key)?;
        let mut told = format!("{reason}{BEFORE}");
        for (attempt, error) in &failures.newest {
            let _ = write!(told, "\n  attempt {attempt}: {error}"); // To a string it cannot fail.
        }
        Some(told)
    }
}

impl Metrics for History {
    fn observe(&self, event: Event<'_>) {
        match event {
            Event::Failed { key, message_id, attempt, error } => {
                let key = (key.scope().saga.clone(), message_id.clone());
                self.failed(|failed| failed.add(key, attempt, &error.chain()));
            }
            // One on its first attempt has not failed here. One with a letter may be retried by a person, who is told of both.
            Event::Ended(key, message, ending)
                if message.attempts > 1 && !matches!(ending, Ending::Retried | Ending::DeadLettered) =>
            {
                let key = (key.scope().saga.clone(), message.envelope.message_id.clone());
                self.failed(|failed| failed.forget(&key));
            }
            _ => {}
        }
        self.metrics.observe(event);
    }
}

#[async_trait]
impl DeadLetters for History {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        let key = letter.saga.clone().map(|saga| (saga, letter.envelope.message_id.clone()));
        let told = key.and_then(|key| self.failed(|failed| failed.told(&key, &letter.reason)));
        match told {
            Some(reason) => self.letters.add(&DeadLetter { reason, ..letter.clone() }).await,
            None => self.letters.add(letter).await,
        }
    }

    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        self.letters.list(endpoint, page).await
    }

    async fn discard(&self, letters: &[DeadLetter]) -> Result<usize, StoreError> {
        self.letters.discard(letters).await
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("History").field("letters", &self.letters).finish_non_exhaustive()
    }
}

#[cfg(all(test, shuttle))]
#[path = "interleaved/history.rs"]
mod interleaved;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn key(number: usize) -> Key {
        ("worker".parse().unwrap(), format!("m-{number}").parse().unwrap())
    }

    #[test]
    fn the_newest_failures_of_the_newest_messages_are_told() {
        let mut failed = Failed::default();
        for attempt in 1..=12 {
            failed.add(key(0), attempt, &"é".repeat(400));
        }
        let told = failed.told(&key(0), "last").unwrap();
        assert_eq!((told.lines().count(), told.lines().next()), (2 + FAILURES_MAX, Some("last")));
        assert!(told.contains("attempt 3: é") && !told.contains("attempt 2:"));
        assert!(told.len() < (ERROR_BYTES_MAX + 20) * FAILURES_MAX + 20);
        for number in 1..=MESSAGES_MAX {
            failed.add(key(number), 1, "once");
        }
        assert_eq!((failed.of.len(), failed.order.len()), (MESSAGES_MAX, MESSAGES_MAX));
        assert_eq!(failed.told(&key(0), "last"), None);
        assert_eq!(failed.told(&key(1), "last").unwrap(), "last\nbefore:\n  attempt 1: once");
    }

    #[test]
    fn a_message_that_is_forgotten_makes_room_for_another() {
        let mut failed = Failed::default();
        for number in 0..MESSAGES_MAX {
            failed.add(key(number), 1, "once");
        }
        failed.forget(&key(5));
        failed.forget(&key(MESSAGES_MAX));
        assert_eq!((failed.of.len(), failed.order.len()), (MESSAGES_MAX - 1, MESSAGES_MAX - 1));
        failed.add(key(MESSAGES_MAX), 1, "once");
        assert_eq!((failed.told(&key(5), "last"), failed.told(&key(0), "last").is_some()), (None, true));
    }
}
