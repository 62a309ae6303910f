//! Inserts, one at a time, while an endpoint evicts: what its upkeep costs others.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use hapax::{Endpoint, InProcess, Sqlite, endpoint::Settings, ports::DedupStore};
use sqlx::{Connection, SqliteConnection, sqlite::SqliteConnectOptions};
use tokio::sync::oneshot;

use super::{Figure, Options, millis, startup};
use crate::{
    AnyError,
    template::with_file,
    workload::{Account, Deposit},
};

/// Old entries: more than are evicted while it is measured.
const OLD: u64 = 3_000_000;
const WINDOW: Duration = Duration::from_secs(4);
const AT_MOST: f64 = 2.0;

pub(super) fn measure(dir: &Path, options: &Options) -> Result<Vec<Figure>, AnyError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    with_file(dir, None, |path| runtime.block_on(on(path, options)))
}

async fn on(path: &Path, options: &Options) -> Result<Vec<Figure>, AnyError> {
    let old = OLD * options.rounds as u64 / Options::default().rounds as u64;
    startup::fill(path, old).await?;
    let store = Sqlite::open(path).await?;
    let (mut calm, mut evicting, mut ratios, mut gone) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut number = 1 << 40;
    age(path).await?;
    for _ in 0..options.rounds {
        let before = p99(&store, &mut number).await?;
        let rows = count(path).await?;
        let begun = Instant::now();
        let meanwhile = with_upkeep(&store, &mut number).await?;
        gone.push(rows.saturating_sub(count(path).await?) as f64 / begun.elapsed().as_secs_f64());
        calm.push(before);
        evicting.push(meanwhile);
        ratios.push(meanwhile / before);
    }
    store.close().await;
    if gone.iter().any(|gone| *gone <= 0.0) {
        return Err("nothing was evicted meanwhile: there were too few old entries".into());
    }
    Ok(vec![
        Figure::new("evicting: an insert, 99 of 100, nothing evicted", "ms", None, calm),
        Figure::new("evicting: the same while an endpoint evicts", "ms", None, evicting),
        Figure::new("evicting: the one over the other", "", Some(AT_MOST), ratios),
        Figure::new("evicting: entries fewer, net of those inserted", "/s", None, gone),
    ])
}

/// Inserts while an endpoint on the same store does its upkeep.
async fn with_upkeep(store: &Sqlite, number: &mut u64) -> Result<f64, AnyError> {
    let settings = Settings { evict_interval: Duration::from_millis(10), ..Settings::default() };
    let endpoint = Endpoint::builder("upkeep")
        .store(store.clone())
        .transport(InProcess::new("upkeep"))
        .saga::<Account>(|account| account.starts::<Deposit>())
        .settings(settings)
        .start()
        .await?;
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(endpoint.run_until(stopped));
    let p99 = p99(store, number).await;
    drop(stop);
    running.await??;
    p99
}

async fn p99(store: &Sqlite, number: &mut u64) -> Result<f64, AnyError> {
    let end = Instant::now() + WINDOW;
    let mut times = Vec::new();
    while Instant::now() < end {
        let entry = startup::entries(*number, 1);
        *number += 1;
        let begun = Instant::now();
        store.insert(&entry).await?;
        times.push(millis(begun.elapsed()));
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() * 99 / 100])
}

/// Makes every generation but the newest look as if it had been closed long ago.
async fn age(path: &Path) -> Result<(), AnyError> {
    let mut file = beside(path).await?;
    sqlx::query("UPDATE hapax_generation SET opened_at = 0, closed_at = 1 WHERE closed_at IS NOT NULL")
        .execute(&mut file)
        .await?;
    Ok(file.close().await?)
}

async fn count(path: &Path) -> Result<u64, AnyError> {
    let mut file = beside(path).await?;
    let count: i64 = sqlx::query_scalar("SELECT count(*) FROM hapax_dedup").fetch_one(&mut file).await?;
    file.close().await?;
    Ok(u64::try_from(count)?)
}

async fn beside(path: &Path) -> Result<SqliteConnection, AnyError> {
    let options = SqliteConnectOptions::new().filename(path).busy_timeout(Duration::from_secs(30));
    Ok(SqliteConnection::connect_with(&options).await?)
}
