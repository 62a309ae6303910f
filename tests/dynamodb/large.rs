//! What does not fit into one item.

use std::sync::Arc;

use futures_util::future::join;
use hapax::{
    entity::{Expected, OutboxEntry},
    ports::{DeadLetter, DeadLetters, EntityStore, ErrorKind, Finished, Page, Saved},
    time::Timestamp,
};

use hapax_tests::samples::{entity, entry_of, outgoing, save};

use crate::rig::{Rig, key};

const LARGE: usize = 1_000_000;

fn large_entry() -> Arc<OutboxEntry> {
    entry_of(vec![outgoing(vec![b'e'; LARGE])])
}

#[tokio::test]
async fn a_thousand_outgoing_messages_are_saved_in_dynamodb_and_cleaned_up() {
    let rig = Rig::new().await;
    let messages = (0..1000).map(|number| outgoing(format!("{number:02000}"))).collect();
    let waits = entry_of(messages);
    let saved = entity("a", std::slice::from_ref(&waits));
    let version = save(&rig.store, &key("many"), None, &saved).await;
    assert_eq!(rig.plain.load(&key("many"), &[]).await.unwrap().stored.unwrap().entity, saved);
    assert!(rig.items(&key("many")).await > 5, "in chunks");

    let clean = entity("a", &[]);
    let finished = rig.store.finish(&key("many"), &[waits.to_dedup_entry()], Some((&version, &clean))).await.unwrap();
    assert!(matches!(finished, Some(Finished::Cleaned(Some(_)))), "{finished:?}");
    assert_eq!(rig.plain.load(&key("many"), &[]).await.unwrap().stored.unwrap().entity, clean);
    assert_eq!(rig.items(&key("many")).await, 1, "no chunk is left");
}

#[tokio::test]
async fn many_small_entries_that_do_not_fit_into_an_item_of_dynamodb_come_back_in_order() {
    let rig = Rig::new().await;
    let small: Vec<_> = (0..300).map(|_| entry_of(vec![outgoing(vec![b's'; 2000])])).collect();
    let mut mixed = small.clone();
    mixed.insert(150, large_entry());
    mixed.push(large_entry());
    let version = save(&rig.store, &key("mixed"), None, &entity("a", &mixed)).await;
    assert_eq!(rig.plain.load(&key("mixed"), &[]).await.unwrap().stored.unwrap().entity.outbox, mixed);
    mixed.drain(..200);
    save(&rig.store, &key("mixed"), Some(&version), &entity("b", &mixed)).await;
    assert_eq!(rig.plain.load(&key("mixed"), &[]).await.unwrap().stored.unwrap().entity.outbox, mixed);
}

#[tokio::test]
async fn what_is_large_is_written_to_dynamodb_once_and_carried_along() {
    let rig = Rig::new().await;
    let large = large_entry();
    let mut version = save(&rig.store, &key("carried"), None, &entity("0", std::slice::from_ref(&large))).await;
    let items = rig.items(&key("carried")).await;
    for number in 1..4 {
        let before = rig.store.units();
        version = save(
            &rig.store,
            &key("carried"),
            Some(&version),
            &entity(format!("{number}"), std::slice::from_ref(&large)),
        )
        .await;
        assert!(rig.store.units() - before < 20.0, "{} units", rig.store.units() - before);
    }
    assert_eq!(rig.items(&key("carried")).await, items);
    assert_eq!(
        rig.plain.load(&key("carried"), &[]).await.unwrap().stored.unwrap().entity.outbox,
        std::slice::from_ref(&large)
    );

    // A state that is large stays where it is when only the outbox is cleaned up.
    let state = vec![b'x'; LARGE];
    let version =
        save(&rig.store, &key("carried"), Some(&version), &entity(state.clone(), std::slice::from_ref(&large))).await;
    let (clean, before) = (entity(state, &[]), rig.store.units());
    let done = [large.to_dedup_entry()];
    let finished = rig.store.finish(&key("carried"), &done, Some((&version, &clean))).await.unwrap();
    let Some(Finished::Cleaned(Some(version))) = finished else { panic!("{finished:?}") };
    // Deleting chunks costs what they had, writing a megabyte would cost as much again.
    assert!(rig.store.units() - before < 2.0 * 1000.0 + 100.0, "{} units", rig.store.units() - before);
    assert_eq!(rig.plain.load(&key("carried"), &[]).await.unwrap().stored.unwrap().entity, clean);
    save(&rig.store, &key("carried"), Some(&version), &entity("small", &[])).await;
    assert_eq!(rig.items(&key("carried")).await, 1);
}

#[tokio::test]
async fn a_loser_leaves_no_chunk_in_dynamodb() {
    let rig = Rig::new().await;
    let first = save(&rig.store, &key("lost"), None, &entity("a", &[])).await;
    let winner = save(&rig.store, &key("lost"), Some(&first), &entity(vec![b'w'; LARGE], &[large_entry()])).await;
    let items = rig.items(&key("lost")).await;
    let loser = entity(vec![b'l'; LARGE], &[large_entry()]);
    let lost = rig.store.save(&key("lost"), &Expected::Version(first), &loser, &[]).await.unwrap();
    assert_eq!(lost, Saved::Conflict);
    assert_eq!((rig.items(&key("lost")).await, rig.plain.version(&key("lost")).await.unwrap()), (items, Some(winner)));
}

#[tokio::test]
async fn an_entity_whose_chunks_are_replaced_while_it_is_read_from_dynamodb_is_read_whole() {
    const SAVES: usize = 15;
    let rig = Rig::new().await;
    let waits = entry_of((0..400).map(|_| outgoing(vec![b'x'; 1200])).collect());
    let saved = |number: usize| entity(vec![number as u8; 200_000], std::slice::from_ref(&waits));
    let mut version = save(&rig.plain, &key("replaced"), None, &saved(0)).await;
    let writing = async {
        for number in 1..=SAVES {
            version = save(&rig.plain, &key("replaced"), Some(&version), &saved(number)).await;
        }
    };
    let reading = async {
        loop {
            let entity = match rig.store.load(&key("replaced"), &[]).await {
                Ok(loaded) => loaded.stored.unwrap().entity,
                Err(e) if e.kind() == ErrorKind::Unavailable => continue,
                Err(e) => panic!("{e}"),
            };
            let number = usize::from(entity.state[0]);
            assert_eq!(entity, saved(number));
            if number == SAVES {
                return;
            }
        }
    };
    join(writing, reading).await;
}

#[tokio::test]
async fn a_reply_that_no_entry_of_dynamodb_can_keep_is_refused_before_it_is_saved() {
    let rig = Rig::new().await;
    let mut replies = (*entry_of(vec![outgoing(vec![b'r'; LARGE])])).clone();
    replies.reply = Some(0);
    let error = rig.store.save(&key("reply"), &Expected::Absent, &entity("a", &[Arc::new(replies)]), &[]).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!(rig.plain.version(&key("reply")).await.unwrap(), None);
}

#[tokio::test]
async fn more_dedup_entries_than_a_transaction_of_dynamodb_takes_are_refused_with_a_save_and_split_in_a_finish() {
    let rig = Rig::new().await;
    let marks: Vec<_> = (0..100).map(|_| hapax_tests::samples::mark()).collect();
    let error = rig.store.save(&key("marks"), &Expected::Absent, &entity("a", &[]), &marks).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    let loaded = rig.plain.load(&key("marks"), &[marks[0].key]).await.unwrap();
    assert!(loaded.stored.is_none() && loaded.known.unwrap().entry(&marks[0].key).is_none());

    let version = save(&rig.store, &key("marks"), None, &entity("a", &[])).await;
    let finished = rig.store.finish(&key("marks"), &marks, Some((&version, &entity("a", &[])))).await.unwrap();
    assert!(matches!(finished, Some(Finished::Cleaned(Some(_)))), "{finished:?}");
    let keys: Vec<_> = marks.iter().map(|mark| mark.key).collect();
    let known = rig.plain.load(&key("marks"), &keys).await.unwrap().known.unwrap();
    assert!(marks.iter().all(|mark| known.entry(&mark.key) == Some(mark)));
}

#[tokio::test]
async fn a_large_letter_is_kept_whole_in_dynamodb() {
    let rig = Rig::new().await;
    let letter = DeadLetter {
        envelope: outgoing(vec![b'l'; LARGE]).envelope,
        endpoint: "shop".parse().unwrap(),
        saga: None,
        destination: None,
        reason: "too large for what follows".into(),
        attempts: 1,
        time: Timestamp::now(),
    };
    rig.store.add(&letter).await.unwrap();
    rig.store.add(&letter).await.unwrap();
    assert_eq!(rig.plain.list(&letter.endpoint, &Page::first(10)).await.unwrap(), [letter]);
}
