use std::collections::HashMap;

use hapax_core::{
    ids::{EndpointName, MessageId},
    ports::{DeadLetter, Page},
};

use super::DEAD_LETTERS_MAX;

/// The dead letters of a hub, oldest first, found by message.
#[derive(Default)]
pub(super) struct Letters {
    all: Vec<DeadLetter>,
    /// Where in `all` those of a message are.
    of: HashMap<MessageId, Vec<usize>>,
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
            self.of.entry(letter.envelope.message_id.clone()).or_default().push(self.all.len());
            self.all.push(letter);
        }
    }

    pub(super) fn list(&self, endpoint: &EndpointName, page: &Page) -> Vec<DeadLetter> {
        let here = |letter: &&DeadLetter| letter.endpoint == *endpoint;
        match &page.message_id {
            Some(id) => self.of_message(id).filter(here).skip(page.skip).take(page.limit).cloned().collect(),
            None => self.all.iter().filter(here).skip(page.skip).take(page.limit).cloned().collect(),
        }
    }

    fn of_message(&self, id: &MessageId) -> impl Iterator<Item = &DeadLetter> {
        self.of.get(id).into_iter().flatten().filter_map(|index| self.all.get(*index))
    }
}
