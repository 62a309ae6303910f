//! Transactions in which a handler works: its inbox row first, its outgoing messages last.

use std::{error::Error, sync::Arc, time::Duration};

use async_trait::async_trait;
use hapax_core::{
    codec::record,
    entity::DedupEntry,
    envelope::Outgoing,
    ids::{AttemptId, DedupKey, Fingerprint},
    inbox::{CommitError, Entered, Inbox},
    ports::{ErrorKind, Evicted, StoreError},
    time::Timestamp,
};
use sqlx::{
    AssertSqlSafe, PgPool, Postgres as Driver, Row as _, Transaction,
    postgres::{PgArguments, PgRow},
};
use tokio::time::timeout;

use super::{
    super::{
        super::rows::{self, DedupRow},
        arguments::Bind,
        error::Failure,
    },
    EnqueueError, PostgresOutbox, care, millis, statements, still_good,
};

/// Entries that one step of evicting removes: a commit of a few milliseconds.
const EVICTED: i64 = 1000;
/// A lost race with another transaction, and a deadlock: see the server's manual, appendix A.
const RACES: [&str; 2] = ["40001", "40P01"];
/// In a transaction in which a statement has failed.
const BROKEN: &str = "25P02";

/// Transactions of a pool, for handlers that keep business tables: see [`hapax_core::inbox`].
///
/// ```no_run
/// # #[derive(serde::Serialize, serde::Deserialize)] struct OrderPlaced { order: i64 }
/// # impl hapax_core::Message for OrderPlaced { const TYPE: &'static str = "shop.order-placed"; }
/// # #[derive(serde::Serialize, serde::Deserialize)] struct Charged { order: i64 }
/// # impl hapax_core::Message for Charged { const TYPE: &'static str = "billing.charged"; }
/// use hapax_core::{Context, HandlerError, inbox::TransactionHandler};
/// use hapax_stores::sql::postgres::outbox::{PostgresInbox, PostgresTransaction};
///
/// struct Charge;
/// impl TransactionHandler<OrderPlaced, PostgresInbox> for Charge {
///     const NAME: &'static str = "charge";
///     async fn handle(&self, placed: OrderPlaced, cx: &mut Context, tx: &mut PostgresTransaction) -> Result<(), HandlerError> {
///         sqlx::query("INSERT INTO charge (id) VALUES ($1)").bind(placed.order).execute(&mut **tx).await?;
///         cx.publish(Charged { order: placed.order })
///     }
/// }
/// ```
///
/// The pool is the user's own, at any isolation level. It must reach the database of the outbox, and as many connections as
/// handlers shall run at once. Its sessions must not be told to lose what they confirm (`synchronous_commit = off`).
#[derive(Debug)]
pub struct PostgresInbox {
    outbox: PostgresOutbox,
    pool: PgPool,
    texts: Texts,
}

/// What a handler is given.
pub type PostgresTransaction = Transaction<'static, Driver>;

#[derive(Debug)]
struct Texts {
    enter: Arc<str>,
    seen: Arc<str>,
    reply: Arc<str>,
    evict: Arc<str>,
}

impl PostgresOutbox {
    /// Transactions of `pool`, whose inbox and outbox rows are in this outbox's tables.
    #[must_use]
    pub fn inbox(&self, pool: PgPool) -> Arc<PostgresInbox> {
        let text = |text: &str| self.0.server.text(text);
        let texts = Texts {
            enter: text(&statements::enter()),
            seen: text(statements::SEEN),
            reply: text(statements::REPLY),
            evict: text(&statements::evict()),
        };
        Arc::new(PostgresInbox { outbox: self.clone(), pool, texts })
    }
}

impl PostgresInbox {
    fn error(&self, operation: &'static str, failure: &Failure) -> StoreError {
        failure.store_error(operation, &self.outbox.0.name)
    }

    async fn run(
        &self,
        transaction: &mut PostgresTransaction,
        text: &Arc<str>,
        arguments: PgArguments,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        let query = sqlx::query_with(AssertSqlSafe(text.clone()), arguments);
        query.persistent(self.outbox.0.server.session().is_some()).fetch_all(&mut **transaction).await
    }

    async fn try_to_enter(&self, row: &DedupRow) -> Result<Entered<PostgresTransaction>, Failure> {
        let mut transaction = self.pool.begin().await.map_err(Failure::of_read)?;
        let key = || {
            let mut arguments = PgArguments::default();
            arguments.bind(&row.key.as_bytes()[..]);
            arguments
        };
        let mut arguments = key();
        arguments.bind(&row.attempt.as_bytes()[..]).bind(&row.fingerprint.as_bytes()[..]);
        let entered = self.run(&mut transaction, &self.texts.enter, arguments).await.map_err(Failure::of_read)?;
        if !entered.is_empty() {
            return Ok(Entered::First(transaction));
        }
        let seen = self.run(&mut transaction, &self.texts.seen, key()).await.map_err(Failure::of_read)?;
        transaction.rollback().await.map_err(Failure::of_read)?;
        let gone =
            || Failure::unfit(ErrorKind::Unavailable, "an inbox row went while it was looked at: try again".to_owned());
        let seen = seen.first().ok_or_else(gone)?;
        entry(row.key, seen).map(Entered::Seen).map_err(Failure::of_read)
    }
}

fn entry(key: DedupKey, row: &PgRow) -> Result<DedupEntry, sqlx::Error> {
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
impl Inbox for PostgresInbox {
    type Transaction = PostgresTransaction;

    async fn enter(&self, entry: &DedupEntry) -> Result<Entered<PostgresTransaction>, StoreError> {
        const OPERATION: &str = "entering a message in the inbox";
        let row = DedupRow::of(entry)?;
        // A copy waits here for as long as the first one is handled.
        let entering = timeout(self.outbox.0.server.limit(), self.try_to_enter(&row));
        let entered = entering.await.unwrap_or_else(|_| Err(Failure::too_late(false)));
        entered.map_err(|failure| self.error(OPERATION, &failure))
    }

    async fn commit(
        &self,
        mut transaction: PostgresTransaction,
        entry: &DedupEntry,
        outgoing: &[Outgoing],
    ) -> Result<(), CommitError> {
        const OPERATION: &str = "committing a handler's transaction";
        let before = |error: sqlx::Error| {
            if error.as_database_error().and_then(|error| error.code()).as_deref() == Some(BROKEN) {
                let why = "a statement in the handler's transaction has failed, and the handler did not say so: return its error";
                return CommitError::Broken(why.to_owned());
            }
            self.failed(OPERATION, Failure::of_read(error))
        };
        let ticket = self.outbox.enqueue_all(&mut transaction, outgoing).await.map_err(|error| match error {
            EnqueueError::Refused(why) => CommitError::Refused(why),
            EnqueueError::Database(error) => before(error),
        })?;
        match DedupRow::of(entry)?.reply {
            Some(reply) => {
                let mut arguments = PgArguments::default();
                arguments.bind(&entry.key.as_bytes()[..]).bind(reply);
                self.run(&mut transaction, &self.texts.reply, arguments).await.map_err(before)?;
            }
            // Something has been run since the handler ended, which shows whether the transaction still stands.
            None if !outgoing.is_empty() => {}
            None => still_good(&mut transaction).await.map_err(before)?,
        }
        let committing = timeout(self.outbox.0.server.limit(), transaction.commit());
        let committed =
            committing.await.map_err(|_| Failure::too_late(true)).and_then(|done| done.map_err(Failure::of_write));
        committed.map_err(|failure| self.failed(OPERATION, failure))?;
        ticket.committed();
        Ok(())
    }

    fn is_of_a_race(&self, error: &(dyn Error + 'static)) -> bool {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(sqlx::Error::Database(error)) = error.downcast_ref() {
                return error.code().is_some_and(|code| RACES.contains(&&*code));
            }
            cause = error.source();
        }
        false
    }

    async fn evict(&self, retention: Duration) -> Result<Evicted, StoreError> {
        let mut arguments = PgArguments::default();
        arguments.bind(millis(retention)).bind(EVICTED);
        let gone = care::counted(&self.outbox.0, "evicting inbox rows", &self.texts.evict, arguments).await?;
        Ok(Evicted { entries: gone as u64, more: rows::as_i64(gone) >= EVICTED })
    }
}

impl PostgresInbox {
    fn failed(&self, operation: &'static str, failure: Failure) -> CommitError {
        let error = self.error(operation, &failure);
        if failure.is_of_a_race() { CommitError::Race(error.to_string()) } else { CommitError::Store(error) }
    }
}
