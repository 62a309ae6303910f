//! What is a byte below a limit, at it, and a byte above it.

use hapax::{
    MessageId,
    entity::{DedupEntry, Entity, Expected, LiveTimeout},
    ids::DedupKey,
    ports::{DeadLetter, DeadLetters, DedupStore, EntityStore, ErrorKind, Finished, Page, Saved},
    stores::cosmos::Layout,
    time::Timestamp,
};
use hapax_core::codec::record;
use hapax_tests::{
    CosmosDatabase,
    samples::{body_for, entity, envelope, filled, key, letter, mark, outgoing, won},
};

/// Of a document, and of all documents of a batch.
const DOCUMENT_BYTES_MAX: usize = 2_000_000;
/// What a document counts beside what is in it.
const FRAME_BYTES: usize = 6_000;
/// What is left of the two million bytes of a document, without its frame and before base64.
const ENCODED_BYTES_MAX: usize = (DOCUMENT_BYTES_MAX - FRAME_BYTES) / 4 * 3;

#[tokio::test(flavor = "multi_thread")]
async fn entities_below_at_and_above_the_limit() {
    for layout in [Layout::Together, Layout::Apart] {
        let store = CosmosDatabase::new(layout).open().await;
        let max = store.capabilities().entity_bytes_max;
        let (stays, absent) = (key("large"), key("too large"));
        let below = won(store.save(&stays, &Expected::Absent, &filled(max - 1), &[]).await.unwrap());
        let at = won(store.save(&stays, &Expected::Version(below), &filled(max), &[]).await.unwrap());
        for (key, expected) in [(&stays, Expected::Version(at)), (&absent, Expected::Absent)] {
            let error = store.save(key, &expected, &filled(max + 1), &[]).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TooLarge);
        }
        assert_eq!(store.load(&stays, &[]).await.unwrap().stored.unwrap().entity, filled(max));
        assert_eq!(store.version(&absent).await.unwrap(), None);
    }
}

/// The service takes a hundred writes in a batch, one of which is the entity's.
#[tokio::test(flavor = "multi_thread")]
async fn marks_go_with_a_save_up_to_ninety_nine_and_with_a_finish_without_end() {
    let store = CosmosDatabase::new(Layout::Together).open().await;
    let (key, refused) = (key("marks"), key("too many marks"));
    let marks: Vec<DedupEntry> = (0..250).map(|_| mark()).collect();
    let error = store.save(&refused, &Expected::Absent, &entity("one", &[]), &marks[..100]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert_eq!(store.version(&refused).await.unwrap(), None);
    let version = won(store.save(&key, &Expected::Absent, &entity("one", &[]), &marks[..99]).await.unwrap());
    let expected = Expected::Version(version);
    let version = won(store.save(&key, &expected, &entity("one", &[]), &marks[100..198]).await.unwrap());
    // Some of them are there already.
    let finished = store.finish(&key, &marks, Some((&version, &entity("two", &[])))).await.unwrap();
    assert!(matches!(finished, Some(Finished::Cleaned(Some(_)))), "{finished:?}");
    let keys: Vec<DedupKey> = marks.iter().map(|mark| mark.key).collect();
    let known = store.load(&key, &keys).await.unwrap().known.unwrap();
    assert!(marks.iter().all(|mark| known.entry(&mark.key) == Some(mark)));
}

#[tokio::test(flavor = "multi_thread")]
async fn dedup_entries_below_at_and_above_the_limit() {
    let encoded = |body| record::encode_outgoing(&outgoing(vec![b'r'; body])).unwrap().len();
    let of = |bytes| DedupEntry { reply: Some(outgoing(vec![b'r'; body_for(bytes, encoded)])), ..mark() };
    let [below, at, above] = [ENCODED_BYTES_MAX - 1, ENCODED_BYTES_MAX, ENCODED_BYTES_MAX + 1].map(of);
    let (together, key) = (CosmosDatabase::new(Layout::Together).open().await, key("replies"));
    let apart = CosmosDatabase::new(Layout::Apart).open().await;
    for mark in [&below, &at] {
        let marks = std::slice::from_ref(mark);
        assert_eq!(together.finish(&key, marks, None).await.unwrap(), Some(Finished::Cleaned(None)));
        apart.insert(marks).await.unwrap();
        for store in [&together, &apart] {
            assert_eq!(store.contains(&[mark.key]).await.unwrap().entry(&mark.key), Some(mark));
        }
    }
    let marks = std::slice::from_ref(&above);
    assert_eq!(together.finish(&key, marks, None).await.unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!(apart.insert(marks).await.unwrap_err().kind(), ErrorKind::TooLarge);
    for store in [together, apart] {
        assert_eq!(store.contains(&[above.key]).await.unwrap().entry(&above.key), None);
    }
}

/// What so many bytes are in a document.
fn in_base64(bytes: usize) -> usize {
    bytes.div_ceil(3) * 4
}

/// Two dedup entries with replies that have so many bytes together in a batch with `entity`.
fn marks_beside(entity: &Entity, bytes: usize) -> [DedupEntry; 2] {
    const FIRST: usize = 600_000;
    let encoded = |body| record::encode_outgoing(&outgoing(vec![b'r'; body])).unwrap().len();
    let of = |bytes| DedupEntry { reply: Some(outgoing(vec![b'r'; body_for(bytes, encoded)])), ..mark() };
    let record = record::encode_outbox(entity).unwrap();
    let others = 3 * FRAME_BYTES + in_base64(entity.state.len()) + in_base64(record.len()) + in_base64(FIRST);
    [of(FIRST), of((bytes - others) / 4 * 3)]
}

/// Base64 grows by four bytes at a time.
#[tokio::test(flavor = "multi_thread")]
async fn bytes_of_a_batch_below_at_and_above_the_limit() {
    let store = CosmosDatabase::new(Layout::Together).open().await;
    let entity = entity("one", &[]);
    for bytes in [DOCUMENT_BYTES_MAX - 4, DOCUMENT_BYTES_MAX, DOCUMENT_BYTES_MAX + 4] {
        let (fits, name) = (bytes <= DOCUMENT_BYTES_MAX, format!("{bytes}"));
        let (saves, finishes) = (key(&name), key(&name));
        let (saved, marks) = (marks_beside(&entity, bytes), marks_beside(&entity, bytes));
        let asked = store.requests();
        match store.save(&saves, &Expected::Absent, &entity, &saved).await {
            Ok(Saved::At(_)) => assert_eq!((store.requests() - asked, fits), (1, true)),
            Ok(lost) => panic!("{lost:?}"),
            Err(error) => {
                assert_eq!((error.kind(), store.requests() - asked, fits), (ErrorKind::TooLarge, 0, false), "{error}");
                assert!(error.to_string().contains("2000004 bytes"), "{error}");
            }
        }
        let loaded = store.load(&saves, &saved.each_ref().map(|mark| mark.key)).await.unwrap();
        assert_eq!((loaded.stored.is_some(), loaded.known.unwrap().entry(&saved[1].key).is_some()), (fits, fits));

        // A clean-up writes what does not fit before it.
        let version = won(store.save(&finishes, &Expected::Absent, &entity, &[]).await.unwrap());
        let asked = store.requests();
        let finished = store.finish(&finishes, &marks, Some((&version, &entity))).await.unwrap();
        assert!(matches!(finished, Some(Finished::Cleaned(Some(_)))), "{finished:?}");
        assert_eq!(store.requests() - asked, if fits { 1 } else { 2 }, "{bytes}");
        let known = store.load(&finishes, &marks.each_ref().map(|mark| mark.key)).await.unwrap().known.unwrap();
        assert!(marks.iter().all(|mark| known.entry(&mark.key) == Some(mark)), "{bytes}");
    }
}

/// Of the largest entity there is, and with no clean-up, in as many batches as their bytes take.
#[tokio::test(flavor = "multi_thread")]
async fn marks_with_large_replies_are_added_in_batches_that_the_service_takes() {
    let store = CosmosDatabase::new(Layout::Together).open().await;
    let key = key("replies");
    let of = |bytes| DedupEntry { reply: Some(outgoing(vec![b'r'; bytes])), ..mark() };
    // Four are in one batch, with five it would be more than two million bytes; in all more than the service takes in one.
    let marks: Vec<DedupEntry> = (0..10).map(|_| of(300_000)).collect();
    let largest = filled(store.capabilities().entity_bytes_max);
    let version = won(store.save(&key, &Expected::Absent, &largest, &[]).await.unwrap());
    for (clean_up, requests) in [(None, 3), (Some((&version, &largest)), 4)] {
        let marks: Vec<DedupEntry> = marks.iter().map(|of| DedupEntry { key: mark().key, ..of.clone() }).collect();
        let asked = store.requests();
        let finished = store.finish(&key, &marks, clean_up).await.unwrap();
        assert!(matches!(finished, Some(Finished::Cleaned(_))), "{finished:?}");
        assert_eq!(store.requests() - asked, requests);
        let keys: Vec<DedupKey> = marks.iter().map(|mark| mark.key).collect();
        let known = store.load(&key, &keys).await.unwrap().known.unwrap();
        assert!(marks.iter().all(|mark| known.entry(&mark.key) == Some(mark)));
    }
}

/// Names of messages that are longer than the entity counts them: so the document is full before the entity is.
#[tokio::test(flavor = "multi_thread")]
async fn documents_of_many_timeouts_below_at_and_above_the_limit() {
    let store = CosmosDatabase::new(Layout::Apart).open().await;
    let timeout = |number| {
        let message_id = MessageId::parse(&format!("{number:x>255}")).unwrap();
        LiveTimeout { message_id, due: Timestamp::now() }
    };
    let timeouts: Vec<LiveTimeout> = (0..1_000).map(timeout).collect();
    let (mut version, key) = (Expected::Absent, key("timeouts"));
    let of = |state: usize| Entity { timeouts: timeouts.clone(), ..entity(vec![b'x'; state], &[]) };
    let max = store.capabilities().entity_bytes_max;
    let (mut fits, mut above) = (0, max - of(0).size());
    while above - fits > 1 {
        let state = (fits + above) / 2;
        match store.save(&key, &version, &of(state), &[]).await {
            Ok(saved) => (fits, version) = (state, Expected::Version(won(saved))),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
                above = state;
            }
        }
    }
    let room = max - of(fits).size();
    assert!(room > 1_000, "the document was full {room} bytes before the entity was");
    for state in [fits - 1, fits] {
        version = Expected::Version(won(store.save(&key, &version, &of(state), &[]).await.unwrap()));
    }
    let asked = store.requests();
    let error = store.save(&key, &version, &of(above), &[]).await.unwrap_err();
    assert_eq!((error.kind(), store.requests() - asked), (ErrorKind::TooLarge, 0), "{error}");
    assert_eq!(store.load(&key, &[]).await.unwrap().stored.unwrap().entity, of(fits));
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_below_at_and_above_the_limit() {
    let encoded = |body| record::encode_envelope(&envelope(vec![b'l'; body])).unwrap().len();
    let of = |bytes| {
        let letter = letter("shop".parse().unwrap(), vec![b'l'; body_for(bytes, encoded)]);
        DeadLetter { reason: String::new(), ..letter }
    };
    let store = CosmosDatabase::new(Layout::Together).open().await;
    let mut kept = Vec::new();
    for bytes in [ENCODED_BYTES_MAX - 1, ENCODED_BYTES_MAX] {
        kept.push(of(bytes));
        store.add(&kept[kept.len() - 1]).await.unwrap();
    }
    let error = store.add(&of(ENCODED_BYTES_MAX + 1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert_eq!(store.list(&kept[0].endpoint, &Page::first(10)).await.unwrap(), kept);
    // A reason is cut before a letter is refused for it.
    let (endpoint, reason) = ("verbose".parse().unwrap(), "\u{1F980}".repeat(1 << 20));
    store.add(&DeadLetter { endpoint, reason: reason.clone(), ..of(1000) }).await.unwrap();
    let found = store.list(&"verbose".parse().unwrap(), &Page::first(10)).await.unwrap();
    assert!(found.len() == 1 && found[0].reason == reason[..64 << 10]);
}
