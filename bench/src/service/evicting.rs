//! Inserts and saves, one at a time, while old entries are evicted: what that costs others.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future;
use hapax::{
    Endpoint, InProcess, Saga, Sqlite,
    endpoint::Settings,
    entity::{Entity, Expected},
    ids::{EndpointName, EntityKey, SagaKey, SagaName, Scope},
    ports::{DedupStore, EntityStore, Saved},
};
use sqlx::Connection;
use tokio::sync::oneshot;

use super::{
    Figure, Options,
    counted::{self, beside},
    millis, startup,
};
use crate::{
    AnyError,
    figure::percentile,
    template::{template, with_file},
    workload::{Account, Deposit},
};

/// Old entries: more than can be evicted while it is measured.
const OLD: u64 = 3_000_000;
const WINDOW: Duration = Duration::from_secs(4);
/// The same for what is not judged.
const QUICK_WINDOW: Duration = Duration::from_millis(500);
const QUICK_OLD: u64 = 800_000;
const AT_MOST: f64 = 2.0;
const ROWS: &str = "SELECT count(*) FROM hapax_dedup";
const OLD_ROWS: &str =
    "SELECT EXISTS (SELECT 1 FROM hapax_dedup WHERE generation < (SELECT min(id) FROM hapax_generation))";

/// Who evicts meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Evicts {
    Nobody,
    /// The upkeep of an endpoint, as in a program.
    Endpoint,
    /// One call after the other, without any rest.
    Ceaseless,
}

const ALL: [Evicts; 3] = [Evicts::Nobody, Evicts::Endpoint, Evicts::Ceaseless];
const WHO: [&str; 3] = ["nothing evicted", "an endpoint's upkeep evicts", "evicting never rests"];

/// Of one window: milliseconds, and entries a second that were evicted.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    insert: Quantiles,
    save: Quantiles,
    evicted: f64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Quantiles {
    p50: f64,
    p99: f64,
}

pub(super) fn measure(dir: &Path, options: &Options) -> Result<Vec<Figure>, AnyError> {
    let runtime = super::runtime()?;
    let (old, time) = if options.judged() { (OLD, WINDOW) } else { (QUICK_OLD, QUICK_WINDOW) };
    let full = template(dir, "evicting", |path| {
        runtime.block_on(async {
            startup::fill(path, old).await?;
            age(path).await
        })
    })?;
    let mut rounds = Vec::new();
    for round in 0..options.rounds {
        let mut windows = [Window::default(); 3];
        // Each round another one first.
        for place in 0..ALL.len() {
            let at = (place + round) % ALL.len();
            windows[at] = with_file(dir, Some(&full), |path| runtime.block_on(window(path, ALL[at], time)))?;
        }
        rounds.push(windows);
    }
    Ok(told(&rounds))
}

fn told(rounds: &[[Window; 3]]) -> Vec<Figure> {
    type Of = fn(&Window) -> Quantiles;
    let kinds: [(&str, Of); 2] = [("an insert", |window| window.insert), ("a save", |window| window.save)];
    let mut figures = Vec::new();
    for (what, of) in kinds {
        let figure = |name: String, unit, value: &dyn Fn(&[Window; 3]) -> f64| {
            Figure::of(format!("evicting: {what}, {name}"), unit, rounds.iter().map(value).collect())
        };
        for (at, who) in WHO.into_iter().enumerate() {
            figures.push(figure(format!("{who}, median"), "ms", &|windows| of(&windows[at]).p50));
            figures.push(figure(format!("{who}, 99 of 100"), "ms", &|windows| of(&windows[at]).p99));
        }
        let ratio = |at: usize| {
            let name = format!("{}, 99 of 100 over that of none", WHO[at]);
            figure(name, "", &|windows| of(&windows[at]).p99 / of(&windows[0]).p99)
        };
        // No program evicts without rest: what that costs is told for comparison.
        figures.extend([ratio(1).median_at_most(AT_MOST), ratio(2)]);
    }
    for at in [1, 2] {
        let evicted = rounds.iter().map(|windows| windows[at].evicted).collect();
        figures.push(Figure::of(format!("evicting: entries evicted, {}", WHO[at]), "/s", evicted));
    }
    figures
}

/// Closed long before any retention: every generation but the newest.
async fn age(path: &Path) -> Result<(), AnyError> {
    let mut file = beside(path).await?;
    sqlx::raw_sql("UPDATE hapax_generation SET opened_at = 0, closed_at = 1 WHERE closed_at IS NOT NULL")
        .execute(&mut file)
        .await?;
    file.close().await?;
    counted::write_back(path).await
}

async fn window(path: &Path, evicts: Evicts, time: Duration) -> Result<Window, AnyError> {
    let before = counted::number(path, ROWS).await?;
    let store = Sqlite::open(path).await?;
    let (stop, stopped) = oneshot::channel::<()>();
    let begun = Instant::now();
    let mut load = Load::new(&store)?;
    let (evicted, inserted) = future::join(evict(store.clone(), evicts, stopped), async {
        let inserted = load.go_on(time).await;
        drop(stop);
        inserted
    })
    .await;
    let seconds = begun.elapsed().as_secs_f64();
    store.close().await;
    evicted?;
    let gone = (before + inserted?).saturating_sub(counted::number(path, ROWS).await?);
    let left = counted::number(path, OLD_ROWS).await? == 1;
    match evicts {
        Evicts::Nobody if gone > 0 => return Err("entries were evicted although nobody did".into()),
        Evicts::Endpoint | Evicts::Ceaseless if gone == 0 || !left => {
            return Err(format!("{gone} entries were evicted, and then there were no more: it says nothing").into());
        }
        _ => {}
    }
    Ok(Window { insert: quantiles(load.inserts), save: quantiles(load.saves), evicted: gone as f64 / seconds })
}

async fn evict(store: Sqlite, evicts: Evicts, mut stopped: oneshot::Receiver<()>) -> Result<(), AnyError> {
    let settings = Settings { evict_interval: Duration::from_millis(10), ..Settings::default() };
    match evicts {
        Evicts::Nobody => drop(stopped.await),
        Evicts::Endpoint => {
            let endpoint = Endpoint::builder("upkeep").store(store).transport(InProcess::new("upkeep"));
            let endpoint = endpoint.saga::<Account>(|account| account.starts::<Deposit>()).settings(settings);
            endpoint.start().await?.run_until(stopped).await?;
        }
        Evicts::Ceaseless => {
            // Its end is the sender's: nothing is ever sent.
            while matches!(stopped.try_recv(), Err(oneshot::error::TryRecvError::Empty)) {
                store.evict(settings.retention).await?;
            }
        }
    }
    Ok(())
}

/// Inserts and saves in turn.
struct Load<'s> {
    store: &'s Sqlite,
    scope: Arc<Scope>,
    inserts: Vec<f64>,
    saves: Vec<f64>,
}

impl<'s> Load<'s> {
    fn new(store: &'s Sqlite) -> Result<Self, AnyError> {
        let scope = Scope { endpoint: EndpointName::parse("evicting")?, saga: SagaName::parse(Account::NAME)? };
        Ok(Self { store, scope: Arc::new(scope), inserts: Vec::new(), saves: Vec::new() })
    }

    /// Tells how many entries it has inserted.
    async fn go_on(&mut self, time: Duration) -> Result<u64, AnyError> {
        const FIRST: u64 = 1 << 40;
        let entity = Entity { state: vec![1; 200].into(), ..Entity::default() };
        let end = Instant::now() + time;
        let mut number = 0;
        while Instant::now() < end {
            let entry = startup::entries(FIRST + number, 1);
            let begun = Instant::now();
            self.store.insert(&entry).await?;
            self.inserts.push(millis(begun.elapsed()));

            let key = EntityKey::new(self.scope.clone(), SagaKey::parse(number.to_string())?);
            let begun = Instant::now();
            let saved = self.store.save(&key, &Expected::Absent, &entity, &[]).await?;
            self.saves.push(millis(begun.elapsed()));
            if saved == Saved::Conflict {
                return Err("an entity was there already".into());
            }
            number += 1;
        }
        Ok(number)
    }
}

fn quantiles(mut times: Vec<f64>) -> Quantiles {
    let mut of = |percent| percentile(&mut times, percent).unwrap_or(f64::NAN);
    Quantiles { p50: of(50), p99: of(99) }
}
