//! Power cuts, rehearsed: a worker is killed when it has done everything, so that all its commits are still in the
//! write-ahead log. The log is cut at the end of every commit, and in the middle of the frame after it, as a disk may have
//! it when the power fails; then a clean worker starts from what is left, and the books must balance.
#![allow(clippy::unwrap_used)]

#[path = "process/books.rs"]
mod books;
#[path = "process/stored.rs"]
mod stored;
#[path = "process/tally.rs"]
mod tally;

use std::{fs, os::unix::process::ExitStatusExt, path::Path};

use books::{SIGKILL, Scenario, check, feed, worker};
use hapax_tests::Scratch;
use sqlx::{Connection, Row, SqliteConnection, sqlite::SqliteConnectOptions};

/// Of the log, and of each frame in it (sqlite.org/fileformat2.html, section 4).
const LOG_HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;

#[tokio::test]
async fn a_power_cut_after_any_commit_is_made_good() {
    let scenario = Scenario::work();
    let scratch = Scratch::new("power-cut");
    let folder = scratch.folder();
    let messages = feed(folder, &scenario).await;
    empty_log(folder).await;
    let before = fs::read(folder.join("store.db")).unwrap();
    // Six deliveries of steps, three of notes: killed after the last has been settled.
    let killed = worker(folder, "work", "settle-8-after");
    assert_eq!(killed.status.signal(), Some(SIGKILL), "{killed:?}");
    let log = fs::read(folder.join("store.db-wal")).unwrap();
    assert_eq!(before, fs::read(folder.join("store.db")).unwrap(), "a checkpoint has moved commits out of the log");

    let commits = commits(&log);
    assert!(commits.len() > 20, "only {} commits", commits.len());
    println!("{} commits, cut at the end of each and in the frame after it", commits.len());
    for (number, end) in commits.into_iter().enumerate() {
        for torn in [0, FRAME_HEADER_BYTES + 100] {
            let folder = scratch.file(&format!("{number}-{torn}"));
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("store.db"), &before).unwrap();
            fs::write(folder.join("store.db-wal"), &log[..(end + torn).min(log.len())]).unwrap();
            let recovered = worker(&folder, "work", "none");
            assert!(recovered.status.success(), "commit {number}: {recovered:?}");
            check(&folder, &scenario, messages).await.unwrap_or_else(|why| panic!("commit {number}, {torn}: {why}"));
        }
    }
}

/// Moves what is in the log into the file. Closing a store does so only where its connection is the last to end.
async fn empty_log(folder: &Path) {
    let file = SqliteConnectOptions::new().filename(folder.join("store.db"));
    let mut file = SqliteConnection::connect_with(&file).await.unwrap();
    let moved = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").fetch_one(&mut file).await.unwrap();
    assert_eq!(moved.get::<i64, _>(0), 0, "somebody is in the way");
    file.close().await.unwrap();
}

/// Where each commit ends in the log, beginning with none at all. The frame that ends one says how large the file is.
fn commits(log: &[u8]) -> Vec<usize> {
    let number = |at: usize| u32::from_be_bytes(log[at..at + 4].try_into().unwrap());
    let frame_bytes = FRAME_HEADER_BYTES + number(8) as usize;
    let frames = (log.len() - LOG_HEADER_BYTES) / frame_bytes;
    let starts = (0..frames).map(|frame| LOG_HEADER_BYTES + frame * frame_bytes);
    let ends = starts.filter(|start| number(start + 4) != 0).map(|start| start + frame_bytes);
    std::iter::once(LOG_HEADER_BYTES).chain(ends).collect()
}
