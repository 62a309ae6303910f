//! Every call of the store, with everything that may go wrong between the client library and the service.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use hapax::{
    DynamoDb,
    ports::{ErrorKind, StoreError},
};
use hapax_tests::{
    DynamoDbTable,
    faulted::{self, Opening, Operation, Ports, Route, Trouble},
    http_faults::{Asked, Fault},
};

use crate::rig::{JSON, cancelled, error, throttled};

/// Calls that are made at a time.
const ROUTES: usize = 8;
/// Longer than the emulator takes, for a try and for a call: what does not come is waited for as long.
const TRY: Duration = Duration::from_millis(150);
const CALL: Duration = Duration::from_millis(450);

fn kind(asked: &Asked) -> Option<String> {
    asked.operation().map(str::to_owned)
}

fn is_write(kind: &str) -> bool {
    matches!(kind, "PutItem" | "DeleteItem")
}

/// How an opening may end.
const MAY_BE: [ErrorKind; 3] = [ErrorKind::Unavailable, ErrorKind::UnknownOutcome, ErrorKind::Malformed];

fn troubles() -> Vec<Trouble> {
    let everywhere = Trouble::everywhere;
    let mut troubles = Trouble::ANYWHERE.to_vec();
    troubles.extend([
        everywhere("throttled", |_| throttled()),
        everywhere("throttled by the account", |_| error(400, "ThrottlingException")),
        everywhere("not available", |_| error(503, "ServiceUnavailable")),
        everywhere("failed when it was served", |_| {
            let why = r#"{"__type":"com.amazonaws.dynamodb.v20120810#InternalServerError","message":"injected"}"#;
            Fault::answer_after_served(500, &JSON, why)
        }),
        everywhere("answered with what is no answer", |_| Fault::answer_after_served(200, &JSON, "<html>")),
        everywhere("answered with nothing", |_| Fault::answer_after_served(200, &JSON, "")),
        Trouble {
            name: "in conflict with a transaction",
            fits: is_write,
            fault: |_| error(400, "TransactionConflictException"),
        },
        Trouble {
            name: "a transaction in conflict",
            fits: |kind| kind == "TransactWriteItems",
            fault: |_| cancelled(&["None", "TransactionConflict"]),
        },
        Trouble {
            name: "in conflict with a replica",
            fits: is_write,
            fault: |_| error(400, "ReplicatedWriteConflictException"),
        },
        Trouble {
            name: "a transaction under way",
            fits: |kind| kind == "TransactWriteItems",
            fault: |_| error(400, "TransactionInProgressException"),
        },
        Trouble {
            name: "a transaction with the token of another",
            fits: |kind| kind == "TransactWriteItems",
            fault: |_| error(400, "IdempotentParameterMismatchException"),
        },
    ]);
    troubles
}

async fn open(table: &DynamoDbTable, is_hasty: bool) -> Result<DynamoDb, StoreError> {
    let options = table.options();
    if is_hasty { options.call_limit(CALL).attempt_limit(TRY).open().await } else { options.open().await }
}

async fn routes(table: &DynamoDbTable) -> Vec<Route> {
    let plain = Ports::of(&table.open().await);
    let through = |url: String| {
        let table = table.through(&url);
        async move { open(&table, true).await.map(|faulty| Ports::of(&faulty)) }
    };
    faulted::routes(ROUTES, table.url(), &plain, through).await
}

/// A table that nobody has made.
fn opening() -> Opening {
    let table = DynamoDbTable::new();
    Arc::new(move |url: String, is_hasty| {
        let table = table.through(&url);
        Box::pin(async move { open(&table, is_hasty).await.map(drop) })
    })
}

/// As the service is asked for what the client library calls `get_item`.
fn in_one_word(method: &str) -> String {
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    method.split('_').map(capital).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_on_the_way_to_dynamodb_no_call_says_what_is_not_so() {
    let (table, troubles) = (DynamoDbTable::new(), troubles());
    let operations = [Operation::ENTITIES, Operation::DEDUP, Operation::LETTERS].concat();
    let mut met = faulted::check(routes(&table).await, kind, &troubles, &operations).await;
    met.extend(faulted::check_opening(table.url(), kind, &troubles, &MAY_BE, opening).await);

    // Nothing was left out: no request that the store can make, and no method of its ports but `evict`, which asks for nothing.
    assert_eq!(met.missing(&troubles), [""; 0]);
    let can_ask = faulted::asked_for("dynamodb", &["client"], &["config"]);
    let can_ask: BTreeSet<String> = can_ask.iter().map(|method| in_one_word(method)).collect();
    assert_eq!(met.kinds(), can_ask.iter().map(String::as_str).collect());
    let mut made: BTreeSet<String> = operations.iter().map(|operation| operation.method().to_owned()).collect();
    made.insert("evict".to_owned());
    let methods = ["entity_store", "dedup_store", "dead_letters"].map(faulted::methods);
    assert_eq!(made, methods.into_iter().flatten().collect());
}
