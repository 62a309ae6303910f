//! Rolling upgrades: workers of today's version handle messages while workers of the next one take the file a step further
//! and handle them too, some of both are killed, and the books balance.
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
use hapax_tests::Scratch;
use load::{Load, count, open};

/// A step that only adds: the old go on, and come up again after a kill. Then one that does not: they are refused.
#[tokio::test]
async fn the_old_go_on_beside_the_new_until_a_step_that_they_must_not_survive() {
    rolls("upgrade", false).await;
}

#[tokio::test]
async fn the_old_go_on_beside_the_new_with_the_queue_in_a_file_of_its_own() {
    rolls("upgrade-apart", true).await;
}

async fn rolls(name: &str, apart: bool) {
    const BATCH: usize = 40;
    let scratch = Scratch::new(name);
    let folder = scratch.folder();
    let mut load = Load::new(folder, apart).await;
    load.send(BATCH, 0).await;
    let old = [Worker::serving(folder, "today").started().await, Worker::serving(folder, "today").started().await];

    load.send(BATCH, 0).await;
    let new = Worker::serving(folder, "adds").started().await; // Under load.
    assert_eq!(count(&mut open(folder).await, "hapax_to_come").await, 0, "the step was not made");
    let [first, second] = old;
    first.kill();
    load.send(BATCH, 0).await;
    let again = Worker::serving(folder, "today").started().await;
    new.kill();
    load.send(BATCH, 0).await;
    load.shrinks_to(0).await; // By the old alone.
    load.send(BATCH, 0).await;
    let new = Worker::serving(folder, "adds").started().await;
    second.kill();
    load.is_done(folder).await;
    load.books(folder).await.unwrap();

    // The old are stopped before a step that is not for them, as it is to be done.
    again.stop();
    new.stop();
    load.send(BATCH, 0).await;
    let newest = Worker::serving(folder, "breaks").started().await;
    for version in ["today", "adds"] {
        let (status, said) = Worker::serving(folder, version).ended();
        assert!(!status.success(), "{version}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains("store.db") && said.contains("update this program"), "{said}");
    }
    newest.kill();
    let newest = Worker::serving(folder, "breaks").started().await;
    load.is_done(folder).await;
    load.books(folder).await.unwrap();
    newest.stop();
}

/// State and messages of the old are read by the new; what the new has written the old leave to them.
#[tokio::test]
async fn what_an_old_program_cannot_read_it_leaves_to_the_new_one() {
    const BATCH: usize = 20;
    let scratch = Scratch::new("upgrade-sagas");
    let folder = scratch.folder();
    let mut load = Load::new(folder, false).await;
    load.send(BATCH, 0).await;
    let old = Worker::serving(folder, "today").started().await;
    load.is_done(folder).await;
    old.kill();

    // It reads the old's state, and writes state that the old cannot read.
    load.send(BATCH, 0).await;
    let new = Worker::serving(folder, "next-sagas").started().await;
    load.is_done(folder).await;
    load.books(folder).await.unwrap();
    new.kill();

    load.send(BATCH, 0).await;
    let old = Worker::serving(folder, "today").started().await;
    old.says("the stored state cannot be read").await;
    let new = Worker::serving(folder, "next-sagas").started().await;
    while !old.log().contains("message refused") {
        load.send(BATCH, 0).await; // Until the old one has been given a note of the new one.
        load.shrinks_to(BATCH as u64).await;
    }
    old.kill();
    load.is_done(folder).await;
    load.books(folder).await.unwrap();
    new.stop();
}
