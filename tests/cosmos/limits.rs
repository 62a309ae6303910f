//! What is a byte below a limit, at it, and a byte above it.

use hapax::{
    entity::{DedupEntry, Expected},
    ids::DedupKey,
    ports::{DeadLetter, DeadLetters, DedupStore, EntityStore, ErrorKind, Finished, Page},
    stores::cosmos::Layout,
};
use hapax_core::codec::record;
use hapax_tests::{
    CosmosDatabase,
    samples::{body_for, entity, envelope, filled, key, letter, mark, outgoing, won},
};

/// What is left of the two million bytes of a document, without its frame and before base64.
const ENCODED_BYTES_MAX: usize = (2_000_000 - 6_000) / 4 * 3;

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
