//! Opening a store with many dedup entries, warm, until the first answer.

use std::{path::Path, time::Instant};

use futures_util::{StreamExt, TryStreamExt, stream};
use hapax::{
    Sqlite,
    entity::DedupEntry,
    ids::{AttemptId, DedupKey, Fingerprint},
    ports::DedupStore,
    stores::sqlite::Synchronous,
    time::Timestamp,
};

use super::{Figure, Options, millis, worker::Worker};
use crate::{AnyError, template::with_file};

const AT_MOST_MS: f64 = 2000.0;
/// Entries of one call, and calls at a time.
const CHUNK: u64 = 1000;
const AT_A_TIME: usize = 32;
/// Inserts of the worker that leaves a long log.
const LOGGED: usize = 200;

/// Entries of `count` messages from `first` on, in random order of their keys.
pub(super) fn entries(first: u64, count: u64) -> Vec<DedupEntry> {
    let entry = |number: u64| {
        let mut bytes = [0; DedupKey::BYTES];
        fastrand::Rng::with_seed(number).fill(&mut bytes);
        DedupEntry {
            key: DedupKey::from_bytes(bytes),
            attempt: AttemptId::from_bytes(u128::from(number).to_be_bytes()),
            fingerprint: Fingerprint::from_bytes([1; Fingerprint::BYTES]),
            reply: None,
            time: Timestamp::now(),
        }
    };
    (first..first + count).map(entry).collect()
}

/// Puts `count` entries into the file at `path`. The disk is not waited for: nobody measures.
pub(super) async fn fill(path: &Path, count: u64) -> Result<(), AnyError> {
    let options = Sqlite::options(path).create_if_missing(true).migrate(true);
    let store = options.synchronous(Synchronous::Normal).open().await?;
    let inserts = (0..count).step_by(CHUNK as usize).map(|first| {
        let store = &store;
        async move { store.insert(&entries(first, CHUNK.min(count - first))).await }
    });
    stream::iter(inserts).buffered(AT_A_TIME).try_collect::<()>().await?;
    store.close().await;
    Ok(())
}

pub(super) fn measure(dir: &Path, options: &Options) -> Result<Vec<Figure>, AnyError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    with_file(dir, None, |path| {
        runtime.block_on(fill(path, options.entries))?;
        let (mut calm, mut killed) = (Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            calm.push(runtime.block_on(once(path))?);
            let mut worker = Worker::ready("fill", path)?;
            for _ in 0..LOGGED {
                worker.line()?;
            }
            worker.kill()?;
            drop(worker);
            killed.push(runtime.block_on(once(path))?);
        }
        let with = format!("with {} dedup entries, to the first answer", options.entries);
        Ok(vec![
            Figure::new(format!("start-up {with}"), "ms", Some(AT_MOST_MS), calm),
            Figure::new(format!("start-up after kill -9 {with}"), "ms", Some(AT_MOST_MS), killed),
        ])
    })
}

async fn once(path: &Path) -> Result<f64, AnyError> {
    let begun = Instant::now();
    let store = Sqlite::open(path).await?;
    let first = entries(0, 1).remove(0);
    let known = store.contains(&[first.key]).await?;
    let time = millis(begun.elapsed());
    store.close().await;
    if known.entry(&first.key).is_some() { Ok(time) } else { Err("the first entry is gone".into()) }
}
