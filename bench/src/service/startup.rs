//! Opening a store with many dedup entries, the file in the system's cache, until an endpoint on it has its first load
//! answered.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use futures_util::{StreamExt, TryStreamExt, stream};
use hapax::{
    Context, Correlation, Endpoint, Handle, HandlerError, InProcess, Message, Saga, Sqlite,
    entity::DedupEntry,
    ids::{AttemptId, DedupKey, Fingerprint},
    ports::DedupStore,
    stores::sqlite::Synchronous,
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use tokio::{sync::mpsc, time::timeout};

use super::{Figure, Options, counted, mib, millis, worker::Worker};
use crate::{AnyError, template::with_file};

const AT_MOST_MS: f64 = 2000.0;
/// Entries of one call, and calls at a time.
const CHUNK: u64 = 1000;
const AT_A_TIME: usize = 32;
/// How long a log a killed worker leaves, for each entry of the file: 256 MiB for ten million, which is as long as a store
/// lets a log be after a checkpoint.
const LOG_BYTES_EACH: u64 = 27;
const ENDPOINT: &str = "startup";

/// Entries of `count` messages from `first` on, in random order of their keys.
pub(super) fn entries(first: u64, count: u64) -> Vec<DedupEntry> {
    let entry = |number: u64| DedupEntry {
        key: key(number),
        attempt: AttemptId::from_bytes(u128::from(number).to_be_bytes()),
        fingerprint: Fingerprint::from_bytes([1; Fingerprint::BYTES]),
        reply: None,
        time: Timestamp::now(),
    };
    (first..first + count).map(entry).collect()
}

fn key(number: u64) -> DedupKey {
    let mut bytes = [0; DedupKey::BYTES];
    fastrand::Rng::with_seed(number).fill(&mut bytes);
    DedupKey::from_bytes(bytes)
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
    let runtime = super::runtime()?;
    with_file(dir, None, |path| {
        runtime.block_on(fill(path, options.entries))?;
        let (mut calm, mut killed, mut logs) = (Vec::new(), Vec::new(), Vec::new());
        let mut sure = vec![0, options.entries - 1];
        for _ in 0..options.rounds {
            runtime.block_on(counted::write_back(path))?;
            calm.push(runtime.block_on(once(path, &sure))?);
            let (log, last) = leave_log(path, options.entries * LOG_BYTES_EACH)?;
            sure.push(last);
            logs.push(mib(log));
            killed.push(runtime.block_on(once(path, &sure))?);
        }
        let entries = runtime.block_on(counted::number(path, "SELECT count(*) FROM hapax_dedup"))?;
        if entries < options.entries {
            return Err(format!("there are {entries} dedup entries, not {}", options.entries).into());
        }
        let with = format!("with {} dedup entries, until the first load is answered", options.entries);
        Ok(vec![
            Figure::of(format!("start-up {with}"), "ms", calm).all_at_most(AT_MOST_MS),
            Figure::of(format!("start-up after kill -9 {with}"), "ms", killed).all_at_most(AT_MOST_MS),
            Figure::of("start-up after kill -9: the log that was left", "MiB", logs),
        ])
    })
}

/// Lets a worker be killed when its log is at least so long; how long it was, and the last entry that was confirmed.
fn leave_log(path: &Path, bytes: u64) -> Result<(u64, u64), AnyError> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let fill = Worker::ready("fill", path)?;
    let hold = Worker::ready("hold", path)?;
    let mut last = fill.line()?;
    while fs::metadata(&log)?.len() < bytes {
        last = fill.line()?;
    }
    last = fill.end()?.pop().unwrap_or(last);
    // Killed too: who is last to close a file moves its log.
    hold.end()?;
    Ok((fs::metadata(&log)?.len(), last.parse()?))
}

async fn once(path: &Path, sure: &[u64]) -> Result<f64, AnyError> {
    let hub = InProcess::new(ENDPOINT);
    hub.sender().send(ENDPOINT, &First { number: super::worker::now_micros() }).await?;
    let (answered, mut when) = mpsc::unbounded_channel();
    let begun = Instant::now();
    let store = Sqlite::open(path).await?;
    let endpoint = Endpoint::builder(ENDPOINT)
        .store(store.clone())
        .transport(hub)
        .saga::<Started>(|started| started.starts::<First>())
        .with(Answered(answered))
        .start()
        .await?;
    let (mut loaded, stop) = (None, async { timeout(STUCK, when.recv()).await });
    endpoint.run_until(async { loaded = stop.await.ok().flatten() }).await?;
    let time = loaded.ok_or("the first message was not handled")?.duration_since(begun);
    let keys: Vec<DedupKey> = sure.iter().copied().map(key).collect();
    let known = store.contains(&keys).await?;
    store.close().await;
    match sure.iter().zip(&keys).find(|(_, key)| known.entry(key).is_none()) {
        Some((number, _)) => Err(format!("entry {number} was confirmed and is gone").into()),
        None => Ok(millis(time)),
    }
}

/// Far beyond the bar.
const STUCK: Duration = Duration::from_secs(60);

/// The first message of a new endpoint.
#[derive(Debug, Serialize, Deserialize)]
struct First {
    number: u64,
}

impl Message for First {
    const TYPE: &'static str = "bench.first";
}

/// Tells when its state had been loaded and its message had been looked for.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Started;

impl Saga for Started {
    const NAME: &'static str = "started";
}

#[derive(Debug, Clone)]
struct Answered(mpsc::UnboundedSender<Instant>);

impl Handle<First> for Started {
    fn correlate(first: &First) -> Correlation<'_> {
        Correlation::of("first", first.number.to_string())
    }

    async fn handle(&mut self, _first: First, cx: &mut Context) -> Result<(), HandlerError> {
        let _ = cx.get::<Answered>()?.0.send(Instant::now()); // Who asked may be gone.
        Ok(())
    }
}
