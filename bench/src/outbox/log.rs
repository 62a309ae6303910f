//! One process stores and another relays: by claims, from the server's log, and without a table.

use std::time::{Duration, Instant};

use hapax::{
    Relay,
    envelope::Outgoing,
    relay::RelayOptions,
    stores::postgres::outbox::{LogOptions, PostgresOutboxOptions},
};

use super::{
    Options, Sold, Timed, by_hand, cases,
    place::{Place, PostgresPlace},
};
use crate::{AnyError, figure::Figure};

/// Messages of one transaction, where as much as possible is stored.
const AT_ONCE: usize = 100;

/// How messages come to the relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Claims,
    Rows,
    Messages,
}

impl Way {
    fn set(self, outbox: PostgresOutboxOptions) -> PostgresOutboxOptions {
        match self {
            Self::Claims => outbox,
            Self::Rows => outbox.log(LogOptions::rows()),
            Self::Messages => outbox.log(LogOptions::messages()),
        }
    }
}

/// What one way has shown.
struct Shown {
    /// Messages a second, stored and sent at the same time.
    rate: f64,
    /// Median from the commit to the confirmation, ms.
    latency: f64,
}

pub(super) async fn measure(options: &Options) -> Result<Vec<Figure>, AnyError> {
    let ways = [Way::Claims, Way::Rows, Way::Messages];
    let mut shown = [const { Vec::new() }; 3];
    for round in 1..=options.rounds {
        for (way, shown) in ways.iter().zip(&mut shown) {
            let one = once(options, *way).await?;
            eprintln!("  {round}/{}: {way:?} {:.0}/s, {:.2} ms", options.rounds, one.rate, one.latency);
            shown.push(one);
        }
    }
    let [claims, rows, messages] = &shown;
    let each = |shown: &[Shown], of: fn(&Shown) -> f64| shown.iter().map(of).collect::<Vec<f64>>();
    let ratio = |shown: &[Shown]| shown.iter().zip(claims).map(|(one, claims)| one.rate / claims.rate).collect();
    Ok(vec![
        Figure::of("log: one process stores, another relays by claims", "/s", each(claims, |one| one.rate)),
        Figure::of("log: rows from the log", "/s", each(rows, |one| one.rate)),
        Figure::of("log: rows from the log / claims", "", ratio(rows)),
        Figure::of("log: messages without a table", "/s", each(messages, |one| one.rate)),
        Figure::of("log: messages without a table / claims", "", ratio(messages)),
        Figure::of("log: commit to confirmation by claims, median", "ms", each(claims, |one| one.latency)),
        Figure::of("log: the same, rows from the log", "ms", each(rows, |one| one.latency)),
        Figure::of("log: the same, messages without a table", "ms", each(messages, |one| one.latency)),
    ])
}

async fn once(options: &Options, way: Way) -> Result<Shown, AnyError> {
    let place = PostgresPlace::with(options, 4, |outbox| way.set(outbox)).await?;
    by_hand::Broker::open(&options.rabbitmq, cases::queue()).await?.purge().await?;
    // As another process has it.
    let relaying = place.open(options, |outbox| way.set(outbox)).await?;
    let timed = Timed::new(place.shop().broker.clone());
    let fast = RelayOptions::default().claim(1000, 8 << 20);
    let relay = Relay::to(timed.clone()).table_with(relaying, fast).start()?;
    if way != Way::Claims {
        // What is stored while a slot is made is not read from it, and is not what is measured.
        while place.count("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'").await? == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    let mut order = 0;
    let mut times = cases::by_outbox(&place, &timed, options.time(), &mut order).await?;
    times.sort_by(f64::total_cmp);
    let latency = times.get(times.len() / 2).copied().unwrap_or(f64::NAN);

    let (begun, count) = (Instant::now(), i64::from(options.backlog / 2));
    let orders: Vec<i64> = (order + 1..=order + count).collect();
    let storing = async {
        for orders in orders.chunks(AT_ONCE) {
            let messages = orders.iter().map(|order| place.outgoing(&Sold::new(*order)));
            let messages = messages.collect::<Result<Vec<Outgoing>, _>>()?;
            let mut tx = place.begin().await?;
            let ticket = place.enqueue(&mut tx, &messages).await?;
            place.commit(tx, ticket).await?;
        }
        Ok::<(), AnyError>(())
    };
    storing.await?;
    let all = u64::try_from(order + count)?;
    while relay.counts().sent < all {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    relay.stop().await?; // Every status is stored then.
    let rate = count as f64 / begun.elapsed().as_secs_f64();
    timed.forget();
    let rows = place.count("SELECT count(*) FROM outbox").await?;
    let sent = place.count("SELECT count(*) FROM outbox WHERE status = 1").await?;
    let expected = if way == Way::Messages { 0 } else { order + count };
    if (rows, sent) != (expected, expected) {
        return Err(format!("void: {rows} rows, {sent} of them sent, and not {expected}").into());
    }
    if way == Way::Messages {
        remove_slot(&place).await?;
    }
    place.remove().await?;
    Ok(Shown { rate, latency })
}

/// The relay is gone, but its session may not be yet.
async fn remove_slot(place: &PostgresPlace) -> Result<(), AnyError> {
    while place.count("SELECT count(*) FROM pg_replication_slots WHERE active").await? > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    place.count("SELECT count(pg_drop_replication_slot(slot_name)) FROM pg_replication_slots").await.map(drop)
}
