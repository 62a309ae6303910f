//! The cases, each beside what a careful hand writes.

use std::time::{Duration, Instant};

use hapax::{Relay, relay::RelayOptions};
use uuid::Uuid;

use super::{
    Options, SINK, Sold, Timed, by_hand,
    place::{Place, Tx},
};
use crate::{AnyError, figure::Figure};

/// The queue that the transport declares for an endpoint.
pub(super) fn queue() -> String {
    format!("hapax.queue.{SINK}")
}

/// Connections of the user's, where one is not to be watched.
const CONNECTIONS: u32 = 4;

pub(super) async fn measure<P: Place>(name: &str, options: &Options) -> Result<Vec<Figure>, AnyError> {
    match name {
        "latency" => latency::<P>(options).await,
        "throughput" => throughput::<P>(options).await,
        "enqueue" => enqueue::<P>(options).await,
        "idle" => idle::<P>(options).await,
        other => Err(format!("there is no case named {other}").into()),
    }
}

/// From the beginning of the commit to the broker's confirmation, one message at a time.
async fn latency<P: Place>(options: &Options) -> Result<Vec<Figure>, AnyError> {
    let place = P::new(options, CONNECTIONS).await?;
    let hand = by_hand::Broker::open(&options.rabbitmq, queue()).await?;
    let timed = Timed::new(place.shop().broker.clone());
    let relay = Relay::to(timed.clone()).table(place.shop().outbox.clone()).start()?;
    let (mut p50, mut p99, mut ours_ms, mut theirs_ms) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut order, mut measured) = (0, 0);
    for round in 1..=options.rounds {
        hand.purge().await?;
        let theirs = by_hand_once(&place, &hand, options.time(), &mut order).await?;
        let ours = by_outbox(&place, &timed, options.time(), &mut order).await?;
        measured += ours.len();
        let [ours_50, theirs_50] = [at(&ours, 0.5), at(&theirs, 0.5)];
        let [ours_99, theirs_99] = [at(&ours, 0.99), at(&theirs, 0.99)];
        eprintln!(
            "  {round}/{}: by hand {theirs_50:.2} ms, p99 {theirs_99:.2} ms; hapax {ours_50:.2} ms, p99 {ours_99:.2} ms",
            options.rounds
        );
        p50.push(ours_50 / theirs_50);
        p99.push(ours_99 / theirs_99);
        ours_ms.push(ours_50);
        theirs_ms.push(theirs_50);
    }
    relay.stop().await?;
    let stored = place.sent().await?;
    if stored != i64::try_from(measured)? || stored == 0 {
        return Err(format!("void: {measured} messages were measured, and {stored} are stored as sent").into());
    }
    place.remove().await?;
    Ok(vec![
        Figure::of("latency: commit to confirmation, median / commit and publish by hand", "", p50).median_at_most(1.5),
        Figure::of("latency: the same, 99th of a hundred", "", p99).median_at_most(3.0),
        Figure::of("latency: median", "ms", ours_ms),
        Figure::of("latency: median by hand", "ms", theirs_ms),
    ])
}

async fn by_hand_once<P: Place>(
    place: &P,
    broker: &by_hand::Broker,
    time: Duration,
    order: &mut i64,
) -> Result<Vec<f64>, AnyError> {
    let (begun, mut times) = (Instant::now(), Vec::new());
    while begun.elapsed() < time {
        *order += 1;
        let body = serde_json::to_vec(&Sold::new(*order))?;
        let mut tx = place.begin().await?;
        P::insert_order(&mut tx, *order).await?;
        let at = Instant::now();
        tx.commit().await?;
        broker.publish(Uuid::now_v7(), &body).await?;
        times.push(at.elapsed().as_secs_f64() * 1e3);
    }
    Ok(times)
}

pub(super) async fn by_outbox<P: Place>(
    place: &P,
    timed: &Timed,
    time: Duration,
    order: &mut i64,
) -> Result<Vec<f64>, AnyError> {
    let (begun, mut times) = (Instant::now(), Vec::new());
    while begun.elapsed() < time {
        *order += 1;
        let sold = place.outgoing(&Sold::new(*order))?;
        let mut tx = place.begin().await?;
        P::insert_order(&mut tx, *order).await?;
        let ticket = place.enqueue(&mut tx, std::slice::from_ref(&sold)).await?;
        let at = Instant::now();
        place.commit(tx, ticket).await?;
        let confirmed = timed.confirmation(&sold.envelope.message_id).await;
        times.push(confirmed.saturating_duration_since(at).as_secs_f64() * 1e3);
    }
    Ok(times)
}

/// A backlog is sent, each message with its status on the disk.
async fn throughput<P: Place>(options: &Options) -> Result<Vec<Figure>, AnyError> {
    let (mut ratios, mut rates, mut theirs_rates) = (Vec::new(), Vec::new(), Vec::new());
    let rate = |begun: Instant| f64::from(options.backlog) / begun.elapsed().as_secs_f64();
    for round in 1..=options.rounds {
        let place = P::new(options, CONNECTIONS).await?;
        let hand = by_hand::Broker::open(&options.rabbitmq, queue()).await?;
        hand.purge().await?;
        place.store(options.backlog).await?;
        let begun = Instant::now();
        let sent = by_hand::relay(&place, &hand).await?;
        let theirs = rate(begun);
        place.remove().await?;
        if sent != u64::from(options.backlog) {
            return Err(format!("void: of {} messages {sent} were sent by hand", options.backlog).into());
        }
        hand.purge().await?;
        let ours = relayed::<P>(options).await?;
        eprintln!("  {round}/{}: by hand {theirs:.0}/s, hapax {ours:.0}/s, ratio {:.2}", options.rounds, ours / theirs);
        ratios.push(ours / theirs);
        rates.push(ours);
        theirs_rates.push(theirs);
    }
    Ok(vec![
        Figure::of("throughput: a backlog with durable status / batches of 256 by hand", "", ratios)
            .median_at_least(0.5),
        Figure::of("throughput", "/s", rates),
        Figure::of("throughput by hand", "/s", theirs_rates),
    ])
}

/// Messages that the relay sends of a backlog in a second, until each has its status.
pub(super) async fn relayed<P: Place>(options: &Options) -> Result<f64, AnyError> {
    let place = P::new(options, CONNECTIONS).await?;
    let rate = relayed_in(&place, options.backlog).await?;
    place.remove().await?;
    Ok(rate)
}

/// The same, where something was sent before.
pub(super) async fn relayed_in<P: Place>(place: &P, backlog: u32) -> Result<f64, AnyError> {
    let before = place.sent().await?;
    place.store(backlog).await?;
    let begun = Instant::now();
    let fast = RelayOptions::default().claim(1000, 8 << 20);
    let relay = Relay::to(place.shop().broker.clone()).table_with(place.shop().outbox.clone(), fast).start()?;
    while relay.counts().sent < u64::from(backlog) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    relay.stop().await?; // Every status is stored then.
    let rate = f64::from(backlog) / begun.elapsed().as_secs_f64();
    let stored = place.sent().await? - before;
    if stored != i64::from(backlog) {
        return Err(format!("void: of {backlog} messages {stored} are stored as sent").into());
    }
    Ok(rate)
}

/// What the server pays for a transaction with a message in it, beside one with a plain row instead. Where a session has no
/// thread of its own on this machine, what a transaction takes.
async fn enqueue<P: Place>(options: &Options) -> Result<Vec<Figure>, AnyError> {
    let place = P::new(options, 1).await?;
    let mut tx = place.begin().await?;
    let thread = P::thread(&mut tx).await?;
    tx.commit().await?;
    let what = if thread.is_some() { "server CPU" } else { "time (no thread of the server's is to be seen)" };
    let (mut ratios, mut ours_us, mut theirs_us) = (Vec::new(), Vec::new(), Vec::new());
    let mut order = 0;
    for round in 1..=options.rounds {
        let theirs = cost::<P>(&place, thread, false, options.time(), &mut order).await?;
        let ours = cost::<P>(&place, thread, true, options.time(), &mut order).await?;
        eprintln!(
            "  {round}/{}: plain {theirs:.1} us, message {ours:.1} us, ratio {:.2}",
            options.rounds,
            ours / theirs
        );
        ratios.push(ours / theirs);
        ours_us.push(ours);
        theirs_us.push(theirs);
    }
    place.remove().await?;
    Ok(vec![
        Figure::of(format!("enqueue: {what} of a transaction with a message / with one more plain row"), "", ratios)
            .median_at_most(2.0),
        Figure::of(format!("enqueue: {what} of a transaction"), "us", ours_us),
        Figure::of("enqueue: with a plain row", "us", theirs_us),
    ])
}

/// Microseconds of a transaction.
async fn cost<P: Place>(
    place: &P,
    thread: Option<i64>,
    with_message: bool,
    time: Duration,
    order: &mut i64,
) -> Result<f64, AnyError> {
    let (begun, before, mut count) = (Instant::now(), thread.map(cpu_us).transpose()?, 0.0);
    while begun.elapsed() < time {
        *order += 1;
        let mut tx: Tx<P> = place.begin().await?;
        P::insert_order(&mut tx, *order).await?;
        if with_message {
            let sold = place.outgoing(&Sold::new(*order))?;
            let ticket = place.enqueue(&mut tx, &[sold]).await?;
            // As the chapter says, with its look whether it may.
            place.commit(tx, ticket).await?;
        } else {
            P::insert_note(&mut tx, *order, serde_json::to_string(&Sold::new(*order))?).await?;
            tx.commit().await?;
        }
        count += 1.0;
    }
    let spent = match (thread, before) {
        (Some(thread), Some(before)) => cpu_us(thread)? - before,
        _ => begun.elapsed().as_secs_f64() * 1e6,
    };
    Ok(spent / count)
}

/// What a thread of this machine has used, or the first of a process.
fn cpu_us(process: i64) -> Result<f64, AnyError> {
    let file = format!("/proc/{process}/schedstat");
    let text = std::fs::read_to_string(&file).map_err(|e| format!("{file}: {e}; use a server on this machine"))?;
    let nanos: f64 = text.split(' ').next().unwrap_or_default().parse()?;
    Ok(nanos / 1e3)
}

/// Windows of the idle relay: together longer than a minute, since care asks about once in one.
const IDLE_WINDOWS: u32 = 9;

/// What a relay that has had nothing to do for a while asks of the server, by the server's own count; of a file, by the relay's.
async fn idle<P: Place>(options: &Options) -> Result<Vec<Figure>, AnyError> {
    let place = P::new(options, CONNECTIONS).await?;
    let relay = Relay::to(place.shop().broker.clone()).table(place.shop().outbox.clone()).start()?;
    tokio::time::sleep(options.time()).await;
    let time = options.time() * IDLE_WINDOWS;
    let before = relay.counts().ticks;
    let queries = place.queries_during(time).await?;
    let ticks = relay.counts().ticks - before;
    relay.stop().await?;
    place.remove().await?;
    let (what, asked) = match queries {
        Some(queries) => ("queries that the server sees of a relay", queries as f64),
        None => ("calls of a relay", ticks as f64),
    };
    let asked = asked / time.as_secs_f64();
    Ok(vec![Figure::of(format!("idle: {what} that has nothing to do"), "/s", vec![asked]).all_at_most(1.0)])
}

/// The value of which `part` are smaller.
fn at(times: &[f64], part: f64) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times.get((times.len() as f64 * part) as usize).copied().unwrap_or(f64::NAN)
}
