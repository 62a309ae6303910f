//! Readers of the log that end, and servers that are killed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hapax::{relay::RelayOptions, stores::postgres::outbox::LogOptions};
use sqlx::postgres::PgPoolOptions;

use super::{
    log::Logged,
    sink::{Fate, Placed, Sink, patient, quick, relay},
};

/// Stores orders until it is told to stop, through whatever happens; how many.
async fn stores_on(logged: &Logged, stop: Arc<AtomicBool>) -> u32 {
    let (outbox, mut order) = (logged.outbox().await, 0);
    while !stop.load(Ordering::Relaxed) {
        let stored = async {
            let mut tx = logged.place.pool.begin().await?;
            logged.place.try_within(&mut tx, &format!("INSERT INTO hapax.orders VALUES ({order})")).await?;
            let message = outbox.outgoing(&Placed { order }).unwrap();
            let ticket =
                outbox.enqueue_all(&mut tx, &[message]).await.map_err(|e| sqlx::Error::Protocol(e.to_string()))?;
            Ok(outbox.commit(tx, ticket).await?)
        };
        let stored: Result<(), sqlx::Error> = stored.await;
        // After a lost answer nobody knows, so that the next one is another order.
        order += 1;
        if stored.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    order
}

/// All that the user's own table has, and nothing else.
async fn has_all(logged: &Logged, sink: &Sink) {
    let count = logged.place.number("SELECT count(*) FROM hapax.orders").await;
    sink.until(|sink| sink.distinct().len() as i64 >= count).await;
    let rows = sqlx::query_scalar(sqlx::AssertSqlSafe(logged.place.sql("SELECT id FROM hapax.orders ORDER BY id")));
    let rows: Vec<i32> = rows.fetch_all(&logged.place.pool).await.unwrap();
    let committed: Vec<u32> = rows.into_iter().map(|order| u32::try_from(order).unwrap()).collect();
    assert_eq!(sink.distinct(), committed);
}

/// Relays end without a word, one after the other, and the sessions that read the log are cut.
async fn others_take_over(log: LogOptions, options: RelayOptions) {
    let logged = Logged::new(log).await;
    let (stop, sink) = (Arc::<AtomicBool>::default(), Sink::new());
    let relaying = async {
        for round in 0..6 {
            let outbox = logged.outbox().await;
            let relay = relay(&outbox, &sink, options.clone());
            let before = sink.asked();
            sink.until(|sink| sink.asked() > before + 50).await;
            if round % 2 == 0 {
                logged.cut().await;
                sink.until(|sink| sink.asked() > before + 100).await;
            }
            drop(relay);
        }
        stop.store(true, Ordering::Relaxed);
    };
    let (_, stored) = tokio::join!(relaying, stores_on(&logged, stop.clone()));
    assert!(stored > 300, "void: {stored} orders");
    let outbox = logged.outbox().await;
    let relay = relay(&outbox, &sink, options);
    has_all(&logged, &sink).await;
    relay.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_a_reader_had_are_claimed_after_its_end() {
    others_take_over(LogOptions::rows().lease(Duration::from_millis(500)), quick()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_a_reader_had_are_read_again_after_its_end() {
    others_take_over(LogOptions::messages(), quick()).await;
}

#[tokio::test]
async fn what_was_read_and_not_sent_is_read_again() {
    let logged = Logged::new(LogOptions::messages()).await;
    let (outbox, silent) =
        (logged.outbox().await, Sink::with(|order| if order < 50 { Fate::Silent } else { Fate::Taken }));
    let dies = relay(&outbox, &silent, quick().senders(100, 1));
    logged.place.orders(&outbox, 0..100).await;
    silent.until(|sink| sink.asked() == 100).await;
    // What was sent has been told, and so has how far the log is needed.
    logged.place.until("SELECT count(*) FROM hapax.outbox_meta WHERE name = 'log_read'", 1).await;
    let beats = async {
        logged.place.orders(&outbox, 100..110).await;
        silent.until(|sink| sink.asked() == 110).await;
    };
    beats.await;
    drop(dies);
    logged.until_not_read().await;
    let (other, sink) = (logged.outbox().await, Sink::new());
    let lives = relay(&other, &sink, patient());
    sink.until(|sink| (0..50).all(|order| sink.orders().contains(&order))).await;
    lives.stop().await.unwrap();
}

/// The server is killed again and again; a slot's own place is as old as the last checkpoint then.
async fn outlives_kills_of_the_server(log: LogOptions) {
    let mut logged = Logged::new(log).await;
    let (sink, outbox) = (Sink::new(), logged.outbox().await);
    let relay = relay(&outbox, &sink, quick());
    let mut next = 0;
    for _ in 0..4 {
        logged.until_read().await;
        logged.place.orders(&outbox, next..next + 100).await;
        next += 100;
        sink.until(|sink| sink.distinct().len() >= next as usize - 50).await;
        logged.server.kill();
        logged.server.restart().await;
        logged.place.pool = PgPoolOptions::new().max_connections(8).connect(logged.place.schema.url()).await.unwrap();
    }
    has_all(&logged, &sink).await;
    relay.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_outlive_kills_of_the_server() {
    outlives_kills_of_the_server(LogOptions::rows().lease(Duration::from_millis(500))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_outlive_kills_of_the_server() {
    outlives_kills_of_the_server(LogOptions::messages()).await;
}

#[tokio::test]
async fn after_a_crash_of_the_server_little_is_sent_again() {
    let mut logged = Logged::new(LogOptions::messages()).await;
    let (sink, outbox) = (Sink::new(), logged.outbox().await);
    let first = relay(&outbox, &sink, patient());
    logged.place.orders(&outbox, 0..200).await;
    sink.until_all(0..200).await;
    first.stop().await.unwrap();
    // Without a checkpoint the slot's place is lost, and what is stored of it is not.
    logged.server.kill();
    logged.server.restart().await;
    logged.place.pool = PgPoolOptions::new().connect(logged.place.schema.url()).await.unwrap();
    let (again, outbox) = (Sink::new(), logged.outbox().await);
    let second = relay(&outbox, &again, patient());
    logged.place.orders(&outbox, 200..210).await;
    again.until(|sink| sink.orders().contains(&209)).await;
    assert_eq!(again.orders(), Vec::from_iter(200..210));
    second.stop().await.unwrap();
}

/// The old server had gone on, and what was sent of that was told to the one that took over: a place that means something else there.
#[tokio::test]
async fn a_promoted_server_is_read_from_where_it_took_over() {
    let mut logged = Logged::new(LogOptions::messages()).await;
    let (sink, outbox) = (Sink::new(), logged.outbox().await);
    let first = relay(&outbox, &sink, patient());
    logged.place.orders(&outbox, 0..10).await;
    sink.until_all(0..10).await;
    first.stop().await.unwrap();
    let before = logged.place.number("SELECT timeline_id::bigint FROM pg_control_checkpoint()").await;
    logged.place.run("UPDATE hapax.outbox_meta SET value = value + (1 << 20) WHERE name = 'log_read'").await;
    logged.place.run("COPY (SELECT) TO PROGRAM 'cat > standby.signal'").await;
    logged.server.kill();
    logged.server.restart().await;
    logged.place.pool = PgPoolOptions::new().max_connections(8).connect(logged.place.schema.url()).await.unwrap();
    logged.place.run("SELECT pg_promote()").await;
    logged.place.run("CHECKPOINT").await;
    let after = logged.place.number("SELECT timeline_id::bigint FROM pg_control_checkpoint()").await;
    assert_eq!([before, after], [1, 2]);
    let outbox = logged.outbox().await;
    logged.place.orders(&outbox, 10..20).await;
    logged.place.run("SELECT pg_logical_emit_message(true, 'filler', repeat('x', 4 << 20))").await;
    let (again, other) = (Sink::new(), logged.outbox().await);
    let second = relay(&other, &again, patient());
    logged.place.orders(&outbox, 20..30).await;
    again.until(|sink| (10..30).all(|order| sink.orders().contains(&order))).await;
    second.stop().await.unwrap();
}
