//! What is a byte below a limit, at it, and a byte above it; and many at one entity.

use std::sync::Arc;

use hapax::{
    entity::{DedupEntry, Expected},
    ports::{DeadLetters, DedupStore, EntityStore, ErrorKind, Finished, Page},
    stores::dynamodb::REPLY_BYTES_MAX,
};
use hapax_core::codec::record;
use hapax_tests::{
    contended,
    samples::{body_for, dedup_key, entity, entry_of, envelope, filled, letter, mark, outgoing, save},
};

use crate::rig::{Rig, key};

/// Of a letter that is one item, and of any, as it is stored.
const LETTER_BYTES_MAX: [usize; 2] = [256 * 1024, 3_800_000];

/// Over two clients, as two processes would have them.
#[tokio::test(flavor = "multi_thread")]
async fn fifty_tasks_at_one_entity_of_dynamodb_count_right() {
    let rig = Rig::new().await;
    contended(&[rig.plain.clone(), rig.table.open().await], 50, 2).await.unwrap();
}

#[tokio::test]
async fn entities_below_at_and_above_the_limit_of_dynamodb() {
    let store = Rig::new().await.plain;
    let max = store.capabilities().entity_bytes_max;
    let (stays, absent) = (key("large"), key("too large"));
    let below = save(&store, &stays, None, &filled(max - 1)).await;
    let at = save(&store, &stays, Some(&below), &filled(max)).await;
    for (key, expected) in [(&stays, Expected::Version(at)), (&absent, Expected::Absent)] {
        let error = store.save(key, &expected, &filled(max + 1), &[]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
    }
    assert_eq!(store.load(&stays, &[]).await.unwrap().stored.unwrap().entity, filled(max));
    assert_eq!(store.version(&absent).await.unwrap(), None);
}

#[tokio::test]
async fn what_just_fits_into_an_item_of_dynamodb_and_what_just_does_not_come_back_whole() {
    let rig = Rig::new().await;
    let key = key("full");
    let mut version = save(&rig.plain, &key, None, &entity("", &[])).await;
    let (mut fits, mut splits) = (380 * 1024, 400 * 1024);
    while splits - fits > 1 {
        let bytes = (fits + splits) / 2;
        let state = entity(vec![b'x'; bytes], &[]);
        version = save(&rig.plain, &key, Some(&version), &state).await;
        assert_eq!(rig.plain.load(&key, &[]).await.unwrap().stored.unwrap().entity, state);
        let items = rig.items(&key).await;
        if items == 1 { fits = bytes } else { splits = bytes }
    }
    println!("{fits} bytes are one item, {splits} are more");
    for (bytes, items) in [(fits, 1), (splits, 2 + splits / (390 * 1024)), (fits, 1)] {
        let state = entity(vec![b'x'; bytes], &[]);
        version = save(&rig.plain, &key, Some(&version), &state).await;
        assert_eq!(rig.plain.load(&key, &[]).await.unwrap().stored.unwrap().entity, state);
        assert_eq!(rig.items(&key).await, items, "{bytes} bytes");
    }
}

/// A transaction has a hundred actions, one of which is the entity's.
#[tokio::test]
async fn dedup_entries_go_with_a_save_in_dynamodb_up_to_ninety_nine() {
    let store = Rig::new().await.plain;
    for count in [98, 99, 100] {
        let (key, marks) = (key(&format!("{count} marks")), (0..count).map(|_| mark()).collect::<Vec<_>>());
        let saved = store.save(&key, &Expected::Absent, &entity("a", &[]), &marks).await;
        let keys: Vec<_> = marks.iter().map(|mark| mark.key).collect();
        let known = store.load(&key, &keys).await.unwrap().known.unwrap();
        let are_there = marks.iter().filter(|mark| known.entry(&mark.key) == Some(mark)).count();
        match saved {
            Ok(_) => assert_eq!((are_there, count < 100), (count, true)),
            Err(error) => assert_eq!((error.kind(), are_there, count), (ErrorKind::TooLarge, 0, 100)),
        }
    }
}

#[tokio::test]
async fn replies_below_at_and_above_what_dynamodb_keeps_for_duplicates() {
    let store = Rig::new().await.plain;
    let encoded = |body| record::encode_outgoing(&outgoing(vec![b'r'; body])).unwrap().len();
    for bytes in [REPLY_BYTES_MAX - 1, REPLY_BYTES_MAX, REPLY_BYTES_MAX + 1] {
        let mut replies = (*entry_of(vec![outgoing(vec![b'r'; body_for(bytes, encoded)])])).clone();
        replies.reply = Some(0);
        let (key, mark) = (key(&format!("{bytes}")), replies.to_dedup_entry());
        let inserted = DedupEntry { key: dedup_key(), ..mark.clone() };
        let (waiting, clean) = (entity("a", &[Arc::new(replies)]), entity("a", &[]));
        if bytes > REPLY_BYTES_MAX {
            let saved = store.save(&key, &Expected::Absent, &waiting, &[]).await;
            assert_eq!(saved.unwrap_err().kind(), ErrorKind::TooLarge);
            assert_eq!(store.insert(std::slice::from_ref(&inserted)).await.unwrap_err().kind(), ErrorKind::TooLarge);
            assert_eq!(store.version(&key).await.unwrap(), None);
            assert_eq!(store.contains(&[inserted.key]).await.unwrap().entry(&inserted.key), None);
            continue;
        }
        let version = save(&store, &key, None, &waiting).await;
        let finished = store.finish(&key, std::slice::from_ref(&mark), Some((&version, &clean))).await.unwrap();
        assert!(matches!(finished, Some(Finished::Cleaned(Some(_)))), "{finished:?}");
        store.insert(std::slice::from_ref(&inserted)).await.unwrap();
        let known = store.contains(&[mark.key, inserted.key]).await.unwrap();
        assert_eq!((known.entry(&mark.key), known.entry(&inserted.key)), (Some(&mark), Some(&inserted)));
    }
}

/// Four million bytes, with the largest of entities: what does not go with it is written by itself. The emulator would take more.
#[tokio::test]
async fn replies_below_and_above_what_a_transaction_of_dynamodb_holds_are_kept_all_the_same() {
    let store = Rig::new().await.plain;
    let max = store.capabilities().entity_bytes_max;
    for replies in [4, 6] {
        let (key, body) = (key(&format!("{replies} replies")), vec![b'r'; 100_000]);
        let version = save(&store, &key, None, &filled(max)).await;
        let marks: Vec<DedupEntry> =
            (0..replies).map(|_| DedupEntry { reply: Some(outgoing(body.clone())), ..mark() }).collect();
        let finished = store.finish(&key, &marks, Some((&version, &filled(max)))).await.unwrap();
        assert!(matches!(finished, Some(Finished::Cleaned(Some(_)))), "{finished:?}");
        let keys: Vec<_> = marks.iter().map(|mark| mark.key).collect();
        let loaded = store.load(&key, &keys).await.unwrap();
        assert!(loaded.stored.unwrap().entity == filled(max));
        let known = loaded.known.unwrap();
        assert!(marks.iter().all(|mark| known.entry(&mark.key) == Some(mark)), "{replies}");
    }
}

#[tokio::test]
async fn letters_below_at_and_above_the_limits_of_dynamodb() {
    let encoded = |body| record::encode_envelope(&envelope(vec![b'l'; body])).unwrap().len();
    let of = |bytes| letter("shop".parse().unwrap(), vec![b'l'; body_for(bytes, encoded)]);
    let store = Rig::new().await.plain;
    let [one_item, any] = LETTER_BYTES_MAX;
    let mut kept = Vec::new();
    for bytes in [one_item - 1, one_item, one_item + 1, any - 1, any] {
        kept.push(of(bytes));
        store.add(&kept[kept.len() - 1]).await.unwrap();
    }
    assert_eq!(store.add(&of(any + 1)).await.unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!(store.list(&kept[0].endpoint, &Page::first(10)).await.unwrap(), kept);
}
