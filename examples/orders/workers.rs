//! The shop as several processes on one database, store and queue. Workers are killed and stopped all the time, and so may
//! be the server; what they leave behind is found by the others.

use std::{
    collections::HashSet,
    slice,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use hapax::{
    Message, MessageId, ObjectDedup, Sender,
    ids::{EndpointName, InvalidId},
};
use indicatif::ProgressBar;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::{
    Options, Refusal,
    apart::Apart,
    backend::Backend,
    broker::Kind,
    card_service::CardService,
    crew::Crew,
    desk::Desk,
    disk,
    door::Door,
    input::Input,
    look::Look,
    messages::{PlaceOrder, StockArrived},
    place::{Database, Kept, Own},
    refusal::again,
    say,
    shop::{self, ENDPOINT, Run, STUCK},
    telemetry::Telemetry,
    watch::Watch,
};

/// How long the messages of a killed worker stay hidden.
pub(crate) const LEASE: Duration = Duration::from_secs(1);
/// Orders in the shop at a time. More than in one process: a good part of them waits for the leases of the dead.
const ORDERS_AT_A_TIME: usize = 300;
/// On a server, which is away now and then, an order may take longer than on a file.
const STUCK_ON_SERVER: Duration = Duration::from_secs(120);
/// How late a RabbitMQ server that was killed gives what waits for its time: it is between two of its queues then, where nobody counts it.
const LATE: Duration = Duration::from_secs(200);
/// How often the database is looked at for orders that are decided.
const LOOK: Duration = Duration::from_millis(20);
/// How often the dead letters are looked at. An order that is one is not decided, and takes up room until somebody has dealt with it.
const DESK_EVERY: Duration = Duration::from_secs(1);

/// Opens the database, starts the workers, lets everybody in, and closes when all is done. Servers of the run's own are
/// killed as the options say.
pub(crate) async fn run<B: Backend>(
    place: &B::Place,
    database: &Database,
    mut own: Own<'_>,
    input: &Input,
    options: &Options,
    seed: u64,
    telemetry: Option<&Telemetry>,
) -> Result<Run, Refusal> {
    let what = format!("{database} cannot be used");
    let opened = B::open(place, database.broker.as_ref(), true).await.map_err(|e| Refusal::of_store(&what, &e))?;
    CardService::found(&database.ledger).await.map_err(|e| Refusal::of_ledger(database, &e))?;
    let desk = open_desk(&opened, database, seed, telemetry).await?;
    let (begun, workers) = (Instant::now(), options.workers());
    let mut crew = Crew::hire(database, options, telemetry.map(Telemetry::workers), seed)?;
    let mut day = Day::begin(&opened, database, input, desk, crew.decided.clone());
    if own.broker.is_some() && database.broker.as_ref().is_some_and(|broker| broker.kind() == Kind::RabbitMq) {
        say(format_args!("RabbitMQ is to be quiet for {LATE:?} before the books are checked"));
        day.quiet = LATE;
    }
    let ended = tokio::select! {
        done = day.go_on() => done,
        refusal = disk::full(database) => Err(refusal),
        trouble = crew.harass(options) => Err(trouble),
        trouble = own.harass(options.kill_server(), options.kill_broker()) => Err(trouble),
    };
    let ended = match ended {
        // Workers that cannot write to the ledger end; each says so, and here it is said once for all of them.
        Err(trouble) => Err(disk::check(database).await.err().unwrap_or(trouble)),
        ended => ended,
    };
    day.bar.finish_and_clear();
    let time = begun.elapsed();
    own.restart().await?; // The day may have ended at the very moment at which one was killed.
    let [server_kills, broker_kills] = [&own.database, &own.broker].map(|server| Some(server.as_ref()?.kills));
    // After a refusal nothing that is under way is waited for: it may be what cannot be done.
    let ended = match ended {
        Ok(over) => day.end(&mut crew, over).await,
        Err(trouble) => Err(trouble),
    };
    opened.close().await;
    let kept = match &database.kept {
        Kept::File(_) => "file",
        Kept::Postgres(_) => "PostgreSQL server",
        Kept::MySql(_) => "MariaDB server",
        Kept::Service(_) => "service",
    };
    let place = match (&database.kept, &database.broker) {
        (_, Some(broker)) => format!("{kept}, messages over {}", broker.kind()),
        (Kept::Service(_), None) => format!("{kept}, queues in a file"),
        (_, None) => format!("{kept}, store and queue"),
    };
    let (kills, stalls, stopped) = (crew.kills, crew.stalls, crew.stopped);
    ended.map(|()| Run { time, workers, kills, stalls, stopped, place, server_kills, broker_kills, ..Run::default() })
}

/// The desk for the dead letters is in this process, and reaches what the workers have.
async fn open_desk<B: Backend>(
    opened: &B,
    database: &Database,
    seed: u64,
    telemetry: Option<&Telemetry>,
) -> Result<Desk, Refusal> {
    let dedup = match &database.dedup {
        Some(apart) => Some(make(apart).await?),
        None => None,
    };
    let cannot = |e: &dyn std::fmt::Display| Refusal::new(format!("{database} cannot be used: {e}"));
    let (cards, _) = CardService::join(&database.ledger, seed).await.map_err(|e| cannot(&e))?;
    let watch = Arc::new(Watch::with(telemetry.map(Telemetry::observer)));
    let door = Door::with_bar(ORDERS_AT_A_TIME, ProgressBar::hidden());
    let shop = || shop::endpoint(opened.store().clone(), dedup.clone(), opened.queue().clone(), &cards, &door, &watch);
    Desk::open(shop, opened.sender(), database.patience()).await
}

/// Makes the place for the dedup entries.
async fn make(apart: &Apart) -> Result<ObjectDedup, Refusal> {
    match apart.open(true).await {
        Ok(dedup) => Ok(dedup),
        Err(e) => {
            let full = match apart.as_folder() {
                Some(folder) if folder.is_dir() => disk::check_folder(folder).await.err(),
                _ => None,
            };
            Err(full.unwrap_or_else(|| Refusal::of_store(&format!("{apart} cannot be used"), &e)))
        }
    }
}

/// The orders of the day: what has come in, and what is decided.
struct Day<'d, B> {
    stock: slice::Iter<'d, StockArrived>,
    orders: slice::Iter<'d, PlaceOrder>,
    backend: &'d B,
    sender: Sender,
    look: Look,
    desk: Desk,
    /// How long what fails may be tried again.
    patience: Duration,
    /// How long nothing is to be left before all is done.
    quiet: Duration,
    open: HashSet<String>,
    /// Told the crew: grows whenever something has been decided.
    decided: Arc<AtomicU64>,
    bar: ProgressBar,
}

impl<'d, B: Backend> Day<'d, B> {
    fn begin(backend: &'d B, database: &Database, input: &'d Input, desk: Desk, decided: Arc<AtomicU64>) -> Self {
        Self {
            stock: input.stock.iter(),
            orders: input.orders.iter(),
            backend,
            sender: backend.sender(),
            look: Look::into(database),
            desk,
            patience: database.patience(),
            quiet: backend.hides_for(),
            open: HashSet::new(),
            decided,
            bar: shop::bar(input.orders.len()),
        }
    }

    /// Sends what comes in, and waits until nothing is left anywhere; `false` if something is and does not move.
    async fn go_on(&mut self) -> Result<bool, Refusal> {
        while let Some(arrived) = self.stock.next() {
            self.send(arrived).await?;
        }
        let (mut looks, mut moved) = (interval(LOOK), Instant::now());
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut quiet, mut read) = (Instant::now(), Instant::now());
        loop {
            while self.open.len() < ORDERS_AT_A_TIME
                && let Some(order) = self.orders.next()
            {
                self.send(order).await?;
                self.open.insert(order.order.clone());
            }
            looks.tick().await;
            if self.look().await? > 0 {
                moved = Instant::now();
                self.decided.fetch_add(1, Ordering::Relaxed);
            }
            let mut over = self.open.is_empty() && self.orders.len() == 0 && self.is_over().await?;
            if over || read.elapsed() >= DESK_EVERY {
                over &= self.read_letters().await?;
                read = Instant::now();
            }
            quiet = if over { quiet } else { Instant::now() };
            if over {
                if quiet.elapsed() >= self.quiet {
                    return Ok(true);
                }
                moved = Instant::now(); // Nothing is left that could move.
                continue;
            }
            let stuck = if self.patience.is_zero() { STUCK } else { STUCK_ON_SERVER };
            if moved.elapsed() > stuck {
                say(format_args!("nothing has moved for {stuck:?}; the books are checked as they are"));
                return Ok(false);
            }
        }
    }

    /// Sends the workers home. A broker gives back what they held and does not say before how much that is: if it is
    /// anything, others come, who are left alone.
    async fn end(&mut self, crew: &mut Crew, mut over: bool) -> Result<(), Refusal> {
        loop {
            crew.send_home()?;
            let hides_for = self.backend.hides_for();
            if hides_for.is_zero() || !over {
                return self.desk.close().await;
            }
            let home = Instant::now();
            loop {
                if !self.is_over().await? {
                    break;
                }
                if home.elapsed() >= hides_for {
                    return self.desk.close().await;
                }
                sleep(LOOK).await;
            }
            crew.hire_again()?;
            over = self.go_on().await?;
        }
    }

    /// Sends one message. If the answer does not come it is sent again, under the same id: it may have left.
    async fn send(&self, message: &impl Message) -> Result<(), Refusal> {
        let id = MessageId::random();
        let send = async || self.sender.send_as(id.clone(), ENDPOINT, message).await.map_err(|e| Refusal::of_send(&e));
        again(self.patience, send).await
    }

    /// Sends the desk through the dead letters; answers whether there were none.
    async fn read_letters(&mut self) -> Result<bool, Refusal> {
        match self.desk.round().await {
            Ok(letters) => Ok(letters == 0),
            // A server that is away is waited for by whoever looks for orders next, and a table that is gone is told there.
            Err(trouble) if trouble.is_passing() && !self.patience.is_zero() => Ok(false),
            Err(trouble) => {
                self.look().await?;
                Err(trouble)
            }
        }
    }

    /// Takes out the orders that are decided; answers how many.
    async fn look(&mut self) -> Result<usize, Refusal> {
        let (look, open) = (&mut self.look, &self.open);
        let decided = again(self.patience, async || look.decided(open).await).await;
        let decided = decided.map_err(|e| Refusal::new(format!("which orders are decided cannot be read: {e}")))?;
        for order in &decided {
            self.open.remove(order);
        }
        self.bar.inc(decided.len() as u64);
        Ok(decided.len())
    }

    /// No message under way, and no outbox entry left.
    async fn is_over(&self) -> Result<bool, Refusal> {
        let named = |e: InvalidId| Refusal::new(e.to_string());
        let endpoint: EndpointName = ENDPOINT.parse().map_err(named)?;
        let is_over = async || {
            let backlog = self.backend.backlog(&endpoint).await;
            let backlog = backlog.map_err(|e| Refusal::of_store("the messages cannot be counted", &e))?;
            Ok(backlog == 0 && !shop::work_is_left(self.backend.store()).await?)
        };
        again(self.patience, is_over).await
    }
}
