//! The cases, each beside what a careful hand writes.

use std::time::{Duration, Instant};

use hapax::{Relay, relay::RelayOptions};
use sqlx::{Connection, Executor};
use uuid::Uuid;

use super::{Options, Place, SINK, Sold, Timed, by_hand};
use crate::{AnyError, figure::Figure};

/// The queue that the transport declares for an endpoint.
fn queue() -> String {
    format!("hapax.queue.{SINK}")
}

pub(super) async fn measure(name: &str, options: &Options) -> Result<Vec<Figure>, AnyError> {
    match name {
        "latency" => latency(options).await,
        "throughput" => throughput(options).await,
        "enqueue" => enqueue(options).await,
        "idle" => idle(options).await,
        other => Err(format!("there is no case named {other}").into()),
    }
}

/// From the beginning of the commit to the broker's confirmation, one message at a time.
async fn latency(options: &Options) -> Result<Vec<Figure>, AnyError> {
    let place = Place::new(options).await?;
    let hand = by_hand::Broker::open(&options.rabbitmq, queue()).await?;
    let timed = Timed::new(place.broker.clone());
    let relay = Relay::to(timed.clone()).table(place.outbox.clone()).start()?;
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
    let stored = place.count("SELECT count(*) FROM outbox WHERE status = 1").await?;
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

async fn by_hand_once(
    place: &Place,
    broker: &by_hand::Broker,
    time: Duration,
    order: &mut i64,
) -> Result<Vec<f64>, AnyError> {
    let (begun, mut times) = (Instant::now(), Vec::new());
    while begun.elapsed() < time {
        *order += 1;
        let body = serde_json::to_vec(&Sold::new(*order))?;
        let mut tx = place.pool.begin().await?;
        insert(&mut tx, *order).await?;
        let at = Instant::now();
        tx.commit().await?;
        broker.publish(Uuid::now_v7(), &body).await?;
        times.push(at.elapsed().as_secs_f64() * 1e3);
    }
    Ok(times)
}

async fn by_outbox(place: &Place, timed: &Timed, time: Duration, order: &mut i64) -> Result<Vec<f64>, AnyError> {
    let (begun, mut times) = (Instant::now(), Vec::new());
    while begun.elapsed() < time {
        *order += 1;
        let sold = place.outbox.outgoing(&Sold::new(*order))?;
        let mut tx = place.pool.begin().await?;
        insert(&mut tx, *order).await?;
        let ticket = place.outbox.enqueue_all(&mut tx, std::slice::from_ref(&sold)).await?;
        let at = Instant::now();
        place.outbox.commit(tx, ticket).await?;
        let confirmed = timed.confirmation(&sold.envelope.message_id).await;
        times.push(confirmed.saturating_duration_since(at).as_secs_f64() * 1e3);
    }
    Ok(times)
}

async fn insert(tx: &mut sqlx::PgConnection, order: i64) -> Result<(), AnyError> {
    let insert = "INSERT INTO shop_order VALUES ($1, $2)";
    sqlx::query(insert).bind(order).bind("an order").execute(tx).await?;
    Ok(())
}

/// A backlog is sent, each message with its status on the disk.
async fn throughput(options: &Options) -> Result<Vec<Figure>, AnyError> {
    let (mut ratios, mut rates, mut theirs_rates) = (Vec::new(), Vec::new(), Vec::new());
    let rate = |begun: Instant| f64::from(options.backlog) / begun.elapsed().as_secs_f64();
    for round in 1..=options.rounds {
        let place = Place::new(options).await?;
        let hand = by_hand::Broker::open(&options.rabbitmq, queue()).await?;
        hand.purge().await?;
        place.store(options.backlog).await?;
        let begun = Instant::now();
        let sent = by_hand::relay(&place.pool, &hand).await?;
        let theirs = rate(begun);
        place.remove().await?;
        let place = Place::new(options).await?;
        hand.purge().await?;
        place.store(options.backlog).await?;
        let begun = Instant::now();
        let fast = RelayOptions::default().claim(1000, 8 << 20);
        let relay = Relay::to(place.broker.clone()).table_with(place.outbox.clone(), fast).start()?;
        while relay.counts().sent < u64::from(options.backlog) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        relay.stop().await?; // Every status is stored then.
        let ours = rate(begun);
        let stored = place.count("SELECT count(*) FROM outbox WHERE status = 1").await?;
        if stored != i64::from(options.backlog) || sent != u64::from(options.backlog) {
            return Err(format!("void: of {} messages {sent} and {stored} are stored as sent", options.backlog).into());
        }
        place.remove().await?;
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

/// What the server pays for a transaction with a message in it, beside one with a plain row instead.
async fn enqueue(options: &Options) -> Result<Vec<Figure>, AnyError> {
    let place = Place::new(options).await?;
    place.pool.execute("CREATE TABLE shop_note (id bigint PRIMARY KEY, note text NOT NULL)").await?;
    let mut session = place.pool.acquire().await?;
    let (process,): (i32,) = sqlx::query_as("SELECT pg_backend_pid()").fetch_one(&mut *session).await?;
    let (mut ratios, mut ours_us, mut theirs_us) = (Vec::new(), Vec::new(), Vec::new());
    let mut order = 0;
    for round in 1..=options.rounds {
        let mut cost = [0.0, 0.0];
        for (with_message, cost) in [false, true].into_iter().zip(&mut cost) {
            let (begun, before, mut count) = (Instant::now(), cpu_us(process)?, 0.0);
            while begun.elapsed() < options.time() {
                order += 1;
                let mut tx = session.begin().await?;
                insert(&mut tx, order).await?;
                if with_message {
                    // A ticket that is dropped loses nothing.
                    drop(place.outbox.enqueue(&mut tx, &Sold::new(order)).await?);
                } else {
                    let body = serde_json::to_string(&Sold::new(order))?;
                    let insert = "INSERT INTO shop_note VALUES ($1, $2)";
                    sqlx::query(insert).bind(order).bind(body).execute(&mut *tx).await?;
                }
                tx.commit().await?;
                count += 1.0;
            }
            *cost = (cpu_us(process)? - before) / count;
        }
        let [theirs, ours] = cost;
        eprintln!(
            "  {round}/{}: plain {theirs:.1} us, message {ours:.1} us, ratio {:.2}",
            options.rounds,
            ours / theirs
        );
        ratios.push(ours / theirs);
        ours_us.push(ours);
        theirs_us.push(theirs);
    }
    drop(session);
    place.remove().await?;
    Ok(vec![
        Figure::of("enqueue: server CPU of a transaction with a message / with one more plain row", "", ratios)
            .median_at_most(2.0),
        Figure::of("enqueue: server CPU of a transaction", "us", ours_us),
        Figure::of("enqueue: with a plain row", "us", theirs_us),
    ])
}

/// What a process of this machine has used, of its own thread: a server's session has one.
fn cpu_us(process: i32) -> Result<f64, AnyError> {
    let file = format!("/proc/{process}/schedstat");
    let text = std::fs::read_to_string(&file).map_err(|e| format!("{file}: {e}; use a server on this machine"))?;
    let nanos: f64 = text.split(' ').next().unwrap_or_default().parse()?;
    Ok(nanos / 1e3)
}

/// Calls of a relay that has had nothing to do for a while.
async fn idle(options: &Options) -> Result<Vec<Figure>, AnyError> {
    let place = Place::new(options).await?;
    let relay = Relay::to(place.broker.clone()).table(place.outbox.clone()).start()?;
    tokio::time::sleep(options.time()).await;
    let mut calls = Vec::new();
    for _ in 0..options.rounds.min(3) {
        let before = relay.counts().ticks;
        tokio::time::sleep(options.time()).await;
        calls.push((relay.counts().ticks - before) as f64 / options.time().as_secs_f64());
    }
    relay.stop().await?;
    place.remove().await?;
    Ok(vec![Figure::of("idle: calls of a relay that has nothing to do", "/s", calls).all_at_most(1.0)])
}

/// The value of which `part` are smaller.
fn at(times: &[f64], part: f64) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times.get((times.len() as f64 * part) as usize).copied().unwrap_or(f64::NAN)
}
