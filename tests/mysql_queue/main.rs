//! The queue on MariaDB: what it has in common with others on a server, and what is its own.

#[path = "../served_queue/common.rs"]
mod common;
#[path = "../served_queue/failing.rs"]
mod failing;
#[path = "../served_queue/leases.rs"]
mod leases;
#[path = "../served_queue/order.rs"]
mod order;
mod rig;
#[path = "../served_queue/sending.rs"]
mod sending;
mod server;

use std::time::{Duration, Instant};

use common::*;
use hapax::{
    MySql,
    ports::{ErrorKind, Transport},
};
use rig::*;

/// Nobody looks before an hour has passed, so that what comes was told within the process.
#[tokio::test]
async fn what_the_own_process_sends_needs_no_look() {
    let tables = Tables::new();
    let queue = tables.open_queue(options().polls(NEVER, NEVER)).await;
    comes_without_a_look(&queue, &queue).await;
}

/// However long nothing has come.
#[tokio::test]
async fn what_another_process_sends_is_found_by_a_look() {
    let tables = Tables::new();
    let idle = Duration::from_millis(240);
    let (here, there) = (tables.open_queue(options().polls(idle, idle)).await, open(&tables).await);
    comes_by_a_look(&here, &there).await;
}

#[tokio::test]
async fn the_schema_may_be_made_by_hand_and_an_account_needs_what_is_granted_and_no_more() {
    let tables = Tables::new();
    let place = MySql::options(tables.url()).table_prefix(tables.prefix());
    let none = options().open_database(place.clone()).await.unwrap_err();
    assert!(none.to_string().contains("has no tables of hapax, this hapax needs 1: set `migrate(true)`"), "{none}");
    let account = format!("role_{}", tables.prefix());
    let mut owner = beside(&tables).await;
    for _ in 0..2 {
        run(&mut owner, &Queue::schema_sql(&place).unwrap()).await;
    }
    run(&mut owner, &format!("CREATE USER {account}")).await;
    run(&mut owner, &Queue::grants_sql(&place, &account).unwrap()).await;

    let place = by(&tables, &account);
    for ordered_keys in [false, true] {
        let queue = options().ordered_keys(ordered_keys).open_database(place.clone()).await.unwrap();
        does_everything(&queue).await;
    }
    forget(&tables, &account).await;
}

#[tokio::test]
async fn messages_that_the_server_does_not_take_are_refused_at_the_start() {
    let tables = Tables::new();
    let packet = number(&mut beside(&tables).await, "SELECT CAST(@@max_allowed_packet AS SIGNED)").await;
    let most = usize::try_from(packet / 2).unwrap();
    let place = MySql::options(tables.url()).table_prefix(tables.prefix());
    let too_large = options().message_bytes_max(most).migrate(true);
    let refused = too_large.open_database(place).await.unwrap_err();
    assert!(refused.to_string().contains("`max_allowed_packet`"), "{refused}");
    let queue = tables.open_queue(options().message_bytes_max(most - (1 << 20))).await;
    let ends = shop(&queue).await;
    let large = "x".repeat(most - (1 << 20) - 1000);
    send_bodies(&queue, &["a", &large, "b", &large]).await;
    let mut lengths: Vec<usize> = Vec::new();
    while lengths.len() < 4 {
        lengths.extend(receive(&ends, 10).await.iter().map(|delivery| delivery.envelope.body.len()));
    }
    assert_eq!(lengths, [1, large.len(), 1, large.len()]);
}

/// What is rare waits for a row as long as the server waits, seconds, and not ten times as long.
#[tokio::test]
async fn what_waits_for_a_row_that_somebody_keeps_is_given_up_after_a_few_times() {
    const A_FEW: Duration = Duration::from_secs(20);
    let tables = Tables::new();
    let queue = open(&tables).await;
    queue.connect(&endpoint("shop"), &[message_type()]).await.unwrap();
    let mut keeps = beside(&tables).await;
    run(&mut keeps, "BEGIN; SELECT * FROM hapax.queue_subscription FOR UPDATE").await;
    let began = Instant::now();
    let failed = queue.unsubscribe(&endpoint("shop"), &[message_type()]).await.unwrap_err();
    assert!(began.elapsed() < A_FEW, "{:?}", began.elapsed());
    assert_eq!(failed.kind(), ErrorKind::Unavailable, "{failed}");
    run(&mut keeps, "ROLLBACK").await;
    queue.unsubscribe(&endpoint("shop"), &[message_type()]).await.unwrap();
}
