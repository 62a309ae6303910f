#![allow(clippy::unwrap_used)]
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;

use super::*;
use crate::{
    endpoint::{Nothing, SystemClock},
    envelope::Outgoing,
    ports::{DispatchError, Refused},
    time::Timestamp,
};

/// Letters that are in somebody's hand when a program ends are looked for there by the next one.
#[test]
fn the_place_where_letters_are_held_keeps_its_name() {
    let held = |name: &str| held(&EndpointName::parse(name).unwrap()).to_string();
    assert_eq!(held("shop"), "hapax.held/shop");
    assert_eq!(held(&"e".repeat(100)), "hapax.held/4559f89bf01ffc69fb6b48a9d457c428d271e7ef01ffaf9732300d3d54c256bc");
}

/// Letters, and how many of those that it has given somebody held, at most, when it was asked for more.
#[derive(Debug)]
struct Shelf {
    letters: Vec<DeadLetter>,
    held_max: AtomicUsize,
}

#[async_trait]
impl DeadLetters for Shelf {
    async fn add(&self, _: &DeadLetter) -> Result<(), StoreError> {
        Ok(())
    }

    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        let held = self.letters.iter().filter(|letter| Arc::strong_count(&letter.envelope) > 1).count();
        self.held_max.fetch_max(held, Ordering::Relaxed);
        let there = self.letters.iter().filter(|letter| letter.endpoint == *endpoint);
        Ok(there.skip(page.skip).take(page.limit).cloned().collect())
    }

    async fn discard(&self, _: &[DeadLetter]) -> Result<usize, StoreError> {
        Ok(0)
    }
}

#[derive(Debug)]
struct NoWayOut;

#[async_trait]
impl Dispatcher for NoWayOut {
    fn check(&self, _: &Outgoing) -> Result<(), Refused> {
        Ok(())
    }

    async fn dispatch(&self, _: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        Vec::new()
    }
}

/// Rows of `shop` and of the place where its letters are held, some of which cannot be read: those are `None`. And how often somebody has looked.
#[derive(Debug)]
struct Damaged {
    rows: Vec<Option<DeadLetter>>,
    looks: AtomicUsize,
}

#[async_trait]
impl DeadLetters for Damaged {
    async fn add(&self, _: &DeadLetter) -> Result<(), StoreError> {
        Ok(())
    }

    /// As the port has it: where nothing of a page can be read, a later one is given in its place.
    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        let asked = self.rows.get(page.skip..).unwrap_or_default();
        let read = |rows: &[Option<DeadLetter>]| rows.iter().flatten().cloned().collect::<Vec<_>>();
        let letters = asked.chunks(page.limit).map(read).find(|letters| !letters.is_empty()).unwrap_or_default();
        Ok(letters.into_iter().map(|letter| DeadLetter { endpoint: endpoint.clone(), ..letter }).collect())
    }

    async fn discard(&self, _: &[DeadLetter]) -> Result<usize, StoreError> {
        Ok(0)
    }
}

fn shop() -> EndpointName {
    EndpointName::parse("shop").unwrap()
}

fn letter(number: usize) -> DeadLetter {
    DeadLetter {
        envelope: Arc::new(Envelope::new(format!("m-{number}").parse().unwrap(), "shop.pay".parse().unwrap(), "{}")),
        endpoint: shop(),
        saga: None,
        destination: None,
        reason: "no reason".to_owned(),
        attempts: 1,
        time: Timestamp::from_millis(0),
    }
}

fn office(letters: Arc<dyn DeadLetters>) -> DeadLetterOffice {
    let entities: Arc<dyn EntityStore> = Arc::new(Nothing);
    let dispatcher: Arc<dyn Dispatcher> = Arc::new(NoWayOut);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    DeadLetterOffice::outside(&shop(), (letters, entities), (dispatcher, clock), Duration::ZERO, String::new())
}

/// Goal: who lists letters without their bodies holds no bodies. Method: a place that counts, when it is asked for its next page, which of the
/// letters before are held.
#[tokio::test]
async fn a_list_without_bodies_holds_none_of_the_pages_before() {
    const MANY: usize = 2 * AT_ONCE + 50;
    let shelf = Arc::new(Shelf { letters: (0..MANY).map(letter).collect(), held_max: AtomicUsize::new(0) });
    let office = office(shelf.clone());
    let ids = office.list_as(&Filter::default(), 10, MANY, |letter| letter.envelope.message_id.to_string()).await;
    let ids = ids.unwrap();
    assert_eq!((ids.len(), ids[0].as_str(), shelf.held_max.load(Ordering::Relaxed)), (MANY - 10, "m-10", 0));
    // With their bodies all of them are.
    assert_eq!(office.list(&Filter::default(), 0, MANY).await.unwrap().len(), MANY);
    assert_eq!(shelf.held_max.load(Ordering::Relaxed), 2 * AT_ONCE);
}

/// Goal: thousands of letters that cannot be read hide none, and are not looked at again for each hundred of them. Method: stretches of them that
/// begin and end on pages and within, between letters that can be read; what is listed, what is held, and how often the place was asked. A look
/// for each hundred would be more than a hundred for the longest.
#[tokio::test]
async fn letters_that_cannot_be_read_hide_no_other_and_are_passed_by_in_few_looks() {
    const BEFORE: usize = 150;
    const BEHIND: usize = 250;
    const LOOKS_MAX: usize = 30;
    for damaged in [0, 1, 50, 99, 100, 101, 350, 1_000, 9_950, 9_999, 10_000, 10_001] {
        for before in [0, BEFORE] {
            let readable = |numbers: std::ops::Range<usize>| numbers.map(|number| Some(letter(number)));
            let behind = readable(before..before + BEHIND);
            let rows = readable(0..before).chain(std::iter::repeat_n(None, damaged)).chain(behind).collect();
            let place = Arc::new(Damaged { rows, looks: AtomicUsize::new(0) });
            let office = office(place.clone());
            let held = office.held_now().await.unwrap();
            let looks = place.looks.swap(0, Ordering::Relaxed);
            assert_eq!(held.len(), before + BEHIND, "{damaged} behind {before}");
            assert!(looks <= LOOKS_MAX, "{damaged} behind {before}: {looks} looks");

            let id = |letter: DeadLetter| letter.envelope.message_id.to_string();
            let ids = office.list_as(&Filter::default(), 0, usize::MAX, id).await.unwrap();
            let looks = place.looks.load(Ordering::Relaxed);
            let expected: Vec<String> = (0..before + BEHIND).map(|number| format!("m-{number}")).collect();
            assert_eq!(ids, expected, "{damaged} behind {before}");
            // Once where they are held, and once where they are.
            assert!(looks <= 2 * LOOKS_MAX, "{damaged} behind {before}: {looks} looks");
        }
    }
}
