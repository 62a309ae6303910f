//! What is a byte below a limit, at it, and a byte above it; and many at one entity.

use std::sync::Arc;

use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use hapax::{
    entity::{DedupEntry, Expected},
    ports::{DeadLetters, DedupStore, EntityStore, ErrorKind, Finished, Page, Saved},
    stores::dynamodb::REPLY_BYTES_MAX,
};
use hapax_core::codec::record;
use hapax_tests::{
    contended,
    samples::{body_for, dedup_key, entity, entry_of, envelope, filled, letter, mark, outgoing, save},
};

use crate::rig::{Rig, TRANSACTION_BYTES_MAX, key, rows};

/// Of a letter that is one item, and of any, as it is stored.
const LETTER_BYTES_MAX: [usize; 2] = [256 * 1024, 3_800_000];
/// Of a transaction.
const ACTIONS_MAX: usize = 100;

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

/// What the store reckons with: had it more to send, the service would refuse it.
#[tokio::test]
async fn transactions_below_at_and_above_what_dynamodb_takes() {
    let table = Rig::new().await.table;
    for bytes in [TRANSACTION_BYTES_MAX - 1, TRANSACTION_BYTES_MAX, TRANSACTION_BYTES_MAX + 1] {
        let actions = rows(&table, &format!("{bytes}"), bytes);
        let fits = bytes <= TRANSACTION_BYTES_MAX;
        match table.client().transact_write_items().set_transact_items(Some(actions)).send().await {
            Ok(_) => assert!(fits, "{bytes}"),
            Err(error) => assert_eq!((error.code(), fits), (Some("ValidationException"), false), "{error:?}"),
        }
    }
}

/// Ten go with the clean-up; with one more they would be more than the service takes in a transaction, and are written before it.
#[tokio::test]
async fn replies_below_and_above_what_a_transaction_of_dynamodb_holds_are_kept_all_the_same() {
    let store = Rig::new().await.plain;
    for replies in [10, 11] {
        let (key, body) = (key(&format!("{replies} replies")), vec![b'r'; 390_000]);
        let state = entity("a", &[]);
        let version = save(&store, &key, None, &state).await;
        let marks: Vec<DedupEntry> =
            (0..replies).map(|_| DedupEntry { reply: Some(outgoing(body.clone())), ..mark() }).collect();
        let finished = store.finish(&key, &marks, Some((&version, &state))).await.unwrap();
        assert!(matches!(finished, Some(Finished::Cleaned(Some(_)))), "{finished:?}");
        let keys: Vec<_> = marks.iter().map(|mark| mark.key).collect();
        let loaded = store.load(&key, &keys).await.unwrap();
        assert_eq!(loaded.stored.unwrap().entity, state);
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

/// The store counts what is in the entity's items but for names and keys, and 250 bytes beside the reply for a dedup entry.
mod dynamodb_proxied {
    use hapax::ids::{EntityKey, Scope};
    use hapax_tests::http_faults::Asked;
    use serde_json::{Map, Value};

    use super::*;
    use crate::rig::{answer, next};

    const COUNTED_BYTES_MAX: usize = 4_000_000;
    const MARK_BYTES: usize = 250;

    /// How long a reply is as it is stored.
    fn encoded(body: usize) -> usize {
        record::encode_outgoing(&outgoing(vec![b'r'; body])).unwrap().len()
    }

    fn with_reply(bytes: usize) -> DedupEntry {
        DedupEntry { reply: Some(outgoing(vec![b'r'; body_for(bytes, encoded)])), ..mark() }
    }

    /// The bytes of the one transaction that was asked for, as the store counts them and as the service does.
    fn sent(rig: &Rig) -> [usize; 2] {
        let asked = rig.proxy().asked();
        let transaction: Vec<&Asked> =
            asked.iter().filter(|asked| asked.operation() == Some("TransactWriteItems")).collect();
        assert_eq!(transaction.len(), 1);
        rig.proxy().forget();
        let body: Value = serde_json::from_slice(transaction[0].body()).unwrap();
        let held = |value: &Value| match value.as_object().and_then(|typed| typed.iter().next()).unwrap() {
            (kind, Value::String(text)) if kind == "B" => text.len() / 4 * 3 - text.matches('=').count(),
            (_, Value::String(text)) => text.len(),
            other => panic!("{other:?}"),
        };
        let mut bytes = [0, 0];
        for action in body["TransactItems"].as_array().unwrap() {
            let item: &Map<String, Value> = action["Put"]["Item"].as_object().unwrap();
            let of = |names: &[&str]| names.iter().filter_map(|name| item.get(*name)).map(held).sum::<usize>();
            let is_mark = item["pk"]["S"].as_str().unwrap().starts_with("d#");
            bytes[0] += if is_mark { MARK_BYTES + of(&["b"]) } else { of(&["v", "s", "o", "b"]) };
            bytes[1] += item.iter().map(|(name, value)| name.len() + held(value)).sum::<usize>();
        }
        bytes
    }

    /// With as many actions as a transaction has, and the longest names in each of them.
    fn key_of_longest_names(number: usize) -> EntityKey {
        let scope = Scope { endpoint: "e".repeat(100).parse().unwrap(), saga: "s".repeat(100).parse().unwrap() };
        EntityKey::new(Arc::new(scope), format!("{number:k>255}").parse().unwrap())
    }

    #[tokio::test]
    async fn saves_below_at_and_above_what_dynamodb_is_sent_in_a_transaction() {
        const CHUNKS: usize = 50;
        let rig = Rig::new().await;
        let large = || (0..CHUNKS).map(|_| entry_of(vec![outgoing(vec![b'e'; 69_000])])).collect::<Vec<_>>();
        let marks = |reply: usize| {
            let small = (0..ACTIONS_MAX - 1 - CHUNKS - 2).map(|_| mark());
            small.chain([with_reply(300_000), with_reply(reply)]).collect::<Vec<_>>()
        };
        let saved = |number: usize, reply: usize| {
            let (key, entity, marks) = (key_of_longest_names(number), entity("a", &large()), marks(reply));
            let store = rig.store.clone();
            async move {
                let keys: Vec<_> = marks.iter().map(|mark| mark.key).collect();
                let saved = store.save(&key, &Expected::Absent, &entity, &marks).await;
                let loaded = store.load(&key, &keys).await.unwrap();
                let known = loaded.known.unwrap();
                let known = marks.iter().filter(|mark| known.entry(&mark.key) == Some(mark)).count();
                (saved, loaded.stored.map(|stored| stored.entity == entity), known)
            }
        };
        rig.proxy().forget();
        let (first, ..) = saved(0, 100_000).await;
        assert!(matches!(first.unwrap(), Saved::At(_)));
        let [counted, _] = sent(&rig);
        for (number, bytes) in [(1, COUNTED_BYTES_MAX - 1), (2, COUNTED_BYTES_MAX)] {
            let (saved, stored, known) = saved(number, 100_000 + bytes - counted).await;
            assert!(matches!(saved.unwrap(), Saved::At(_)));
            assert_eq!((stored, known), (Some(true), ACTIONS_MAX - 1 - CHUNKS));
            let [counted, taken] = sent(&rig);
            println!("{counted} bytes by the store's count are {taken} by the service's");
            assert_eq!(counted, bytes);
            assert!(taken < TRANSACTION_BYTES_MAX);
        }
        let (saved, stored, known) = saved(3, 100_000 + COUNTED_BYTES_MAX + 1 - counted).await;
        let error = saved.unwrap_err();
        assert_eq!((error.kind(), stored, known), (ErrorKind::TooLarge, None, 0), "{error}");
        assert!(error.to_string().contains("4000001 bytes"), "{error}");
        assert!(!rig.asked().iter().any(|asked| asked == "TransactWriteItems"));
    }

    #[tokio::test]
    async fn clean_ups_below_at_and_above_what_dynamodb_is_sent_in_a_transaction() {
        let rig = Rig::new().await;
        let finished = async |reply: usize| {
            let key = key(&format!("{reply}"));
            let version = save(&rig.plain, &key, None, &entity("a", &[])).await;
            let replies = (0..10).map(|_| with_reply(360_000)).chain([with_reply(reply)]);
            let marks: Vec<_> = replies.collect();
            rig.proxy().forget();
            let finished = rig.store.finish(&key, &marks, Some((&version, &entity("a", &[])))).await.unwrap();
            assert!(matches!(finished, Some(Finished::Cleaned(Some(_)))), "{finished:?}");
            let keys: Vec<_> = marks.iter().map(|mark| mark.key).collect();
            let known = rig.plain.load(&key, &keys).await.unwrap().known.unwrap();
            assert!(marks.iter().all(|mark| known.entry(&mark.key) == Some(mark)), "{reply}");
        };
        finished(100_000).await;
        let [counted, _] = sent(&rig);
        for bytes in [COUNTED_BYTES_MAX - 1, COUNTED_BYTES_MAX] {
            finished(100_000 + bytes - counted).await;
            let [counted, taken] = sent(&rig);
            assert_eq!(counted, bytes);
            assert!(taken < TRANSACTION_BYTES_MAX);
        }
        finished(100_000 + COUNTED_BYTES_MAX + 1 - counted).await;
        assert_eq!(rig.asked(), ["PutItem"; 12], "each entry by itself, and then the entity");
    }

    /// Whatever it says of it: that it is too large somebody can do something about.
    #[tokio::test]
    async fn what_dynamodb_refuses_as_too_large_is_told_as_that() {
        let rig = Rig::new().await;
        for said in [
            "Item size has exceeded the maximum allowed size",
            "Item size to update has exceeded the maximum allowed size",
            "Collection size of items exceeded, which can also be caused by the aggregate size of the items",
            "The aggregate size of the items in the transaction exceeds 4 MB",
        ] {
            let body = format!(r#"{{"__type":"com.amazon.coral.validate#ValidationException","message":"{said}"}}"#);
            next(rig.proxy(), 1, "PutItem", answer(400, &body));
            let error = rig.store.save(&key("large"), &Expected::Absent, &entity("a", &[]), &[]).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
            assert!(error.to_string().contains(said), "{error}");
        }
        assert_eq!(rig.plain.version(&key("large")).await.unwrap(), None);
    }
}
