//! What recurs by the calendar, on two processes whose transports copy and forget, and which die of SIGKILL at calls of their ports:
//! every occurrence has its effect once, and none is missed, also of those that fell due while nobody was there.

use std::{
    os::unix::process::ExitStatusExt,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hapax_tests::{PostgresSchema, Scratch};
use tokio::time::{sleep, timeout};

use crate::{
    books::SIGKILL,
    crew::{Worker, program, until},
    stored::{Stored, name_server},
};

const WORKERS: usize = 2;
/// Processes that die.
const DEATHS: usize = 16;
/// After so many of them nobody is left, for so long that something falls due.
const ALL_EVERY: usize = 2;
const GAP: Duration = Duration::from_millis(1500);
/// Where they die: some of them come many times a second.
const CALLS: [&str; 6] = ["receive", "load", "save", "dispatch", "finish", "settle"];
const CALLS_MAX: u32 = 6;
const SECOND_MS: u64 = 1000;
/// What was left by the dead is done long before.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(50);

#[tokio::test]
async fn what_recurs_is_done_once_each_time_whoever_is_killed() {
    let scratch = Scratch::new("recurrences");
    is_done_once_each_time(scratch.folder()).await;
}

#[tokio::test]
async fn what_recurs_on_postgres_is_done_once_each_time_whoever_is_killed() {
    let (schema, scratch) = (PostgresSchema::new(), Scratch::new("recurrences-postgres"));
    name_server(scratch.folder(), schema.url(), schema.name());
    is_done_once_each_time(scratch.folder()).await;
}

fn recurring(folder: &Path, point: &str) -> Worker {
    Worker::run_task(folder, ["recur", point], &mut program())
}

fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

async fn is_done_once_each_time(folder: &Path) {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut mortal = || {
        let (call, side) = (CALLS[random.usize(..CALLS.len())], if random.bool() { "before" } else { "after" });
        recurring(folder, &format!("{call}-{}-{side}", random.u32(..CALLS_MAX)))
    };
    let mut workers: Vec<Worker> = Vec::new();
    let mut deaths = 0;
    while deaths < DEATHS {
        while workers.len() < WORKERS {
            workers.push(mortal());
        }
        let left = if (deaths / WORKERS) % ALL_EVERY == ALL_EVERY - 1 { 0 } else { WORKERS - 1 };
        let alive = |workers: &mut [Worker]| workers.iter_mut().map(Worker::is_alive).filter(|alive| *alive).count();
        until("somebody dies", async || -> bool { alive(&mut workers) <= left }).await;
        workers.retain_mut(|worker| {
            if worker.is_alive() {
                return true;
            }
            let (status, log) = worker.ended();
            assert_eq!(status.signal(), Some(SIGKILL), "seed {seed}: {log}");
            deaths += 1;
            false
        });
        if workers.is_empty() {
            sleep(GAP).await; // Time itself: an occurrence is missed.
        }
    }
    drop(workers);
    let whole = [recurring(folder, "none").started().await, recurring(folder, "none").started().await];
    let last = now_ms() / SECOND_MS * SECOND_MS;
    let mut stored = Stored::open(folder).await;
    let all = async {
        while lost(&dues(&mut stored).await, last).is_some() {
            sleep(LOOK).await;
        }
    };
    let _ = timeout(PATIENCE, all).await;
    let dues = dues(&mut stored).await;
    assert_eq!(lost(&dues, last), None, "seed {seed}: {dues:?}");
    let twice: Vec<&u64> = dues.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| &pair[0]).collect();
    assert!(twice.is_empty(), "seed {seed}: {twice:?} twice of {dues:?}");
    assert_eq!(stored.count("dead_letter").await, 0, "seed {seed}");
    println!("{} occurrences, {deaths} deaths", dues.len());
    whole.into_iter().for_each(Worker::stop);
    stored.close().await;
}

/// The occurrences that had an effect, sorted.
async fn dues(stored: &mut Stored) -> Vec<u64> {
    let told = stored.handled("almanac").await.concat();
    let mut dues: Vec<u64> = told.iter().map(|due| due.parse().unwrap()).collect();
    dues.sort_unstable();
    dues
}

/// The first that is not there, of all from the first that is, to `last`.
fn lost(dues: &[u64], last: u64) -> Option<u64> {
    let first = *dues.first().unwrap_or(&last);
    let mut all = (first..=last).step_by(usize::try_from(SECOND_MS).unwrap());
    all.find(|due| dues.binary_search(due).is_err())
}
