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
    AssertSqlSafe, MySql as Driver, MySqlPool, Transaction,
    mysql::{MySqlArguments, MySqlRow},
};
use tokio::time::timeout;

use super::{
    super::{
        super::{columns::Columns as _, outbox::millis, races::Races, rows::DedupRow},
        arguments::Bind,
        error::{self, Failure},
        wire::Fault,
    },
    EnqueueError, MySqlOutbox, statements,
};

/// Entries that one step of evicting removes: a commit of a few milliseconds.
const EVICTED: i64 = 1000;

/// Transactions of a pool, for handlers that keep business tables: see [`hapax_core::inbox`].
///
/// ```no_run
/// # #[derive(serde::Serialize, serde::Deserialize)] struct OrderPlaced { order: i64 }
/// # impl hapax_core::Message for OrderPlaced { const TYPE: &'static str = "shop.order-placed"; }
/// # #[derive(serde::Serialize, serde::Deserialize)] struct Charged { order: i64 }
/// # impl hapax_core::Message for Charged { const TYPE: &'static str = "billing.charged"; }
/// use hapax_core::{Context, HandlerError, inbox::TransactionHandler};
/// use hapax_stores::sql::mysql::outbox::{MySqlInbox, MySqlTransaction};
///
/// struct Charge;
/// impl TransactionHandler<OrderPlaced, MySqlInbox> for Charge {
///     const NAME: &'static str = "charge";
///     async fn handle(&self, placed: OrderPlaced, cx: &mut Context, tx: &mut MySqlTransaction) -> Result<(), HandlerError> {
///         sqlx::query("INSERT INTO charge (id) VALUES (?)").bind(placed.order).execute(&mut **tx).await?;
///         cx.publish(Charged { order: placed.order })
///     }
/// }
/// ```
///
/// The pool is the user's own, at any isolation level. It must reach the database of the outbox, and as many connections as
/// handlers shall run at once. A handler returns the first error that it meets: after a deadlock the server has rolled all of
/// it back, and takes what comes next as transactions of their own. Nor does it run what commits by itself (`TRUNCATE`, `CREATE`,
/// `LOCK TABLES` and the like): the inbox row would be committed with it, and what fails after that is not done again.
#[derive(Debug)]
pub struct MySqlInbox {
    outbox: MySqlOutbox,
    pool: MySqlPool,
    texts: Texts,
}

/// What a handler is given.
pub type MySqlTransaction = Transaction<'static, Driver>;

#[derive(Debug)]
struct Texts {
    enter: Arc<str>,
    seen: Arc<str>,
    reply: Arc<str>,
    evict: Arc<str>,
    settle: Arc<str>,
}

impl MySqlOutbox {
    /// Transactions of `pool`, whose inbox and outbox rows are in this outbox's tables.
    #[must_use]
    pub fn inbox(&self, pool: MySqlPool) -> Arc<MySqlInbox> {
        let text = |text: &str| self.0.server.text(text);
        let texts = Texts {
            enter: text(&statements::enter()),
            seen: text(statements::SEEN),
            reply: text(statements::REPLY),
            evict: text(&statements::evict()),
            settle: text(statements::SETTLE),
        };
        Arc::new(MySqlInbox { outbox: self.clone(), pool, texts })
    }
}

impl MySqlInbox {
    async fn run(
        &self,
        transaction: &mut MySqlTransaction,
        text: &Arc<str>,
        arguments: MySqlArguments,
    ) -> Result<u64, sqlx::Error> {
        let query = sqlx::query_with(AssertSqlSafe(text.clone()), arguments);
        Ok(query.execute(&mut **transaction).await?.rows_affected())
    }

    async fn try_to_enter(&self, row: &DedupRow) -> Result<Entered<MySqlTransaction>, Failure> {
        let mut transaction = self.pool.begin().await.map_err(Failure::of_read)?;
        let mut arguments = MySqlArguments::default();
        arguments.bind(&row.key.as_bytes()[..]);
        arguments.bind(&row.attempt.as_bytes()[..]).bind(&row.fingerprint.as_bytes()[..]);
        match self.run(&mut transaction, &self.texts.enter, arguments).await.map_err(Failure::of_read) {
            Ok(_) => return Ok(Entered::First(transaction)),
            Err(failure) if failure.is_of_a_duplicate() => {}
            Err(failure) => return Err(failure),
        }
        transaction.rollback().await.map_err(Failure::of_read)?;
        let mut arguments = MySqlArguments::default();
        arguments.bind(&row.key.as_bytes()[..]);
        let query = sqlx::query_with(AssertSqlSafe(self.texts.seen.clone()), arguments);
        let seen = query.fetch_optional(&self.pool).await.map_err(Failure::of_read)?;
        let gone =
            || Failure::unfit(ErrorKind::Unavailable, "an inbox row went while it was looked at: try again".to_owned());
        entry(row.key, &seen.ok_or_else(gone)?).map(Entered::Seen).map_err(Failure::of_read)
    }

    /// The server shows what it has not yet confirmed. On a message's fate nothing hangs that could still be lost: a commit that
    /// comes after it is on the disk after it.
    async fn settle(&self) -> Result<(), Fault> {
        let mut wire = self.outbox.0.rare.lock().await;
        let mut races = Races::default();
        loop {
            match wire.write(&self.texts.settle, MySqlArguments::default()).await {
                Err(fault) if fault.is_of_a_race() && races.allow(fault.is_of_a_wait()) => {}
                settled => return settled.map(drop),
            }
        }
    }

    fn error(&self, operation: &'static str, failure: &Failure) -> StoreError {
        failure.store_error(operation, &self.outbox.0.name)
    }

    fn failed(&self, operation: &'static str, failure: Failure) -> CommitError {
        let error = self.error(operation, &failure);
        if failure.is_of_a_race() { CommitError::Race(error.to_string()) } else { CommitError::Store(error) }
    }
}

fn entry(key: DedupKey, row: &MySqlRow) -> Result<DedupEntry, sqlx::Error> {
    let damaged =
        |what: &'static str| sqlx::Error::Decode(format!("column `{what}` of the inbox cannot be read").into());
    let (attempt, fingerprint) = (row.bytes(0)?.unwrap_or_default(), row.bytes(1)?.unwrap_or_default());
    Ok(DedupEntry {
        key,
        attempt: AttemptId::from_bytes(attempt.try_into().map_err(|_| damaged("attempt"))?),
        fingerprint: Fingerprint::from_bytes(fingerprint.try_into().map_err(|_| damaged("fingerprint"))?),
        reply: row.bytes(2)?.map(record::decode_outgoing).transpose().map_err(|_| damaged("reply"))?,
        time: Timestamp::from_millis(u64::try_from(row.number(3)?).unwrap_or_default()),
    })
}

#[async_trait]
impl Inbox for MySqlInbox {
    type Transaction = MySqlTransaction;

    async fn enter(&self, entry: &DedupEntry) -> Result<Entered<MySqlTransaction>, StoreError> {
        const OPERATION: &str = "entering a message in the inbox";
        let row = DedupRow::of(entry)?;
        // A copy waits here for as long as the first one is handled. Of several that wait for one that is rolled back, the
        // server lets one go on and calls it a deadlock for the others.
        let entering = async {
            let mut races = Races::default();
            loop {
                match self.try_to_enter(&row).await {
                    Err(failure) if failure.is_of_a_race() && races.allow(failure.is_of_a_wait()) => {}
                    entered => return entered,
                }
            }
        };
        let entered = timeout(self.outbox.0.server.limit(), entering).await;
        let entered = entered.unwrap_or_else(|_| Err(Failure::too_late(false)));
        let entered = entered.map_err(|failure| self.error(OPERATION, &failure))?;
        if let Entered::Seen(_) = entered {
            self.settle().await.map_err(|fault| fault.store_error(OPERATION, &self.outbox.0.name))?;
        }
        Ok(entered)
    }

    async fn commit(
        &self,
        mut transaction: MySqlTransaction,
        entry: &DedupEntry,
        outgoing: &[Outgoing],
    ) -> Result<(), CommitError> {
        const OPERATION: &str = "committing a handler's transaction";
        let before = |error: sqlx::Error| self.failed(OPERATION, Failure::of_read(error));
        // First, since in a transaction that the server has rolled back what comes next would be committed by itself.
        let mut arguments = MySqlArguments::default();
        arguments.bind(DedupRow::of(entry)?.reply).bind(&entry.key.as_bytes()[..]).bind(&entry.attempt.as_bytes()[..]);
        if self.run(&mut transaction, &self.texts.reply, arguments).await.map_err(before)? == 0 {
            let why = "the server has rolled the handler's transaction back, after a deadlock, and the handler did not say \
                       so: return its error";
            return Err(CommitError::Broken(why.to_owned()));
        }
        let ticket = self.outbox.enqueue_all(&mut transaction, outgoing).await.map_err(|error| match error {
            EnqueueError::Refused(why) => CommitError::Refused(why),
            EnqueueError::Database(error) => before(error),
        })?;
        let committing = timeout(self.outbox.0.server.limit(), transaction.commit());
        let committed =
            committing.await.map_err(|_| Failure::too_late(true)).and_then(|done| done.map_err(Failure::of_commit));
        committed.map_err(|failure| self.failed(OPERATION, failure))?;
        ticket.committed();
        Ok(())
    }

    fn is_of_a_race(&self, error: &(dyn Error + 'static)) -> bool {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(error) = error.downcast_ref::<sqlx::Error>() {
                return error::is_of_a_race(error);
            }
            cause = error.source();
        }
        false
    }

    async fn evict(&self, retention: Duration) -> Result<Evicted, StoreError> {
        const OPERATION: &str = "evicting inbox rows";
        let mut arguments = MySqlArguments::default();
        arguments.bind(millis(retention)).bind(EVICTED);
        let evicted = self.outbox.0.rare.lock().await.write(&self.texts.evict, arguments).await;
        let gone = evicted.map_err(|fault| fault.store_error(OPERATION, &self.outbox.0.name))?.affected;
        Ok(Evicted { entries: gone, more: gone >= EVICTED.cast_unsigned() })
    }
}
