//! Dead letters in the order in which they came, and found by their message without a look at all the others.

use std::collections::{BTreeMap, HashMap};

use hapax_core::{
    ids::{EndpointName, MessageId},
    ports::{DeadLetter, Page},
};

use super::DEAD_LETTERS_MAX;

/// The dead letters of a hub, oldest first, found by message.
#[derive(Default)]
pub(super) struct Letters {
    /// By the number of each, which is their order.
    all: BTreeMap<u64, DeadLetter>,
    next: u64,
    /// Which in `all` are those of a message.
    of: HashMap<MessageId, Vec<u64>>,
}

impl Letters {
    /// Whether another one may be added; else why not, and the remedy.
    pub(super) fn room(&self, hub: &str) -> Result<(), String> {
        if self.all.len() < DEAD_LETTERS_MAX {
            return Ok(());
        }
        Err(format!("hub {hub} holds {DEAD_LETTERS_MAX} dead letters; keep them in a store, with .dead_letters(..)"))
    }

    pub(super) fn has(&self, letter: &DeadLetter) -> bool {
        self.of_message(&letter.envelope.message_id).any(|other| other.is_same(letter))
    }

    /// Adds a letter, unless it is there.
    pub(super) fn add(&mut self, letter: DeadLetter) {
        if !self.has(&letter) {
            self.of.entry(letter.envelope.message_id.clone()).or_default().push(self.next);
            self.all.insert(self.next, letter);
            self.next += 1;
        }
    }

    /// Whether it was there.
    pub(super) fn discard(&mut self, letter: &DeadLetter) -> bool {
        let id = &letter.envelope.message_id;
        let Some(numbers) = self.of.get_mut(id) else { return false };
        let is_it = |number: &u64| self.all.get(number).is_some_and(|other| other.is_same(letter));
        let Some(at) = numbers.iter().position(is_it) else { return false };
        self.all.remove(&numbers.remove(at));
        if numbers.is_empty() {
            self.of.remove(id);
        }
        true
    }

    pub(super) fn list(&self, endpoint: &EndpointName, page: &Page) -> Vec<DeadLetter> {
        let here = |letter: &&DeadLetter| letter.endpoint == *endpoint;
        match &page.message_id {
            Some(id) => self.of_message(id).filter(here).skip(page.skip).take(page.limit).cloned().collect(),
            None => self.all.values().filter(here).skip(page.skip).take(page.limit).cloned().collect(),
        }
    }

    fn of_message(&self, id: &MessageId) -> impl Iterator<Item = &DeadLetter> {
        self.of.get(id).into_iter().flatten().filter_map(|index| self.all.get(index))
    }
}
