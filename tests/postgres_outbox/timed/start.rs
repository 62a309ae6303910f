//! Opening a table with time partitions: what is decided once, who may make and drop them, by what they are reached.

use std::time::Duration;

use hapax::{
    Postgres, PostgresOutbox,
    ports::{Care, ErrorKind, OutboxTable},
    stores::postgres::outbox::{LogOptions, PostgresOutboxOptions},
};
use hapax_tests::{LogLines, Pgbouncer, PostgresRole, PostgresSchema, PostgresServer};
use sqlx::{PgPool, postgres::PgPoolOptions};

use super::{
    MINUTE, Part, id, message, now, options, parts,
    rig::Place,
    sink::{PATIENCE, Sink, patient, quick, relay},
};

const CARE: Care = Care { keep: Duration::from_secs(300), archive: None, rows: 100 };
/// One if the table and all of its partitions have the same.
const OWNERS: &str = "\
    SELECT count(DISTINCT relowner) FROM pg_class WHERE oid = 'hapax.outbox'::regclass \
    OR oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = 'hapax.outbox'::regclass)";

async fn refused(place: &Place, options: PostgresOutboxOptions) -> String {
    let error = options.migrate(true).open_database(place.database()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    error.to_string()
}

#[tokio::test]
async fn a_table_has_time_partitions_of_one_length_for_all_or_none() {
    let plain = PostgresOutbox::options;
    let place = Place::new().await;
    let said = refused(&place, plain()).await;
    assert!(said.contains("has time partitions of 60000 ms, and was opened without any"), "{said}");
    let said = refused(&place, plain().time_partitions(MINUTE * 2)).await;
    assert!(said.contains("of 60000 ms, and was opened with 120000 ms: open it as all others do"), "{said}");
    let said = refused(&place, options().debezium(true)).await;
    assert!(said.contains("leave `time_partitions` out"), "{said}");
    let said = refused(&place, plain().time_partitions(Duration::from_secs(59))).await;
    assert!(said.contains("use whole milliseconds, from a minute"), "{said}");
    place.run("DROP TABLE hapax.outbox_rest").await;
    let said = refused(&place, options()).await;
    assert!(said.contains("PARTITION OF") && said.contains("DEFAULT"), "{said}");
    let place = Place::empty(false).await;
    plain().migrate(true).open_database(place.database()).await.unwrap();
    let said = refused(&place, options()).await;
    assert!(said.contains("another table prefix and drain this one"), "{said}");
    plain().migrate(true).open_database(place.database()).await.unwrap();
    // Which is what it says.
    let second = options().migrate(true).open_database(place.database().table_prefix("second_")).await.unwrap();
    let mut tx = place.begin().await;
    let ticket = second.enqueue_all(&mut tx, &[message(&second, 1, id(now()))]).await.unwrap();
    second.commit(tx, ticket).await.unwrap();
    assert_eq!(place.number("SELECT count(*) FROM hapax.second_outbox").await, 1);
}

#[tokio::test]
async fn an_id_is_of_one_message_in_all_of_the_table() {
    let place = Place::new().await;
    let outbox = place.outbox().await;
    for id in [id(now()), id(1000)] {
        let store = async || {
            let mut tx = place.begin().await;
            let stored = outbox.enqueue_all(&mut tx, &[message(&outbox, 1, id)]).await;
            if let Ok(ticket) = stored {
                outbox.commit(tx, ticket).await.unwrap();
                return true;
            }
            false
        };
        assert_eq!((store().await, store().await), (true, false));
    }
}

#[tokio::test]
async fn several_that_start_at_once_make_the_tables_once() {
    let place = Place::empty(false).await;
    let open = || options().migrate(true).open_database(place.database());
    let opened = tokio::join!(open(), open(), open(), open());
    for outbox in [opened.0, opened.1, opened.2, opened.3] {
        outbox.unwrap();
    }
    assert!((3..=4).contains(&parts(&place).await));
}

#[tokio::test]
async fn a_later_version_adds_columns_and_partitions_made_then_have_them() {
    let place = Place::new().await;
    let outbox = place.outbox().await;
    place.run("ALTER TABLE hapax.outbox ADD COLUMN remark INT NOT NULL DEFAULT 7").await;
    let next = place
        .number(
            "SELECT max(substring(relname FROM '[0-9]+')::bigint) FROM pg_class WHERE relname ~ '^outbox_t[0-9]+$' \
                             AND oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = 'hapax.outbox'::regclass)",
        )
        .await;
    place.run(&format!("DROP TABLE hapax.outbox_t{next}")).await;
    for _ in 0..2 {
        place.run(&place.schema_sql()).await;
    }
    outbox.care(&CARE).await.unwrap();
    let mut tx = place.begin().await;
    let next = message(&outbox, 1, id(u64::try_from(next).unwrap()));
    let ticket = outbox.enqueue_all(&mut tx, &[next]).await.unwrap();
    outbox.commit(tx, ticket).await.unwrap();
    assert_eq!(place.number("SELECT count(*) FROM hapax.outbox WHERE remark = 7").await, 1);
    assert_eq!(place.number("SELECT count(*) FROM hapax.outbox_rest").await, 0);
}

/// A role that may do what `grants_sql` says, and one that is a member of the owner's.
#[tokio::test]
async fn who_does_not_own_the_table_removes_rows_and_who_does_drops_partitions() {
    for is_member in [false, true] {
        let place = Place::empty(false).await;
        let role = PostgresRole::new(&place.schema, &[]).await;
        let sql = options().schema_sql(&place.database()).unwrap();
        place.run(&format!("BEGIN; {sql} COMMIT")).await;
        place.run(&PostgresOutbox::grants_sql(&place.database(), role.name()).unwrap()).await;
        place.run("CREATE TABLE hapax.orders (id INT PRIMARY KEY)").await;
        if is_member {
            let grant = format!(
                "DO $$ BEGIN EXECUTE 'GRANT ' || quote_ident(current_user) || ' TO {0}; \
                   GRANT CREATE ON SCHEMA {1} TO {0}'; END $$",
                role.name(),
                place.schema.name()
            );
            place.run(&grant).await;
        }
        let log = LogLines::here();
        let outbox = options().open_database(role.options(&place.schema)).await.unwrap();
        assert_eq!(parts(&place).await > 0, is_member);
        let part = Part::new(&place, 20).await;
        part.fill(&place, &outbox, 0..3).await;
        part.sent(&place).await;
        place.orders(&outbox, 3..5).await;
        assert_eq!(outbox.care(&CARE).await.unwrap().ended, if is_member { 0 } else { 3 });
        assert_eq!(part.is_there(&place).await, !is_member);
        let sink = Sink::new();
        let relay = relay(&outbox, &sink, quick().keep(Duration::ZERO, None));
        sink.until_all(3..5).await;
        relay.stop().await.unwrap();
        outbox.care(&CARE).await.unwrap();
        let said = log.with("may not make and drop");
        assert_eq!(said.len(), usize::from(!is_member), "once: {said:?}");
        assert!(said.iter().all(|line| line.contains(&format!("role={:?}", role.name()))), "{said:?}");
        assert_eq!(place.number(OWNERS).await, 1, "whoever is a member may drop what another member has made");
        drop(outbox);
        let gone = format!("DROP OWNED BY {0}; DROP ROLE {0}", role.name());
        place.schema.run(&gone).await.unwrap();
    }
}

#[tokio::test]
async fn behind_a_pooler_partitions_are_made_and_dropped_too() {
    let place = Place::new().await;
    let pooler = ["pool_mode = transaction", "ignore_startup_parameters = extra_float_digits"];
    let Some(pooler) = Pgbouncer::start(place.schema.url(), &pooler).await else {
        return;
    };
    let database = Postgres::options(pooler.url()).schema(place.schema.name()).pooler(true);
    let outbox = options().open_database(database).await.unwrap();
    let part = Part::new(&place, 20).await;
    part.fill(&place, &outbox, 0..3).await;
    part.sent(&place).await;
    assert_eq!(outbox.care(&CARE).await.unwrap().ended, 0);
    assert!(!part.is_there(&place).await);
    assert!((3..=4).contains(&parts(&place).await));
}

#[tokio::test]
async fn the_log_tells_of_all_partitions_as_of_one_table() {
    let server = PostgresServer::start(&["wal_level=logical"]).await;
    let schema = PostgresSchema::on(&server.url());
    let pool: PgPool = PgPoolOptions::new().max_connections(4).connect(schema.url()).await.unwrap();
    let place = Place { pool, schema, ordered: false };
    // Leases end nothing within the test: what comes is from the log.
    let log = LogOptions::rows().lease(PATIENCE * 4);
    let open = || options().migrate(true).log(log.clone()).open_database(place.database());
    let (outbox, sink) = (open().await.unwrap(), Sink::new());
    place.run("CREATE TABLE hapax.orders (id INT PRIMARY KEY)").await;
    let relay = relay(&outbox, &sink, patient());
    // While a slot is made it is active, and what is committed by then is not for it.
    let reads = "SELECT count(*) FROM pg_replication_slots WHERE active AND confirmed_flush_lsn IS NOT NULL";
    place.until(reads, 1).await;
    place.orders(&outbox, 0..5).await;
    // One that is made while the log is read, and that for the rest.
    let part = Part::new(&place, 20).await;
    part.fill(&place, &outbox, 5..10).await;
    let mut tx = place.begin().await;
    let ticket = outbox.enqueue_all(&mut tx, &[message(&outbox, 10, id(1000))]).await.unwrap();
    outbox.commit(tx, ticket).await.unwrap();
    sink.until_all(0..11).await;
    relay.stop().await.unwrap();
    assert_eq!(sink.taken().len(), 11, "each once");
}
