//! Transactions in which a handler works: its inbox row first, its outgoing messages last.

use std::{error::Error, sync::Arc, time::Duration};

use async_trait::async_trait;
use hapax_core::{
    codec::record,
    entity::DedupEntry,
    envelope::Outgoing,
    ids::{AttemptId, DedupKey, Fingerprint},
    inbox::{CommitError, Entered, Inbox},
    ports::{Evicted, StoreError},
    time::Timestamp,
};
use sqlx::{
    Row as _, Sqlite as Driver, SqlitePool, Transaction,
    sqlite::{SqliteArguments, SqliteRow},
};
use tokio::time::timeout;

use super::{
    super::{
        super::rows::DedupRow,
        arguments::Bind,
        error::{self, Failure, Place},
        rows::{before, now},
    },
    EnqueueError, SqliteOutbox, care, end_of_its_own, statements,
};

/// Entries that one step of evicting removes: a commit of a few milliseconds.
const EVICTED: i64 = 1000;
/// Beyond the busy timeout, by which a locked file is told as what it is.
const PATIENCE: u32 = 4;

/// Transactions of a pool, for handlers that keep business tables: see [`hapax_core::inbox`].
///
/// ```no_run
/// # #[derive(serde::Serialize, serde::Deserialize)] struct OrderPlaced { order: i64 }
/// # impl hapax_core::Message for OrderPlaced { const TYPE: &'static str = "shop.order-placed"; }
/// # #[derive(serde::Serialize, serde::Deserialize)] struct Charged { order: i64 }
/// # impl hapax_core::Message for Charged { const TYPE: &'static str = "billing.charged"; }
/// use hapax_core::{Context, HandlerError, inbox::TransactionHandler};
/// use hapax_stores::sql::sqlite::outbox::{SqliteInbox, SqliteTransaction};
///
/// struct Charge;
/// impl TransactionHandler<OrderPlaced, SqliteInbox> for Charge {
///     const NAME: &'static str = "charge";
///     async fn handle(&self, placed: OrderPlaced, cx: &mut Context, tx: &mut SqliteTransaction) -> Result<(), HandlerError> {
///         sqlx::query("INSERT INTO charge (id) VALUES (?)").bind(placed.order).execute(&mut **tx).await?;
///         cx.publish(Charged { order: placed.order })
///     }
/// }
/// ```
///
/// The pool is the user's own, on the file of the outbox, with `synchronous = FULL`. A file has one writer at a time, so that
/// handlers run one after the other, and each waits for its turn for no longer than its connection's busy timeout.
#[derive(Debug)]
pub struct SqliteInbox {
    outbox: SqliteOutbox,
    pool: SqlitePool,
}

/// What a handler is given.
pub type SqliteTransaction = Transaction<'static, Driver>;

impl SqliteOutbox {
    /// Transactions of `pool`, whose inbox and outbox rows are in this outbox's file.
    #[must_use]
    pub fn inbox(&self, pool: SqlitePool) -> Arc<SqliteInbox> {
        Arc::new(SqliteInbox { outbox: self.clone(), pool })
    }
}

impl SqliteInbox {
    async fn try_to_enter(&self, row: &DedupRow) -> Result<Entered<SqliteTransaction>, sqlx::Error> {
        let mut transaction = self.pool.begin().await?;
        let mut arguments = SqliteArguments::default();
        arguments.bind(&row.key.as_bytes()[..]).bind(&row.attempt.as_bytes()[..]);
        arguments.bind(&row.fingerprint.as_bytes()[..]).bind(now());
        let entered = sqlx::query_with(statements::ENTER, arguments).fetch_all(&mut *transaction).await?;
        if !entered.is_empty() {
            return Ok(Entered::First(transaction));
        }
        let mut arguments = SqliteArguments::default();
        arguments.bind(&row.key.as_bytes()[..]);
        let seen = sqlx::query_with(statements::SEEN, arguments).fetch_one(&mut *transaction).await?;
        transaction.rollback().await?;
        entry(row.key, &seen).map(Entered::Seen)
    }

    fn error(&self, operation: &'static str, failure: &Failure) -> StoreError {
        failure.store_error(operation, &self.outbox.0.name)
    }

    fn failed(&self, operation: &'static str, failure: &Failure) -> CommitError {
        let error = self.error(operation, failure);
        if failure.is_busy() && !failure.is_unknown() {
            CommitError::Race(error.to_string())
        } else {
            CommitError::Store(error)
        }
    }
}

fn entry(key: DedupKey, row: &SqliteRow) -> Result<DedupEntry, sqlx::Error> {
    let damaged =
        |what: &'static str| sqlx::Error::Decode(format!("column `{what}` of the inbox cannot be read").into());
    let (attempt, fingerprint): (&[u8], &[u8]) = (row.try_get(0)?, row.try_get(1)?);
    let reply: Option<&[u8]> = row.try_get(2)?;
    let handled_at: i64 = row.try_get(3)?;
    Ok(DedupEntry {
        key,
        attempt: AttemptId::from_bytes(attempt.try_into().map_err(|_| damaged("attempt"))?),
        fingerprint: Fingerprint::from_bytes(fingerprint.try_into().map_err(|_| damaged("fingerprint"))?),
        reply: reply.map(record::decode_outgoing).transpose().map_err(|_| damaged("reply"))?,
        time: Timestamp::from_millis(u64::try_from(handled_at).unwrap_or_default()),
    })
}

#[async_trait]
impl Inbox for SqliteInbox {
    type Transaction = SqliteTransaction;

    async fn enter(&self, entry: &DedupEntry) -> Result<Entered<SqliteTransaction>, StoreError> {
        const OPERATION: &str = "entering a message in the inbox";
        let row = DedupRow::of(entry)?;
        let limit = self.outbox.0.patience.saturating_mul(PATIENCE);
        let entering = timeout(limit, self.try_to_enter(&row)).await;
        let entered = entering.unwrap_or(Err(sqlx::Error::PoolTimedOut)).map_err(Failure::from);
        entered.map_err(|failure| self.error(OPERATION, &failure))
    }

    async fn commit(
        &self,
        mut transaction: SqliteTransaction,
        entry: &DedupEntry,
        outgoing: &[Outgoing],
    ) -> Result<(), CommitError> {
        const OPERATION: &str = "committing a handler's transaction";
        let before = |error: sqlx::Error| self.failed(OPERATION, &Failure::from(error));
        // First: in a transaction that SQLite has rolled back what comes next would be committed by itself.
        let mut arguments = SqliteArguments::default();
        arguments.bind(&entry.key.as_bytes()[..]).bind(DedupRow::of(entry)?.reply).bind(&entry.attempt.as_bytes()[..]);
        let there = sqlx::query_with(statements::REPLY, arguments).execute(&mut *transaction).await.map_err(before)?;
        if there.rows_affected() == 0 {
            end_of_its_own(&mut transaction).await;
            let why = "the handler's transaction was rolled back, and the handler did not say so: return its error";
            return Err(CommitError::Broken(why.to_owned()));
        }
        let ticket = self.outbox.enqueue_all(&mut transaction, outgoing).await.map_err(|error| match error {
            EnqueueError::Refused(why) => CommitError::Refused(why),
            EnqueueError::Database(error) => before(error),
        })?;
        let committed = transaction.commit().await.map_err(|error| Failure::new(error, Place::Commit));
        committed.map_err(|failure| self.failed(OPERATION, &failure))?;
        ticket.committed();
        Ok(())
    }

    fn is_of_a_race(&self, error: &(dyn Error + 'static)) -> bool {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(error) = error.downcast_ref::<sqlx::Error>() {
                return error::is_busy(error);
            }
            cause = error.source();
        }
        false
    }

    async fn evict(&self, retention: Duration) -> Result<Evicted, StoreError> {
        let script = statements::evict(before(now(), retention), EVICTED);
        let gone = care::counts(&self.outbox.0, "evicting inbox rows", script).await?[0] as u64;
        Ok(Evicted { entries: gone, more: gone >= EVICTED.cast_unsigned() })
    }
}
