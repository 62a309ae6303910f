//! The settings for Debezium say what they should, and a table that is Debezium's is no relay's. There is no Debezium here: what
//! PostgreSQL's logical decoding tells of real rows goes through an interpreter of the settings, after its documentation.

use std::sync::Arc;

use hapax::{
    Relay,
    envelope::{Destination, Envelope, Outgoing},
    ports::{ErrorKind, StoreError},
    stores::postgres::{
        PostgresOptions,
        outbox::{DebeziumConnector, RouteBy},
    },
    time::Timestamp,
};
use hapax_tests::{PostgresSchema, PostgresServer};
use sqlx::{AssertSqlSafe, PgPool, Row};

use super::{
    rig::{Outbox, Place},
    router::{Record, Router},
    sink::{Placed, Sink, quick, relay},
};

/// Every option that may be there. Source: documentation of Debezium, "Outbox Event Router" and "Debezium connector for
/// PostgreSQL"; of Kafka Connect, "Connector configuration" and "Transformations".
const KNOWN: [&str; 42] = [
    "connector.class",
    "tasks.max",
    "database.hostname",
    "database.port",
    "database.user",
    "database.password",
    "database.dbname",
    "topic.prefix",
    "plugin.name",
    "slot.name",
    "publication.name",
    "publication.autocreate.mode",
    "table.include.list",
    "snapshot.mode",
    "snapshot.select.statement.overrides",
    "tombstones.on.delete",
    "binary.handling.mode",
    "heartbeat.interval.ms",
    "heartbeat.action.query",
    "message.prefix.exclude.list",
    "key.converter",
    "header.converter",
    "value.converter",
    "value.converter.schemas.enable",
    "value.converter.delegate.converter.type",
    "value.converter.delegate.converter.type.schemas.enable",
    "predicates",
    "predicates.outbox.type",
    "predicates.outbox.pattern",
    "transforms",
    "transforms.outbox.type",
    "transforms.outbox.predicate",
    "transforms.outbox.table.field.event.id",
    "transforms.outbox.table.field.event.key",
    "transforms.outbox.table.field.event.payload",
    "transforms.outbox.table.expand.json.payload",
    "transforms.outbox.table.fields.additional.placement",
    "transforms.outbox.table.op.invalid.behavior",
    "transforms.outbox.route.by.field",
    "transforms.outbox.route.topic.regex",
    "transforms.outbox.route.topic.replacement",
    "transforms.outbox.route.tombstone.on.empty.payload",
];

fn connectors(database: &PostgresOptions) -> [DebeziumConnector; 4] {
    let connector = || DebeziumConnector::of(database.clone());
    [
        connector(),
        connector().route_by(RouteBy::Type).headers([("type", "message-type"), ("expires_at", "until")]),
        connector().topic_replacement("shop.${routedByValue}").headers([("", ""); 0]),
        connector().expand_payload(true),
    ]
}

#[tokio::test]
async fn every_setting_is_one_that_debezium_knows_and_every_column_is_there_as_the_router_takes_it() {
    let place = Place::new().await;
    let schema = place.schema.name();
    for connector in connectors(&place.database()) {
        place.run(&connector.sql().unwrap()).await;
        let router = Router::new(&connector);
        for name in router.config.keys() {
            let of_table = *name == format!("snapshot.select.statement.overrides.{schema}.outbox");
            assert!(of_table || KNOWN.contains(&name.as_str()), "{name}");
        }
        // The router reads the timestamp of a time type only, and ours are numbers: the record's time is the commit's.
        assert!(!router.config.contains_key("transforms.outbox.table.field.event.timestamp"));
        let expands = router.of("table.expand.json.payload") == "true";
        let mut columns = vec![
            (router.of("table.field.event.id"), "uuid", false),
            (router.of("table.field.event.key"), "text", true),
            // Only a text is expanded; only bytes go through BinaryDataConverter.
            (router.of("table.field.event.payload"), if expands { "text" } else { "bytea" }, expands),
            // The router wants a text that is never null.
            (router.of("route.by.field"), "text", false),
        ];
        let placed = router.placed();
        columns.extend(placed.iter().map(|(column, _)| (column.as_str(), "text or bigint", true)));
        for (column, kind, nullable) in columns {
            let sql = format!(
                "SELECT data_type::text, is_nullable = 'YES', is_generated::text FROM information_schema.columns \
                 WHERE table_schema = '{schema}' AND table_name = 'outbox' AND column_name = '{column}'"
            );
            let row = sqlx::query(AssertSqlSafe(sql)).fetch_optional(&place.pool).await.unwrap();
            let row = row.unwrap_or_else(|| panic!("there is no column `{column}`"));
            assert!(kind.contains(&row.get::<String, _>(0)), "{column}: {}", row.get::<String, _>(0));
            assert!(nullable || !row.get::<bool, _>(1), "{column} may be null");
            assert_eq!(row.get::<String, _>(2), "NEVER", "{column}: the log has no generated columns");
        }
    }
}

#[tokio::test]
async fn every_destination_gets_a_legal_topic_of_its_own() {
    let place = Place::new().await;
    let [usual, by_type, plain, _] = connectors(&place.database()).map(|connector| Router::new(&connector));
    let endpoint = usual.topic(&place.pool, "endpoint:billing").await;
    assert_eq!(endpoint, "outbox.endpoint.billing");
    assert_eq!(usual.topic(&place.pool, "topic:billing").await, "outbox.topic.billing");
    assert_eq!(usual.topic(&place.pool, "topic:topic.a_b-c").await, "outbox.topic.topic.a_b-c");
    assert_eq!(plain.topic(&place.pool, "endpoint:billing").await, "shop.billing");
    assert_eq!(by_type.topic(&place.pool, "shop.placed").await, "outbox.event.shop.placed");
    let longest = usual.topic(&place.pool, &format!("endpoint:{}", "a".repeat(100))).await;
    assert!(longest.len() <= 249, "{}", longest.len());
}

/// Messages of every kind, as they are enqueued.
fn messages(outbox: &Outbox, json: bool) -> Vec<Outgoing> {
    let made = |to: &str, change: &dyn Fn(&mut Envelope)| {
        let mut envelope = (*outbox.outgoing(&Placed { order: 7 }).unwrap().envelope).clone();
        change(&mut envelope);
        Outgoing { destination: Destination::parse(to).unwrap(), envelope: Arc::new(envelope) }
    };
    let mut all = vec![
        made("endpoint:billing", &|_| {}),
        made("topic:shop.placed", &|envelope| {
            envelope.partition_key = Some("it's [a] key: 'ü'".parse().unwrap());
            envelope.correlation_id = Some("process null".parse().unwrap());
            envelope.tenant = Some("tenant".parse().unwrap());
            envelope.headers.set("note", "it's \"quoted\" \\ \u{1f4e6}").unwrap();
            envelope.occurred_at = Some(Timestamp::from_millis(1_700_000_000_123));
            envelope.expires = Some(Timestamp::MAX);
            envelope.traceparent = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().unwrap());
        }),
        made("endpoint:billing", &|envelope| envelope.body = r#"[{"a":"it's"},{"a":"\\"}]"#.into()),
    ];
    if !json {
        all.push(made("endpoint:billing", &|envelope| envelope.body = vec![0, 255, b'\'', 10].into()));
        all.push(made("endpoint:billing", &|envelope| envelope.body = Vec::new().into()));
    }
    all
}

async fn store(outbox: &Outbox, pool: &PgPool, messages: &[Outgoing]) {
    let mut tx = pool.begin().await.unwrap();
    let ticket = outbox.enqueue_all(&mut tx, messages).await.unwrap();
    outbox.commit(tx, ticket).await.unwrap();
}

/// What `messages` have to become.
fn expected(messages: &[Outgoing], router: &Router) -> Vec<Record> {
    let of = |Outgoing { destination, envelope }: &Outgoing| {
        let (kind, name) = destination.to_string().split_once(':').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        let topic = match (router.of("route.by.field"), router.of("route.topic.replacement")) {
            ("type", _) => format!("outbox.event.{}", envelope.message_type),
            (_, "shop.${routedByValue}") => format!("shop.{name}"),
            _ => format!("outbox.{kind}.{name}"),
        };
        let column = |column: &str| match column {
            "type" => Some(envelope.message_type.to_string()),
            "content_type" => Some(envelope.content_type.as_str().to_owned()),
            "correlation_id" => envelope.correlation_id.as_ref().map(ToString::to_string),
            "causation_id" => None,
            "tenant" => envelope.tenant.as_ref().map(ToString::to_string),
            "traceparent" => envelope.traceparent.as_ref().map(|trace| trace.as_str().to_owned()),
            "occurred_at" => envelope.occurred_at.map(|at| at.as_millis().to_string()),
            "expires_at" => envelope.expires.map(|at| i64::try_from(at.as_millis()).unwrap_or(i64::MAX).to_string()),
            "headers" => {
                envelope.headers.iter().next().map(|(name, value)| serde_json::json!({ name: value }).to_string())
            }
            other => panic!("{other}"),
        };
        let mut headers = vec![("id".to_owned(), Some(envelope.message_id.to_string()))];
        headers.extend(router.placed().into_iter().map(|(of, header)| (header, column(&of))));
        let key = envelope.partition_key.as_ref().map(ToString::to_string);
        Record { topic, key, headers, value: envelope.body.to_vec() }
    };
    messages.iter().map(of).collect()
}

#[tokio::test]
async fn what_the_log_tells_becomes_the_message_that_was_enqueued() {
    let server = PostgresServer::start(&["wal_level=logical"]).await;
    let pool = PgPool::connect(&server.url()).await.unwrap();
    for at in 0..4 {
        let schema = PostgresSchema::on(&server.url()).named(&format!("variant_{at}"));
        let options = || Outbox::options().debezium(true).migrate(true);
        let outbox = options().open_database(schema.options()).await.unwrap();
        let connector = &connectors(&schema.options())[at];
        let router = Router::new(connector);
        schema.run(&connector.sql().unwrap()).await.unwrap();
        let table = format!("{}.outbox", schema.name());
        // As the connector makes them.
        let (slot, publication) = (&router.config["slot.name"], &router.config["publication.name"]);
        schema.run(&format!("CREATE PUBLICATION {publication} FOR TABLE {table}")).await.unwrap();
        schema.run(&format!("SELECT pg_create_logical_replication_slot('{slot}', 'test_decoding')")).await.unwrap();

        let messages = messages(&outbox, at == 3);
        store(&outbox, &pool, &messages).await;
        let mut tx = pool.begin().await.unwrap();
        drop(outbox.enqueue_all(&mut tx, &[outbox.outgoing(&Placed { order: 8 }).unwrap()]).await.unwrap());
        tx.rollback().await.unwrap();
        let of = &router.config[&format!("snapshot.select.statement.overrides.{table}")];
        let snapshot = sqlx::query(AssertSqlSafe(of.clone())).fetch_all(&pool).await.unwrap();
        assert_eq!(snapshot.len(), messages.len(), "what is there before the slot is");
        // Neither what somebody changes nor what is removed is sent again.
        schema.run(&format!("UPDATE {table} SET status = 1, ended_at = 1")).await.unwrap();
        assert_eq!(sqlx::query(AssertSqlSafe(of.clone())).fetch_all(&pool).await.unwrap().len(), 0);
        schema.run(&format!("DELETE FROM {table}")).await.unwrap();
        schema.run(&router.config["heartbeat.action.query"]).await.unwrap();

        let changes = format!("SELECT data FROM pg_logical_slot_get_changes('{slot}', NULL, NULL)");
        let changes: Vec<String> = sqlx::query_scalar(AssertSqlSafe(changes)).fetch_all(&pool).await.unwrap();
        let prefix = format!("prefix: {},", router.config["message.prefix.exclude.list"]);
        assert!(changes.iter().any(|change| change.contains(&prefix)), "a heartbeat is in the log: {changes:?}");
        let told = format!("table {table}: ");
        assert_eq!(changes.iter().filter(|change| change.starts_with(&told)).count(), 3 * messages.len());
        let mut records = Vec::new();
        for change in &changes {
            records.extend(router.apply(&pool, &told, change).await);
        }
        let mut expected = expected(&messages, &router);
        for record in [&mut records, &mut expected] {
            record.sort();
        }
        assert_eq!(records, expected, "variant {at}");
    }
}

#[tokio::test]
async fn a_table_that_expands_takes_json_only() {
    let place = Place::new().await;
    let connector = DebeziumConnector::of(place.database()).expand_payload(true);
    for _ in 0..2 {
        place.run(&connector.sql().unwrap()).await;
    }
    let outbox = place.outbox().await;
    let Outgoing { destination, envelope } = outbox.outgoing(&Placed { order: 1 }).unwrap();
    let mut envelope = (*envelope).clone();
    envelope.content_type = hapax::envelope::ContentType::MESSAGE_PACK;
    let mut tx = place.begin().await;
    let other = Outgoing { destination, envelope: Arc::new(envelope) };
    let refused = outbox.enqueue_all(&mut tx, &[other]).await.unwrap_err();
    assert!(format!("{refused:?}").contains("takes JSON only"), "{refused:?}");
}

async fn refused(place: &Place, debezium: bool) -> StoreError {
    let error = Outbox::options().debezium(debezium).open_database(place.database()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    error
}

#[tokio::test]
async fn what_is_debeziums_takes_no_relay_and_no_other_opener() {
    let place = Place::empty(false).await;
    let options = || Outbox::options().debezium(true).migrate(true);
    let outbox = options().open_database(place.database()).await.unwrap();
    let started = Relay::to(Sink::new()).table(outbox.clone()).start();
    assert!(started.unwrap_err().to_string().contains("Debezium"));
    assert!(refused(&place, false).await.to_string().contains("`debezium(true)`"));
    options().open_database(place.database()).await.unwrap();
    place.until("SELECT count(*) FROM hapax.outbox_relay", 0).await;
}

/// Whoever looks at a table, or brings it up to date for others, need not know who sends, and decides nothing about it.
#[tokio::test]
async fn a_table_that_is_taken_as_it_is_is_debeziums_or_a_relays() {
    let place = Place::empty(false).await;
    let as_it_is = || Outbox::options().order_as_it_is(true);
    Outbox::options().debezium(true).migrate(true).open_database(place.database()).await.unwrap();
    for migrate in [false, true] {
        let outbox = as_it_is().migrate(migrate).open_database(place.database()).await.unwrap();
        assert!(outbox.is_debeziums());
        let started = Relay::to(Sink::new()).table(outbox).start();
        assert!(started.unwrap_err().to_string().contains("Debezium"));
    }
    let relays = Place::empty(false).await;
    let outbox = as_it_is().debezium(true).migrate(true).open_database(relays.database()).await.unwrap();
    assert!(!outbox.is_debeziums(), "a look has given the table to Debezium");
}

#[tokio::test]
async fn a_table_with_relays_at_work_or_with_order_is_not_given_to_debezium() {
    let place = Place::new().await;
    let (outbox, sink) = (place.outbox().await, Sink::new());
    let relay = relay(&outbox, &sink, quick());
    place.until("SELECT count(*) FROM hapax.outbox_relay", 1).await;
    assert!(refused(&place, true).await.to_string().contains("stop all relays"));
    relay.stop().await.unwrap();
    place.until("SELECT count(*) FROM hapax.outbox_relay", 0).await;
    Outbox::options().debezium(true).open_database(place.database()).await.unwrap();
    let ordered = Place::ordered().await;
    let options = Outbox::options().ordered_keys(true).debezium(true);
    assert!(options.open_database(ordered.database()).await.unwrap_err().to_string().contains("keeps order"));
}

#[tokio::test]
async fn what_debezium_would_send_wrongly_is_refused_before_it_is_stored() {
    let place = Place::empty(false).await;
    let outbox = Outbox::options().debezium(true).migrate(true).open_database(place.database()).await.unwrap();
    let refused = async |to: &str, due: Option<Timestamp>| {
        let mut envelope = (*outbox.outgoing(&Placed { order: 1 }).unwrap().envelope).clone();
        envelope.due = due;
        let message = Outgoing { destination: Destination::parse(to).unwrap(), envelope: Arc::new(envelope) };
        let mut tx = place.begin().await;
        outbox.enqueue_all(&mut tx, &[message]).await.err().map(|error| error.to_string())
    };
    assert_eq!(refused("endpoint:billing", None).await, None);
    assert!(refused("endpoint:billing", Some(Timestamp::from_millis(1))).await.unwrap().contains("due time"));
    assert!(refused("topic:shop/placed", None).await.unwrap().contains("`shop/placed`"));
    assert!(refused("endpoint:eu:billing", None).await.unwrap().contains("`eu:billing`"));
}

#[test]
fn the_interpreter_reads_what_the_server_writes() {
    let told = "a[text]:'it''s [x]:1' b[bigint]:-5 \"c\"[bytea]:'\\x00ff' d[text]:null e[text]:''";
    let text = |text: &str| Some(text.to_owned());
    let columns = [("a", text("it's [x]:1")), ("b", text("-5")), ("c", text("\\x00ff")), ("d", None), ("e", text(""))];
    assert_eq!(super::router::columns(told), columns.map(|(name, value)| (name.to_owned(), value)).into());
}
