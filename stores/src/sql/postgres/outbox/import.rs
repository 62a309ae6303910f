//! Bringing over what waits in another library's outbox table.

use hapax_core::{envelope::Outgoing, ids::MessageId, relay::Ticket};
use sqlx::{AssertSqlSafe, PgConnection, PgPool, Row as _, postgres::PgArguments};
use uuid::Uuid;

use super::{
    super::{
        super::outbox::{Batch, Deadlocks, Dialect, Importing, Read},
        arguments::Bind,
    },
    EnqueueError, Import, Imported, PostgresOutbox, statements,
};

/// Of a row of `t`.
const PLACE: &str = "(t.tableoid::text || t.ctid::text)";

struct Words;

impl Dialect for Words {
    const QUOTE: char = '"';

    /// With its table: a place is one within one partition, and in another partition somebody else's.
    fn place(_: &str) -> String {
        PLACE.to_owned()
    }

    fn literal(text: &str) -> String {
        // The same whatever `standard_conforming_strings` is.
        format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
    }

    fn text(expression: &str) -> String {
        format!("{expression}::text")
    }

    fn bytes(expression: &str, is_bytes: bool) -> String {
        if is_bytes { format!("{expression}::bytea") } else { format!("convert_to({expression}::text, 'UTF8')") }
    }

    /// An id of bytes has a text of its own.
    fn damaged(expression: &str, is_id: bool) -> String {
        if is_id { "0".to_owned() } else { format!("(pg_typeof({expression}) = 'bytea'::regtype)::int") }
    }

    fn number(expression: &str) -> String {
        format!("({expression})::bigint")
    }

    /// `$1` places.
    fn none_of(_: &str, _: &[String]) -> String {
        format!("{PLACE} <> ALL ($1::text[])")
    }

    fn lock(ordered: bool) -> &'static str {
        if ordered { " FOR UPDATE" } else { " FOR UPDATE SKIP LOCKED" }
    }
}

impl PostgresOutbox {
    /// Brings over what waits in another outbox table of the same database, batch by batch, until nothing is left. Each batch is one
    /// transaction of `pool`: its messages are in the outbox and its rows are over together, so that it may be killed anywhere
    /// and run again. Whoever sends from the other table must have been stopped before; whoever stores there may go on, and it is run
    /// once more when nobody does any longer. A batch that is lost to a deadlock is done again.
    ///
    /// # Errors
    /// [`EnqueueError::Refused`]: the mapping would not end, or would lose something. [`EnqueueError::Database`]: the mapping does not fit the table, or the database has failed. What was brought over before
    /// stays so.
    pub async fn import(&self, pool: &PgPool, import: &Import) -> Result<Imported, EnqueueError> {
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
    async fn import_batch(&self, pool: &PgPool, import: &Import, so_far: &mut Importing) -> Result<bool, EnqueueError> {
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
        tx: &mut PgConnection,
        import: &Import,
        so_far: &mut Importing,
    ) -> Result<Option<(Batch, Ticket)>, EnqueueError> {
        let mut arguments = PgArguments::default();
        arguments.bind::<Vec<String>>(so_far.refused.clone());
        let select = import.select::<Words>(self.0.ordered, &[]);
        let is_kept = self.0.server.session().is_some();
        let query = sqlx::query_with(AssertSqlSafe(select), arguments).persistent(is_kept);
        let rows = Read::all(query.fetch(&mut *tx)).await?;
        let Some(mut batch) = so_far.batch(rows, import, &self.0.writes, self.line().as_deref())? else {
            return Ok(None);
        };
        let known = self.known(tx, &batch.messages).await?;
        so_far.without(&mut batch, known);
        let ticket = self.enqueue_all(tx, &batch.messages).await?;
        // By the first the rows are found, each partition's; the second says which of them are meant.
        let over = import.over::<Words>(&format!("t.ctid = ANY ($1::text[]::tid[]) AND {PLACE} = ANY ($2::text[])"));
        let within = |place: &String| place.find('(').map(|at| place[at..].to_owned());
        let mut arguments = PgArguments::default();
        arguments.bind::<Vec<String>>(batch.places.iter().filter_map(within).collect());
        arguments.bind(batch.places.clone());
        let query = sqlx::query_with(AssertSqlSafe(over), arguments).persistent(is_kept);
        batch.check(import, query.execute(tx).await?.rows_affected())?;
        Ok(Some((batch, ticket)))
    }

    async fn known(&self, tx: &mut PgConnection, messages: &[Outgoing]) -> Result<Vec<MessageId>, sqlx::Error> {
        let ids: Vec<Uuid> = messages.iter().filter_map(|outgoing| outgoing.envelope.message_id.as_uuid()).collect();
        let mut arguments = PgArguments::default();
        arguments.bind(ids);
        let query = sqlx::query_with(AssertSqlSafe(self.0.server.text(statements::KNOWN)), arguments);
        let rows = query.persistent(self.0.server.session().is_some()).fetch_all(tx).await?;
        rows.iter().map(|row| row.try_get::<Uuid, _>(0).map(MessageId::from)).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::{
        super::{Import, Source},
        Words,
    };

    #[test]
    fn names_and_texts_cannot_leave_their_place() {
        let import =
            Import::new("we\"ird.ta.ble", Source::column("a\"b"), Source::text("it's"), Source::column("body"));
        let sql = import.select::<Words>(false, &[]);
        for quoted in ["t.\"a\"\"b\"", "'it''s'", "\"we\"\"ird\".\"ta.ble\" AS t"] {
            assert!(sql.contains(quoted), "{sql}");
        }
    }
}
