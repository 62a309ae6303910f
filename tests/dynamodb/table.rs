//! Tables that are refused, each with what to do about it.

use std::time::Duration;

use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
    TimeToLiveSpecification,
};
use hapax::{
    ports::{DedupStore, ErrorKind, StoreError},
    stores::dynamodb::{KEEPS, MARGIN},
};
use hapax_tests::{
    DynamoDbTable, LogLines,
    http_faults::{Fault, FaultProxy},
    real::{expect_refusals, refusal},
};

use crate::rig::{answer, error, next};

fn expect(error: &StoreError, kind: ErrorKind, says: &str) {
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(says), "`{error}` does not say `{says}`");
}

/// A table with a text key of these names, and nothing else.
async fn create(table: &DynamoDbTable, names: &[&str]) {
    let mut request = table.client().create_table().table_name(table.name()).billing_mode(BillingMode::PayPerRequest);
    for (name, kind) in names.iter().zip([KeyType::Hash, KeyType::Range]) {
        let definition = AttributeDefinition::builder().attribute_name(*name).attribute_type(ScalarAttributeType::S);
        let key = KeySchemaElement::builder().attribute_name(*name).key_type(kind).build().unwrap();
        request = request.attribute_definitions(definition.build().unwrap()).key_schema(key);
    }
    request.send().await.unwrap();
}

#[tokio::test]
async fn a_table_of_dynamodb_that_is_not_there_is_refused_unless_it_may_be_created() {
    let table = DynamoDbTable::new();
    let error = table.options().create_if_missing(false).open().await.unwrap_err();
    expect(&error, ErrorKind::Absent, "create_if_missing(true)");
    table.open().await;
    table.options().create_if_missing(false).open().await.unwrap();
}

#[tokio::test]
async fn times_that_no_call_to_dynamodb_can_have_are_refused() {
    let table = DynamoDbTable::new();
    let (day, options) = (Duration::from_secs(24 * 3600), || table.options());
    for (limit, is_one) in
        [(Duration::ZERO, false), (Duration::from_millis(1), true), (day, true), (Duration::MAX, false)]
    {
        for (name, options) in [
            ("call_limit", options().call_limit(limit).attempt_limit(day)),
            ("attempt_limit", options().call_limit(day).attempt_limit(limit)),
        ] {
            match options.open().await {
                Err(error) if error.to_string().contains("give from 1ms") => {
                    assert!(!is_one, "{error}");
                    expect(&error, ErrorKind::Misconfigured, name);
                }
                // In a millisecond the service may not have answered.
                opened => assert!(is_one, "{name} {limit:?} {opened:?}"),
            }
        }
    }
    for options in [options().keeps(Duration::MAX), options().margin(Duration::MAX)] {
        expect(&options.open().await.unwrap_err(), ErrorKind::Misconfigured, "a hundred years");
    }
}

#[tokio::test]
async fn a_table_of_dynamodb_may_be_created_by_several_at_once() {
    let table = DynamoDbTable::new();
    let opened = (0..8).map(|_| table.options().open());
    for opened in futures_util::future::join_all(opened).await {
        opened.unwrap();
    }
}

#[tokio::test]
async fn a_table_of_dynamodb_with_other_keys_or_without_the_index_is_refused() {
    for (names, says) in [(&["pk"][..], "`sk`"), (&["id", "sk"], "`pk`"), (&["pk", "sk"], "`hapax_upkeep`")] {
        let table = DynamoDbTable::new();
        create(&table, names).await;
        let error = table.options().open().await.unwrap_err();
        expect(&error, ErrorKind::Misconfigured, says);
    }
}

#[tokio::test]
async fn a_table_of_dynamodb_whose_entries_would_stay_for_ever_is_refused() {
    let table = DynamoDbTable::new();
    table.open().await;
    let turn = |enabled| {
        let to = TimeToLiveSpecification::builder().enabled(enabled).attribute_name("x").build().unwrap();
        table.client().update_time_to_live().table_name(table.name()).time_to_live_specification(to).send()
    };
    turn(false).await.unwrap();
    let error = table.options().create_if_missing(false).open().await.unwrap_err();
    expect(&error, ErrorKind::Misconfigured, "enable it on the attribute `x`");
    table.open().await; // Which may set it up.
    table.options().create_if_missing(false).open().await.unwrap();
}

/// Another status in the next answer to a look at the table; the index has one of its own.
fn status(proxy: &FaultProxy, name: &'static str, status: &'static str) {
    let with = Fault::rewrite(move |body| {
        let mut body: serde_json::Value = serde_json::from_slice(body).unwrap();
        let table = &mut body["Table"];
        let of = if name == "TableStatus" { table } else { &mut table["GlobalSecondaryIndexes"][0] };
        of[name] = status.into();
        body.to_string().into_bytes()
    });
    next(proxy, 1, "DescribeTable", with);
}

/// The next answer to a look at the table says that these units of reads and writes a second were bought for it, and so many of
/// writes for its index.
fn bought(proxy: &FaultProxy, reads: u64, writes: u64, index_writes: u64) {
    let units = |reads, writes| serde_json::json!({ "ReadCapacityUnits": reads, "WriteCapacityUnits": writes });
    let with = Fault::rewrite(move |body| {
        let mut body: serde_json::Value = serde_json::from_slice(body).unwrap();
        let table = &mut body["Table"];
        table["BillingModeSummary"] = serde_json::json!({ "BillingMode": "PROVISIONED" });
        table["ProvisionedThroughput"] = units(reads, writes);
        table["GlobalSecondaryIndexes"][0]["ProvisionedThroughput"] = units(reads, index_writes);
        body.to_string().into_bytes()
    });
    next(proxy, 1, "DescribeTable", with);
}

#[tokio::test]
async fn a_table_of_dynamodb_of_another_program_is_refused() {
    let table = DynamoDbTable::new();
    table.open().await;
    let text = |text: &str| AttributeValue::S(text.into());
    let put = table.client().put_item().table_name(table.name()).item("pk", text("m")).item("sk", text("m"));
    put.item("schema", AttributeValue::N("2".into())).send().await.unwrap();
    let error = table.options().open().await.unwrap_err();
    expect(&error, ErrorKind::Misconfigured, "upgrade the program");
}

#[tokio::test]
async fn a_table_of_dynamodb_keeps_entries_for_as_long_as_it_says_and_for_more_only_when_a_person_has_changed_it() {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let table = DynamoDbTable::new();
    let first = table.open().await;
    assert_eq!(first.dedup_capabilities().keeps, Some(KEEPS));
    let error = first.evict(30 * DAY).await.unwrap_err();
    expect(&error, ErrorKind::Misconfigured, "keeps(");
    // The marks that are there go after a week.
    let error = table.options().keeps(30 * DAY).open().await.unwrap_err();
    expect(&error, ErrorKind::Misconfigured, "set the number `keeps` of its item `pk` = `m`, `sk` = `m` to 2592000");
    assert_eq!(table.open().await.dedup_capabilities().keeps, Some(KEEPS));

    let text = |text: &str| AttributeValue::S(text.into());
    let update = table.client().update_item().table_name(table.name()).key("pk", text("m")).key("sk", text("m"));
    let update = update.update_expression("SET keeps = :k");
    update.expression_attribute_values(":k", AttributeValue::N("2592000".into())).send().await.unwrap();
    let longer = table.options().keeps(30 * DAY).open().await.unwrap();
    assert_eq!(longer.dedup_capabilities().keeps, Some(30 * DAY));
    longer.evict(30 * DAY).await.unwrap();
    let shorter = table.options().keeps(DAY).open().await.unwrap();
    assert_eq!(shorter.dedup_capabilities().keeps, Some(30 * DAY));
}

#[tokio::test]
async fn an_entry_of_dynamodb_is_there_for_as_long_as_it_is_in_the_table_whatever_its_time_to_live() {
    let table = DynamoDbTable::new();
    let store = table.options().keeps(Duration::ZERO).margin(Duration::ZERO).open().await.unwrap();
    let mark = hapax_tests::samples::mark();
    store.insert(std::slice::from_ref(&mark)).await.unwrap();
    // As one that has expired long ago, and that the service has not come to remove.
    let text = |text: String| AttributeValue::S(text);
    let update = table.client().update_item().table_name(table.name());
    let update = update.key("pk", text(format!("d#{}", mark.key))).key("sk", text("d".into()));
    let update =
        update.update_expression("SET x = :x").expression_attribute_values(":x", AttributeValue::N("1".into()));
    update.send().await.unwrap();
    assert_eq!(store.contains(&[mark.key]).await.unwrap().entry(&mark.key), Some(&mark));
}

#[test]
fn dynamodb_itself_is_asked_for_by_a_variable_and_what_it_takes_is_told() {
    let variables = [
        ("HAPAX_AWS", "1"),
        ("AWS_REGION", "eu-central-1"),
        ("AWS_ACCESS_KEY_ID", "none"),
        ("AWS_SECRET_ACCESS_KEY", "none"),
        ("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:1"),
    ];
    let test = "table::a_table_of_dynamodb_of_another_program_is_refused";
    expect_refusals(test, &variables, &["set AWS_REGION", "set AWS_ACCESS_KEY_ID"]);
    // Nobody is there, so that nothing is made and nothing removed.
    let said = refusal(test, &variables);
    let told = if cfg!(feature = "real") { "in DynamoDB stays, remove it yourself" } else { "--features real" };
    assert!(said.contains(told), "{said}");
}

/// What the proxy tells or does: see [`Rig::proxy`](crate::rig::Rig::proxy).
mod dynamodb_proxied {
    use super::*;

    #[tokio::test]
    async fn how_long_a_table_of_dynamodb_keeps_entries_is_written_before_it_is_promised() {
        const DAY: Duration = Duration::from_secs(24 * 3600);
        let table = DynamoDbTable::new();
        let proxy = FaultProxy::start(table.url()).unwrap();
        // Neither reaches the service, and the client library takes both for answers: not there, and written.
        for asked in ["GetItem", "PutItem"] {
            next(&proxy, 1, asked, answer(200, ""));
        }
        let options = table.through(proxy.url()).options().keeps(2 * DAY);
        let error = options.clone().open().await.unwrap_err();
        expect(&error, ErrorKind::Unavailable, "is not whole");
        let store = options.open().await.unwrap();
        assert_eq!(store.dedup_capabilities().keeps, Some(2 * DAY));
        let error = table.options().keeps(3 * DAY).open().await.unwrap_err();
        expect(&error, ErrorKind::Misconfigured, "keeps dedup entries for 172800 s");
    }

    #[tokio::test]
    async fn a_global_table_of_dynamodb_is_refused_unless_it_is_pinned() {
        let table = DynamoDbTable::new();
        table.open().await;
        let proxy = FaultProxy::start(table.url()).unwrap();
        let replicas = Fault::rewrite(|body| {
            let text = std::str::from_utf8(body).unwrap();
            let with = r#"{"Table":{"Replicas":[{"RegionName":"eu-west-1","ReplicaStatus":"ACTIVE"}],"#;
            text.replacen(r#"{"Table":{"#, with, 1).into_bytes()
        });
        next(&proxy, 2, "DescribeTable", replicas);
        let options = table.through(proxy.url()).options();
        let error = options.clone().open().await.unwrap_err();
        expect(&error, ErrorKind::Misconfigured, "global_table_pinned(true)");
        options.global_table_pinned(true).open().await.unwrap();
    }

    #[tokio::test]
    async fn a_table_of_dynamodb_is_opened_while_it_is_updated_and_in_no_other_state() {
        let table = DynamoDbTable::new();
        table.open().await;
        let proxy = FaultProxy::start(table.url()).unwrap();
        let options = table.through(proxy.url()).options().create_if_missing(false);
        for name in ["TableStatus", "IndexStatus"] {
            status(&proxy, name, "UPDATING");
            options.clone().open().await.unwrap();
            for state in ["CREATING", "DELETING", "ARCHIVED"] {
                status(&proxy, name, state);
                let error = options.clone().open().await.unwrap_err();
                expect(&error, ErrorKind::Unavailable, state);
            }
        }
    }

    #[tokio::test]
    async fn a_table_of_dynamodb_with_too_little_bought_capacity_is_warned_of() {
        let table = DynamoDbTable::new();
        let logged = LogLines::here();
        table.open().await;
        let proxy = FaultProxy::start(table.url()).unwrap();
        let open = async || drop(table.through(proxy.url()).open().await);
        open().await; // On demand.
        bought(&proxy, 100, 100, 40);
        open().await;
        assert_eq!(logged.with("PAY_PER_REQUEST").len(), 0);
        for (units, says) in [((1, 5, 5), "throttled"), ((5, 4, 5), "throttled"), ((5, 5, 1), "throttled")] {
            bought(&proxy, units.0, units.1, units.2);
            let before = logged.with(says).len();
            open().await;
            assert_eq!(logged.with(says).len(), before + 1, "{units:?}");
        }
        bought(&proxy, 100, 100, 39);
        open().await;
        assert_eq!(logged.with("two for each five").len(), 1);
    }

    #[tokio::test]
    async fn a_table_of_dynamodb_that_may_not_be_looked_at_is_refused_as_denied() {
        let table = DynamoDbTable::new();
        let proxy = FaultProxy::start(table.url()).unwrap();
        next(&proxy, 1, "DescribeTable", error(400, "AccessDeniedException"));
        let error = table.through(proxy.url()).options().open().await.unwrap_err();
        expect(&error, ErrorKind::Denied, "policy_json");
    }

    #[tokio::test]
    async fn what_dynamodb_is_to_remove_is_stamped_by_its_own_clock() {
        const LATER: &str = "Tue, 15 Nov 2050 08:12:31 GMT";
        /// The same in seconds since 1970.
        const LATER_SECONDS: u64 = 2_552_112_751;
        let rig = crate::rig::Rig::new().await;
        let headers = [("content-type", "application/x-amz-json-1.0"), ("date", LATER)];
        next(rig.proxy(), 1, "TransactGetItems", Fault::answer(200, &headers, r#"{"Responses":[{}]}"#));
        let mark = hapax_tests::samples::mark();
        assert!(rig.store.contains(&[mark.key]).await.unwrap().entry(&mark.key).is_none());
        rig.store.insert(std::slice::from_ref(&mark)).await.unwrap();
        let text = |text: String| AttributeValue::S(text);
        let read = rig.table.client().get_item().table_name(rig.table.name()).consistent_read(true);
        let read = read.key("pk", text(format!("d#{}", mark.key))).key("sk", text("d".into())).send().await.unwrap();
        let expires: u64 = read.item().unwrap()["x"].as_n().unwrap().parse().unwrap();
        let least = LATER_SECONDS + KEEPS.as_secs() + MARGIN.as_secs();
        assert!((least..least + 60).contains(&expires), "{expires}");
    }
}
