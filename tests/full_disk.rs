//! A full disk, with real processes: what a worker cannot write it does not acknowledge, it says so and goes on when there is
//! room again, and nothing is handled twice. Once by a limit of the process on the size of its files, where SQLite is told of
//! a failed write and the outcome of a commit is not known; once by a small file system, where it is told that there is no
//! room.
#![allow(clippy::unwrap_used)]
#![cfg(target_os = "linux")] // Limits of another process, and a file system in memory.

#[path = "process/crew.rs"]
mod crew;
#[path = "process/load.rs"]
mod load;
#[path = "process/stored.rs"]
mod stored;
#[path = "process/tally.rs"]
mod tally;

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use crew::{Worker, program, until};
use hapax_tests::Scratch;
use load::Load;
use rustix::process::{Resource, Rlimit, prlimit};

/// Steps that are sent before and while the disk is full.
const BATCH: usize = 40;
/// What the files may still grow by when the limit is set: a few commits.
const ROOM_BYTES: u64 = 60_000;

#[tokio::test]
async fn a_worker_that_may_not_write_more_goes_on_when_it_may() {
    limited("limit", false, After::Room).await;
}

#[tokio::test]
async fn a_worker_that_may_not_write_more_goes_on_when_it_may_with_the_queue_in_a_file_of_its_own() {
    limited("limit-apart", true, After::Room).await;
}

#[tokio::test]
async fn what_a_worker_that_may_not_write_more_has_left_another_one_handles() {
    limited("limit-kill", false, After::Kill).await;
    limited("limit-kill-apart", true, After::Kill).await;
}

#[tokio::test]
async fn workers_on_a_full_disk_lose_nothing_and_go_on_when_there_is_room() {
    full("full", false, After::Room).await;
    full("full-apart", true, After::Room).await;
}

#[tokio::test]
async fn what_a_worker_on_a_full_disk_has_left_another_one_handles() {
    full("full-kill", false, After::Kill).await;
    full("full-kill-apart", true, After::Kill).await;
}

/// What becomes of the worker that has met the full disk.
#[derive(PartialEq)]
enum After {
    /// It is given room.
    Room,
    /// It is killed, and another one is given room.
    Kill,
}

async fn limited(name: &str, apart: bool, after: After) {
    let scratch = Scratch::new(name);
    let folder = scratch.folder();
    let mut load = Load::new(folder, apart).await;
    // Unless a process ignores the signal for a file that is too large, it is its end. `exec` keeps that.
    let mut ignoring = Command::new("sh");
    ignoring.args(["-c", r#"trap "" XFSZ; exec "$0" "$@""#]).arg(program().get_program());
    let mut worker = Worker::run(folder, "today", &mut ignoring).started().await;
    let log = folder.join(if apart { "queue.db-wal" } else { "store.db-wal" });
    let written = fs::metadata(log).map_or(0, |log| log.len());
    limit(&worker, Some(written + ROOM_BYTES));
    load.send(BATCH, 0).await;
    worker.says("the disk may be full or failing").await;
    load.send(BATCH, 0).await; // This process has room.
    assert!(load.books(folder).await.is_err(), "everything could be written");
    assert!(worker.is_alive(), "{}", worker.log());
    let worker = goes_on(folder, worker, &after, |worker| limit(worker, None)).await;
    load.is_done(folder).await;
    load.books(folder).await.unwrap_or_else(|why| panic!("{why}: {}", worker.log()));
    worker.stop();
}

fn limit(worker: &Worker, bytes: Option<u64>) {
    prlimit(Some(worker.id()), Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
}

async fn goes_on(folder: &Path, worker: Worker, after: &After, make_room: impl Fn(&Worker)) -> Worker {
    if *after == After::Room {
        make_room(&worker);
        return worker;
    }
    let while_full = worker.log();
    worker.kill();
    assert!(!while_full.contains("panicked"), "{while_full}");
    Worker::serving(folder, "today").started().await
}

async fn full(name: &str, apart: bool, after: After) {
    let scratch = Scratch::new(name);
    let Some(disk) = SmallDisk::mount(scratch.folder()) else {
        eprintln!("SKIPPED: a small file system cannot be mounted here, so a full disk was not tested: run as root");
        return;
    };
    let folder = scratch.folder();
    let mut load = Load::new(folder, apart).await;
    let mut worker = Worker::serving(folder, "today").started().await;
    load.send(BATCH, 0).await;
    disk.fill();
    worker.says("the disk is full").await;
    let refused = load.try_send(BATCH, 0).await;
    assert!(refused.iter().any(Result::is_err), "everything could be sent");
    assert!(load.books(folder).await.is_err(), "everything could be written");
    assert!(worker.is_alive(), "{}", worker.log());
    if after == After::Kill {
        worker.kill();
        let mut hopeful = Worker::serving(folder, "today");
        until_settled(&mut hopeful).await;
        worker = hopeful;
    }
    disk.make_room();
    let mut worker = if worker.is_alive() { worker } else { Worker::serving(folder, "today").started().await };
    for sent in load.send_again(0).await {
        sent.unwrap();
    }
    load.is_done(folder).await;
    load.books(folder).await.unwrap_or_else(|why| panic!("{why}: {}", worker.log()));
    assert!(worker.is_alive(), "{}", worker.log());
    worker.stop();
    drop(load);
}

/// Waits until one that begins on a full disk has begun, or has said why it does not.
async fn until_settled(worker: &mut Worker) {
    until("it begins or ends", async || worker.log().contains("started") || !worker.is_alive()).await;
    if !worker.is_alive() {
        let (_, said) = worker.ended();
        assert!(said.contains("the disk is full") && !said.contains("panicked"), "{said}");
        println!("refused while the disk was full: {said}");
    }
}

/// A file system in memory over a folder. A mount must not outlive its test, whatever becomes of that.
struct SmallDisk {
    folder: PathBuf,
}

impl SmallDisk {
    fn mount(folder: &Path) -> Option<Self> {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"]).arg(folder).output();
        let mounted = mounted.is_ok_and(|mounted| mounted.status.success());
        mounted.then(|| Self { folder: folder.to_owned() })
    }

    /// Leaves not a byte.
    fn fill(&self) {
        let mut ballast = fs::File::create(self.ballast()).unwrap();
        while ballast.write_all(&[1; 4096]).is_ok() {}
    }

    fn make_room(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }

    fn ballast(&self) -> PathBuf {
        self.folder.join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.folder).status();
    }
}
