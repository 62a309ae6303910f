//! What a restored backup does to the promise, as the page on production says: S54.

use hapax::{Endpoint, Memory, Message, Sender, codec::Codec, envelope::Envelope, ids::MessageId, testing::Harness};

use crate::{
    card::{Card, CupForFree},
    messages::OrderPaid,
};

/// What a process sees after a start: the stamps on Ann's card, and the ids under which it has told of a cup for free.
type Seen = (Option<u32>, Vec<MessageId>);

/// Fourteen cups are paid for: ten of them are one for free. The message comes, with these stores.
async fn comes(entities: &Memory, dedup: &Memory) -> Seen {
    let cards = Endpoint::builder("shop").entities(entities.clone()).dedup(dedup.clone());
    let mut cards = Harness::start(cards.saga::<Card>(|card| card.starts::<OrderPaid>())).await.unwrap();
    let paid = OrderPaid { order: "1".into(), customer: "ann".into(), cups: 14 };
    let envelope = Sender::envelope_with(Codec::Json, "paid-1".parse().unwrap(), &paid).unwrap();
    // A copy bears the time of the first one, and so do ids that are derived from it; here both bear none.
    cards.send_envelope(Envelope { occurred_at: None, ..envelope }).await.unwrap();
    let told = cards.outgoing().into_iter().filter(|sent| sent.envelope.message_type.as_str() == CupForFree::TYPE);
    let told = told.map(|sent| sent.envelope.message_id.clone()).collect();
    (cards.state::<Card>("ann").await.unwrap().map(|card| card.stamps), told)
}

/// Goal: restored to one moment, a copy that is still in a queue takes effect once, and what it sends has the ids it had.
#[tokio::test]
async fn what_is_restored_as_one_handles_a_copy_once_and_sends_the_same_ids() {
    let (stamps, told) = comes(&Memory::new(), &Memory::new()).await;
    assert_eq!((stamps, told.len()), (Some(4), 1));
    let again = comes(&Memory::new(), &Memory::new()).await; // Both as they were before it came.
    assert_eq!(again, (Some(4), told));
}

/// Goal: with dedup entries that are newer than the entities a message is lost. Method: its entity is as before it came, its dedup entry is not.
#[tokio::test]
async fn dedup_entries_that_are_newer_than_the_restored_entities_lose_a_message() {
    let dedup = Memory::new();
    assert_eq!(comes(&Memory::new(), &dedup).await.0, Some(4));
    assert_eq!(comes(&Memory::new(), &dedup).await, (None, Vec::new()));
}

/// Goal: with dedup entries that are older than the entities an effect is doubled, and told of under the id of the first time.
#[tokio::test]
async fn dedup_entries_that_are_older_than_the_entities_double_an_effect() {
    let entities = Memory::new();
    let (stamps, told) = comes(&entities, &Memory::new()).await;
    assert_eq!(stamps, Some(4));
    let (doubled, again) = comes(&entities, &Memory::new()).await;
    assert_eq!((doubled, &again), (Some(8), &told), "fourteen more, and another cup under the same id");
}
