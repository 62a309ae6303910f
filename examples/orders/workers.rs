//! The shop as several processes on one file, store and queue. Workers are killed and stopped all the time; what they
//! leave behind is found by the others.

use std::{
    collections::HashSet,
    path::Path,
    time::{Duration, Instant},
};

use hapax::{Sqlite, SqliteQueue, ids::InvalidId};
use indicatif::ProgressBar;
use sqlx::{Connection, SqliteConnection, sqlite::SqliteConnectOptions};
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    Options, Refusal,
    card_service::CardService,
    crew::Crew,
    input::Input,
    say,
    shop::{self, ENDPOINT, Run, STUCK},
};

/// How long the messages of a killed worker stay hidden.
pub(crate) const LEASE: Duration = Duration::from_secs(1);
/// Orders in the shop at a time. More than in one process: a good part of them waits for the leases of the dead.
const ORDERS_AT_A_TIME: usize = 300;
/// How often the file is looked at for orders that are decided.
const LOOK: Duration = Duration::from_millis(20);

/// Orders among `?1` that are decided. The state is JSON behind a frame of two bytes.
const DECIDED: &str = "
    SELECT e.key FROM json_each(?1) AS asked
    CROSS JOIN hapax_scope AS s ON s.saga = 'order'
    CROSS JOIN hapax_entity AS e INDEXED BY hapax_entity_key ON e.scope = s.id AND e.key = asked.value
    WHERE json_extract(CAST(substr(e.state, 3) AS TEXT), '$.status') NOT IN ('new', 'reserving', 'paying')";

/// Opens the files, starts the workers, lets everybody in, and closes when all is done.
pub(crate) async fn run(
    database: &Path,
    input: &Input,
    options: &Options,
    workers: u32,
    seed: u64,
) -> Result<Run, Refusal> {
    let cannot = |e: &dyn std::fmt::Display| Refusal::new(format!("{} cannot be used: {e}", database.display()));
    let store = Sqlite::open(database).await.map_err(|e| cannot(&e))?;
    let queue = SqliteQueue::options().lease(LEASE).on(&store).await.map_err(|e| cannot(&e))?;
    CardService::found(database).await.map_err(|e| cannot(&e))?;
    let begun = Instant::now();
    let mut crew = Crew::hire(database, options, workers, seed)?;
    let mut day = Day::begin(database, input).await.map_err(|e| cannot(&e))?;
    let ended = tokio::select! {
        done = day.go_on(&queue, &store) => done,
        trouble = crew.harass(options) => Err(trouble),
        interrupted = tokio::signal::ctrl_c() => {
            interrupted.map_err(|e| cannot(&e)).and_then(|()| Err(Refusal::interrupted()))
        }
    };
    day.bar.finish_and_clear();
    let time = begun.elapsed();
    crew.send_home()?;
    store.close().await;
    ended.map(|()| Run { time, workers, kills: crew.kills, stalls: crew.stalls, ..Run::default() })
}

/// The orders of the day: what has come in, and what is decided.
struct Day<'i> {
    input: &'i Input,
    file: SqliteConnection,
    open: HashSet<String>,
    bar: ProgressBar,
}

impl<'i> Day<'i> {
    async fn begin(database: &Path, input: &'i Input) -> Result<Self, sqlx::Error> {
        let options = SqliteConnectOptions::new().filename(database).read_only(true);
        let file = SqliteConnection::connect_with(&options).await?;
        Ok(Self { input, file, open: HashSet::new(), bar: shop::bar(input.orders.len()) })
    }

    /// Sends what comes in, each message once, and waits until nothing is left anywhere.
    async fn go_on(&mut self, queue: &SqliteQueue, store: &Sqlite) -> Result<(), Refusal> {
        let refused = |e| Refusal::caused("sending failed", &e);
        let failed = |e: sqlx::Error| Refusal::new(format!("the orders cannot be looked at: {e}"));
        let sender = queue.sender();
        for arrived in &self.input.stock {
            sender.send(ENDPOINT, arrived).await.map_err(refused)?;
        }
        let (mut looks, mut moved) = (interval(LOOK), Instant::now());
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut orders = self.input.orders.iter();
        loop {
            while self.open.len() < ORDERS_AT_A_TIME
                && let Some(order) = orders.next()
            {
                sender.send(ENDPOINT, order).await.map_err(refused)?;
                self.open.insert(order.order.clone());
            }
            looks.tick().await;
            if self.look().await.map_err(failed)? > 0 {
                moved = Instant::now();
            }
            if self.open.is_empty() && orders.len() == 0 && self.is_over(queue, store).await? {
                return Ok(());
            }
            if moved.elapsed() > STUCK {
                say(format_args!("nothing has moved for {STUCK:?}; the books are checked as they are"));
                return Ok(());
            }
        }
    }

    /// Takes out the orders that are decided; answers how many.
    async fn look(&mut self) -> Result<usize, sqlx::Error> {
        let asked = serde_json::to_string(&self.open).unwrap_or_default();
        let decided: Vec<String> = sqlx::query_scalar(DECIDED).bind(asked).fetch_all(&mut self.file).await?;
        for order in &decided {
            self.open.remove(order);
        }
        self.bar.inc(decided.len() as u64);
        Ok(decided.len())
    }

    /// No message under way, and no outbox entry left.
    async fn is_over(&self, queue: &SqliteQueue, store: &Sqlite) -> Result<bool, Refusal> {
        let named = |e: InvalidId| Refusal::new(e.to_string());
        let backlog = queue.backlog(&ENDPOINT.parse().map_err(named)?).await;
        let backlog = backlog.map_err(|e| Refusal::new(e.to_string()))?;
        Ok(backlog == 0 && !shop::work_is_left(store).await?)
    }
}
