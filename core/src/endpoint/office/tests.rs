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

/// Goal: who lists letters without their bodies holds no bodies. Method: a place that counts, when it is asked for its next page, which of the
/// letters before are held.
#[tokio::test]
async fn a_list_without_bodies_holds_none_of_the_pages_before() {
    const MANY: usize = 2 * AT_ONCE + 50;
    let shop = EndpointName::parse("shop").unwrap();
    let letter = |number: usize| DeadLetter {
        envelope: Arc::new(Envelope::new(format!("m-{number}").parse().unwrap(), "shop.pay".parse().unwrap(), "{}")),
        endpoint: shop.clone(),
        saga: None,
        destination: None,
        reason: "no reason".to_owned(),
        attempts: 1,
        time: Timestamp::from_millis(0),
    };
    let shelf = Arc::new(Shelf { letters: (0..MANY).map(letter).collect(), held_max: AtomicUsize::new(0) });
    let letters: Arc<dyn DeadLetters> = shelf.clone();
    let entities: Arc<dyn EntityStore> = Arc::new(Nothing);
    let dispatcher: Arc<dyn Dispatcher> = Arc::new(NoWayOut);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let office =
        DeadLetterOffice::outside(&shop, (letters, entities), (dispatcher, clock), Duration::ZERO, String::new());
    let ids = office.list_as(&Filter::default(), 10, MANY, |letter| letter.envelope.message_id.to_string()).await;
    let ids = ids.unwrap();
    assert_eq!((ids.len(), ids[0].as_str(), shelf.held_max.load(Ordering::Relaxed)), (MANY - 10, "m-10", 0));
    // With their bodies all of them are.
    assert_eq!(office.list(&Filter::default(), 0, MANY).await.unwrap().len(), MANY);
    assert_eq!(shelf.held_max.load(Ordering::Relaxed), 2 * AT_ONCE);
}
