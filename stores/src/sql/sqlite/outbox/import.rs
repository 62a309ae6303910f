//! Bringing over what waits in another library's outbox table.

use hapax_core::{envelope::Outgoing, ids::MessageId, relay::Ticket};
use sqlx::{AssertSqlSafe, Executor as _, Row as _, SqliteConnection, SqlitePool};
use uuid::Uuid;

use super::{
    super::super::outbox::{Batch, Dialect, Importing, Read, hex},
    EnqueueError, Import, Imported, SqliteOutbox,
};

struct Words;

impl Dialect for Words {
    const QUOTE: char = '"';

    fn place(_: &str) -> String {
        "CAST(t.rowid AS TEXT)".to_owned()
    }

    fn literal(text: &str) -> String {
        format!("CAST({} AS TEXT)", hex(text))
    }

    fn text(expression: &str) -> String {
        format!("CAST({expression} AS TEXT)")
    }

    fn bytes(expression: &str, _: bool) -> String {
        format!("CAST({expression} AS BLOB)")
    }

    /// Ids of bytes are no texts; bodies are bytes in any case.
    fn damaged(expression: &str, is_id: bool) -> String {
        if is_id { format!("typeof({expression}) = 'blob'") } else { "0".to_owned() }
    }

    fn number(expression: &str) -> String {
        format!("CAST({expression} AS INTEGER)")
    }

    fn none_of(_: &str, refused: &[String]) -> String {
        format!("NOT ({})", one_of(refused))
    }

    /// Nobody else writes beside a transaction that does.
    fn lock(_: bool) -> &'static str {
        ""
    }
}

/// The rows at these places, which are numbers: see [`numbers`].
fn one_of(places: &[String]) -> String {
    format!("t.rowid IN ({})", places.join(", "))
}

impl SqliteOutbox {
    /// Brings over what waits in another outbox table of the same file, which must not be `WITHOUT ROWID`, batch by batch, until
    /// nothing is left. Each batch is one transaction of `pool`: its messages are in the outbox and its rows are over together, so
    /// that it may be killed anywhere and run again. Whoever sends from the other table must have been stopped before; whoever
    /// stores there may go on, and it is run once more when nobody does any longer.
    ///
    /// # Errors
    /// [`EnqueueError::Refused`]: the mapping would not end, or would lose something. [`EnqueueError::Database`]: the mapping does not fit the table, or the database has failed. What was brought over before
    /// stays so.
    pub async fn import(&self, pool: &SqlitePool, import: &Import) -> Result<Imported, EnqueueError> {
        import.check()?;
        let mut importing = Importing::default();
        loop {
            // It writes from its first statement on: one that has only read could find that somebody else has written.
            let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
            let (batch, ticket) = match self.stored(&mut tx, import, &mut importing).await {
                Ok(Some(stored)) => stored,
                // Now, and not when the connection is used next: nobody else writes until then.
                other => {
                    let rolled_back = tx.rollback().await;
                    other?;
                    rolled_back?;
                    return Ok(importing.imported);
                }
            };
            self.commit(tx, ticket).await.map_err(sqlx::Error::from)?;
            importing.count(&batch);
        }
    }

    /// The next batch, once it is in the outbox and over.
    async fn stored(
        &self,
        tx: &mut SqliteConnection,
        import: &Import,
        so_far: &mut Importing,
    ) -> Result<Option<(Batch, Ticket)>, EnqueueError> {
        let select = import.select::<Words>(self.0.ordered, &so_far.refused);
        let rows = Read::all(tx.fetch(sqlx::raw_sql(AssertSqlSafe(select)))).await?;
        let Some(mut batch) = so_far.batch(rows, import, &self.0.writes, self.line().as_deref())? else {
            return Ok(None);
        };
        numbers(import, batch.places.iter().chain(&so_far.refused))?;
        let known = known(tx, &batch.messages).await?;
        so_far.without(&mut batch, known);
        let ticket = self.enqueue_all(tx, &batch.messages).await?;
        let over = import.over::<Words>(&one_of(&batch.places));
        batch.check(import, tx.execute(sqlx::raw_sql(AssertSqlSafe(over))).await?.rows_affected())?;
        Ok(Some((batch, ticket)))
    }
}

/// That `places` are SQLite's own numbers of rows, and not what stands in a column that bears their name.
fn numbers<'a>(import: &Import, mut places: impl Iterator<Item = &'a String>) -> Result<(), EnqueueError> {
    if places.all(|place| place.parse::<i64>().is_ok()) {
        return Ok(());
    }
    Err(import.wrong("it has a column `rowid`, which hides where its rows are: import a copy of it without that name"))
}

async fn known(tx: &mut SqliteConnection, messages: &[Outgoing]) -> Result<Vec<MessageId>, sqlx::Error> {
    let ids = messages.iter().filter_map(|outgoing| outgoing.envelope.message_id.as_uuid());
    let ids: Vec<String> = ids.map(|id| hex(id.as_bytes())).collect();
    let text = format!("SELECT id FROM hapax_outbox WHERE id IN ({})", ids.join(", "));
    let rows = tx.fetch_all(sqlx::raw_sql(AssertSqlSafe(text))).await?;
    let id = |bytes: Vec<u8>| Uuid::from_slice(&bytes).unwrap_or_default();
    rows.iter().map(|row| row.try_get::<Vec<u8>, _>(0).map(|bytes| MessageId::from(id(bytes)))).collect()
}
