//! Reads whose answers are lost, parts, or nothing: none of them is absence.

use hapax::{
    entity::DedupEntry,
    ports::{DedupStore, EntityStore, ErrorKind},
};
use hapax_tests::{
    http_faults::Fault,
    samples::{entity, mark, outgoing, save},
};

use crate::{
    dynamodb_proxied::{ALWAYS, LARGE},
    rig::{JSON, Rig, answer, cancelled, error, key, next},
};

/// A transaction becomes seen item by item: whoever has seen its entity must not find its dedup entry missing. That is so for
/// reads that wait for the transactions on what they read.
#[tokio::test]
async fn dedup_entries_in_dynamodb_are_read_when_no_transaction_holds_them() {
    let rig = Rig::new().await;
    let marks = [mark(), mark()];
    rig.store.insert(&marks).await.unwrap();
    let keys = marks.clone().map(|mark| mark.key);
    rig.asked();
    next(rig.proxy(), 2, "TransactGetItems", cancelled(&["TransactionConflict", "None"]));
    let known = rig.store.contains(&keys).await.unwrap();
    assert!(marks.iter().all(|mark| known.entry(&mark.key) == Some(mark)));
    assert_eq!(rig.asked(), ["TransactGetItems"; 3]);
    rig.store.load(&key("none"), &keys[..1]).await.unwrap();
    assert_eq!(rig.asked(), ["GetItem", "TransactGetItems"]);

    next(rig.proxy(), ALWAYS, "TransactGetItems", cancelled(&["None", "TransactionConflict"]));
    assert_eq!(rig.store.contains(&keys).await.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn an_answer_of_dynamodb_for_fewer_keys_than_were_asked_for_is_an_error() {
    let rig = Rig::new().await;
    next(rig.proxy(), 1, "TransactGetItems", answer(200, r#"{"Responses":[{}]}"#));
    let error = rig.store.contains(&[mark().key, mark().key]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

/// By the emulator's own limit, and by a refusal of whatever name.
#[tokio::test]
async fn dedup_entries_that_are_too_large_for_one_answer_of_dynamodb_are_asked_for_in_parts() {
    const MARKS: usize = 24;
    const REPLY: usize = 300_000;
    let rig = Rig::new().await;
    let marks: Vec<_> = (0..MARKS).map(|_| DedupEntry { reply: Some(outgoing(vec![7; REPLY])), ..mark() }).collect();
    rig.plain.insert(&marks).await.unwrap();
    let keys: Vec<_> = marks.iter().map(|mark| mark.key).collect();
    next(rig.proxy(), 1, "TransactGetItems", error(400, "ValidationException"));
    let known = rig.store.contains(&keys).await.unwrap();
    assert!(marks.iter().all(|mark| known.entry(&mark.key) == Some(mark)));
    assert!(rig.asked().len() > 2);
    let error = error(400, "ValidationException");
    next(rig.proxy(), ALWAYS, "TransactGetItems", error);
    assert_eq!(rig.store.contains(&keys).await.unwrap_err().kind(), ErrorKind::Misconfigured);
}

#[tokio::test]
async fn chunks_that_dynamodb_leaves_out_of_an_answer_are_asked_for_again_and_never_absent() {
    const CHUNKS: usize = 3;
    let rig = Rig::new().await;
    let large = entity(vec![b'x'; CHUNKS * LARGE], &[]);
    save(&rig.plain, &key("large"), None, &large).await;
    let table = rig.table.name();
    let left: Vec<_> = rig.places(&key("large")).await.into_iter().filter(|(_, sort)| sort != "e").collect();
    assert!(left.len() >= CHUNKS);
    let left = left.iter().map(|(pk, sk)| format!(r#"{{"pk":{{"S":"{pk}"}},"sk":{{"S":"{sk}"}}}}"#));
    let left = left.collect::<Vec<_>>().join(",");
    let none = format!(
        r#"{{"ConsumedCapacity":[{{"TableName":"t","CapacityUnits":0.5}}],"Responses":{{"{table}":[]}},"UnprocessedKeys":{{"{table}":{{"Keys":[{left}],"ConsistentRead":true}}}}}}"#
    );
    next(rig.proxy(), 2, "BatchGetItem", answer(200, &none));
    let stored = rig.store.load(&key("large"), &[]).await.unwrap().stored.unwrap();
    assert_eq!(stored.entity, large);

    next(rig.proxy(), ALWAYS, "BatchGetItem", answer(200, &none));
    let error = rig.store.load(&key("large"), &[]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn a_read_that_dynamodb_does_not_answer_is_an_error_and_never_absence() {
    let rig = Rig::new().await;
    next(rig.proxy(), ALWAYS, "GetItem", Fault::DropAnswer);
    next(rig.proxy(), ALWAYS, "TransactGetItems", Fault::DropAnswer);
    let error = rig.store.load(&key("x"), &[mark().key]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(rig.store.version(&key("x")).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(rig.store.contains(&[mark().key]).await.unwrap_err().kind(), ErrorKind::Unavailable);
}

/// The client library reads an empty body as an answer that found nothing.
#[tokio::test]
async fn a_read_that_dynamodb_answers_with_nothing_is_an_error_and_never_absence() {
    let rig = Rig::new().await;
    let marks = [mark(), mark()];
    rig.plain.insert(&marks).await.unwrap();
    let keys = marks.map(|mark| mark.key);
    for keys in [&keys[..1], &keys[..]] {
        next(rig.proxy(), 1, "TransactGetItems", Fault::answer_after_served(200, &JSON, ""));
        let error = rig.store.contains(keys).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    save(&rig.plain, &key("large"), None, &entity(vec![1; 3 * LARGE], &[])).await;
    for operation in ["GetItem", "BatchGetItem"] {
        next(rig.proxy(), 1, operation, Fault::answer_after_served(200, &JSON, ""));
        let error = rig.store.load(&key("large"), &keys).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{operation}: {error}");
    }
}
