//! The queue: messages are sent, given and settled, nothing is handled; beside a hand-written table with the same batches.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::{join, join_all, try_join_all};
use hapax::{
    Message, Postgres, PostgresQueue,
    envelope::Outgoing,
    ids::{EndpointName, TypeName},
    ports::{Dispatcher, Receiver, Settled, Settlement, Transport},
};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};
use uuid::Uuid;

use super::{
    anchor::PLANS,
    server::{Cost, Schema},
};
use crate::{
    AnyError,
    candidate::endpoint::{ENDPOINT, outgoing},
    measure::{Sample, Window},
    run::Shape,
    workload::{Deposit, Workload},
};

/// Who sends and who receives at the same time; each has a connection of its own in the hand-written loop.
const SENDERS: usize = 2;
const RECEIVERS: usize = 2;
/// So many may wait: senders rest beyond it.
const WAITING_MAX: u64 = 20_000;
const REST: Duration = Duration::from_millis(1);
/// The lease lasts as long as hapax's.
const LEASE: &str = "30 seconds";

/// Counts of one run, and the ids that were given: each must have been given once.
#[derive(Debug, Default)]
struct Traffic {
    sent: AtomicU64,
    settled: AtomicU64,
    over: AtomicBool,
    given: Mutex<HashSet<[u8; 16]>>,
    again: AtomicU64,
}

impl Traffic {
    fn is_full(&self) -> bool {
        self.sent.load(Ordering::Relaxed) > self.settled.load(Ordering::Relaxed) + WAITING_MAX
    }

    /// Nothing more will be sent.
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn is_done(&self) -> bool {
        self.is_over() && self.settled.load(Ordering::Relaxed) >= self.sent.load(Ordering::Relaxed)
    }

    fn give(&self, ids: impl Iterator<Item = [u8; 16]>) {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let again = ids.filter(|id| !given.insert(*id)).count();
        self.again.fetch_add(again as u64, Ordering::Relaxed);
    }

    /// Opens the window after the warm-up, and closes it when the time is over.
    async fn window(&self, shape: &Shape) -> Sample {
        tokio::time::sleep(shape.warm_up()).await;
        let before = self.settled.load(Ordering::Relaxed);
        let window = Window::open();
        tokio::time::sleep(shape.time).await;
        let sample = window.close(self.settled.load(Ordering::Relaxed) - before);
        self.over.store(true, Ordering::Relaxed);
        sample
    }

    /// The sample with the server's share of the cost, if each message was given once and settled.
    fn audited(&self, mut sample: Sample, before: Cost, after: Cost, left: i64) -> Result<Sample, AnyError> {
        let (sent, settled) = (self.sent.load(Ordering::Relaxed), self.settled.load(Ordering::Relaxed));
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner).len() as u64;
        let again = self.again.load(Ordering::Relaxed);
        if sent != settled || sent != given || again > 0 || left != 0 {
            let found = format!("{given} given, {again} of them again, {settled} settled, {left} left");
            return Err(format!("the books do not add up: {sent} sent, {found}").into());
        }
        let share = sample.deliveries as f64 / settled as f64;
        sample.cpu_seconds += (after.cpu_seconds - before.cpu_seconds) * share;
        sample.flushes = Some(((after.flushes - before.flushes) as f64 * share) as u64);
        Ok(sample)
    }
}

fn workload(shape: &Shape, sender: usize) -> Workload {
    const SEED_STEP: u64 = 1_000_003;
    Workload::new(shape.entities, shape.seed + (sender as u64 + 1) * SEED_STEP)
}

/// hapax's queue: as many calls as there are connections by hand, with batches of the same size.
pub(super) async fn hapax(schema: &Schema, shape: &Shape) -> Result<Sample, AnyError> {
    let database = Postgres::options(&schema.url).schema(&schema.name).migrate(true);
    let queue = PostgresQueue::options().migrate(true).open_database(database).await?;
    let (endpoint, message_type) = (EndpointName::parse(ENDPOINT)?, TypeName::parse(Deposit::TYPE)?);
    let receiver = queue.connect(&endpoint, std::slice::from_ref(&message_type)).await?.receiver;
    let traffic = Traffic::default();
    let before = schema.cost().await?;
    let send = |sender| {
        let (queue, traffic, endpoint, message_type) = (&queue, &traffic, &endpoint, &message_type);
        let mut workload = workload(shape, sender);
        async move {
            while !traffic.is_over() {
                if traffic.is_full() {
                    tokio::time::sleep(REST).await;
                    continue;
                }
                let message = |_| outgoing(endpoint, message_type, workload.fresh_for(0));
                let batch: Vec<Outgoing> = (0..shape.batch).map(message).collect();
                for sent in queue.dispatch(&batch).await {
                    sent?;
                }
                traffic.sent.fetch_add(batch.len() as u64, Ordering::Relaxed);
            }
            Ok::<_, AnyError>(())
        }
    };
    let receive = |_| receive(&receiver, &traffic, shape.batch);
    let work = join(try_join_all((0..SENDERS).map(send)), try_join_all((0..RECEIVERS).map(receive)));
    let (sample, (sent, received)) = join(traffic.window(shape), work).await;
    sent?;
    received?;
    let after = schema.cost().await?;
    let left = queue.messages().await?;
    queue.close().await;
    traffic.audited(sample, before, after, i64::try_from(left)?)
}

async fn receive(receiver: &Arc<dyn Receiver>, traffic: &Traffic, max: usize) -> Result<(), AnyError> {
    /// Who waits when all is over is not to wait for ever.
    const LOOK_AGAIN: Duration = Duration::from_millis(100);
    while !traffic.is_done() {
        let Ok(deliveries) = tokio::time::timeout(LOOK_AGAIN, receiver.receive(max)).await else { continue };
        let deliveries = deliveries?;
        let ids = deliveries
            .iter()
            .map(|delivery| Uuid::parse_str(&delivery.envelope.message_id.to_string()).map(Uuid::into_bytes));
        traffic.give(ids.collect::<Result<Vec<_>, _>>()?.into_iter());
        let settle = |delivery| async move { receiver.settle(delivery, Settlement::Ack).await };
        for settled in join_all(deliveries.iter().map(|delivery| settle(&delivery.receipt))).await {
            if settled? != Settled::Done {
                return Err("a lease was lost".into());
            }
            traffic.settled.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

const TABLE: &str = "
    CREATE SCHEMA {s};
    CREATE TABLE {s}.message (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, message_id bytea NOT NULL,
        leased_until timestamptz NOT NULL DEFAULT '-infinity', body bytea NOT NULL) WITH (fillfactor = 50,
        autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);";
const SEND: &str = "INSERT INTO {s}.message (message_id, body) SELECT * FROM unnest($1::bytea[], $2::bytea[])";
const TAKE: &str = "
    UPDATE {s}.message AS m SET leased_until = now() + $2::interval
    FROM (SELECT id FROM {s}.message WHERE leased_until <= now() ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED) AS t
    WHERE m.id = t.id RETURNING m.id, m.message_id, m.body, m.leased_until::text";
const SETTLE: &str = "DELETE FROM {s}.message WHERE id = ANY($1) AND leased_until = $2::timestamptz";

/// A table, `SKIP LOCKED`, and a lease that is checked when it ends.
pub(super) async fn by_hand(schema: &Schema, shape: &Shape) -> Result<Sample, AnyError> {
    let mut connection = schema.connect().await?;
    connection.execute(sqlx::raw_sql(schema.text(TABLE))).await?;
    let traffic = Traffic::default();
    let before = schema.cost().await?;
    let senders = (0..SENDERS).map(|sender| send_by_hand(schema, shape, &traffic, sender));
    let receivers = (0..RECEIVERS).map(|_| receive_by_hand(schema, shape, &traffic));
    let work = join(try_join_all(senders), try_join_all(receivers));
    let (sample, (sent, received)) = join(traffic.window(shape), work).await;
    sent?;
    received?;
    let after = schema.cost().await?;
    let left = sqlx::query(schema.text("SELECT count(*) FROM {s}.message")).fetch_one(&mut connection).await?;
    connection.close().await?;
    traffic.audited(sample, before, after, left.try_get(0)?)
}

async fn send_by_hand(schema: &Schema, shape: &Shape, traffic: &Traffic, sender: usize) -> Result<(), AnyError> {
    let (mut connection, text) = (schema.connect().await?, schema.text(SEND).0);
    connection.execute(sqlx::raw_sql(PLANS)).await?;
    let mut workload = workload(shape, sender);
    while !traffic.is_over() {
        if traffic.is_full() {
            tokio::time::sleep(REST).await;
            continue;
        }
        let batch: Vec<_> = (0..shape.batch).map(|_| workload.fresh_for(0)).collect();
        let ids: Vec<&[u8]> = batch.iter().map(|message| &message.id[..]).collect();
        let bodies: Vec<&[u8]> = batch.iter().map(|message| &message.body[..]).collect();
        sqlx::query(AssertSqlSafe(text.clone())).bind(ids).bind(bodies).execute(&mut connection).await?;
        traffic.sent.fetch_add(batch.len() as u64, Ordering::Relaxed);
    }
    Ok(connection.close().await?)
}

async fn receive_by_hand(schema: &Schema, shape: &Shape, traffic: &Traffic) -> Result<(), AnyError> {
    let mut connection: PgConnection = schema.connect().await?;
    connection.execute(sqlx::raw_sql(PLANS)).await?;
    let [take, settle] = [TAKE, SETTLE].map(|text| schema.text(text).0);
    let max = i64::try_from(shape.batch)?;
    while !traffic.is_done() {
        let take = sqlx::query(AssertSqlSafe(take.clone())).bind(max).bind(LEASE);
        let rows = take.fetch_all(&mut connection).await?;
        let Some(lease) = rows.first().map(|row| row.try_get::<String, _>(3)).transpose()? else {
            tokio::time::sleep(REST).await;
            continue;
        };
        let mut given = Vec::with_capacity(rows.len());
        let mut ids: Vec<i64> = Vec::with_capacity(rows.len());
        for row in &rows {
            std::hint::black_box(row.try_get::<&[u8], _>(2)?);
            given.push(row.try_get::<&[u8], _>(1)?.try_into()?);
            ids.push(row.try_get(0)?);
        }
        traffic.give(given.into_iter());
        let settle = sqlx::query(AssertSqlSafe(settle.clone())).bind(&ids).bind(lease);
        let settled = settle.execute(&mut connection).await?.rows_affected();
        if settled != ids.len() as u64 {
            return Err("a lease was lost by hand".into());
        }
        traffic.settled.fetch_add(settled, Ordering::Relaxed);
    }
    Ok(connection.close().await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_given_again_or_left_voids_the_run() {
        let cost = Cost { cpu_seconds: 0.0, flushes: 0 };
        let traffic = || {
            let traffic = Traffic { sent: 2.into(), settled: 2.into(), ..Traffic::default() };
            traffic.give([[1; 16], [2; 16]].into_iter());
            traffic
        };
        let audited = |traffic: &Traffic, left| traffic.audited(Sample::default(), cost, cost, left);
        assert!(audited(&traffic(), 0).is_ok());
        assert!(audited(&traffic(), 1).is_err());
        let again = traffic();
        again.give([[1; 16]].into_iter());
        assert!(audited(&again, 0).is_err());
    }
}
