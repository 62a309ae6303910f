//! A hundred messages at a time: one look, one commit for all states and outboxes, one for all marks and clean-ups, each
//! statement over arrays.

use std::{
    hint::black_box,
    path::Path,
    time::{Duration, Instant},
};

use sqlx::SqliteConnection;

use super::{
    batch::{Batch, offsets},
    database,
    single::changes,
};
use crate::{
    AnyError,
    books::Books,
    measure::Window,
    run::{Run, Shape},
    workload::{Incoming, Workload},
};

/// Commit 1 of 2. Rows of the states: key, version, offset, length; of the outbox: offset, length. A state that lost a
/// race rolls everything back: its outbox may not be null.
const SAVE: &str = "
    BEGIN IMMEDIATE;
    UPDATE entity SET version = entity.version + 1, state = CAST(substr(?2, j.o, j.n) AS TEXT)
    FROM (SELECT value ->> 0 k, value ->> 1 v, value ->> 2 o, value ->> 3 n FROM json_each(?1)) j
    WHERE entity.key = j.k AND entity.version = j.v;
    INSERT OR ROLLBACK INTO outbox (id, entry)
    SELECT ?5 + j.key, CASE WHEN changes() = ?4 THEN substr(?2, j.value ->> 0, j.value ->> 1) END FROM json_each(?3) j;
    COMMIT";
/// Commit 2 of 2.
const FINISH: &str = "
    BEGIN IMMEDIATE;
    INSERT OR ROLLBACK INTO dedup SELECT substr(?2, value, 16) FROM json_each(?1);
    DELETE FROM outbox WHERE id >= ?3;
    COMMIT";

struct Loop {
    connection: SqliteConnection,
    random: fastrand::Rng,
    batch: usize,
    commits: u64,
    sent: u64,
}

pub(super) async fn run(path: &Path, shape: &Shape) -> Result<Run, AnyError> {
    let mut workload = shape.workload();
    let mut this = Loop {
        connection: database::create(path, shape.entities).await?,
        random: fastrand::Rng::with_seed(shape.seed),
        batch: shape.batch,
        commits: 0,
        sent: 0,
    };
    this.repeat(&mut workload, shape.warm_up()).await?;
    let before = this.commits;
    let window = Window::open();
    let deliveries = this.repeat(&mut workload, shape.time).await?;
    let mut sample = window.close(deliveries);
    sample.commits = Some(this.commits - before);
    let books = Books { distinct: workload.distinct, sent: this.sent, sent_each: 1, ..Books::default() };
    Ok(Run { sample, books: database::audit(this.connection, books).await? })
}

impl Loop {
    async fn repeat(&mut self, workload: &mut Workload, time: Duration) -> Result<u64, AnyError> {
        let end = Instant::now() + time;
        let mut deliveries = 0;
        while Instant::now() < end {
            let messages: Vec<Incoming> = (0..self.batch).map(|_| workload.next()).collect();
            self.handle(&messages).await?;
            deliveries += self.batch as u64;
        }
        Ok(deliveries)
    }

    async fn handle(&mut self, messages: &[Incoming]) -> Result<(), AnyError> {
        let batch = Batch::of(messages, &mut self.connection, &mut self.random).await?;
        if batch.handled.is_empty() {
            return Ok(()); // Nothing but repeats.
        }
        let first = self.sent;
        self.save(&batch).await?;
        self.sent += batch.outbox.len() as u64;
        black_box(batch.outbox); // A null send.
        self.finish(&batch.handled, first).await
    }

    async fn save(&mut self, batch: &Batch) -> Result<(), AnyError> {
        let arrays = batch.arrays()?;
        let save = sqlx::query(SAVE)
            .bind(arrays.states)
            .bind(arrays.blob)
            .bind(arrays.entries)
            .bind(arrays.touched)
            .bind(i64::try_from(self.sent)?);
        let changes = changes(&mut self.connection, save).await?;
        self.commits += 1;
        let expected = [arrays.touched.try_into()?, batch.outbox.len() as u64];
        if changes[1..3] == expected { Ok(()) } else { Err("a save lost a race without rivals".into()) }
    }

    async fn finish(&mut self, handled: &[[u8; 16]], first: u64) -> Result<(), AnyError> {
        let finish =
            sqlx::query(FINISH).bind(offsets(handled.len())?).bind(handled.as_flattened()).bind(i64::try_from(first)?);
        let changes = changes(&mut self.connection, finish).await?;
        self.commits += 1;
        if changes[1..3] == [handled.len() as u64; 2] {
            Ok(())
        } else {
            Err("an outbox was cleared by somebody else".into())
        }
    }
}
