//! A logical partition that has all that the service keeps in one.

use hapax::{
    entity::Expected,
    ports::{EntityStore, ErrorKind, Saved},
    stores::cosmos::Layout,
};
use hapax_tests::{
    CosmosDatabase,
    http_faults::{Fault, FaultProxy},
    samples::{entity, key},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_full_partition_is_no_question_of_keys_and_waits_until_entries_are_over() {
    let database = CosmosDatabase::new(Layout::Together);
    let proxy = FaultProxy::start(database.url()).unwrap();
    let store = database.through(proxy.url()).open().await;
    let full = Fault::answer(403, &[("x-ms-substatus", "1014")], "");
    let full = proxy.every(|asked| asked.path().contains("/docs") && asked.method() != "GET", full);
    let error = store.save(&key("full"), &Expected::Absent, &entity("a", &[]), &[]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("20 GB") && error.to_string().contains("Layout::Apart"), "{error}");
    full.end();
    let saved = store.save(&key("full"), &Expected::Absent, &entity("a", &[]), &[]).await.unwrap();
    assert!(matches!(saved, Saved::At(_)), "{saved:?}");
}
