//! What a message failed with before, told in its dead letter: a person sees whether it was always the same.
//!
//! It is what this process has seen, in memory and bounded: the promise does not rest on it, so neither brokers nor stores have to
//! keep it. The attempts of other processes are counted in the letter and not told of.

use std::{
    collections::{HashMap, VecDeque},
    fmt::{self, Write},
    sync::{Arc, PoisonError},
};

use async_trait::async_trait;

use crate::{
    ids::{EndpointName, MessageId, SagaName},
    metrics::{Event, Metrics},
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
    of: HashMap<Key, VecDeque<(u32, String)>>,
    /// In the order of their first failure.
    order: VecDeque<Key>,
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
        if !self.of.contains_key(&key) {
            if self.order.len() >= MESSAGES_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.of.remove(&oldest);
            }
            self.order.push_back(key.clone());
        }
        let failures = self.of.entry(key).or_default();
        if failures.len() >= FAILURES_MAX {
            failures.pop_front();
        }
        failures.push_back((attempt, error[..error.floor_char_boundary(ERROR_BYTES_MAX)].to_owned()));
    }

    /// `reason` with what went before it.
    fn told(&self, key: &Key, reason: &str) -> Option<String> {
        let failures = self.of.get(key)?;
        let mut told = format!("{reason}{BEFORE}");
        for (attempt, error) in failures {
            let _ = write!(told, "\n  attempt {attempt}: {error}"); // To a string it cannot fail.
        }
        Some(told)
    }
}

impl Metrics for History {
    fn observe(&self, event: Event<'_>) {
        if let Event::Failed { key, message_id, attempt, error } = event {
            self.failed(|failed| failed.add((key.scope().saga.clone(), message_id.clone()), attempt, &error.chain()));
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
}
