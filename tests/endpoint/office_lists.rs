//! Dead letters as they are listed, by pages and filters.

use hapax::{
    InProcess, Memory,
    endpoint::office::Filter,
    ports::{DeadLetter, DeadLetters},
    time::Timestamp,
};

use crate::{
    office::{add, all, letter, numbered, office},
    work::task,
};

#[tokio::test(start_paused = true)]
async fn letters_are_found_by_their_last_error_and_not_by_those_before() {
    let (store, hub) = (Memory::new(), InProcess::new("last-error"));
    let letter = letter(&task("a", "declined"));
    let reason = "card declined\nbefore:\n  attempt 1: connection reset".into();
    store.add(&DeadLetter { reason, ..letter }).await.unwrap();
    let office = office(&store, hub).await;
    for (reason, found) in [("declined", 1), ("connection reset", 0)] {
        let filter = Filter { reason: Some(reason.into()), ..Filter::default() };
        assert_eq!(office.list(&filter, 0, 9).await.unwrap().len(), found, "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn letters_are_listed_by_pages_and_filters_and_discarded_by_them() {
    let (store, hub) = (Memory::new(), InProcess::new("listed"));
    add(&store, numbered(250)).await;
    let office = office(&store, hub).await;
    let names = |letters: Vec<DeadLetter>| -> Vec<String> {
        letters.iter().map(|letter| letter.envelope.message_id.to_string()).collect()
    };
    let page = office.list(&Filter::default(), 120, 3).await.unwrap();
    assert_eq!(names(page), ["t-120", "t-121", "t-122"]);
    let of_reason = Filter { reason: Some("t-24 ".into()), ..Filter::default() };
    assert_eq!(names(office.list(&of_reason, 0, 9).await.unwrap()), ["t-24"]);
    for nobody in [
        Filter { message_type: Some("work.done".parse().unwrap()), ..Filter::default() },
        Filter { saga: Some("auditor".parse().unwrap()), ..Filter::default() },
        Filter { before: Some(Timestamp::from_millis(1)), ..Filter::default() },
        Filter { since: Some(Timestamp::MAX), ..Filter::default() },
        Filter { message_id: Some("t-250".parse().unwrap()), ..Filter::default() },
    ] {
        assert_eq!(office.list(&nobody, 0, 9).await.unwrap(), []);
        assert_eq!(office.discard_all(&nobody).await.unwrap(), 0);
    }
    let twenties = Filter { reason: Some("t-2".into()), ..Filter::default() };
    assert_eq!(office.discard_all(&twenties).await.unwrap(), 61);
    assert_eq!(office.discard_all(&twenties).await.unwrap(), 0);
    assert_eq!(all(&office).await.len(), 189);
    assert_eq!(office.discard_all(&Filter::default()).await.unwrap(), 189);
    let told: usize = office.actions().await.unwrap().iter().map(|action| action.count).sum();
    assert_eq!(told, 250);
}

/// Goal: a letter is listed and counted once, wherever it is. Method: letters as retries leave them that are cut short: one that is held alone, and
/// one that is held and still where it was.
#[tokio::test(start_paused = true)]
async fn letters_whose_retry_was_cut_short_are_listed_and_counted_once() {
    let (store, hub) = (Memory::new(), InProcess::new("in-hand"));
    let in_hand = |name: &str| DeadLetter { endpoint: "hapax.held/work".parse().unwrap(), ..letter(&task("a", name)) };
    store.add(&in_hand("alone")).await.unwrap();
    store.add(&in_hand("both")).await.unwrap();
    add(&store, [task("a", "both"), task("a", "untouched")]).await;
    let office = office(&store, hub).await;
    let names = |letters: &[DeadLetter]| -> Vec<String> {
        letters.iter().map(|letter| letter.envelope.message_id.to_string()).collect()
    };
    let letters = all(&office).await;
    assert_eq!(names(&letters), ["alone", "both", "untouched"]);
    for skip in 1..4 {
        let page = office.list(&Filter::default(), skip, 9).await.unwrap();
        assert_eq!(names(&page), names(&letters)[skip..], "{skip}");
    }
    assert_eq!(office.discard(&letters).await.unwrap(), 3);
    assert_eq!(office.discard(&letters).await.unwrap(), 0);
    assert_eq!(all(&office).await, []);

    // Of several that are named, also where one is in both places and others are gone.
    store.add(&in_hand("both")).await.unwrap();
    add(&store, [task("a", "both")]).await;
    assert_eq!(office.discard(&letters).await.unwrap(), 1);
    store.add(&in_hand("alone")).await.unwrap();
    add(&store, [task("a", "untouched")]).await;
    let named_twice = [&letters[..], &letters[..]].concat();
    assert_eq!(office.discard(&named_twice).await.unwrap(), 2);
    assert_eq!(all(&office).await, []);
}
