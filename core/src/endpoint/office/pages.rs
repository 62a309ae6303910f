//! The letters of a place, page by page, past what cannot be read.

use super::{AT_ONCE, Same};
use crate::{
    ids::{EndpointName, MessageId},
    ports::{DeadLetter, DeadLetters, Page, StoreError},
};

/// Where somebody is who turns the pages of a place.
///
/// Where nothing of a page can be read a later one is given in its place, and comes again at each look up to there; each of these looks reads
/// over all that is between. So while the same page comes, steps double; a step that was too long is halved, until it is known that nothing
/// was passed by. Longer pages would do as well, and have more bodies in memory than those of a hundred letters where they can be read.
pub(super) struct Pages<'p> {
    letters: &'p dyn DeadLetters,
    place: &'p EndpointName,
    message_id: Option<&'p MessageId>,
    /// Where the page was asked for that was given last: what is before it was given, or cannot be read.
    at: usize,
    /// From there to the next one: nothing before the first.
    step: usize,
    last: Option<Mark>,
}

/// By which a page is known when it comes again: not by one letter, which a queue may have twice.
#[derive(PartialEq, Eq)]
struct Mark {
    first: Same,
    last: Same,
    count: usize,
}

impl<'p> Pages<'p> {
    /// Before the first one; of `message_id` alone, if it is given.
    pub(super) fn of(letters: &'p dyn DeadLetters, place: &'p EndpointName, message_id: Option<&'p MessageId>) -> Self {
        Self { letters, place, message_id, at: 0, step: 0, last: None }
    }

    /// The next page of which something can be read. An empty one is the end.
    pub(super) async fn turn(&mut self) -> Result<Vec<DeadLetter>, StoreError> {
        let (mut step, mut was_too_long, mut unreadable) = (self.step, false, 0_usize);
        loop {
            let skip = self.at.saturating_add(step);
            let page = Page { skip, limit: AT_ONCE, message_id: self.message_id.cloned() };
            let letters = self.letters.list(self.place, &page).await?;
            let mark = Mark::of(&letters);
            if mark.is_some() && mark == self.last {
                unreadable = unreadable.saturating_add(step);
                self.at = skip;
                step = if was_too_long { shorter(step) } else { step.saturating_mul(2) };
            } else if step > AT_ONCE {
                was_too_long = true;
                step = shorter(step);
            } else {
                self.tell(unreadable);
                (self.at, self.step, self.last) = (skip, AT_ONCE, mark);
                return Ok(letters);
            }
        }
    }

    /// Whoever keeps letters tells of those on pages that were asked for, and most of these were not.
    fn tell(&self, unreadable: usize) {
        if unreadable > 0 {
            tracing::warn!(
                endpoint = %self.place,
                "{unreadable} dead letters in a row are left out of the list, for they cannot be read: a person has to repair or delete them"
            );
        }
    }
}

impl Mark {
    /// None of an empty page, which is the end and not one that comes again.
    fn of(letters: &[DeadLetter]) -> Option<Self> {
        let (first, last) = letters.first().zip(letters.last())?;
        Some(Self { first: Same::as_of(first), last: Same::as_of(last), count: letters.len() })
    }
}

/// Half of `step`, and a page at least.
fn shorter(step: usize) -> usize {
    (step / 2).max(AT_ONCE)
}
