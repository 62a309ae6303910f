//! Other libraries' outbox tables, made by hand after their documentation, brought over.

use hapax::{
    envelope::Outgoing,
    stores::postgres::outbox::{Import, Source},
};

use super::{
    import::{body, sent},
    rig::Place,
};

#[tokio::test]
async fn a_table_of_debeziums_default_layout() {
    let place = Place::new().await;
    let outbox = place.outbox().await;
    place
        .run(
            "CREATE TABLE hapax.outboxevent (id uuid PRIMARY KEY, aggregatetype varchar(255) NOT NULL, \
               aggregateid varchar(255) NOT NULL, type varchar(255) NOT NULL, payload jsonb); \
             INSERT INTO hapax.outboxevent VALUES \
               ('018f0000-0000-7000-8000-000000000001', 'shop.order', 'o-1', 'shop.placed', '{\"n\": 1}'), \
               ('018f0000-0000-7000-8000-000000000002', 'shop.order', 'o-1', 'shop.paid', '{\"n\": 2}')",
        )
        .await;
    let table = format!("{}.outboxevent", place.schema.name());
    let import = Import::new(table, Source::column("id"), Source::column("type"), Source::column("payload"))
        .destination(Source::sql("'topic:' || aggregatetype"))
        .key(Source::column("aggregateid"));
    let all = sent(&place, &outbox, &import, 2).await;
    assert_eq!(all[0].envelope.message_id.to_string(), "018f0000-0000-7000-8000-000000000001");
    assert_eq!((body(&all[1])["n"].clone(), all[1].destination.to_string()), (2.into(), "topic:shop.order".to_owned()));
    assert_eq!(all[0].envelope.partition_key.as_ref().unwrap().as_str(), "o-1");
    assert_eq!(place.number("SELECT count(*) FROM hapax.outboxevent").await, 0, "they are over there");
}

#[tokio::test]
async fn a_table_that_numbers_its_rows_and_wraps_its_messages() {
    let place = Place::new().await;
    let outbox = place.outbox().await;
    // As DotNetCore.CAP's: numbers as ids, the message within an envelope of JSON.
    place
        .run(
            "CREATE TABLE hapax.published (\"Id\" bigint PRIMARY KEY, \"Name\" varchar(200) NOT NULL, \"Content\" text, \
               \"Added\" timestamp NOT NULL, \"ExpiresAt\" timestamp, \"StatusName\" varchar(50) NOT NULL); \
             INSERT INTO hapax.published VALUES \
               (1, 'shop.placed', '{\"Headers\": {\"cap-corr-id\": \"c-1\"}, \"Value\": {\"n\": 1}}', '2026-01-02 03:04:05', NULL, 'Scheduled'), \
               (2, 'shop.placed', '{\"Headers\": {}, \"Value\": {\"n\": 2}}', '2026-01-02 03:04:05', '2026-01-03 03:04:05', 'Succeeded'), \
               (3, 'shop.placed', '{\"Headers\": {}, \"Value\": {\"n\": 3}}', '2026-01-02 03:04:05', '2026-01-03 03:04:05', 'Failed'), \
               (4, 'shop.placed', '{\"Headers\": {}, \"Value\": {\"n\": 4}}', '2026-01-02 03:04:05', '2026-01-02 03:05:05', 'Delayed'), \
               (5, 'shop.placed', '{\"Headers\": {}, \"Value\": {\"n\": 5}}', '2026-01-02 03:04:05', '2026-01-02 03:05:05', 'Queued')",
        )
        .await;
    let table = format!("{}.published", place.schema.name());
    // Word for word as documented.
    let import =
        Import::new(table, Source::column("Id"), Source::column("Name"), Source::sql("\"Content\"::json -> 'Value'"))
            .unsent("\"StatusName\" IN ('Scheduled', 'Failed', 'Delayed', 'Queued')")
            .mark("\"StatusName\" = 'Succeeded'")
            .correlation_id(Source::sql("\"Content\"::json -> 'Headers' ->> 'cap-corr-id'"))
            .occurred_at("date_part('epoch', \"Added\") * 1000")
            .due_at(
                "CASE WHEN \"StatusName\" IN ('Delayed', 'Queued') THEN date_part('epoch', \"ExpiresAt\") * 1000 END",
            );
    let all = sent(&place, &outbox, &import, 4).await;
    assert_eq!(Vec::from_iter(all.iter().map(|one| body(one)["n"].clone())), [1, 3, 4, 5]);
    assert_eq!(all[0].envelope.correlation_id.as_ref().unwrap().as_str(), "c-1");
    assert_eq!(all[0].envelope.occurred_at.unwrap().as_millis(), 1_767_323_045_000);
    assert_eq!(all[0].envelope.message_id.as_uuid().unwrap().get_version_num(), 8, "made of its number");
    assert_ne!(all[0].envelope.message_id, all[1].envelope.message_id);
    // Of delayed ones alone it says when they are due.
    let due = "SELECT count(*) FROM hapax.outbox WHERE due_at = 1767323105000";
    assert_eq!(place.number(due).await, 2);
    assert_eq!(place.number("SELECT count(*) FROM hapax.outbox WHERE due_at IS NOT NULL").await, 2);
    assert_eq!(place.number("SELECT count(*) FROM hapax.published WHERE \"StatusName\" = 'Succeeded'").await, 5);
}

#[tokio::test]
async fn a_table_with_bytes() {
    let place = Place::new().await;
    let outbox = place.outbox().await;
    // As Wolverine's.
    place
        .run(
            "CREATE TABLE hapax.wolverine_outgoing_envelopes (id uuid PRIMARY KEY, owner_id int NOT NULL, \
               destination varchar NOT NULL, deliver_by timestamptz, body bytea NOT NULL, attempts int, message_type varchar NOT NULL); \
             INSERT INTO hapax.wolverine_outgoing_envelopes VALUES \
               ('018f0000-0000-7000-8000-000000000003', 0, 'rabbitmq://queue/billing', NULL, '\\x00ff', 0, 'shop.placed')",
        )
        .await;
    let table = format!("{}.wolverine_outgoing_envelopes", place.schema.name());
    let import = Import::new(table, Source::column("id"), Source::column("message_type"), Source::column("body"))
        .body_is_bytes()
        .content_type(Source::text("application/octet-stream"))
        .destination(Source::sql("'endpoint:' || split_part(destination, '/', 4)"))
        .expires_at("date_part('epoch', deliver_by) * 1000");
    let all = sent(&place, &outbox, &import, 1).await;
    assert_eq!(
        (&*all[0].envelope.body, all[0].destination.to_string()),
        (&[0, 0xff][..], "endpoint:billing".to_owned())
    );
}

#[tokio::test]
async fn a_table_with_urns_and_envelopes() {
    let place = Place::new().await;
    let outbox = place.outbox().await;
    // As MassTransit's, with the columns that are read.
    place
        .run(
            "CREATE TABLE hapax.\"OutboxMessage\" (\"SequenceNumber\" bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, \
               \"SentTime\" timestamptz NOT NULL, \"OutboxId\" uuid, \"MessageId\" uuid NOT NULL, \
               \"ContentType\" varchar(256) NOT NULL, \"MessageType\" text NOT NULL, \"Body\" text NOT NULL, \
               \"CorrelationId\" uuid, \"DestinationAddress\" varchar(256), \"ExpirationTime\" timestamptz); \
             INSERT INTO hapax.\"OutboxMessage\" VALUES \
               (DEFAULT, '2026-01-02 03:04:05Z', NULL, '018f0000-0000-7000-8000-000000000004', 'application/vnd.masstransit+json', \
                'urn:message:Shop.Contracts:OrderPlaced;urn:message:Shop.Contracts:ShopEvent', \
                '{\"messageType\": [\"urn:message:Shop.Contracts:OrderPlaced\"], \"message\": {\"n\": 1}}', \
                '018f0000-0000-7000-8000-0000000000aa', 'rabbitmq://localhost/billing', '2100-01-01 00:00:00Z')",
        )
        .await;
    let table = format!("{}.OutboxMessage", place.schema.name());
    let name = "split_part(split_part(\"MessageType\", ';', 1), ':', 4)";
    let import =
        Import::new(table, Source::column("MessageId"), Source::sql(name), Source::sql("\"Body\"::json -> 'message'"))
            .destination(Source::sql("'endpoint:' || split_part(\"DestinationAddress\", '/', 4)"))
            .correlation_id(Source::column("CorrelationId"))
            .occurred_at("date_part('epoch', \"SentTime\") * 1000")
            .expires_at("date_part('epoch', \"ExpirationTime\") * 1000")
            .order("\"SequenceNumber\"");
    let all = sent(&place, &outbox, &import, 1).await;
    let Outgoing { destination, envelope } = &all[0];
    assert_eq!(
        (envelope.message_type.as_str(), destination.to_string()),
        ("OrderPlaced", "endpoint:billing".to_owned())
    );
    assert_eq!(body(&all[0])["n"], 1);
    assert_eq!(envelope.correlation_id.as_ref().unwrap().as_str(), "018f0000-0000-7000-8000-0000000000aa");
    assert_eq!(envelope.expires.unwrap().as_millis(), 4_102_444_800_000);
}

#[tokio::test]
async fn a_table_whose_rows_are_processed_or_abandoned() {
    let place = Place::new().await;
    let outbox = place.outbox().await;
    // As pg-transactional-outbox's.
    place
        .run(
            "CREATE TABLE hapax.theirs (id uuid PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text NOT NULL, \
               message_type text NOT NULL, segment text, concurrency text NOT NULL DEFAULT 'sequential', payload jsonb NOT NULL, \
               metadata jsonb, locked_until timestamptz NOT NULL DEFAULT to_timestamp(0), created_at timestamptz NOT NULL, \
               processed_at timestamptz, abandoned_at timestamptz, started_attempts smallint NOT NULL DEFAULT 0, \
               finished_attempts smallint NOT NULL DEFAULT 0); \
             INSERT INTO hapax.theirs (id, aggregate_type, aggregate_id, message_type, payload, created_at, processed_at, \
               abandoned_at) VALUES \
               ('018f0000-0000-7000-8000-000000000005', 'order', 'o-1', 'order.placed', '{\"n\": 1}', now(), NULL, NULL), \
               ('018f0000-0000-7000-8000-000000000006', 'order', 'o-1', 'order.paid', '{\"n\": 2}', now(), now(), NULL), \
               ('018f0000-0000-7000-8000-000000000007', 'order', 'o-1', 'order.lost', '{\"n\": 3}', now(), NULL, now())",
        )
        .await;
    let table = format!("{}.theirs", place.schema.name());
    let import = Import::new(table, Source::column("id"), Source::column("message_type"), Source::column("payload"))
        .key(Source::column("aggregate_id"))
        .unsent("processed_at IS NULL AND abandoned_at IS NULL")
        .mark("processed_at = now()")
        .order("created_at");
    let all = sent(&place, &outbox, &import, 1).await;
    assert_eq!(all[0].envelope.message_id.to_string(), "018f0000-0000-7000-8000-000000000005");
    assert_eq!(
        (body(&all[0])["n"].clone(), all[0].envelope.partition_key.as_ref().unwrap().as_str()),
        (1.into(), "o-1")
    );
    assert_eq!(
        place.number("SELECT count(*) FROM hapax.theirs WHERE processed_at IS NULL").await,
        1,
        "the abandoned one"
    );
}

/// Each partition has a row at the same place. One batch takes one of them, of one partition, and it alone is over.
#[tokio::test]
async fn a_table_of_partitions_loses_nothing_that_was_not_brought_over() {
    let place = Place::new().await;
    let outbox = place.outbox().await;
    place
        .run(
            "CREATE TABLE hapax.split (id bigint, shard int, name text, body text) PARTITION BY LIST (shard); \
             CREATE TABLE hapax.split_0 PARTITION OF hapax.split FOR VALUES IN (0); \
             CREATE TABLE hapax.split_1 PARTITION OF hapax.split FOR VALUES IN (1); \
             CREATE TABLE hapax.split_2 PARTITION OF hapax.split FOR VALUES IN (2); \
             INSERT INTO hapax.split SELECT n, n % 3, CASE WHEN n = 4 THEN '' ELSE 'shop.placed' END, n FROM generate_series(1, 30) AS n",
        )
        .await;
    let table = format!("{}.split", place.schema.name());
    let import = Import::new(table, Source::column("id"), Source::column("name"), Source::column("body"))
        .unsent("shard <> 2")
        .batch(1);
    let imported = outbox.import(&place.pool, &import).await.unwrap();
    // One of the twenty is no message. It keeps its place, which is not that of the rows in other partitions.
    assert_eq!((imported.messages, imported.refused.len()), (19, 1));
    assert_eq!(place.number("SELECT count(*) FROM hapax.outbox").await, 19);
    assert_eq!(place.number("SELECT count(*) FROM hapax.split WHERE shard = 2").await, 10, "not asked for");
    assert_eq!(place.number("SELECT count(*) FROM hapax.split WHERE shard <> 2").await, 1, "what is no message");
}

#[tokio::test]
async fn bodies_of_bytes_are_to_be_said_so_and_texts_cannot_leave_their_place() {
    let place = Place::new().await;
    let outbox = place.outbox().await;
    place.run("CREATE TABLE hapax.raw (id int, body bytea); INSERT INTO hapax.raw VALUES (1, '{\"n\": 1}')").await;
    let table = format!("{}.raw", place.schema.name());
    let import = Import::new(table, Source::column("id"), Source::text("shop.placed"), Source::column("body"))
        .key(Source::text("\\' OR '1'='1"));
    let refused = outbox.import(&place.pool, &import).await.unwrap_err();
    assert!(refused.to_string().contains("body_is_bytes"), "{refused}");
    assert_eq!(place.number("SELECT count(*) FROM hapax.raw").await, 1);
    let all = sent(&place, &outbox, &import.body_is_bytes(), 1).await;
    assert_eq!(
        (body(&all[0])["n"].clone(), all[0].envelope.partition_key.as_ref().unwrap().as_str()),
        (1.into(), "\\' OR '1'='1")
    );
}
