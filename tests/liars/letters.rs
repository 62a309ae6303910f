//! Lies about messages that were set aside.

use std::sync::Arc;

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
}

#[derive(Debug, Clone)]
struct Liar(Memory, Lie);

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
            Lie::NewestFirst | Lie::IgnoresTheId => self.0.add(letter).await,
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
            Lie::CutsHeaders | Lie::KeepsCopies | Lie::ById | Lie::IgnoresTheBody => self.0.list(endpoint, page).await,
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
    expect(promise, dead_letters::first_broken(&Liar(Memory::new(), lie)).await);
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
