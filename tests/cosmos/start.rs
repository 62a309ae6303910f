//! What a store is refused for when it is opened, and the remedy that it names.

use std::time::Duration;

use azure_data_cosmos::models::{ContainerProperties, TimeToLive};
use hapax::{
    CosmosDb,
    entity::Expected,
    ports::{DedupStore, EntityStore, ErrorKind, Saved},
    stores::cosmos::{CosmosDbOptions, Layout},
};
use hapax_tests::{
    CosmosDatabase,
    http_faults::{Fault, FaultProxy, Gate},
    real::{expect_refusals, refusal},
    samples::{entity, entry, key},
};

async fn expect_refusal(options: CosmosDbOptions, remedy: &str) {
    let error = options.open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    assert!(error.to_string().contains(remedy), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_not_there_is_refused() {
    let database = CosmosDatabase::new(Layout::Together);
    let error = database.options().await.create_if_missing(false).open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Absent, "{error:?}");
    assert!(error.to_string().contains("create_if_missing(true)"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_opened_as_it_was_set_up() {
    let database = CosmosDatabase::new(Layout::Together);
    drop(database.open().await);
    drop(database.options().await.create_if_missing(false).open().await.unwrap());
    expect_refusal(database.options().await.layout(Layout::Apart), "open it as it was").await;
    let keeps = Duration::from_secs(3600);
    expect_refusal(database.options().await.keeps(keeps), "open it as it was").await;
}

/// With others, or without those that they had, what is over would be taken once more.
#[tokio::test(flavor = "multi_thread")]
async fn entities_are_opened_with_their_own_dedup_entries_and_with_no_others() {
    let database = CosmosDatabase::new(Layout::Apart);
    drop(database.open().await);
    let options = database.options().await;
    drop(options.clone().create_if_missing(false).open().await.unwrap());
    drop(options.clone().container("others").open().await.unwrap()); // They may share them.
    expect_refusal(options.clone().dedup_container("hapax-dedub"), "with its own `dedup_container`").await;
    let client = database.client().await.database_client(database.name().to_owned());
    client.container_client("hapax-dedup".to_owned(), None).await.unwrap().delete(None).await.unwrap();
    let database = database.through(database.url()); // The client library remembers containers.
    expect_refusal(database.options().await, "was made anew since").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_is_somebody_elses_is_refused() {
    let database = CosmosDatabase::new(Layout::Together);
    let client = database.client().await;
    client.create_database(database.name(), None).await.unwrap();
    let containers = client.database_client(database.name().to_owned());
    let by_id = ContainerProperties::new("by-id", "/id".into()).with_default_ttl(TimeToLive::NoDefault);
    let forgetful = ContainerProperties::new("forgetful", "/pk".into()).with_default_ttl(TimeToLive::Seconds(60));
    let theirs = ContainerProperties::new("theirs", "/customer".into());
    for (properties, remedy) in [(by_id, "create another"), (forgetful, "change it"), (theirs, "`partition_path`")] {
        let name = properties.id.clone();
        containers.create_container(properties, None).await.unwrap();
        expect_refusal(database.options().await.container(name), remedy).await;
    }
    let theirs = database.options().await.container("theirs");
    expect_refusal(theirs.clone().partition_path("/tenant"), "not /tenant").await;
    expect_refusal(theirs.partition_path("/customer"), "time to live of container theirs has to be -1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn options_that_cannot_keep_the_promise_are_refused() {
    let database = CosmosDatabase::new(Layout::Apart);
    let options = database.options().await;
    expect_refusal(options.clone().keeps(Duration::ZERO), "whole seconds").await;
    expect_refusal(options.clone().keeps(Duration::from_secs(u64::from(u32::MAX))), "give less").await;
    expect_refusal(options.clone().call_limit(Duration::ZERO), "raise the limit").await;
    expect_refusal(options.clone().dedup_container("hapax"), "another name").await;
    for path in ["/state", "/customer/id", "customer"] {
        expect_refusal(options.clone().partition_path(path), "one property at the top of a document").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn opening_ends_though_nothing_answers() {
    let database = CosmosDatabase::new(Layout::Together);
    let proxy = FaultProxy::start(database.url()).unwrap();
    let options = database.through(proxy.url()).options().await.call_limit(Duration::from_millis(50));
    proxy.every(|_| true, Fault::Hold(Gate::new()));
    let error = options.open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.to_string().contains("not open within 300ms"), "{error}");
}

#[test]
fn cosmos_itself_is_asked_for_by_a_variable_and_what_it_takes_is_told() {
    let variables = [
        ("HAPAX_AZURE", "1"),
        ("HAPAX_AZURE_COSMOS_ENDPOINT", "https://127.0.0.1:1/"),
        ("HAPAX_AZURE_COSMOS_KEY", "bm9uZQ=="),
    ];
    let test = "cosmos::start::a_database_that_is_not_there_is_refused";
    expect_refusals(test, &variables, &["set HAPAX_AZURE_COSMOS_ENDPOINT", "set HAPAX_AZURE_COSMOS_KEY"]);
    let said = refusal(test, &variables);
    let told = if cfg!(feature = "real") { "a client of Cosmos DB" } else { "--features real" };
    assert!(said.contains(told), "{said}");
}

/// In a process of its own: a process has one environment.
#[tokio::test(flavor = "multi_thread")]
async fn an_environment_that_switches_hedging_on_is_refused() {
    const OVERRIDE: &str = "AZURE_COSMOS_HEDGING_ENABLED_OVERRIDE";
    const THIS: &str = "cosmos::start::an_environment_that_switches_hedging_on_is_refused";
    if std::env::var_os(OVERRIDE).is_some() {
        return expect_refusal(CosmosDatabase::new(Layout::Together).options().await, "unset it").await;
    }
    let mut program = std::process::Command::new(std::env::current_exe().unwrap());
    let ended = program.args(["--exact", THIS]).env(OVERRIDE, "true").output().unwrap();
    assert!(ended.status.success() && String::from_utf8_lossy(&ended.stdout).contains("1 passed"), "{ended:?}");
}

/// The account document says *session*, and the client library believes it.
#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_is_not_strong_is_refused_unless_it_has_one_write_region() {
    let database = CosmosDatabase::new(Layout::Together);
    let proxy = FaultProxy::start(database.url()).unwrap();
    let url = proxy.url().to_owned();
    let upstream = database.url().to_owned();
    let weak = move |body: &[u8]| {
        let text = String::from_utf8_lossy(body).replace("Strong", "Session");
        text.replace(upstream.trim_end_matches('/'), &url).into_bytes()
    };
    proxy.every(|asked| asked.method() == "GET" && asked.path() == "/", Fault::rewrite(weak));
    let weak = database.through(proxy.url());
    expect_refusal(weak.options().await, "one_write_region(true)").await;
    let store: CosmosDb = weak.options().await.one_write_region(true).open().await.unwrap();
    let (key, entry) = (key("weak"), entry(1));
    assert!(store.version(&key).await.unwrap().is_none());
    let waiting = entity("one", std::slice::from_ref(&entry));
    let Saved::At(version) = store.save(&key, &Expected::Absent, &waiting, &[]).await.unwrap() else { panic!() };
    let pending = store.pending(key.scope(), Duration::ZERO, None, 10).await.unwrap();
    assert_eq!(pending.iter().map(|pending| &pending.key).collect::<Vec<_>>(), [&key]);
    let done = entry.to_dedup_entry();
    store.finish(&key, std::slice::from_ref(&done), Some((&version, &entity("one", &[])))).await.unwrap();
    assert_eq!(store.contains(&[done.key]).await.unwrap().entry(&done.key), Some(&done));
}
