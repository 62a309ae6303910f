//! Whether this program can read what a store holds. Messages of an entity in a codec that the program was built without wait
//! for another program, as long as they are given again: so whoever opens the store is told. It is opened all the same, since
//! the entities may be of an endpoint that only others run.

use hapax_core::codec::{Codec, record};
use sqlx::{AssertSqlSafe, ColumnIndex, Database, Decode, Executor, Row, Type};

/// Entities that are looked at: a look at all of them would take minutes, and states may be of a megabyte.
const LOOKED_AT: usize = 32;

/// Warns of the first of some entities in `table` that cannot be read: by the codec's id, with which a state begins, and the
/// version of the record in which the rest of an entity is.
pub(super) async fn look<'c, D, E>(connection: E, place: &str, table: &str) -> Result<(), sqlx::Error>
where
    D: Database,
    E: Executor<'c, Database = D>,
    for<'r> Vec<u8>: Decode<'r, D> + Type<D>,
    usize: ColumnIndex<D::Row>,
{
    let question = format!(
        "SELECT DISTINCT substr(state, 1, 1), substr(outbox, 1, 2) \
         FROM (SELECT state, outbox FROM {table} LIMIT {LOOKED_AT}) AS few"
    );
    for row in sqlx::raw_sql(AssertSqlSafe(question)).fetch_all(connection).await? {
        let (state, outbox): (Vec<u8>, Vec<u8>) = (row.try_get(0)?, row.try_get(1)?);
        if let Some(why) = fault(&state, &outbox) {
            tracing::warn!(%place, %table, why, "there are entities that this program cannot read; their messages wait");
            return Ok(());
        }
    }
    Ok(())
}

/// Why an entity whose state and outbox begin so cannot be read. A completed one has no state.
fn fault(state: &[u8], outbox: &[u8]) -> Option<String> {
    let state = state.first().map_or(Ok(()), |id| Codec::with_id(*id).map(drop));
    state.and_then(|()| record::check_frame(outbox)).err().map(|unread| unread.to_string())
}

/// State and outbox in hexadecimal digits, and what is said of them.
#[cfg(test)]
pub(super) const STORED: [(&str, &str, Option<&str>); 5] = [
    ("01017b7d", "7001", None),
    ("", "7001", None),
    (
        "C901",
        "7001",
        Some("codec 201 is unknown to this program; build it with the feature of that codec, or upgrade it"),
    ),
    ("01017b7d", "7002", Some("has schema version 2, this program knows 1; upgrade it")),
    ("01017b7d", "70", Some("1 bytes are too few to hold a frame")),
];
