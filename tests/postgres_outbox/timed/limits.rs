//! What is looked after, and said, when a partition cannot be made in time.

use std::time::{Duration, Instant};

use hapax::ports::{Care, OutboxTable};
use hapax_tests::{LogLines, PostgresSchema, PostgresServer};
use sqlx::postgres::PgPoolOptions;

use super::{
    options, parts,
    rig::Place,
    sink::{Sink, quick, relay},
};

const CARE: Care = Care { keep: Duration::from_secs(300), archive: None, rows: 100 };
/// All but that for the rest are gone, as when nobody has looked after them for days.
const NONE: &str = "\
    DO $$ BEGIN EXECUTE (SELECT 'DROP TABLE ' || string_agg(inhrelid::regclass::text, ', ') FROM pg_inherits \
    WHERE inhparent = 'hapax.outbox'::regclass AND inhrelid <> 'hapax.outbox_rest'::regclass); END $$";
/// As slow as if the partition for the rest were large.
const SLOW: &str = "\
    CREATE FUNCTION slow() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(30); END $$; \
    CREATE EVENT TRIGGER slow ON ddl_command_end WHEN TAG IN ('ALTER TABLE') EXECUTE FUNCTION slow()";

/// Relays wait for it three seconds, once within the length of a partition, and what is stored is sent all the same.
#[tokio::test]
async fn a_partition_that_takes_long_to_make_is_given_up_and_said_once() {
    let server = PostgresServer::start(&[]).await;
    let schema = PostgresSchema::on(&server.url());
    let pool = PgPoolOptions::new().max_connections(4).connect(schema.url()).await.unwrap();
    let place = Place { pool, schema, ordered: false };
    let (outbox, log) = (options().migrate(true).open_database(place.database()).await.unwrap(), LogLines::here());
    place.run("CREATE TABLE hapax.orders (id INT PRIMARY KEY)").await;
    place.run(NONE).await;
    place.run(SLOW).await;
    let began = Instant::now();
    outbox.care(&CARE).await.unwrap();
    let took = began.elapsed();
    assert!((Duration::from_secs(3)..Duration::from_secs(10)).contains(&took), "{took:?}");
    assert_eq!(parts(&place).await, 0);
    let said = log.with("too large to be read");
    assert!(said.len() == 1 && said[0].starts_with("WARN") && said[0].contains("outbox_t"), "{said:?}");
    let began = Instant::now();
    for _ in 0..5 {
        outbox.care(&CARE).await.unwrap();
    }
    assert!(began.elapsed() < Duration::from_secs(3), "tried again: {:?}", began.elapsed());
    assert_eq!(log.with("too large to be read").len(), 1);
    let sink = Sink::new();
    let relay = relay(&outbox, &sink, quick());
    place.orders(&outbox, 0..10).await;
    sink.until_all(0..10).await;
    relay.stop().await.unwrap();
}
