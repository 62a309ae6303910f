//! What only this server does: it tells relays of what was stored, and can be told to end connections by their names.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use sqlx::postgres::PgConnectOptions;

use super::{
    rig::{Outbox, Place},
    sink::{Placed, Sink, patient, quick, relay},
};

#[tokio::test]
async fn another_process_relays_and_is_told_by_the_server() {
    let place = Place::new().await;
    let (writer, relaying, sink) = (place.outbox().await, place.outbox().await, Sink::new());
    // Its own looks come too late.
    let relay = relay(&relaying, &sink, patient());
    place.orders(&writer, 0..1).await;
    sink.until_all(0..1).await;
    place.orders(&writer, 1..300).await;
    sink.until_all(0..300).await;
    relay.stop().await.unwrap();
    assert_eq!(sink.taken().len(), 300, "each once");
}

#[tokio::test]
async fn connections_that_are_cut_lose_nothing() {
    let place = Place::new().await;
    let name = format!("cut_{}", fastrand::u64(..));
    let server: PgConnectOptions = place.schema.url().parse().unwrap();
    let database = hapax::Postgres::with(server.application_name(&name)).schema(place.schema.name());
    let (outbox, sink) = (Outbox::options().open_database(database).await.unwrap(), Sink::new());
    let (writer, relaying) = (place.outbox().await, relay(&outbox, &sink, quick().claim(500, 8 << 20)));
    let end = Arc::new(AtomicBool::new(false));
    let ended = end.clone();
    let url = place.schema.url().to_owned();
    let cutting = tokio::spawn(async move {
        let pool = sqlx::PgPool::connect(&url).await.unwrap();
        while !ended.load(Ordering::Relaxed) {
            let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1 \
                       AND state = 'active'";
            sqlx::query(cut).bind(&name).fetch_all(&pool).await.unwrap();
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    });
    let messages: Vec<_> = (0..3000).map(|order| writer.outgoing(&Placed { order }).unwrap()).collect();
    for some in messages.chunks(500) {
        let mut tx = place.begin().await;
        let ticket = writer.enqueue_all(&mut tx, some).await.unwrap();
        writer.commit(tx, ticket).await.unwrap();
    }
    sink.until_all(0..3000).await;
    end.store(true, Ordering::Relaxed);
    cutting.await.unwrap();
    place.until("SELECT count(*) FROM hapax.outbox WHERE status = 1", 3000).await;
    relaying.stop().await.unwrap();
}
