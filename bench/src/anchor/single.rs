//! One message at a time: look, handle, commit; with an outgoing message, send and commit again.

use std::{
    hint::black_box,
    path::Path,
    time::{Duration, Instant},
};

use futures_util::TryStreamExt;
use sqlx::{Either, Executor, Row, SqliteConnection, sqlite::SqliteArguments};

use super::database;
use crate::{
    AnyError,
    books::Books,
    measure::Window,
    run::{Run, Shape},
    workload::{Account, Changed, Deposit, Incoming, Workload},
};

/// State and dedup check in one look.
const LOOK: &str = "SELECT version, state, EXISTS (SELECT 1 FROM dedup WHERE id = ?2) FROM entity WHERE key = ?1";
/// Commit 1 of 2, a statement of its own.
const SAVE: &str = "UPDATE entity SET version = version + 1, state = ?3, outbox = ?4 WHERE key = ?1 AND version = ?2";
/// Commit 2 of 2, handed over at once.
const FINISH: &str = "
    BEGIN IMMEDIATE;
    INSERT INTO dedup VALUES (?3);
    UPDATE entity SET outbox = NULL WHERE key = ?1 AND version = ?2;
    COMMIT";
/// The only commit of a message with nothing outgoing. The id is recorded if the save wins.
const SAVE_AND_MARK: &str = "
    BEGIN IMMEDIATE;
    UPDATE entity SET version = version + 1, state = ?3 WHERE key = ?1 AND version = ?2;
    INSERT INTO dedup SELECT ?4 WHERE changes() = 1;
    COMMIT";

struct Loop {
    connection: SqliteConnection,
    random: fastrand::Rng,
    outgoing: bool,
    commits: u64,
    sent: u64,
}

pub(super) async fn run(path: &Path, shape: &Shape) -> Result<Run, AnyError> {
    let mut workload = shape.workload();
    let mut this = Loop {
        connection: database::create(path, shape.entities).await?,
        random: fastrand::Rng::with_seed(shape.seed),
        outgoing: shape.outgoing,
        commits: 0,
        sent: 0,
    };
    this.repeat(&mut workload, shape.warm_up()).await?;
    let before = this.commits;
    let window = Window::open();
    let deliveries = this.repeat(&mut workload, shape.time).await?;
    let mut sample = window.close(deliveries);
    sample.commits = Some(this.commits - before);
    let books = Books {
        distinct: workload.distinct,
        sent: this.sent,
        sent_each: u64::from(shape.outgoing),
        ..Books::default()
    };
    Ok(Run { sample, books: database::audit(this.connection, books).await? })
}

impl Loop {
    async fn repeat(&mut self, workload: &mut Workload, time: Duration) -> Result<u64, AnyError> {
        let end = Instant::now() + time;
        let mut deliveries = 0;
        while Instant::now() < end {
            self.handle(workload.next()).await?;
            deliveries += 1;
        }
        Ok(deliveries)
    }

    async fn handle(&mut self, message: Incoming) -> Result<(), AnyError> {
        let deposit: Deposit = serde_json::from_slice(&message.body)?;
        let key = deposit.account().to_owned();
        let look = sqlx::query(LOOK).bind(&key).bind(&message.id[..]);
        let row = look.fetch_optional(&mut self.connection).await?.ok_or("an account is missing")?;
        if row.try_get(2)? {
            return Ok(()); // A repeat.
        }
        let version: i64 = row.try_get(0)?;
        let mut account: Account = serde_json::from_str(row.try_get(1)?)?;
        if self.outgoing {
            let changed = account.apply(deposit);
            self.save_send_finish(&message, &key, version, &account, &changed).await
        } else {
            account.apply_quietly(deposit);
            let query = sqlx::query(SAVE_AND_MARK).bind(key).bind(version).bind(serde_json::to_string(&account)?);
            let changes = changes(&mut self.connection, query.bind(message.id.to_vec())).await?;
            self.commits += 1;
            if changes[1..3] == [1, 1] { Ok(()) } else { Err("a save lost a race without rivals".into()) }
        }
    }

    async fn save_send_finish(
        &mut self,
        message: &Incoming,
        key: &str,
        version: i64,
        account: &Account,
        changed: &Changed,
    ) -> Result<(), AnyError> {
        let outbox = outbox_entry(message, &mut self.random, changed)?;
        let save = sqlx::query(SAVE).bind(key).bind(version).bind(serde_json::to_string(account)?).bind(outbox.clone());
        if save.execute(&mut self.connection).await?.rows_affected() != 1 {
            return Err("a save lost a race without rivals".into());
        }
        black_box(outbox); // A null send.
        self.sent += 1;
        let finish = sqlx::query(FINISH).bind(key).bind(version + 1).bind(&message.id[..]);
        let changes = changes(&mut self.connection, finish).await?;
        self.commits += 2;
        if changes[1..3] == [1, 1] { Ok(()) } else { Err("an outbox was cleared by somebody else".into()) }
    }
}

/// What is kept until it is sent: whose it is, its own id, the encoded message.
pub(super) fn outbox_entry(
    message: &Incoming,
    random: &mut fastrand::Rng,
    changed: &Changed,
) -> Result<Vec<u8>, AnyError> {
    const USUAL_BYTES: usize = 256;
    let mut entry = Vec::with_capacity(USUAL_BYTES);
    entry.extend(message.id);
    entry.extend(random.u128(..).to_be_bytes());
    serde_json::to_writer(&mut entry, changed)?;
    Ok(entry)
}

/// Runs several statements in one hand-over; rows changed by each. (A statement that changes nothing, such as `BEGIN`,
/// repeats the count of the last one that did.)
pub(super) async fn changes(
    connection: &mut SqliteConnection,
    query: sqlx::query::Query<'_, sqlx::Sqlite, SqliteArguments>,
) -> Result<Vec<u64>, AnyError> {
    let mut changes = Vec::with_capacity(4);
    let mut results = connection.fetch_many(query);
    while let Some(result) = results.try_next().await? {
        if let Either::Left(done) = result {
            changes.push(done.rows_affected());
        }
    }
    Ok(changes)
}
