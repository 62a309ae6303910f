//! Connections that end and servers that die: what was confirmed is kept.

use std::{sync::Arc, time::Duration};

use hapax::{
    MessageId,
    envelope::Outgoing,
    ids::EndpointName,
    ports::{Schedule, StoreError},
};
use hapax_tests::{MySqlServer, MySqlTables, PostgresSchema, PostgresServer, samples};

use crate::place::{LONG, due_since, messages, now, receipts};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_postgres_that_end_lose_no_message() {
    let schema = PostgresSchema::new();
    loses_nothing(schema.open_and_cut(Arc::new).await, Arc::new(schema.open().await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_mysql_that_end_lose_no_message() {
    let tables = MySqlTables::new();
    loses_nothing(tables.open_and_cut(Arc::new).await, Arc::new(tables.open().await)).await;
}

/// Makes a call again until it is answered. Answers how often it was not.
async fn insists<T>(call: impl AsyncFn() -> Result<T, StoreError>) -> (T, usize) {
    let mut errors = 0;
    loop {
        match call().await {
            Ok(answer) => return (answer, errors),
            Err(e) => assert!(e.is_transient(), "{e:?}"),
        }
        errors += 1;
    }
}

/// Through `cut`, whose connections are ended again and again; `whole` sees what has become of it.
async fn loses_nothing(cut: Arc<dyn Schedule>, whole: Arc<dyn Schedule>) {
    const ROUNDS: u64 = 60;
    /// Leases of takes that nobody was told of have to end.
    const LEASE: Duration = Duration::from_millis(200);
    let (endpoint, mut lost) = (samples::endpoint(), 0);
    let mut all = Vec::new();
    for round in 0..ROUNDS {
        let some: Vec<Outgoing> = (0..5).map(|number| due_since(100_000 - 5 * round - number, "x")).collect();
        lost += insists(async || cut.put(&endpoint, &some).await).await.1;
        all.extend(some);
    }
    let mut given = Vec::new();
    while whole.next(&endpoint).await.unwrap().is_some() {
        let (taken, unanswered) = insists(async || cut.take_due(&endpoint, now(LEASE)).await).await;
        let receipts = receipts(&taken);
        lost += unanswered + insists(async || cut.done(&endpoint, &receipts).await).await.1;
        given.extend(messages(taken));
    }
    assert!(lost > 0, "nothing was cut off");
    println!("{lost} calls were cut off");
    given.sort_by_key(|outgoing| outgoing.envelope.due);
    given.dedup();
    assert!(given == all, "{} were put, {} are given", all.len(), given.len());
    // What is cancelled is gone, whether that was told at once or not.
    whole.put(&endpoint, &all[..5]).await.unwrap();
    let ids: Vec<MessageId> = all[..3].iter().map(|outgoing| outgoing.envelope.message_id.clone()).collect();
    insists(async || cut.cancel(&endpoint, &ids).await).await;
    assert_eq!(messages(whole.take_due(&endpoint, now(LONG)).await.unwrap()), all[3..5]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_server_that_is_killed_keeps_messages_and_leases() {
    let mut server = PostgresServer::start(&[]).await;
    let schema = PostgresSchema::on(&server.url());
    let schedule = Arc::new(schema.open().await);
    keeps_everything(schedule, async || {
        server.kill();
        server.restart().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mysql_server_that_is_killed_keeps_messages_and_leases() {
    let mut server = MySqlServer::start(&[]).await;
    let tables = MySqlTables::on(&server.url());
    let schedule = Arc::new(tables.open().await);
    keeps_everything(schedule, async || {
        server.kill();
        server.restart().await;
    })
    .await;
}

async fn keeps_everything(schedule: Arc<dyn Schedule>, kill_server: impl AsyncFnOnce()) {
    const BEFORE: usize = 10;
    let endpoint = samples::endpoint();
    let given = [due_since(200_000, "given")];
    schedule.put(&endpoint, &given).await.unwrap();
    let taken = schedule.take_due(&endpoint, now(LONG)).await.unwrap();
    assert_eq!(taken.len(), 1);
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let putting = tokio::spawn(puts(schedule.clone(), endpoint.clone(), tell));
    let mut confirmed = Vec::new();
    while confirmed.len() < BEFORE {
        confirmed.push(told.recv().await.unwrap());
    }
    kill_server().await;
    // It goes on by itself.
    while let Some(id) = told.recv().await {
        confirmed.push(id);
        if confirmed.len() > 3 * BEFORE {
            break;
        }
    }
    drop(told);
    putting.await.unwrap();
    let kept: Vec<MessageId> = insists(async || schedule.take_due(&endpoint, now(LONG)).await)
        .await
        .0
        .into_iter()
        .map(|due| due.outgoing.envelope.message_id.clone())
        .collect();
    for id in &confirmed {
        assert_eq!(kept.iter().filter(|kept| *kept == id).count(), 1, "{id} is confirmed");
    }
    let first = &given[0].envelope.message_id;
    assert!(!kept.contains(first), "a lease is lost with the server");
    schedule.done(&endpoint, &receipts(&taken)).await.unwrap();
}

/// One after the other, until nobody listens.
async fn puts(
    schedule: Arc<dyn Schedule>,
    endpoint: EndpointName,
    tell: tokio::sync::mpsc::UnboundedSender<MessageId>,
) {
    while !tell.is_closed() {
        let message = due_since(1_000, "x");
        match schedule.put(&endpoint, std::slice::from_ref(&message)).await {
            Ok(()) => drop(tell.send(message.envelope.message_id.clone())),
            Err(e) => assert!(e.is_transient(), "{e:?}"),
        }
    }
}

/// The server shows what is not on its disk yet; and finding it there is no change, whose commit would wait for the disk.
#[tokio::test]
async fn what_is_in_a_mysql_schedule_already_or_gone_from_it_is_told_after_a_change_of_our_own() {
    let tables = MySqlTables::new();
    let (store, others) = (tables.open().await, tables.open().await);
    let number = async |sql: &str| -> i64 {
        let sql = sqlx::AssertSqlSafe(tables.with_names(sql));
        sqlx::query_scalar(sql).fetch_one(&mut tables.connection().await).await.unwrap()
    };
    let settled = async || number("SELECT times FROM hapax.settled").await;
    // In a text, and too large for one.
    let (endpoint, all) = (samples::endpoint(), [due_since(2_000, "x"), due_since(1_000, vec![0; 6 << 20])]);
    others.put(&endpoint, &all).await.unwrap();
    store.put(&endpoint, &all).await.unwrap();
    assert_eq!(number("SELECT COUNT(*) FROM hapax.schedule WHERE repeats = 1").await, 2);

    let ids = [all[0].envelope.message_id.clone()];
    let before = settled().await;
    assert_eq!(others.cancel(&endpoint, &ids).await.unwrap(), 1);
    assert_eq!(settled().await, before, "its removal is a change");
    assert_eq!(store.cancel(&endpoint, &ids).await.unwrap(), 0);
    assert_eq!(settled().await, before + 1);
}
