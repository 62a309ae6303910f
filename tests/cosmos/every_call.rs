//! Every call of the store, with everything that may go wrong between the client library and the service.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use hapax::{
    CosmosDb,
    ports::{ErrorKind, StoreError},
    stores::cosmos::Layout,
};
use hapax_tests::{
    CosmosDatabase,
    faulted::{self, Met, Opening, Operation, Ports, Route, Trouble},
    http_faults::{Asked, Fault},
    real::{AZURE, is_asked},
};
use tokio::time::timeout;

use super::faults::THROTTLED;

/// Calls that are made at a time.
const ROUTES: usize = 6;
/// Longer than the emulator takes: what does not come is waited for as long.
const CALL: Duration = Duration::from_millis(500);

/// Longer than an opening takes in which nothing is held.
const OPENING: Duration = Duration::from_secs(4);

/// What is asked for, as the client library calls it; `None` for what it asks for itself.
fn kind(asked: &Asked) -> Option<String> {
    let has = |header| asked.header(header).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let path: Vec<&str> = asked.path().trim_matches('/').split('/').collect();
    let method = match (asked.method(), &path[..]) {
        ("POST", ["dbs"]) => "create_database",
        ("POST", ["dbs", _, "colls"]) => "create_container",
        ("GET", ["dbs", _, "colls", _]) => "read",
        ("GET", ["dbs", _, "colls", _, "docs", _]) => "read_item",
        ("PUT", [.., "docs", _]) => "replace_item",
        ("DELETE", [.., "docs", _]) => "delete_item",
        ("POST", [.., "docs"]) if has("x-ms-cosmos-is-query-plan-request") => return None,
        ("POST", [.., "docs"]) if has("x-ms-documentdb-isquery") || has("x-ms-documentdb-query") => "query_items",
        ("POST", [.., "docs"]) if has("x-ms-cosmos-is-batch-request") => "execute_transactional_batch",
        ("POST", [.., "docs"]) if has("x-ms-documentdb-is-upsert") => "upsert_item",
        ("POST", [.., "docs"]) => "create_item",
        _ => return None,
    };
    Some(method.to_owned())
}

/// How an opening may end.
const MAY_BE: [ErrorKind; 3] = [ErrorKind::Unavailable, ErrorKind::UnknownOutcome, ErrorKind::Malformed];

fn troubles() -> Vec<Trouble> {
    let everywhere = Trouble::everywhere;
    let mut troubles = Trouble::ANYWHERE.to_vec();
    troubles.extend([
        everywhere("throttled", |_| Fault::answer(429, &THROTTLED, "")),
        everywhere("too late for the service", |_| Fault::answer(408, &[], "")),
        everywhere("too late for the service when it was served", |_| Fault::answer_after_served(408, &[], "")),
        everywhere("to be tried again", |_| Fault::answer(449, &[], "")),
        everywhere("not there yet for its session", |_| Fault::answer(404, &[("x-ms-substatus", "1002")], "")),
        everywhere("not available", |_| Fault::answer(503, &[], "")),
        everywhere("not available when it was served", |_| Fault::answer_after_served(503, &[], "")),
        everywhere("failed when it was served", |_| Fault::answer_after_served(500, &[], "")),
        everywhere("answered with what is no answer", |_| Fault::answer_after_served(200, &[], "<html>")),
        everywhere("answered with nothing", |_| Fault::answer_after_served(200, &[], "")),
    ]);
    troubles
}

async fn open(database: &CosmosDatabase, is_hasty: bool) -> Result<CosmosDb, StoreError> {
    let options = database.try_options().await?;
    if is_hasty { options.call_limit(CALL).open().await } else { options.open().await }
}

async fn routes(layout: Layout) -> Vec<Route> {
    let database = CosmosDatabase::new(layout);
    let plain = Ports::of(&database.open().await);
    let through = |url: String| {
        let database = database.through(&url);
        async move { open(&database, true).await.map(|faulty| Ports::of(&faulty)) }
    };
    faulted::routes(ROUTES, database.url(), &plain, through).await
}

/// A database that nobody has made.
fn opening() -> Opening {
    let database = CosmosDatabase::new(Layout::Together);
    Arc::new(move |url: String, is_hasty| {
        let database = database.through(&url);
        Box::pin(async move {
            let opened = open(&database, is_hasty);
            // The client library has limits of its own for databases and containers, of a minute: whoever opens gives up before.
            let limit = if is_hasty { OPENING } else { Duration::MAX };
            let gave_up = |_| StoreError::new(ErrorKind::Unavailable, "opening", format!("not open in {limit:?}"));
            timeout(limit, opened).await.unwrap_or_else(|e| Err(gave_up(e))).map(drop)
        })
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_on_the_way_to_cosmos_no_call_says_what_is_not_so() {
    if is_asked(AZURE) {
        println!("skipped: its limits are for an emulator, which answers at once");
        return;
    }
    let troubles = troubles();
    // Without their entity dedup entries cannot be inserted together, and are not looked for for a message.
    let together = [Operation::ENTITIES, Operation::LETTERS].concat();
    let apart = [Operation::DEDUP, &[Operation::Load, Operation::Create, Operation::Replace]].concat();
    let mut met = Met::default();
    met.extend(faulted::check(routes(Layout::Together).await, kind, &troubles, &together).await);
    met.extend(faulted::check(routes(Layout::Apart).await, kind, &troubles, &apart).await);
    met.extend(
        faulted::check_opening(CosmosDatabase::new(Layout::Together).url(), kind, &troubles, &MAY_BE, opening).await,
    );

    // Nothing was left out: no request that the store can make, and no method of its ports but `evict`, which asks for nothing.
    assert_eq!(met.missing(&troubles), [""; 0]);
    let clients = ["container", "client", "database_client()"];
    let can_ask = faulted::asked_for("cosmos", &clients, &["database_client", "container_client", "clone"]);
    assert_eq!(met.kinds(), can_ask.iter().map(String::as_str).collect());
    let mut made: BTreeSet<String> = together.iter().chain(&apart).map(|it| it.method().to_owned()).collect();
    made.insert("evict".to_owned());
    let methods = ["entity_store", "dedup_store", "dead_letters"].map(faulted::methods);
    assert_eq!(made, methods.into_iter().flatten().collect());
}
