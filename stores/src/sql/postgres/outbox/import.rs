//! Bringing over what waits in another library's outbox table.

use hapax_core::{envelope::Outgoing, ids::MessageId};
use sqlx::{AssertSqlSafe, PgConnection, PgPool, Row as _, postgres::PgArguments};
use uuid::Uuid;

use super::{
    super::{
        super::outbox::{Deadlocks, Dialect, Importing, Read},
        arguments::Bind,
    },
    EnqueueError, Import, Imported, PostgresOutbox, statements,
};

struct Words;

impl Dialect for Words {
    const QUOTE: char = '"';

    fn place(_: &str) -> String {
        "t.ctid::text".to_owned()
    }

    fn literal(text: &str) -> String {
        format!("'{}'", text.replace('\'', "''"))
    }

    fn text(expression: &str) -> String {
        format!("{expression}::text")
    }

    fn bytes(expression: &str, is_bytes: bool) -> String {
        if is_bytes { format!("{expression}::bytea") } else { format!("convert_to({expression}::text, 'UTF8')") }
    }

    fn number(expression: &str) -> String {
        format!("({expression})::bigint")
    }

    /// `$1` places.
    fn none_of(_: &str, _: &[String]) -> String {
        "t.ctid <> ALL ($1::text[]::tid[])".to_owned()
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
    /// [`EnqueueError::Database`]: the mapping does not fit the table, or the database has failed. What was brought over before
    /// stays so.
    pub async fn import(&self, pool: &PgPool, import: &Import) -> Result<Imported, EnqueueError> {
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
        let mut arguments = PgArguments::default();
        arguments.bind::<Vec<String>>(so_far.refused.clone());
        let select = import.select::<Words>(self.0.ordered, &[]);
        let rows = sqlx::query_with(AssertSqlSafe(select), arguments).fetch_all(&mut *tx).await?;
        let rows = rows.iter().map(Read::of).collect::<Result<Vec<Read>, sqlx::Error>>()?;
        let Some(mut batch) = so_far.batch(rows, import, &self.0.writes, self.line().as_deref()) else {
            return Ok(false);
        };
        batch.without(self.known(&mut tx, &batch.messages).await?);
        let ticket = self.enqueue_all(&mut tx, &batch.messages).await?;
        let over = import.over::<Words>("t.ctid = ANY ($1::text[]::tid[])");
        let mut arguments = PgArguments::default();
        arguments.bind(batch.places.clone());
        sqlx::query_with(AssertSqlSafe(over), arguments).execute(&mut *tx).await?;
        self.commit(tx, ticket).await.map_err(sqlx::Error::from)?;
        so_far.count(&batch);
        Ok(true)
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
