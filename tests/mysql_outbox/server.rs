//! What only this server does: it tells nobody of what was stored, rolls back by itself, and takes settings of a session that
//! change what is written.

use std::{
    error::Error as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hapax::{MySql, envelope::Outgoing, relay::RelayOptions};
use hapax_tests::MySqlServer;
use sqlx::{AssertSqlSafe, Executor};

use super::{
    rig::{Outbox, Place},
    sink::{Placed, Sink, patient, quick, relay},
};

#[tokio::test]
async fn another_process_relays_and_looks_by_itself() {
    let place = Place::new().await;
    let (writer, relaying, sink) = (place.outbox().await, place.outbox().await, Sink::new());
    let relay = relay(&relaying, &sink, RelayOptions::default());
    place.orders(&writer, 0..300).await;
    sink.until_all(0..300).await;
    relay.stop().await.unwrap();
    assert_eq!(sink.taken().len(), 300, "each once");
}

/// The message is in a transaction that the server rolls back, since it waits for one that waits for it.
#[tokio::test]
async fn what_a_deadlock_has_rolled_back_is_no_ghost() {
    let place = Place::new().await;
    let (outbox, sink) = (place.outbox().await, Sink::new());
    let relay = relay(&outbox, &sink, patient());
    place
        .run("CREATE TABLE hapax.stock (id INT PRIMARY KEY, n INT); INSERT INTO hapax.stock VALUES (1, 0), (2, 0), (9, 0)")
        .await;
    let lock = |id: u32| format!("UPDATE hapax.stock SET n = n + 1 WHERE id = {id}");
    let (mut tx, ticket) = place.order(&outbox, 0).await;
    place.within(&mut tx, &lock(1)).await;
    let mut other = place.begin().await;
    // It has written more, so that it is not the one to be rolled back.
    place.within(&mut other, "INSERT INTO hapax.orders SELECT `partition` + 1000 FROM hapax.outbox_lock").await;
    place.within(&mut other, &lock(2)).await;
    let locks = [lock(2), lock(1)];
    let both = tokio::join!(place.try_within(&mut tx, &locks[0]), place.try_within(&mut other, &locks[1]));
    assert!(both.0.is_err() && both.1.is_ok(), "{both:?}");
    // It goes on as if nothing had happened: what it does now is stored by itself, so that nobody may say that nothing is.
    place.within(&mut tx, "UPDATE hapax.stock SET n = 7 WHERE id = 9").await;
    let error = outbox.commit(tx, ticket).await.unwrap_err();
    assert!(error.is_unknown_outcome(), "{error:?}");
    assert!(error.source().is_some_and(|why| why.to_string().contains("rolled")), "{error:?}");
    assert_eq!(place.number("SELECT n FROM hapax.stock WHERE id = 9").await, 7);
    other.rollback().await.unwrap();
    place.orders(&outbox, 1..2).await;
    sink.until(|sink| sink.distinct() == [1]).await;
    relay.stop().await.unwrap();
    assert_eq!(sink.distinct(), [1]);
}

/// A session that is set to anything stores the same: nothing is cut, converted or dated otherwise.
#[tokio::test]
async fn sessions_of_any_kind_store_the_same() {
    let place = Place::new().await;
    let (outbox, sink) = (place.outbox().await, Sink::new());
    let settings = [
        "SET SESSION sql_mode = ''",
        "SET SESSION sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES,NO_ZERO_DATE,STRICT_ALL_TABLES'",
        "SET NAMES latin1",
        "SET SESSION time_zone = '+13:00'",
        "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        "SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED",
    ];
    let mut order = 0;
    for setting in settings {
        let mut connection = place.tables.connection().await;
        connection.execute(sqlx::raw_sql(setting)).await.unwrap();
        for many in [false, true] {
            let mut message = || {
                order += 1;
                let Outgoing { destination, envelope } = outbox.outgoing(&Placed { order }).unwrap();
                let mut envelope = (*envelope).clone();
                envelope.partition_key = Some("k\\'\"é\u{1f4e6}".repeat(10).parse().unwrap());
                envelope.headers.set("a", "\u{1f4e6} \\").unwrap();
                Outgoing { destination, envelope: Arc::new(envelope) }
            };
            let messages = if many { vec![message(), message()] } else { vec![message()] };
            let mut tx = sqlx::Connection::begin(&mut connection).await.unwrap();
            let ticket = outbox.enqueue_all(&mut tx, &messages).await.unwrap();
            tx.commit().await.unwrap();
            ticket.committed();
        }
    }
    let relay = relay(&outbox, &sink, quick());
    sink.until(|sink| sink.distinct().len() == 18).await;
    relay.stop().await.unwrap();
    assert_eq!(place.number("SELECT count(DISTINCT `key`) FROM hapax.outbox WHERE status = 1").await, 1);
    let spread = "SELECT max(stored_at) - min(stored_at) < 60000 FROM hapax.outbox";
    assert_eq!(place.number(spread).await, 1, "whatever the time zone");
}

/// More than fits into one statement: all of it, or nothing.
#[tokio::test]
async fn large_messages_are_stored_together_or_not_at_all() {
    let place = Place::new().await;
    let (outbox, sink) = (place.outbox().await, Sink::new());
    let large = |order: u32| {
        let Outgoing { destination, envelope } = outbox.outgoing(&Placed { order }).unwrap();
        let mut envelope = (*envelope).clone();
        let padding = " ".repeat(900_000);
        envelope.body = format!("{{\"order\":{order}{padding}}}").into();
        Outgoing { destination, envelope: Arc::new(envelope) }
    };
    let messages: Vec<Outgoing> = (0..12).map(large).collect();
    let mut tx = place.begin().await;
    // The last one's id is there already.
    let mut twice = messages.clone();
    twice.push(messages[0].clone());
    outbox.enqueue_all(&mut tx, &twice).await.unwrap_err();
    // It goes on all the same.
    let ticket = outbox.enqueue_all(&mut tx, &messages).await.unwrap();
    outbox.commit(tx, ticket).await.unwrap();
    assert_eq!(place.number("SELECT count(*) FROM hapax.outbox").await, 12);
    let relay = relay(&outbox, &sink, quick());
    sink.until_all(0..12).await;
    relay.stop().await.unwrap();
}

#[tokio::test]
async fn connections_that_are_cut_lose_nothing() {
    let place = Place::new().await;
    // By the account its connections are known.
    let name = format!("cut_{}", fastrand::u32(..));
    let account = format!("'{name}'@'%'");
    place.run(&format!("CREATE USER {account}; GRANT ALL ON *.* TO {account}")).await;
    let (_, server) = place.tables.url().rsplit_once('@').unwrap();
    let database = MySql::options(format!("mysql://{name}@{server}")).table_prefix(place.tables.prefix());
    let (outbox, sink) = (Outbox::options().open_database(database).await.unwrap(), Sink::new());
    let (writer, relaying) = (place.outbox().await, relay(&outbox, &sink, quick().claim(500, 8 << 20)));
    let end = Arc::new(AtomicBool::new(false));
    let ended = end.clone();
    let mut connection = place.tables.connection().await;
    let cutting = tokio::spawn(async move {
        let busy = "SELECT id FROM information_schema.processlist WHERE user = ? AND command <> 'Sleep'";
        while !ended.load(Ordering::Relaxed) {
            let ids = sqlx::query_scalar::<_, i64>(busy).bind(&name).fetch_all(&mut connection).await.unwrap();
            for id in ids {
                // It may have ended by itself.
                drop(connection.execute(sqlx::raw_sql(AssertSqlSafe(format!("KILL CONNECTION {id}")))).await);
            }
            // Connecting takes several round trips here: cut more often, hardly any call ever ends.
            tokio::time::sleep(Duration::from_millis(200)).await;
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
    place.run(&format!("DROP USER {account}")).await;
}

/// The smallest packet that is taken at the start; statuses of one call are more than fit into it.
#[tokio::test]
async fn what_a_relay_tells_is_never_more_than_the_server_takes() {
    let server = MySqlServer::start(&["max_allowed_packet=1M"]).await;
    let outbox = Outbox::open(server.url()).await.unwrap();
    let (pool, sink) = (sqlx::MySqlPool::connect(&server.url()).await.unwrap(), Sink::new());
    let messages: Vec<Outgoing> = (0..9000).map(|order| outbox.outgoing(&Placed { order }).unwrap()).collect();
    for some in messages.chunks(500) {
        let mut tx = pool.begin().await.unwrap();
        let ticket = outbox.enqueue_all(&mut tx, some).await.unwrap();
        outbox.commit(tx, ticket).await.unwrap();
    }
    // All statuses are told at once, when it stops.
    let options = RelayOptions::default().claim(10_000, 64 << 20).status_batch(10_000, Duration::from_secs(600));
    let relay = relay(&outbox, &sink, options);
    sink.until(|sink| sink.taken().len() == 9000).await;
    relay.stop().await.unwrap();
    let sent = sqlx::query_scalar::<_, i64>("SELECT COUNT(*) FROM hapax_outbox WHERE status = 1");
    assert_eq!(sent.fetch_one(&pool).await.unwrap(), 9000);
}
