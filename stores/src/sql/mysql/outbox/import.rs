//! Bringing over what waits in another library's outbox table.

use hapax_core::{envelope::Outgoing, ids::MessageId, relay::Ticket};
use sqlx::{AssertSqlSafe, Executor as _, MySqlConnection, MySqlPool, Row as _};
use uuid::Uuid;

use super::{
    super::super::outbox::{Batch, Deadlocks, Dialect, Importing, Read, hex},
    EnqueueError, Import, Imported, MySqlOutbox,
};

struct Words;

impl Dialect for Words {
    const QUOTE: char = '`';

    /// There is nothing else that every table has.
    fn place(id: &str) -> String {
        Self::text(id)
    }

    /// Whatever the server takes for the end of a text; and a literal, not an expression, so that it is compared as its column is.
    fn literal(text: &str) -> String {
        format!("_utf8mb4 {}", hex(text))
    }

    fn text(expression: &str) -> String {
        format!("CONVERT({expression} USING utf8mb4)")
    }

    fn bytes(expression: &str, is_bytes: bool) -> String {
        if is_bytes {
            format!("CAST({expression} AS BINARY)")
        } else {
            format!("CAST({} AS BINARY)", Self::text(expression))
        }
    }

    /// What is no text at all is made of question marks.
    fn damaged(expression: &str, _: bool) -> String {
        let text = Self::text(expression);
        format!("(CHARSET({expression}) = 'binary' AND CAST({text} AS BINARY) <> CAST({expression} AS BINARY))")
    }

    fn number(expression: &str) -> String {
        format!("CAST({expression} AS SIGNED)")
    }

    fn none_of(id: &str, refused: &[String]) -> String {
        format!("{id} IS NOT NULL AND NOT ({})", one_of(id, refused))
    }

    /// MariaDB takes no name for the table beside `DELETE FROM`.
    fn delete(table: &str, condition: &str) -> String {
        format!("DELETE t FROM {table} AS t WHERE {condition}")
    }

    fn lock(ordered: bool) -> &'static str {
        if ordered { " FOR UPDATE" } else { " FOR UPDATE SKIP LOCKED" }
    }
}

/// The rows with these ids: by whatever index there is, and then byte by byte, since a collation may take two ids for one.
fn one_of(id: &str, ids: &[String]) -> String {
    if ids.is_empty() {
        return "1 = 0".to_owned();
    }
    let list = |of: fn(&str) -> String| ids.iter().map(|id| of(id)).collect::<Vec<_>>().join(", ");
    format!("{id} IN ({}) AND {} IN ({})", list(Words::literal), Words::bytes(id, false), list(|id| hex(id)))
}

impl MySqlOutbox {
    /// Brings over what waits in another outbox table of the same server, batch by batch, until nothing is left. Each batch is one
    /// transaction of `pool`: its messages are in the outbox and its rows are over together, so that it may be killed anywhere
    /// and run again. Whoever sends from the other table must have been stopped before; whoever stores there may go on, and it is run
    /// once more when nobody does any longer. A batch that is lost to a deadlock is done again. Rows are found again by their ids:
    /// those without one are left alone, and several with the same are an error.
    ///
    /// # Errors
    /// [`EnqueueError::Refused`]: the mapping would not end, or would lose something. [`EnqueueError::Database`]: the mapping does not fit the table, or the database has failed. What was brought over before
    /// stays so.
    pub async fn import(&self, pool: &MySqlPool, import: &Import) -> Result<Imported, EnqueueError> {
        import.check()?;
        let (mut importing, mut deadlocks) = (Importing::default(), Deadlocks::default());
        loop {
            match self.import_batch(pool, import, &mut importing).await {
                Ok(true) => deadlocks = Deadlocks::default(),
                Ok(false) => return Ok(importing.imported),
                Err(error) => deadlocks.after(error)?,
            }
        }
    }

    /// Whether there was something.
    async fn import_batch(
        &self,
        pool: &MySqlPool,
        import: &Import,
        so_far: &mut Importing,
    ) -> Result<bool, EnqueueError> {
        let mut tx = pool.begin().await?;
        let (batch, ticket) = match self.stored(&mut tx, import, so_far).await {
            Ok(Some(stored)) => stored,
            // Now, and not when the connection is used next: who imports next does not see rows that are locked.
            other => {
                let rolled_back = tx.rollback().await;
                other?;
                rolled_back?;
                return Ok(false);
            }
        };
        self.commit(tx, ticket).await.map_err(sqlx::Error::from)?;
        so_far.count(&batch);
        Ok(true)
    }

    /// The next batch, once it is in the outbox and over.
    async fn stored(
        &self,
        tx: &mut MySqlConnection,
        import: &Import,
        so_far: &mut Importing,
    ) -> Result<Option<(Batch, Ticket)>, EnqueueError> {
        let select = import.select::<Words>(self.0.ordered, &so_far.refused);
        let rows = Read::all(tx.fetch(sqlx::raw_sql(AssertSqlSafe(select)))).await?;
        let Some(mut batch) = so_far.batch(rows, import, &self.0.writes, self.line().as_deref())? else {
            return Ok(None);
        };
        let known = self.known(tx, &batch.messages).await?;
        so_far.without(&mut batch, known);
        let ticket = self.enqueue_all(tx, &batch.messages).await?;
        if !batch.places.is_empty() {
            let over = import.over::<Words>(&one_of(&import.id::<Words>(), &batch.places));
            batch.check(import, tx.execute(sqlx::raw_sql(AssertSqlSafe(over))).await?.rows_affected())?;
        }
        Ok(Some((batch, ticket)))
    }

    async fn known(&self, tx: &mut MySqlConnection, messages: &[Outgoing]) -> Result<Vec<MessageId>, sqlx::Error> {
        let ids = messages.iter().filter_map(|outgoing| outgoing.envelope.message_id.as_uuid());
        let ids: Vec<String> = ids.map(|id| hex(id.as_bytes())).collect();
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let text = self.0.server.text(&format!("SELECT id FROM hapax.outbox WHERE id IN ({})", ids.join(", ")));
        let rows = tx.fetch_all(sqlx::raw_sql(AssertSqlSafe(text))).await?;
        let id = |bytes: Vec<u8>| Uuid::from_slice(&bytes).unwrap_or_default();
        rows.iter().map(|row| row.try_get::<Vec<u8>, _>(0).map(|bytes| MessageId::from(id(bytes)))).collect()
    }
}
