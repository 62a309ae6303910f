//! Of messages that are not due yet. Each is its own transaction.

use super::NOW_ONCE;

/// `$1` endpoint, `$2` message ids, `$3` destinations, `$4` due times or nulls, `$5` envelopes.
pub(in crate::sql::postgres) fn put() -> String {
    let arrays = ["$2::text[]", "$3::text[]", "$4::bigint[]", "$5::bytea[]"].map(str::to_owned);
    let rows = super::side_by_side(&arrays, &["message_id", "destination", "due_at", "envelope"]);
    format!(
        "INSERT INTO hapax.schedule (endpoint, message_id, destination, due_at, bytes, envelope) \
         SELECT $1, r.message_id, r.destination, coalesce(r.due_at, {NOW_ONCE}), octet_length(r.envelope), r.envelope \
         FROM {rows} ON CONFLICT DO NOTHING"
    )
}

/// `$1` endpoint, `$2` message ids. One row: how many.
pub(in crate::sql::postgres) const CANCEL: &str = "\
    WITH gone AS (DELETE FROM hapax.schedule WHERE endpoint = $1 AND message_id = ANY ($2::text[]) RETURNING 1) \
    SELECT count(*) FROM gone";

/// `$1` endpoint, `$2` due within, `$3` the lease, `$4` limit, `$5` bytes together, `$6` token. Rows: id, token, due at, destination,
/// envelope. What others have been given, or are being given, is passed over: it is as much as the processes of the endpoint send at a
/// time. A lease that ends in more than an hour was begun when the clock was ahead: none is longer. Which of the rows that it has locked
/// are of more bytes than were asked for is known once they are locked; they are free again when it ends.
pub(in crate::sql::postgres) fn take() -> String {
    format!(
        "WITH c AS MATERIALIZED (SELECT id, due_at, bytes FROM hapax.schedule WHERE endpoint = $1 AND due_at <= {NOW_ONCE} + $2 \
             AND (leased_until <= {NOW_ONCE} OR leased_until > {NOW_ONCE} + 3600000) \
             ORDER BY due_at, id LIMIT $4 FOR UPDATE SKIP LOCKED), \
           t AS MATERIALIZED (SELECT id FROM (SELECT id, bytes, sum(bytes) OVER (ORDER BY due_at, id) AS upto FROM c) AS c \
             WHERE upto <= $5 OR upto = bytes) \
         UPDATE hapax.schedule AS s SET leased_until = {NOW_ONCE} + $3, token = $6 FROM t WHERE s.id = ANY (ARRAY[t.id]) \
         RETURNING s.id, s.token, s.due_at, s.destination, s.envelope"
    )
}

/// `$1` endpoint, `$2` ids, `$3` tokens.
pub(in crate::sql::postgres) fn done() -> String {
    let rows = super::side_by_side(&["$2::bigint[]", "$3::bigint[]"].map(str::to_owned), &["id", "token"]);
    format!(
        "DELETE FROM hapax.schedule AS s USING {rows} WHERE s.id = ANY (ARRAY[r.id]) AND s.token = r.token \
         AND s.endpoint = $1"
    )
}

/// `$1` endpoint. The earliest due time, and the server's time.
pub(in crate::sql::postgres) fn next() -> String {
    format!("SELECT due_at, {NOW_ONCE} FROM hapax.schedule WHERE endpoint = $1 ORDER BY due_at, id LIMIT 1")
}
