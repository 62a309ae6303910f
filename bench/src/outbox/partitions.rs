//! Tables with time partitions beside one without: what a relay pays for many of them, and what it costs to remove what was sent.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use hapax::{
    MessageId,
    envelope::Outgoing,
    ports::{Care, OutboxTable},
};
use uuid::Uuid;

use super::{
    Options, Sold, by_hand, cases,
    place::{Place, PostgresPlace},
};
use crate::{AnyError, figure::Figure};

const HOUR: Duration = Duration::from_secs(3600);
/// Partitions in which all was sent: as many as the documentation has, and more than it advises. None first.
const MANY: [u32; 3] = [0, 16, 64];
/// Rows in all of them, whatever their number.
const SENT: u32 = 32_000;
/// Partitions that are dropped.
const DROPPED: u32 = 10;
/// As a relay does it by itself, with its defaults.
const CARE: Care = Care { keep: HOUR, archive: None, rows: 1000 };
const WAL: &str = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint";

/// What it took to remove what was sent.
struct Removed {
    /// Rows a second.
    rate: f64,
    /// Bytes of the server's log for each row.
    log: f64,
}

pub(super) async fn measure(options: &Options) -> Result<Vec<Figure>, AnyError> {
    let mut relayed = [const { Vec::new() }; MANY.len()];
    let (mut deleted, mut dropped) = (Vec::new(), Vec::new());
    for round in 1..=options.rounds {
        for (many, relayed) in MANY.iter().zip(&mut relayed) {
            relayed.push(relayed_beside(options, *many).await?);
            eprintln!("  {round}/{}: {many} partitions {:.0}/s", options.rounds, relayed.last().unwrap_or(&0.0));
        }
        for (many, removed) in [(0, &mut deleted), (DROPPED, &mut dropped)] {
            let one = removed_from(options, many).await?;
            let Removed { rate, log } = &one;
            eprintln!("  {round}/{}: {many} partitions, {rate:.0} removed/s, {log:.0} B of log each", options.rounds);
            removed.push(one);
        }
    }
    let [none, some, more] = &relayed;
    let each = |removed: &[Removed], of: fn(&Removed) -> f64| removed.iter().map(of).collect::<Vec<f64>>();
    let ratio = |relayed: &[f64]| relayed.iter().zip(none).map(|(one, none)| one / none).collect::<Vec<f64>>();
    let by_drops = dropped.iter().zip(&deleted).map(|(dropped, deleted)| dropped.rate / deleted.rate).collect();
    Ok(vec![
        Figure::of("partitions: a backlog is relayed beside what was sent, without partitions", "/s", none.clone()),
        Figure::of(format!("partitions: the same with {} of them / without", MANY[1]), "", ratio(some)),
        Figure::of(format!("partitions: the same with {} of them / without", MANY[2]), "", ratio(more)),
        Figure::of("partitions: rows removed by deletes of 1,000", "/s", each(&deleted, |one| one.rate)),
        Figure::of(format!("partitions: rows removed by {DROPPED} drops / by deletes"), "", by_drops),
        Figure::of("partitions: the server's log for a row that is deleted", "B", each(&deleted, |one| one.log)),
        Figure::of("partitions: the same, dropped", "B", each(&dropped, |one| one.log)),
    ])
}

/// Messages a second, of a backlog that is stored in a table with so many partitions of what was sent.
async fn relayed_beside(options: &Options, many: u32) -> Result<f64, AnyError> {
    let place = divided(options, many).await?;
    by_hand::Broker::open(&options.rabbitmq, cases::queue()).await?.purge().await?;
    fill(&place, many, SENT, "stored_at").await?;
    let rate = cases::relayed_in(&place, options.backlog / 4).await?;
    place.remove().await?;
    Ok(rate)
}

async fn removed_from(options: &Options, many: u32) -> Result<Removed, AnyError> {
    let place = divided(options, many).await?;
    let rows = options.backlog / 2;
    fill(&place, many, rows, "0").await?;
    let (log, begun) = (place.count(WAL).await?, Instant::now());
    loop {
        let removed = place.shop().outbox.care(&CARE).await?.ended;
        if removed == 0 && place.count("SELECT count(*) FROM outbox").await? == 0 {
            break;
        }
    }
    let (rate, log) = (f64::from(rows) / begun.elapsed().as_secs_f64(), place.count(WAL).await? - log);
    place.remove().await?;
    Ok(Removed { rate, log: log as f64 / f64::from(rows) })
}

async fn divided(options: &Options, many: u32) -> Result<PostgresPlace, AnyError> {
    PostgresPlace::with(options, 4, |outbox| if many == 0 { outbox } else { outbox.time_partitions(HOUR) }).await
}

/// Stores `rows` that were sent, `ended_at` a time, in so many partitions of the past, or in none.
async fn fill(place: &PostgresPlace, many: u32, rows: u32, ended_at: &str) -> Result<(), AnyError> {
    let hour = u64::try_from(HOUR.as_millis())?;
    let now = u64::try_from(SystemTime::UNIX_EPOCH.elapsed()?.as_millis())? / hour * hour;
    let spans = u64::from(many.max(1));
    for ago in 3..3 + spans {
        let from = now - ago * hour;
        if many > 0 {
            let [first, behind] = [from, from + hour].map(|millis| Uuid::from_u128(u128::from(millis) << 80));
            place
                .run(format!(
                    "CREATE TABLE outbox_t{from} PARTITION OF outbox FOR VALUES FROM ('{first}') TO ('{behind}')"
                ))
                .await?;
        }
        let mut left = u64::from(rows) / spans + if ago == 3 { u64::from(rows) % spans } else { 0 };
        while left > 0 {
            let some = left.min(1000);
            let messages = (left - some..left).map(|number| message(place, from, number));
            let messages = messages.collect::<Result<Vec<Outgoing>, AnyError>>()?;
            let mut tx = place.begin().await?;
            let ticket = place.enqueue(&mut tx, &messages).await?;
            place.commit(tx, ticket).await?;
            left -= some;
        }
    }
    place.run(format!("UPDATE outbox SET status = 1, ended_at = {ended_at}")).await?;
    place.run("VACUUM ANALYZE outbox".to_owned()).await
}

/// A message of that time.
fn message(place: &PostgresPlace, millis: u64, number: u64) -> Result<Outgoing, AnyError> {
    let Outgoing { destination, envelope } = place.outgoing(&Sold::new(i64::try_from(number)?))?;
    let mut envelope = (*envelope).clone();
    let id = (u128::from(millis) << 80) | (7 << 76) | (2 << 62) | u128::from(number);
    envelope.message_id = MessageId::from(Uuid::from_u128(id));
    Ok(Outgoing { destination, envelope: Arc::new(envelope) })
}
