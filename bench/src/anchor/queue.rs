//! A hundred messages at a time, as in `array.rs`, from a table in the same file: the lease of a batch is in commit 1 of the
//! one before, its settlement in its own commit 2, so that the queue costs no commit.

use std::{
    hint::black_box,
    path::Path,
    time::{Duration, Instant},
};

use futures_util::TryStreamExt;
use sqlx::{Connection, Either, Executor, Row, SqliteConnection, sqlite::SqliteRow};

use super::{
    batch::{Batch, offsets},
    database,
    single::changes,
};
use crate::{
    AnyError,
    backlog::Backlog,
    books::Books,
    measure::Window,
    run::{Run, Shape},
    workload::{Incoming, now_millis},
};

/// `lease`: when it ends. What is settled is gone, so that what is available is at the head, behind
/// what is being handled, and needs no index.
const SCHEMA: &str = "
    CREATE TABLE message (id INTEGER PRIMARY KEY, lease INTEGER NOT NULL, message_id BLOB NOT NULL, body TEXT NOT NULL)";
/// Rows: offset, length of the body, which is behind its id.
const FILL: &str = "
    INSERT INTO message (lease, message_id, body)
    SELECT ?3, substr(?2, value ->> 0, 16), CAST(substr(?2, (value ->> 0) + 16, value ->> 1) AS TEXT) FROM json_each(?1)";
/// Messages of one statement that fills the table.
const FILL_ROWS: usize = 10_000;
/// The lease lasts as long as hapax's.
const LEASE_MS: u64 = 30_000;
/// Lease of what was never given, as wide in the file as what it is changed to.
const NEVER_GIVEN: i64 = 1_000_000_000_000;

/// Commit 1 of 2: states and outbox as in `array.rs`, and the lease of the next batch. Both statements of the lease see
/// the same rows; one row for all of them, because each would cost a hand-over between threads. The lease has the first
/// parameters: the driver counts the gaps in each statement's, and binds nothing beyond their sum.
const SAVE: &str = "
    BEGIN IMMEDIATE;
    UPDATE entity SET version = entity.version + 1, state = CAST(substr(?5, j.o, j.n) AS TEXT)
    FROM (SELECT value ->> 0 k, value ->> 1 v, value ->> 2 o, value ->> 3 n FROM json_each(?4)) j
    WHERE entity.key = j.k AND entity.version = j.v;
    INSERT OR ROLLBACK INTO outbox (id, entry)
    SELECT ?8 + j.key, CASE WHEN changes() = ?7 THEN substr(?5, j.value ->> 0, j.value ->> 1) END FROM json_each(?6) j;
    SELECT group_concat(id), group_concat(hex(message_id), ''), group_concat(body, char(10))
    FROM (SELECT id, message_id, body FROM message WHERE lease <= ?1 ORDER BY id LIMIT ?2);
    UPDATE message SET lease = ?3 WHERE id IN (SELECT id FROM message WHERE lease <= ?1 ORDER BY id LIMIT ?2);
    COMMIT";
/// Commit 2 of 2: marks, clean-up, settlement of what is still under this lease.
const FINISH: &str = "
    BEGIN IMMEDIATE;
    INSERT OR ROLLBACK INTO dedup SELECT substr(?2, value, 16) FROM json_each(?1);
    DELETE FROM outbox WHERE id >= ?3;
    DELETE FROM message WHERE id IN (SELECT value FROM json_each(?4)) AND lease = ?5;
    COMMIT";

struct Loop {
    connection: SqliteConnection,
    random: fastrand::Rng,
    batch: u32,
    leased: Leased,
    commits: u64,
    sent: u64,
}

/// Messages under one lease.
#[derive(Default)]
struct Leased {
    /// As an array in JSON.
    ids: String,
    messages: Vec<Incoming>,
    until: i64,
}

/// Makes the file for [`run`].
pub(super) async fn prepare(path: &Path, shape: &Shape) -> Result<(), AnyError> {
    let mut connection = database::create(path, shape.entities).await?;
    sqlx::raw_sql(SCHEMA).execute(&mut connection).await?;
    let mut messages = Backlog::of(shape).deliveries().peekable();
    while messages.peek().is_some() {
        let (mut blob, mut rows) = (Vec::new(), Vec::new());
        for Incoming { id, body } in messages.by_ref().take(FILL_ROWS) {
            rows.push((blob.len() + 1, body.len()));
            blob.extend(id);
            blob.extend(body);
        }
        let fill = sqlx::query(FILL).bind(serde_json::to_string(&rows)?).bind(blob).bind(NEVER_GIVEN);
        fill.execute(&mut connection).await?;
    }
    connection.close().await?;
    Ok(())
}

pub(super) async fn run(path: &Path, shape: &Shape) -> Result<Run, AnyError> {
    let mut this = Loop {
        connection: database::open(path).await?,
        random: fastrand::Rng::with_seed(shape.seed),
        batch: u32::try_from(shape.batch)?,
        leased: Leased::default(),
        commits: 0,
        sent: 0,
    };
    this.leased = this.save(&Batch::default()).await?;
    this.repeat(shape.warm_up()).await?;
    let before = this.commits;
    let window = Window::open();
    let deliveries = this.repeat(shape.time).await?;
    let mut sample = window.close(deliveries);
    sample.commits = Some(this.commits - before);
    let distinct = Backlog::of(shape).handled(left(&mut this.connection).await?)?;
    let books = Books { distinct, sent: this.sent, sent_each: 1, ..Books::default() };
    Ok(Run { sample, books: database::audit(this.connection, books).await? })
}

impl Loop {
    /// Until the time is over, or the queue is empty.
    async fn repeat(&mut self, time: Duration) -> Result<u64, AnyError> {
        let end = Instant::now() + time;
        let mut deliveries = 0;
        while Instant::now() < end && !self.leased.messages.is_empty() {
            deliveries += self.leased.messages.len() as u64;
            self.handle().await?;
        }
        Ok(deliveries)
    }

    async fn handle(&mut self) -> Result<(), AnyError> {
        let batch = Batch::of(&self.leased.messages, &mut self.connection, &mut self.random).await?;
        let first = self.sent;
        let next = self.save(&batch).await?;
        self.sent += batch.outbox.len() as u64;
        black_box(batch.outbox); // A null send.
        self.finish(&batch.handled, first).await?;
        self.leased = next;
        Ok(())
    }

    /// Gives the next messages.
    async fn save(&mut self, batch: &Batch) -> Result<Leased, AnyError> {
        let arrays = batch.arrays()?;
        let now = now_millis();
        // No two leases end at the same time, so that the end tells them apart.
        let until = i64::try_from(now + LEASE_MS)?.max(self.leased.until + 1);
        let save = sqlx::query(SAVE)
            .bind(i64::try_from(now)?)
            .bind(self.batch)
            .bind(until)
            .bind(arrays.states)
            .bind(arrays.blob)
            .bind(arrays.entries)
            .bind(arrays.touched)
            .bind(i64::try_from(self.sent)?);
        let (mut changes, mut leased) = (Vec::with_capacity(6), Leased::default());
        let mut results = self.connection.fetch_many(save);
        while let Some(result) = results.try_next().await? {
            match result {
                Either::Left(done) => changes.push(done.rows_affected()),
                Either::Right(row) => leased = Leased::of(&row, until)?,
            }
        }
        drop(results);
        self.commits += 1;
        if changes[1..3] != [arrays.touched.try_into()?, batch.outbox.len() as u64] {
            return Err("a save lost a race without rivals".into());
        }
        if changes[4] != leased.messages.len() as u64 {
            return Err("other messages were leased than were given".into());
        }
        Ok(leased)
    }

    async fn finish(&mut self, handled: &[[u8; 16]], first: u64) -> Result<(), AnyError> {
        let finish = sqlx::query(FINISH)
            .bind(offsets(handled.len())?)
            .bind(handled.as_flattened())
            .bind(i64::try_from(first)?)
            .bind(self.leased.ids.as_str())
            .bind(self.leased.until);
        let changes = changes(&mut self.connection, finish).await?;
        self.commits += 1;
        let (handled, settled) = (handled.len() as u64, self.leased.messages.len() as u64);
        if changes[1..4] == [handled, handled, settled] {
            Ok(())
        } else {
            Err("an outbox was cleared, or a lease ended, by somebody else".into())
        }
    }
}

impl Leased {
    fn of(row: &SqliteRow, until: i64) -> Result<Self, AnyError> {
        let Some(ids) = row.try_get::<Option<&str>, _>(0)? else {
            return Ok(Self { until, ..Self::default() }); // Nothing is available.
        };
        let message_ids: &str = row.try_get(1)?;
        let bodies: &str = row.try_get(2)?;
        let message_ids = message_ids.as_bytes().chunks(2 * size_of::<[u8; 16]>());
        let messages = message_ids.zip(bodies.split('\n')).map(|(id, body)| {
            let id = u128::from_str_radix(str::from_utf8(id)?, 16)?.to_be_bytes();
            Ok::<_, AnyError>(Incoming { id, body: body.to_owned().into() })
        });
        Ok(Self { ids: format!("[{ids}]"), messages: messages.collect::<Result<_, _>>()?, until })
    }
}

/// Ids of the deliveries that still are in the queue.
async fn left(connection: &mut SqliteConnection) -> Result<Vec<[u8; 16]>, AnyError> {
    let mut rows = sqlx::query("SELECT message_id FROM message").fetch(connection);
    let mut left = Vec::new();
    while let Some(row) = rows.try_next().await? {
        left.push(row.try_get::<&[u8], _>(0)?.try_into()?);
    }
    Ok(left)
}
