//! Lies about messages that were set aside.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hapax::{
    Memory,
    envelope::Envelope,
    ids::EndpointName,
    ports::{DeadLetter, DeadLetters, Page, StoreError},
    testing::dead_letters,
};

use crate::lie::expect;

const KEPT_WHOLE: &str = "dead letters 1, kept whole";
const ONCE_PER_CAUSE: &str = "dead letters 2, once per cause";
const DISCARDED_ALONE: &str = "dead letters 3, discarded alone";

#[derive(Debug, Clone, Copy)]
enum Lie {
    /// Keeps no headers.
    CutsHeaders,
    /// Lists the newest first.
    NewestFirst,
    /// Lists other messages than the one asked for.
    IgnoresTheId,
    /// Keeps a copy each time.
    KeepsCopies,
    /// Takes two letters about one message for one.
    ById,
    /// Takes two letters for one whose messages share an id, whatever they say.
    IgnoresTheBody,
    /// Says that letters are discarded, and keeps them.
    DiscardsNothing,
    /// Counts as there whatever is to be discarded.
    CountsWhatIsAsked,
    /// Discards all letters about the message.
    DiscardsTheMessage,
    /// Does not keep a letter again that was discarded once.
    NeverTakesAgain,
}

#[derive(Debug, Clone)]
struct Liar(Memory, Lie, Arc<Mutex<Vec<DeadLetter>>>);

#[async_trait]
impl DeadLetters for Liar {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        match self.1 {
            Lie::CutsHeaders => {
                let bare = Envelope { headers: Default::default(), ..(*letter.envelope).clone() };
                self.0.add(&DeadLetter { envelope: Arc::new(bare), ..letter.clone() }).await
            }
            Lie::ById => {
                let page = Page { message_id: Some(letter.envelope.message_id.clone()), ..Page::first(1) };
                if self.0.list(&letter.endpoint, &page).await?.is_empty() { self.0.add(letter).await } else { Ok(()) }
            }
            Lie::IgnoresTheBody => {
                let page = Page { message_id: Some(letter.envelope.message_id.clone()), ..Page::first(1000) };
                let kept = self.0.list(&letter.endpoint, &page).await?;
                let is_same = |other: &DeadLetter| other.saga == letter.saga && other.destination == letter.destination;
                if kept.iter().any(is_same) { Ok(()) } else { self.0.add(letter).await }
            }
            // To the store every copy is another letter.
            Lie::KeepsCopies => {
                let copies = self.0.list(&letter.endpoint, &Page::first(1000)).await?.len();
                let saga = hapax::ids::SagaName::parse(format!("copy-{copies}")).unwrap();
                let kept = self.0.list(&letter.endpoint, &Page::first(1000)).await?;
                let again = kept.iter().any(|other| other.is_same(letter));
                let copy = DeadLetter { saga: if again { Some(saga) } else { letter.saga.clone() }, ..letter.clone() };
                self.0.add(&copy).await
            }
            Lie::NeverTakesAgain if self.2.lock().unwrap().iter().any(|marked| marked.is_same(letter)) => Ok(()),
            _ => self.0.add(letter).await,
        }
    }

    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        match self.1 {
            Lie::NewestFirst => {
                let mut all = self.0.list(endpoint, &Page { skip: 0, limit: usize::MAX, ..page.clone() }).await?;
                all.reverse();
                Ok(all.into_iter().skip(page.skip).take(page.limit).collect())
            }
            Lie::IgnoresTheId => self.0.list(endpoint, &Page { message_id: None, ..page.clone() }).await,
            _ => self.0.list(endpoint, page).await,
        }
    }

    async fn discard(&self, letters: &[DeadLetter]) -> Result<usize, StoreError> {
        match self.1 {
            Lie::DiscardsNothing => Ok(letters.len()),
            Lie::CountsWhatIsAsked => self.0.discard(letters).await.map(|_| letters.len()),
            Lie::DiscardsTheMessage => {
                let mut all = Vec::new();
                for letter in letters {
                    let page = Page { message_id: Some(letter.envelope.message_id.clone()), ..Page::first(1000) };
                    all.extend(self.0.list(&letter.endpoint, &page).await?);
                }
                self.0.discard(&all).await.map(|gone| gone.min(letters.len()))
            }
            // As one that marks what is discarded, and then takes it for kept.
            Lie::NeverTakesAgain => {
                self.2.lock().unwrap().extend(letters.iter().cloned());
                self.0.discard(letters).await
            }
            _ => self.0.discard(letters).await,
        }
    }
}

#[async_trait]
impl dead_letters::Builder for Liar {
    async fn dead_letters(&self) -> Arc<dyn DeadLetters> {
        Arc::new(self.clone())
    }
}

async fn breaks(promise: &str, lie: Lie) {
    expect(promise, dead_letters::first_broken(&Liar(Memory::new(), lie, Arc::default())).await);
}

#[tokio::test]
async fn a_letter_without_its_headers_is_rejected() {
    breaks(KEPT_WHOLE, Lie::CutsHeaders).await;
}

#[tokio::test]
async fn a_list_with_the_newest_first_is_rejected() {
    breaks(KEPT_WHOLE, Lie::NewestFirst).await;
}

#[tokio::test]
async fn a_list_of_other_messages_is_rejected() {
    breaks(KEPT_WHOLE, Lie::IgnoresTheId).await;
}

#[tokio::test]
async fn a_letter_kept_twice_is_rejected() {
    breaks(ONCE_PER_CAUSE, Lie::KeepsCopies).await;
}

#[tokio::test]
async fn two_letters_about_one_message_taken_for_one_are_rejected() {
    breaks(ONCE_PER_CAUSE, Lie::ById).await;
}

#[tokio::test]
async fn two_bodies_under_one_id_taken_for_one_letter_are_rejected() {
    breaks(ONCE_PER_CAUSE, Lie::IgnoresTheBody).await;
}

#[tokio::test]
async fn a_letter_that_stays_when_it_is_discarded_is_rejected() {
    breaks(DISCARDED_ALONE, Lie::DiscardsNothing).await;
}

#[tokio::test]
async fn letters_counted_as_discarded_that_were_not_there_are_rejected() {
    breaks(DISCARDED_ALONE, Lie::CountsWhatIsAsked).await;
}

#[tokio::test]
async fn letters_discarded_with_another_of_their_message_are_rejected() {
    breaks(DISCARDED_ALONE, Lie::DiscardsTheMessage).await;
}

#[tokio::test]
async fn a_letter_not_taken_again_after_it_was_discarded_is_rejected() {
    breaks(DISCARDED_ALONE, Lie::NeverTakesAgain).await;
}
