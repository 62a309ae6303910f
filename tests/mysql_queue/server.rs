//! What takes a server of a test's own: one that is killed, or set in its own way.

use std::sync::Arc;

use futures_util::future::join_all;
use hapax::{
    envelope::Outgoing,
    ports::{DeadLetter, DeadLetters, Dispatcher, ErrorKind, Page, Settled, Settlement, Transport},
    time::Timestamp,
};
use hapax_tests::MySqlServer;
use tokio::time::Instant;

use super::{common::*, rig::*};

/// The server shows a commit to others before it is on its disk. What `commits` does is shown and not written.
async fn shown_only<T>(owner: &mut Beside, commits: impl Future<Output = T>) -> T {
    run(owner, "SET GLOBAL innodb_flush_log_at_trx_commit = 0").await;
    let done = commits.await;
    run(owner, "SET GLOBAL innodb_flush_log_at_trx_commit = 1").await;
    done
}

/// A crash. Every handle has lost its connections, and learns it by asking for something.
async fn crash(server: &mut MySqlServer, tables: &Tables, handles: [&Queue; 2]) -> Beside {
    server.kill();
    server.restart().await;
    for queue in handles {
        queue.messages().await.unwrap();
    }
    beside(tables).await
}

async fn send_stubbornly(queue: &Queue, outgoing: Outgoing) {
    let deadline = Instant::now() + PATIENCE;
    while let Err(e) = queue.dispatch(std::slice::from_ref(&outgoing)).await.remove(0) {
        assert!(Instant::now() < deadline, "{e:?}");
    }
}

#[tokio::test]
async fn what_another_process_has_just_committed_is_acted_on_when_it_outlives_a_crash() {
    // What is not written with its commit is not written a second later, either.
    let mut server = MySqlServer::start(&["innodb-flush-log-at-timeout=2700"]).await;
    let tables = Tables::on(&server.url());
    let (here, there) = (tables.open_queue(options()).await, tables.open_queue(options()).await);
    let (shop, types) = (endpoint("shop"), [message_type()]);
    let mut owner = beside(&tables).await;
    for queue in [&here, &there] {
        queue.connect(&endpoint("elsewhere"), &[]).await.unwrap();
    }

    // Its number is not given to another queue, which would get its messages.
    shown_only(&mut owner, there.connect(&shop, &[])).await.unwrap();
    here.connect(&shop, &[]).await.unwrap();
    let mut owner = crash(&mut server, &tables, [&here, &there]).await;
    there.connect(&endpoint("another"), &[]).await.unwrap();
    send_stubbornly(&here, to("shop", envelope("a"))).await;
    assert_eq!(there.backlog(&endpoint("another")).await.unwrap(), 0, "another queue has got its number");
    assert!(there.backlog(&shop).await.unwrap() > 0);
    there.abandon(&shop, 100).await.unwrap();

    // It is a subscriber.
    shown_only(&mut owner, there.connect(&shop, &types)).await.unwrap();
    here.connect(&shop, &types).await.unwrap();
    let mut owner = crash(&mut server, &tables, [&here, &there]).await;
    send_stubbornly(&here, published("b")).await;
    assert!(there.backlog(&shop).await.unwrap() > 0, "what was published did not come to who has subscribed");

    // A letter is there. Finding it there changes nothing, so a change is made.
    let letter = DeadLetter {
        envelope: Arc::new(envelope("c")),
        endpoint: shop.clone(),
        saga: None,
        destination: None,
        attempts: 1,
        time: Timestamp::now(),
        reason: "no".to_owned(),
    };
    shown_only(&mut owner, there.add(&letter)).await.unwrap();
    let before = here.commits();
    here.add(&letter).await.unwrap();
    assert_eq!(here.commits() - before, 2, "it was confirmed without a change");
    crash(&mut server, &tables, [&here, &there]).await;
    assert_eq!(here.list(&shop, &Page::first(10)).await.unwrap(), [letter]);
}

/// The smallest message that a server must take. Many keys are let go at once while long lines wait behind them, and as many
/// leases are extended as a process may have.
#[tokio::test]
async fn what_is_listed_in_a_text_is_bounded_however_many_keys_and_leases_there_are() {
    const KEYS: usize = 256;
    const LINE: usize = 240;
    let server = MySqlServer::start(&["max-allowed-packet=1M"]).await;
    let tables = Tables::on(&server.url());
    let queue = tables.open_queue(options().ordered_keys(true).message_bytes_max(1000)).await;
    let ends = shop(&queue).await;
    let mut owner = beside(&tables).await;
    // Numbers as long as they will ever be.
    run(&mut owner, "ALTER TABLE hapax.queue_message AUTO_INCREMENT = 1000000000000000000").await;
    let heads: Vec<Outgoing> = (0..KEYS).map(|key| keyed(&format!("key {key}"), "head")).collect();
    send(&queue, &heads).await;
    let mut given = Vec::new();
    while given.len() < KEYS {
        given.extend(receive(&ends, 512).await);
    }
    // With no table for the time of the statement: another server that starts would sweep it away.
    let line = format!(
        "SELECT queue, due_at, bytes, message_id, envelope INTO @queue, @due, @bytes, @id, @envelope \
         FROM hapax.queue_message LIMIT 1; \
         INSERT INTO hapax.queue_message (queue, due_at, sent_at, bytes, partition_key, message_id, envelope) \
         SELECT @queue, @due, @due, @bytes, CONCAT('key ', k.seq), @id, @envelope \
         FROM seq_0_to_{} AS k CROSS JOIN seq_1_to_{LINE}",
        KEYS - 1
    );
    run(&mut owner, &line).await;
    let receipts = given.iter().cycle().take(20_000).map(|delivery| delivery.receipt.clone());
    ends.receiver.extend(&receipts.collect::<Vec<_>>()).await.unwrap();
    for settled in join_all(given.iter().map(|delivery| settle(&ends, delivery, Settlement::Ack))).await {
        assert_eq!(settled, Settled::Done);
    }
    assert_eq!(receive(&ends, 512).await.len(), 512);
}

/// As after a fail-over to a server that lacked the last commits, and has given the queue's number to another.
#[tokio::test]
async fn an_endpoint_whose_queue_the_server_has_lost_says_so_and_nothing_goes_to_who_has_its_number() {
    let mut server = MySqlServer::start(&[]).await;
    let tables = Tables::on(&server.url());
    let (here, there) = (tables.open_queue(options()).await, tables.open_queue(options()).await);
    let shop = endpoint("shop");
    let connected = here.connect(&shop, &[]).await.unwrap();
    send(&here, &[to("shop", envelope("before"))]).await;
    let before = connected.receiver.receive(1).await.unwrap();
    assert_eq!(before.len(), 1);
    there.connect(&shop, &[]).await.unwrap();
    let mut owner = beside(&tables).await;
    run(&mut owner, "UPDATE hapax.queue SET endpoint = 'another' WHERE endpoint = 'shop'").await;
    crash(&mut server, &tables, [&here, &there]).await;

    let deadline = Instant::now() + PATIENCE;
    let error = loop {
        match connected.receiver.receive(1).await {
            Err(error) if error.is_transient() => assert!(Instant::now() < deadline, "{error:?}"),
            told => break told.unwrap_err(),
        }
    };
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    assert!(error.to_string().contains("has lost the queue of shop"), "{error}");
    assert_eq!(connected.receiver.receive(1).await.unwrap_err().kind(), ErrorKind::Misconfigured, "not said again");
    let waiting = there.backlog(&endpoint("another")).await.unwrap();
    send_stubbornly(&there, to("shop", envelope("after"))).await;
    assert_eq!(there.backlog(&endpoint("another")).await.unwrap(), waiting, "it went to who has its number");

    let again = here.connect(&shop, &[]).await.unwrap();
    let given = loop {
        match again.receiver.receive(1).await {
            Err(error) => assert!(Instant::now() < deadline, "{error:?}"), // One answer of each connection is lost.
            Ok(given) => break given,
        }
    };
    assert_eq!(given.len(), 1);
}
