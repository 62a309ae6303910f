//! Whole endpoints in processes, with store and queue on one server: workers are killed, and so is the server, while
//! messages come in, each of them twice; then the books are made from what is stored alone.
//!
//! The server is killed with all of its processes, so that commits are cut off wherever they are, and started again.
#![allow(clippy::unwrap_used)]

#[path = "process/crew.rs"]
mod crew;
#[path = "process/load.rs"]
mod load;
#[path = "process/stored.rs"]
mod stored;
#[path = "process/tally.rs"]
mod tally;

use crew::Worker;
use hapax_tests::{MySqlServer, MySqlTables, PostgresSchema, PostgresServer, Scratch};
use load::Load;
use stored::name_server;

const WORKERS: usize = 3;
/// Each ends with a kill of a worker.
const ROUNDS: usize = 12;
/// One in so many ends with a kill of the server, too.
const SERVER_EVERY: usize = 4;
/// Steps that come in in each.
const STEPS: usize = 20;
/// A round ends when no more than so many messages are left, so that the kill comes in the middle of the work.
const LEFT: u64 = 15;

#[tokio::test]
async fn an_endpoint_on_postgres_outlives_kills_of_its_workers_and_of_its_server() {
    let mut server = PostgresServer::start(&[]).await;
    let (schema, scratch) = (PostgresSchema::on(&server.url()), Scratch::new("server-kills"));
    name_server(scratch.folder(), schema.url(), schema.name());
    outlives_kills(&scratch, Load::on(&schema).await, async || {
        server.kill();
        server.restart().await;
    })
    .await;
}

#[tokio::test]
async fn an_endpoint_on_mysql_outlives_kills_of_its_workers_and_of_its_server() {
    let mut server = MySqlServer::start(&[]).await;
    let (tables, scratch) = (MySqlTables::on(&server.url()), Scratch::new("server-kills-mysql"));
    name_server(scratch.folder(), tables.url(), tables.prefix());
    outlives_kills(&scratch, Load::on_mysql(&tables).await, async || {
        server.kill();
        server.restart().await;
    })
    .await;
}

async fn outlives_kills(scratch: &Scratch, mut load: Load, mut kill_server: impl AsyncFnMut()) {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut workers: Vec<Worker> = Vec::new();
    for _ in 0..WORKERS {
        workers.push(Worker::serving(scratch.folder(), "today").started().await);
    }
    for round in 1..=ROUNDS {
        load.send_stubbornly(STEPS).await;
        load.shrinks_to(random.u64(0..=LEFT)).await;
        workers.swap_remove(random.usize(..workers.len())).kill();
        workers.push(Worker::serving(scratch.folder(), "today"));
        if round % SERVER_EVERY == 0 {
            kill_server().await;
        }
    }
    load.is_done(scratch.folder()).await;
    load.books(scratch.folder()).await.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    for worker in workers {
        worker.stop();
    }
}

#[tokio::test]
async fn a_worker_on_postgres_that_keeps_no_marks_is_found_out_by_the_books() {
    let (schema, scratch) = (PostgresSchema::new(), Scratch::new("server-kills-forgetful"));
    name_server(scratch.folder(), schema.url(), schema.name());
    is_found_out(&scratch, Load::on(&schema).await).await;
}

#[tokio::test]
async fn a_worker_on_mysql_that_keeps_no_marks_is_found_out_by_the_books() {
    let (tables, scratch) = (MySqlTables::new(), Scratch::new("server-kills-forgetful-mysql"));
    name_server(scratch.folder(), tables.url(), tables.prefix());
    is_found_out(&scratch, Load::on_mysql(&tables).await).await;
}

/// The control: were the books blind, the others would pass too.
async fn is_found_out(scratch: &Scratch, mut load: Load) {
    let worker = Worker::serving(scratch.folder(), "forgetful").started().await;
    load.send_stubbornly(STEPS).await;
    load.is_done(scratch.folder()).await;
    load.send_again(0).await;
    load.is_done(scratch.folder()).await;
    let why = load.books(scratch.folder()).await.unwrap_err();
    assert!(why.starts_with("steps: ") && why.contains("lost [], twice [\"0\""), "{why}");
    worker.stop();
}
