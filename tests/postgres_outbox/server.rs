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
        // Ever rarer: on a busy machine no call would ever get through between two cuts.
        let mut pause = Duration::from_millis(25);
        while !ended.load(Ordering::Relaxed) {
            let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1 \
                       AND state = 'active'";
            sqlx::query(cut).bind(&name).fetch_all(&pool).await.unwrap();
            tokio::time::sleep(pause).await;
            pause = pause * 21 / 20;
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

/// What a commit itself is refused for, and not only what came before it.
#[tokio::test]
async fn a_commit_that_the_server_refuses_is_known_to_have_stored_nothing() {
    let (place, sink) = (Place::new().await, Sink::new());
    let outbox = place.outbox().await;
    place.run("CREATE TABLE hapax.late (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)").await;
    let relaying = relay(&outbox, &sink, quick());
    let (mut tx, ticket) = place.order(&outbox, 0).await;
    place.within(&mut tx, "INSERT INTO hapax.late VALUES (1), (1)").await;
    let error = outbox.commit(tx, ticket).await.unwrap_err();
    assert!(!error.is_unknown_outcome() && error.to_string().contains("nothing of it is stored"), "{error:?}");
    place.orders(&outbox, 0..1).await;
    sink.until_all(0..1).await;
    relaying.stop().await.unwrap();
    assert_eq!(sink.taken().len(), 1, "the repetition alone");
}
