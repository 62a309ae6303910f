//! Answers that are lost, come late, or say no.

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use hapax::{
    CosmosDb,
    entity::{Entity, Expected},
    ports::{DedupStore, EntityStore, ErrorKind, Finished, Saved},
    stores::cosmos::Layout,
};
use hapax_tests::{
    CosmosDatabase,
    http_faults::{Asked, Fault, FaultProxy, Gate},
    samples::{entity, entry, key, mark},
};

/// Enough of them that the client library gives up before its call does.
pub(super) const THROTTLED: [(&str, &str); 2] = [("x-ms-retry-after-ms", "1"), ("x-ms-substatus", "3200")];

fn is_write(asked: &Asked) -> bool {
    CosmosDatabase::is_write(asked)
}

fn partition(asked: &Asked) -> Option<&str> {
    asked.header("x-ms-documentdb-partitionkey").filter(|partition| !partition.contains("\"hapax\""))
}

/// Whether it is a write of one of the partitions that have this number, out of `of`.
fn is_write_of(number: u64, of: u64) -> impl Fn(&Asked) -> bool + Send + Sync + 'static {
    move |asked| {
        partition(asked).is_some_and(|partition| {
            let mut hash = DefaultHasher::new();
            partition.hash(&mut hash);
            is_write(asked) && hash.finish() % of == number
        })
    }
}

/// A store whose writes are, by partition, throttled, lost on their way, lost on their way back, or told of as failed
/// after they were done; and those of other partitions are as they should be.
pub(super) async fn faulty(database: &CosmosDatabase) -> Arc<dyn EntityStore> {
    const KINDS: u64 = 6;
    let proxy = FaultProxy::start(database.url()).unwrap();
    proxy.every(is_write_of(0, KINDS), Fault::answer(429, &THROTTLED, ""));
    proxy.every(is_write_of(1, KINDS), Fault::DropRequest);
    proxy.every(is_write_of(2, KINDS), Fault::DropAnswer);
    proxy.every(is_write_of(3, KINDS), Fault::answer_after_served(503, &[], ""));
    let store = database.through(proxy.url()).open().await;
    std::mem::forget(proxy); // It ends with the test's process.
    Arc::new(store)
}

async fn behind(proxy: &FaultProxy, layout: Layout) -> CosmosDb {
    let database = CosmosDatabase::new(layout).through(proxy.url());
    database.open().await
}

fn proxy() -> FaultProxy {
    FaultProxy::start(CosmosDatabase::new(Layout::Together).url()).unwrap()
}

/// Dependencies, finding 3: the client library repeats a write whose answer was lost and meets its own.
#[tokio::test(flavor = "multi_thread")]
async fn ones_own_write_that_the_library_repeats_is_no_conflict() {
    let proxy = proxy();
    let store = behind(&proxy, Layout::Together).await;
    let (key, entry) = (key("ghost"), entry(1));

    let lost = proxy.first(1, |asked| partition(asked).is_some() && is_write(asked), Fault::DropAnswer);
    let waiting = entity("created", std::slice::from_ref(&entry));
    let created = store.save(&key, &Expected::Absent, &waiting, &[]).await.unwrap();
    assert_eq!(lost.served(), 1);
    let Saved::At(version) = created else { panic!("its own creation is {created:?}") };
    assert_eq!(store.version(&key).await.unwrap(), Some(version.clone()));

    let lost = proxy.first(1, |asked| partition(asked).is_some() && is_write(asked), Fault::DropAnswer);
    let saved = store.save(&key, &Expected::Version(version.clone()), &waiting, &[]).await.unwrap();
    assert_eq!(lost.served(), 1);
    let Saved::At(version) = saved else { panic!("its own replacement is {saved:?}") };

    let lost = proxy.first(1, |asked| partition(asked).is_some() && is_write(asked), Fault::DropAnswer);
    let done = entry.to_dedup_entry();
    let clean = entity("cleaned", &[]);
    let finished = store.finish(&key, std::slice::from_ref(&done), Some((&version, &clean))).await.unwrap();
    assert_eq!(lost.served(), 1);
    assert!(matches!(finished, Some(Finished::Cleaned(Some(_)))), "{finished:?}");
    assert!(store.load(&key, &[done.key]).await.unwrap().known.unwrap().attempt(&done.key, &done.attempt));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_that_the_library_adds_twice_is_added_once() {
    let proxy = proxy();
    let store = behind(&proxy, Layout::Apart).await;
    let mark = mark();
    let lost = proxy.first(1, |asked| partition(asked).is_some() && is_write(asked), Fault::DropAnswer);
    store.insert(std::slice::from_ref(&mark)).await.unwrap();
    assert_eq!(lost.served(), 1);
    assert!(store.contains(&[mark.key]).await.unwrap().attempt(&mark.key, &mark.attempt));
}

/// Another's write is a conflict, also where one's own was lost on its way.
#[tokio::test(flavor = "multi_thread")]
async fn anothers_write_is_a_conflict_and_none_of_its_marks_is_there() {
    let store = CosmosDatabase::new(Layout::Together).open().await;
    let key = key("race");
    let Saved::At(old) = store.save(&key, &Expected::Absent, &entity("one", &[]), &[]).await.unwrap() else { panic!() };
    let Saved::At(_) = store.save(&key, &Expected::Version(old.clone()), &entity("two", &[]), &[]).await.unwrap()
    else {
        panic!()
    };
    // The service answers a batch that it has rolled back with success, and the library with `Ok`.
    let (mark, other) = (mark(), mark());
    let saved = store
        .save(&key, &Expected::Version(old.clone()), &entity("three", &[]), std::slice::from_ref(&mark))
        .await
        .unwrap();
    assert_eq!(saved, Saved::Conflict);
    let saved = store.save(&key, &Expected::Absent, &entity("four", &[]), std::slice::from_ref(&other)).await.unwrap();
    assert_eq!(saved, Saved::Conflict);
    let known = store.load(&key, &[mark.key, other.key]).await.unwrap().known.unwrap();
    assert_eq!(known, hapax::ports::Known::default());

    let finished = store.finish(&key, std::slice::from_ref(&mark), Some((&old, &entity("five", &[])))).await.unwrap();
    assert_eq!(finished, Some(Finished::Left));
    assert!(store.load(&key, &[mark.key]).await.unwrap().known.unwrap().attempt(&mark.key, &mark.attempt));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_throttled_to_the_end_was_not_written() {
    let proxy = proxy();
    let store = behind(&proxy, Layout::Together).await;
    let key = key("throttled");
    let refused = proxy.every(is_write, Fault::answer(429, &THROTTLED, ""));
    let error = store.save(&key, &Expected::Absent, &entity("one", &[]), &[]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    let error = store.save(&key, &Expected::Absent, &entity("one", &[]), &[mark()]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(refused.matched() > 2, "the client library tries again");
    assert_eq!(refused.served(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_is_throttled_after_its_answer_was_lost_may_have_happened() {
    let proxy = proxy();
    let store = behind(&proxy, Layout::Together).await;
    let key = key("lost, then throttled");
    let lost = proxy.first(1, |asked| partition(asked).is_some() && is_write(asked), Fault::DropAnswer);
    proxy.every(is_write, Fault::answer(429, &THROTTLED, ""));
    let error = store.save(&key, &Expected::Absent, &entity("one", &[]), &[]).await.unwrap_err();
    assert_eq!((error.kind(), lost.served()), (ErrorKind::UnknownOutcome, 1), "{error:?}");
    assert!(store.version(&key).await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_fate_nobody_tells_is_an_unknown_outcome() {
    for status in [408, 449, 500, 503] {
        let proxy = proxy();
        let store = behind(&proxy, Layout::Together).await;
        let told = proxy.every(is_write, Fault::answer_after_served(status, &[], ""));
        for marks in [vec![], vec![mark()]] {
            // 449 is tried again by the library until its call is over; it meets its own write then.
            let saved = store.save(&key("untold"), &Expected::Absent, &entity("one", &[]), &marks).await;
            match saved {
                Err(error) => assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{status}: {error:?}"),
                Ok(saved) => panic!("{status} is {saved:?}"),
            }
        }
        assert!(told.served() >= 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_is_given_up_is_an_unknown_outcome_and_may_happen_late() {
    let proxy = proxy();
    let database = CosmosDatabase::new(Layout::Together).through(proxy.url());
    drop(database.open().await);
    let store = database.options().await.call_limit(Duration::from_millis(500)).open().await.unwrap();
    let (gate, key) = (Gate::new(), key("late"));
    let held = proxy.first(1, |asked| partition(asked).is_some() && is_write(asked), Fault::Hold(gate.clone()));
    let error = store.save(&key, &Expected::Absent, &entity("one", &[]), &[]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error:?}");
    assert_eq!(store.version(&key).await.unwrap(), None);
    gate.open();
    held.until_served(1).await;
    assert!(store.version(&key).await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_fails_says_nothing() {
    let proxy = proxy();
    let store = behind(&proxy, Layout::Together).await;
    let is_read = |asked: &Asked| asked.method() == "GET" && asked.path().contains("/docs/");
    for status in [408, 429, 500, 503] {
        let failing = proxy.every(is_read, Fault::answer(status, &THROTTLED, ""));
        let error = store.load(&key("unread"), &[mark().key]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{status}: {error:?}");
        failing.end();
    }
    let denied = proxy.every(is_read, Fault::answer(403, &[], ""));
    let error = store.load(&key("unread"), &[]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    denied.end();
    store.load(&key("unread"), &[]).await.unwrap();
}

/// The client library reads an empty body as a page in which nothing was found.
#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_is_answered_with_nothing_is_an_error_and_never_absence() {
    let proxy = proxy();
    let store = behind(&proxy, Layout::Together).await;
    let (key, marks) = (key("nothing"), [mark(), mark()]);
    assert_eq!(store.finish(&key, &marks, None).await.unwrap(), Some(Finished::Cleaned(None)));
    let is_query = |asked: &Asked| asked.header("x-ms-documentdb-isquery").is_some();
    let nothing = proxy.first(1, is_query, Fault::answer_after_served(200, &[], ""));
    let ids = [marks[0].key, marks[1].key];
    let error = store.load(&key, &ids).await.unwrap_err();
    assert_eq!((error.kind(), nothing.served()), (ErrorKind::Unavailable, 1), "{error:?}");
    let known = store.load(&key, &ids).await.unwrap().known.unwrap();
    assert!(marks.iter().all(|mark| known.entry(&mark.key) == Some(mark)));
}

/// A server that is not there takes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn what_never_left_was_not_written() {
    let proxy = proxy();
    let store = behind(&proxy, Layout::Together).await;
    drop(proxy);
    let error = store.save(&key("nobody"), &Expected::Absent, &Entity::default(), &[]).await.unwrap_err();
    // That nothing listens is known for sure only where no connection was kept open.
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::UnknownOutcome), "{error:?}");
}
