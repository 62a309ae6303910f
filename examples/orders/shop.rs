//! The shop: one endpoint with three sagas on one SQLite file, and everything that goes wrong on purpose.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{
    TryFutureExt,
    future::{try_join, try_join_all},
};
use hapax::{
    Endpoint, InProcess, ObjectDedup, Registry, Saga, Sender, Sqlite,
    deliver::{Recoverability, Rule, Tries},
    endpoint::{EndpointBuilder, Settings},
    ids::Scope,
    ports::{DeadLetters, DedupStore, EntityStore, Transport},
    testing::Drops,
    transports::in_process::Faults,
};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::{sync::watch, time::error::Elapsed};

use crate::{
    Options, Refusal,
    breaks::{self, Sabotage},
    card_number::UnknownIssuer,
    card_service::{self, CardBusy, CardService},
    desk::Desk,
    disk,
    door::Door,
    input::Input,
    messages::{
        CancelPayment, OutOfStock, PaymentOverdue, PaymentRefused, PaymentTaken, PlaceOrder, ReserveStock, ReturnStock,
        ShipStock, StockArrived, StockReserved, TakePayment, WriteOff,
    },
    order::Order,
    payment::Payment,
    place::Database,
    say,
    stock::Stock,
    telemetry::Telemetry,
    watch::{Counted, Watch},
};

/// Name of the endpoint: part of every dedup key.
pub(crate) const ENDPOINT: &str = "shop";
/// How long a message stays away when the pass that had it was dropped: far below the payment's timeout, so that few
/// orders are overdue for this alone.
const LEASE: Duration = Duration::from_millis(250);
/// Copies and messages held back come within this time.
const DELAY_MAX: Duration = Duration::from_millis(100);
/// Orders in the shop at a time: enough to keep the disk busy, few enough that none waits until it is overdue.
const ORDERS_AT_A_TIME: usize = 100;
/// How often an order whose card's issuer is not in the list is given, before it is a dead letter.
pub(crate) const ISSUER_DELIVERIES: u32 = 4;
/// When nothing has come to an end for so long, something is broken, and the books will say what.
pub(crate) const STUCK: Duration = Duration::from_secs(30);

/// What the run counted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Run {
    /// Processes; 0: this one alone.
    pub(crate) workers: u32,
    /// Workers that were killed.
    pub(crate) kills: u64,
    /// Workers that were stopped, and for how long.
    pub(crate) stalls: u64,
    pub(crate) stopped: &'static str,
    /// Where store and queue were, if in workers; and how often that, or the broker, was killed, if it was the run's own.
    pub(crate) place: String,
    pub(crate) server_kills: Option<u64>,
    pub(crate) broker_kills: Option<u64>,
    /// What the observer has counted, if all was in this process.
    pub(crate) counted: Counted,
    pub(crate) passes_dropped: u64,
    pub(crate) card_calls: u64,
    pub(crate) card_declined: u64,
    pub(crate) card_garbled: u64,
    pub(crate) time: Duration,
}

/// Opens the shop, lets everybody in, and closes when all is done.
pub(crate) async fn run(
    database: &Path,
    input: &Input,
    options: &Options,
    seed: u64,
    sabotage: Option<&Sabotage>,
    telemetry: Option<&Telemetry>,
) -> Result<Run, Refusal> {
    let cannot = |e: &dyn std::fmt::Display| Refusal::new(format!("{} cannot be used: {e}", database.display()));
    let store = Sqlite::open(database).await.map_err(|e| cannot(&e))?;
    let (cards, mut clerk) =
        CardService::open(database, seed).await.map_err(|e| Refusal::of_ledger(database.display(), &e))?;
    let pace = Pace::of(sabotage, input);
    let queue = InProcess::with_faults(ENDPOINT, LEASE, faults(options, seed, pace.delay_max));
    let drops = Drops::new(seed, options.crashes());
    let door = Door::with_bar(pace.room, bar(input.orders.len()));
    let watch = Arc::new(Watch::with(telemetry.map(Telemetry::observer)));

    let (stop, stopped) = watch::channel(false);
    let mut workers = Vec::with_capacity(pace.workers);
    for number in 1..=pace.workers {
        let shop = match sabotage {
            None => endpoint(store.clone(), None, queue.clone(), &cards, &door, &watch),
            Some(sabotage) => {
                let (store, queue) = sabotage.ports(number, store.clone(), queue.clone());
                let settings = Settings { in_flight_max: breaks::IN_FLIGHT_MAX, ..settings() };
                endpoint(store, None, queue, &cards, &door, &watch).settings(settings)
            }
        };
        let shop = shop.drops(drops.clone()).start().await.map_err(|e| Refusal::new(e.to_string()))?;
        let mut stopped = stopped.clone();
        workers.push(shop.run_until(async move { stopped.wait_for(|stopped| *stopped).await.map(drop) }));
    }

    let kept = Database::file(database);
    let shop = || endpoint(store.clone(), None, queue.clone(), &cards, &door, &watch);
    let mut desk = Desk::open(shop, queue.sender(), kept.patience()).await?;
    let begun = Instant::now();
    let business = async {
        let day = async {
            feed(&queue.sender(), &door, input).await?;
            loop {
                all_done(&queue, &store, &watch, &pace).await?;
                // Last of all the desk: no copy of a letter that it mends is under way any more.
                if desk.round().await? == 0 {
                    return Ok(());
                }
            }
        };
        let ended = tokio::select! {
            done = day => done,
            // A clerk ends before his clients only if he cannot write.
            gone = &mut clerk => Err(card_service::why_gone(database, gone)),
            refusal = disk::full(&kept) => Err(refusal),
            () = watch.stuck(pace.stuck) => {
                let quiet = pace.stuck;
                say(format_args!("nothing has moved for {quiet:?}; the books are checked as they are"));
                Ok(())
            }
        };
        stop.send_replace(true);
        ended
    };
    let closed = try_join_all(workers).map_err(|e| Refusal::new(e.to_string()));
    // After a refusal nothing that is under way is waited for: it may be what cannot be done.
    let ended = try_join(closed, business).await.map(drop);
    let time = begun.elapsed();
    door.close();

    let (card_calls, card_declined, card_garbled) = (cards.calls(), cards.declined(), cards.garbled());
    drop((cards, desk)); // The last clients: the clerk goes home.
    if ended.is_ok() {
        clerk.await.map_err(|e| cannot(&e))?.map_err(|e| cannot(&e))?;
    }
    store.close().await;
    ended.map(|()| Run {
        workers: 0,
        kills: 0,
        stalls: 0,
        stopped: "",
        place: String::new(),
        server_kills: None,
        broker_kills: None,
        counted: watch.counted(),
        passes_dropped: drops.dropped(),
        card_calls,
        card_declined,
        card_garbled,
        time,
    })
}

/// How a day goes.
struct Pace {
    workers: usize,
    /// Orders in the shop at a time.
    room: usize,
    delay_max: Duration,
    /// The day is over when nothing has come to an end for so long, once the queue is empty.
    quiet: Duration,
    /// When nothing has come to an end for so long, something is broken, and the books will say what.
    stuck: Duration,
}

impl Pace {
    fn of(sabotage: Option<&Sabotage>, input: &Input) -> Self {
        match sabotage {
            None => {
                Self { workers: 1, room: ORDERS_AT_A_TIME, delay_max: DELAY_MAX, quiet: Duration::ZERO, stuck: STUCK }
            }
            Some(sabotage) => Self {
                workers: breaks::WORKERS,
                room: input.orders.len(), // An order that got lost never leaves.
                delay_max: breaks::DELAY_MAX,
                quiet: sabotage.quiet(),
                stuck: sabotage.stuck().unwrap_or(STUCK),
            },
        }
    }
}

/// The shop itself, wherever it keeps its sagas and gets its messages from.
pub(crate) fn endpoint<S: EntityStore + DedupStore + DeadLetters + Clone + 'static>(
    store: S,
    dedup: Option<ObjectDedup>,
    transport: impl Transport + 'static,
    cards: &CardService,
    door: &Door,
    watch: &Arc<Watch>,
) -> EndpointBuilder {
    let builder = Endpoint::builder(ENDPOINT);
    let builder = match dedup {
        None => builder.store(store),
        Some(dedup) => builder.entities(store.clone()).dedup(dedup).dead_letters(store),
    };
    builder
        .transport(transport)
        .saga(order_messages)
        .saga(payment_messages)
        .saga(stock_messages)
        .with(cards.clone())
        .with(door.clone())
        .settings(settings())
        .metrics(watch.clone())
}

/// The messages that each saga knows.
pub(crate) fn order_messages(order: Registry<Order>) -> Registry<Order> {
    order
        .starts::<PlaceOrder>()
        .starts::<WriteOff>()
        .handles::<StockReserved>()
        .handles::<OutOfStock>()
        .handles::<PaymentTaken>()
        .handles::<PaymentRefused>()
        .handles::<PaymentOverdue>()
}

pub(crate) fn payment_messages(payment: Registry<Payment>) -> Registry<Payment> {
    payment.starts::<TakePayment>().starts::<CancelPayment>()
}

pub(crate) fn stock_messages(stock: Registry<Stock>) -> Registry<Stock> {
    stock.starts::<StockArrived>().starts::<ReserveStock>().handles::<ReturnStock>().handles::<ShipStock>()
}

/// Sends what comes in, each message once; the faults make copies.
async fn feed(sender: &Sender, door: &Door, input: &Input) -> Result<(), Refusal> {
    let refused = |e| Refusal::caused("sending failed", &e);
    for arrived in &input.stock {
        sender.send(ENDPOINT, arrived).await.map_err(refused)?;
    }
    for order in &input.orders {
        door.enter().await;
        sender.send(ENDPOINT, order).await.map_err(refused)?;
    }
    Ok(())
}

/// Waits until no message is under way and no outbox entry is left to the sweeper.
async fn all_done(queue: &InProcess, store: &Sqlite, watch: &Watch, pace: &Pace) -> Result<(), Refusal> {
    const LOOK_AGAIN: Duration = Duration::from_millis(50);
    loop {
        queue.idle().await;
        watch.stuck(pace.quiet).await;
        if !work_is_left(store).await? {
            return Ok(());
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

pub(crate) async fn work_is_left(store: &impl EntityStore) -> Result<bool, Refusal> {
    for saga in [Order::NAME, Payment::NAME, Stock::NAME] {
        let named = |e: hapax::ids::InvalidId| Refusal::new(e.to_string());
        let scope = Scope { endpoint: ENDPOINT.parse().map_err(named)?, saga: saga.parse().map_err(named)? };
        let pending = store.pending(&Arc::new(scope), Duration::ZERO, None, 1).await;
        if !pending.map_err(|e| Refusal::of_store("what is left to do cannot be looked at", &e))?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn faults(options: &Options, seed: u64, delay_max: Duration) -> Faults {
    Faults {
        seed,
        duplicates: options.duplicates(),
        reorder: options.duplicates(),
        delay_max,
        // Half, so that messages come to an end even when every pass is asked to crash.
        lost_acks: options.crashes() / 2.0,
    }
}

/// What differs from the defaults, because this shop crashes all day on purpose and has seconds to live.
pub(crate) fn settings() -> Settings {
    /// Crashes are not the messages' fault here: none is given up for one.
    const OFTEN: u32 = 1_000;
    let ms = Duration::from_millis;
    let recoverability = Recoverability {
        // For an answer that is garbled: who asks again at once is told the same.
        in_place: Tries::new(2, ms(1), ms(5)),
        attempts_max: OFTEN,
        retry_delay: ms(200),
        retry_delay_max: ms(1000),
        poison_above: OFTEN,
        ..Recoverability::default()
    };
    let usual = Rule { attempts_max: OFTEN, retry_delay: ms(200), retry_delay_max: ms(1000), ..Rule::default() };
    let soon = Rule { in_place: false, retry_delay: ms(25), retry_delay_max: ms(200), ..usual };
    let recoverability = recoverability
        // Who is out of order says so at once, so that asking again costs little and the order need not be overdue for it.
        .on::<CardBusy>(soon)
        // A card company that was silent will not speak ten milliseconds later: give the message back at once, so that
        // the cancellation behind it gets its turn.
        .on::<Elapsed>(Rule { in_place: false, ..usual })
        // The list may have it soon. If it has not, a person looks.
        .on::<UnknownIssuer>(Rule { attempts_max: ISSUER_DELIVERIES, ..soon });
    Settings {
        recoverability,
        // Earlier than an owner may still be sending: that costs a duplicate, and time is short.
        sweep_age: Duration::from_secs(1),
        sweep_interval: Duration::from_millis(250),
        ..Settings::default()
    }
}

/// A progress bar on standard error; indicatif draws none where that is no terminal.
pub(crate) fn bar(orders: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} orders, {elapsed}");
    ProgressBar::new(orders as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
