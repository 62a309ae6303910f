//! The sweeper's question among many entities and among few: it must not go through them all.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{StreamExt, TryStreamExt, stream};
use hapax::{
    Sqlite,
    entity::{Entity, Expected, OutboxEntry},
    ids::{AttemptId, DedupKey, EndpointName, EntityKey, Fingerprint, SagaKey, SagaName, Scope},
    ports::EntityStore,
    stores::sqlite::Synchronous,
    time::Timestamp,
};

use super::{Figure, Options};
use crate::{AnyError, template::with_file};

const PENDING: u32 = 100;
const FEW: u32 = 1000;
const PAGE: usize = 100;
const AT_A_TIME: usize = 1024;
/// Sweeps of one round, of which the median counts.
const SWEEPS: usize = 25;
const AT_MOST: f64 = 2.0;

pub(super) fn measure(dir: &Path, options: &Options) -> Result<Vec<Figure>, AnyError> {
    let few = times(dir, FEW, options.rounds)?;
    let many = times(dir, options.entities, options.rounds)?;
    let ratios = many.iter().zip(&few).map(|(many, few)| many / few).collect();
    let name = format!("sweep: {PENDING} pending among {}", options.entities);
    Ok(vec![
        Figure::new(format!("sweep: {PENDING} pending among {FEW}"), "ms", None, few),
        Figure::new(name.clone(), "ms", None, many),
        Figure::new(format!("{name}, over that among {FEW}"), "", Some(AT_MOST), ratios),
    ])
}

fn times(dir: &Path, entities: u32, rounds: usize) -> Result<Vec<f64>, AnyError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    with_file(dir, None, |path| {
        runtime.block_on(async {
            let scope = Arc::new(Scope { endpoint: EndpointName::parse("service")?, saga: SagaName::parse("swept")? });
            fill(path, &scope, entities).await?;
            let store = Sqlite::open(path).await?;
            let mut medians = Vec::new();
            for _ in 0..rounds {
                let mut times = Vec::new();
                for _ in 0..SWEEPS {
                    times.push(sweep(&store, &scope).await?);
                }
                times.sort_by(f64::total_cmp);
                medians.push(times[SWEEPS / 2]);
            }
            store.close().await;
            Ok(medians)
        })
    })
}

async fn sweep(store: &Sqlite, scope: &Arc<Scope>) -> Result<f64, AnyError> {
    let begun = Instant::now();
    let (mut after, mut found) = (None, 0);
    loop {
        let page = store.pending(scope, Duration::ZERO, after.as_ref(), PAGE).await?;
        found += page.len();
        match page.last() {
            Some(last) if page.len() == PAGE => after = Some(last.key.clone()),
            _ => break,
        }
    }
    if found == PENDING as usize {
        Ok(super::millis(begun.elapsed()))
    } else {
        Err(format!("{found} are pending").into())
    }
}

async fn fill(path: &Path, scope: &Arc<Scope>, entities: u32) -> Result<(), AnyError> {
    let options = Sqlite::options(path).create_if_missing(true).migrate(true);
    let store = options.synchronous(Synchronous::Normal).open().await?;
    let saves = (0..entities).map(|number| {
        let store = &store;
        async move {
            let key = EntityKey::new(scope.clone(), SagaKey::parse(format!("{number:09}"))?);
            // Spread over all keys.
            let pending = number % (entities / PENDING) == 0 && number / (entities / PENDING) < PENDING;
            let outbox = if pending { vec![Arc::new(entry(number))] } else { Vec::new() };
            let entity = Entity { state: vec![1; 200].into(), outbox, ..Entity::default() };
            let _ = store.save(&key, &Expected::Absent, &entity, &[]).await?;
            Ok::<_, AnyError>(())
        }
    });
    stream::iter(saves).buffer_unordered(AT_A_TIME).try_collect::<()>().await?;
    store.close().await;
    Ok(())
}

fn entry(number: u32) -> OutboxEntry {
    let mut key = [7; DedupKey::BYTES];
    key[..4].copy_from_slice(&number.to_be_bytes());
    OutboxEntry {
        key: DedupKey::from_bytes(key),
        attempt: AttemptId::from_bytes(u128::from(number).to_be_bytes()),
        fingerprint: Fingerprint::from_bytes([1; Fingerprint::BYTES]),
        commit: 1,
        saved_at: Timestamp::now(),
        outgoing: Vec::new(),
        reply: None,
    }
}
