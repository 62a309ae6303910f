//! The sweeper's question and its work among many entities and among few: it must not go through them all.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::{StreamExt, TryStreamExt, stream};
use hapax::{
    Context, Correlation, Endpoint, Handle, HandlerError, InProcess, Message, Saga, Sqlite,
    endpoint::Settings,
    entity::{Entity, Expected, OutboxEntry},
    ids::{AttemptId, DedupKey, EndpointName, EntityKey, Fingerprint, SagaKey, SagaName, Scope},
    metrics::{Event, Metrics},
    ports::{EntityStore, Saved},
    stores::sqlite::Synchronous,
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use tokio::{sync::Notify, time::timeout};

use super::{Figure, Options, millis};
use crate::{AnyError, figure::percentile};

const PENDING: usize = 100;
const FEW: u32 = 1000;
const PAGE: usize = 100;
const AT_A_TIME: usize = 1024;
/// Questions of one round, of which the median counts.
const QUESTIONS: usize = 25;
const AT_MOST: f64 = 2.0;
const ENDPOINT: &str = "service";
/// Far beyond any sweep.
const STUCK: Duration = Duration::from_secs(60);

/// Milliseconds of one round on one file.
#[derive(Debug, Clone, Copy)]
struct Times {
    asked: f64,
    swept: f64,
    asked_in_vain: f64,
}

pub(super) fn measure(dir: &Path, options: &Options) -> Result<Vec<Figure>, AnyError> {
    super::runtime()?.block_on(async {
        let few = File::filled(&dir.join("few.db"), FEW).await?;
        let many = File::filled(&dir.join("many.db"), options.entities).await?;
        let mut rounds = Vec::new();
        for round in 0..u32::try_from(options.rounds)? {
            // In turn: who comes second finds the disk as the first has left it.
            if round % 2 == 0 {
                let first = few.round(round).await?;
                rounds.push((first, many.round(round).await?));
            } else {
                let first = many.round(round).await?;
                rounds.push((few.round(round).await?, first));
            }
        }
        few.store.close().await;
        many.store.close().await;
        let mut figures = Vec::new();
        figures.extend(compared("asked for 100 that wait", options.entities, &rounds, |times| times.asked));
        figures.extend(compared("an endpoint's sweep of 100", options.entities, &rounds, |times| times.swept));
        figures.extend(compared("asked when none waits", options.entities, &rounds, |times| times.asked_in_vain));
        Ok(figures)
    })
}

fn compared(what: &str, entities: u32, rounds: &[(Times, Times)], of: impl Fn(Times) -> f64) -> [Figure; 3] {
    let (few, many): (Vec<_>, Vec<_>) = rounds.iter().map(|(few, many)| (of(*few), of(*many))).unzip();
    let ratios = few.iter().zip(&many).map(|(few, many)| many / few).collect();
    [
        Figure::of(format!("sweep: {what}, among {FEW}"), "ms", few),
        Figure::of(format!("sweep: {what}, among {entities}"), "ms", many),
        Figure::of(format!("sweep: {what}, the one over the other"), "", ratios).median_at_most(AT_MOST),
    ]
}

/// A file with entities, some of which are to be swept again and again.
struct File {
    store: Sqlite,
    scope: Arc<Scope>,
    keys: Vec<EntityKey>,
}

impl File {
    async fn filled(path: &Path, entities: u32) -> Result<Self, AnyError> {
        let scope = Arc::new(Scope { endpoint: EndpointName::parse(ENDPOINT)?, saga: SagaName::parse(Swept::NAME)? });
        let key = |number| Ok::<_, AnyError>(EntityKey::new(scope.clone(), SagaKey::parse(format!("{number:09}"))?));
        let options = Sqlite::options(path).create_if_missing(true).migrate(true);
        let store = options.synchronous(Synchronous::Normal).open().await?;
        let saves = (0..entities).map(|number| {
            let (store, key) = (&store, &key);
            async move {
                let entity = Entity { state: vec![1; 200].into(), ..Entity::default() };
                saved(store.save(&key(number)?, &Expected::Absent, &entity, &[]).await?)
            }
        });
        stream::iter(saves).buffer_unordered(AT_A_TIME).try_collect::<()>().await?;
        store.close().await;
        // Spread over all keys.
        let keys = (0..entities).step_by(entities as usize / PENDING).take(PENDING).map(key);
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        Ok(Self { store: Sqlite::open(path).await?, scope, keys })
    }

    async fn round(&self, round: u32) -> Result<Times, AnyError> {
        for (number, key) in (0..).zip(&self.keys) {
            let stored = self.store.load(key, &[]).await?.stored.ok_or("an entity is gone")?;
            let entity = Entity { outbox: vec![Arc::new(entry(round, number))], ..stored.entity };
            saved(self.store.save(key, &Expected::Version(stored.version), &entity, &[]).await?)?;
        }
        let asked = self.asked(PENDING).await?;
        let swept = self.swept().await?;
        let asked_in_vain = self.asked(0).await?;
        Ok(Times { asked, swept, asked_in_vain })
    }

    /// How long it takes to be told of all that wait, which are so many.
    async fn asked(&self, wait: usize) -> Result<f64, AnyError> {
        let mut times = Vec::new();
        for _ in 0..QUESTIONS {
            let begun = Instant::now();
            let (mut after, mut found) = (None, 0);
            loop {
                let page = self.store.pending(&self.scope, Duration::ZERO, after.as_ref(), PAGE).await?;
                found += page.len();
                match page.last() {
                    Some(last) if page.len() == PAGE => after = Some(last.key.clone()),
                    _ => break,
                }
            }
            times.push(millis(begun.elapsed()));
            if found != wait {
                return Err(format!("{found} wait to be swept, not {wait}").into());
            }
        }
        Ok(percentile(&mut times, 50).unwrap_or(f64::NAN))
    }

    /// How long an endpoint takes to finish what waits.
    async fn swept(&self) -> Result<f64, AnyError> {
        let done = Arc::new(Finished::default());
        let settings = Settings { sweep_age: Duration::ZERO, ..Settings::default() };
        let endpoint = Endpoint::builder(ENDPOINT)
            .store(self.store.clone())
            .transport(InProcess::new(ENDPOINT))
            .saga::<Swept>(|swept| swept.starts::<Never>())
            .settings(settings)
            .metrics(done.clone())
            .start()
            .await?;
        let begun = Instant::now();
        let mut in_time = false;
        endpoint.run_until(async { in_time = timeout(STUCK, done.all.notified()).await.is_ok() }).await?;
        if in_time { Ok(millis(begun.elapsed())) } else { Err("what waits is not swept".into()) }
    }
}

fn saved(saved: Saved) -> Result<(), AnyError> {
    match saved {
        Saved::At(_) => Ok(()),
        Saved::Conflict => Err("an entity was changed by somebody else".into()),
    }
}

fn entry(round: u32, number: u32) -> OutboxEntry {
    let mut key = [7; DedupKey::BYTES];
    key[..4].copy_from_slice(&round.to_be_bytes());
    key[4..8].copy_from_slice(&number.to_be_bytes());
    OutboxEntry {
        key: DedupKey::from_bytes(key),
        attempt: AttemptId::from_bytes((u128::from(round) << 32 | u128::from(number)).to_be_bytes()),
        fingerprint: Fingerprint::from_bytes([1; Fingerprint::BYTES]),
        commit: 1,
        saved_at: Timestamp::now(),
        outgoing: Vec::new(),
        reply: None,
        reply_sent: false,
    }
}

/// Wakes who waits when all entries are finished.
#[derive(Debug, Default)]
struct Finished {
    entries: AtomicUsize,
    all: Notify,
}

impl Metrics for Finished {
    fn observe(&self, event: Event<'_>) {
        if let Event::Swept(_, entries) = event
            && self.entries.fetch_add(entries, Ordering::Relaxed) + entries >= PENDING
        {
            self.all.notify_one();
        }
    }
}

/// Its state is never read: nothing is handled.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Swept;

impl Saga for Swept {
    const NAME: &'static str = "swept";
}

#[derive(Debug, Serialize, Deserialize)]
struct Never;

impl Message for Never {
    const TYPE: &'static str = "bench.never";
}

impl Handle<Never> for Swept {
    fn correlate(_never: &Never) -> Correlation<'_> {
        Correlation::of("never", "never")
    }

    async fn handle(&mut self, _never: Never, _cx: &mut Context) -> Result<(), HandlerError> {
        Ok(())
    }
}
