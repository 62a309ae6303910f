//! Of messages that are not due yet. Each access names its index: statistics of a table that was empty must not make the server go
//! through all of it, and lock it.

use super::NOW;

/// The bytes of the endpoint, or of one, follow. Of what is put again nothing is changed that anybody sees; but it is a change, so that
/// this commit is on the disk after that of whoever has put it first.
pub(in crate::sql::mysql) const PUT: &str =
    "INSERT INTO hapax.schedule (endpoint, message_id, destination, due_at, bytes, envelope) VALUES ";
pub(in crate::sql::mysql) const AGAIN: &str = " ON DUPLICATE KEY UPDATE repeats = repeats + 1";

/// One row that is too large for a text: `?` endpoint, message id, destination, due time or null, bytes, envelope.
pub(in crate::sql::mysql) fn put_one() -> String {
    format!("{PUT}(?, ?, ?, COALESCE(?, {NOW}), ?, ?){AGAIN}")
}

/// The bytes of the endpoint, [`AND_MESSAGES`], those of the message ids and `)` follow.
pub(in crate::sql::mysql) const CANCEL: &str =
    "DELETE s FROM hapax.schedule AS s FORCE INDEX (message) WHERE s.endpoint = ";
pub(in crate::sql::mysql) const AND_MESSAGES: &str = " AND s.message_id IN (";

/// Puts into `@ids` what is due `within` milliseconds: `max` at most, of so many bytes together, or one of more. `endpoint`: its bytes
/// as a text has them. What others have been given, or are being given, is passed over: it is as much as the processes of the endpoint
/// send at a time. A lease that ends in more than an hour was begun when the clock was ahead: none is longer.
pub(in crate::sql::mysql) fn choose(endpoint: &str, within: i64, max: i64, bytes_max: i64) -> String {
    format!(
        "SELECT JSON_ARRAYAGG(IF(p.upto <= {bytes_max} OR p.upto = p.bytes, p.id, NULL)) INTO @ids FROM \
         (SELECT t.id, t.bytes, SUM(t.bytes) OVER (ORDER BY t.due_at, t.id) AS upto FROM \
           (SELECT s.id, s.due_at, s.bytes FROM hapax.schedule AS s FORCE INDEX (due) \
            WHERE s.endpoint = {endpoint} AND s.due_at <= {NOW} + {within} \
              AND (s.leased_until <= {NOW} OR s.leased_until > {NOW} + 3600000) \
            ORDER BY s.due_at, s.id LIMIT {max} FOR UPDATE SKIP LOCKED) AS t) AS p"
    )
}

/// The rows whose numbers are in `@ids`.
const CHOSEN: &str = "JSON_TABLE(@ids, '$[*]' COLUMNS (id BIGINT PATH '$')) AS j \
    STRAIGHT_JOIN hapax.schedule AS s FORCE INDEX (PRIMARY) ON s.id = j.id";

/// Gives them away under a lease.
pub(in crate::sql::mysql) fn lease(milliseconds: i64, token: i64) -> String {
    format!("UPDATE {CHOSEN} SET s.leased_until = {NOW} + {milliseconds}, s.token = {token}")
}

/// Rows: id, token, due at, destination, envelope.
pub(in crate::sql::mysql) fn given() -> String {
    format!("SELECT s.id, s.token, s.due_at, s.destination, s.envelope FROM {CHOSEN}")
}

/// The ids, [`AND_LEASES`], pairs of id and token, [`AND_ENDPOINT`], the bytes of the endpoint follow.
pub(in crate::sql::mysql) const DONE: &str = "DELETE s FROM hapax.schedule AS s FORCE INDEX (PRIMARY) WHERE s.id IN (";
pub(in crate::sql::mysql) const AND_LEASES: &str = ") AND (s.id, s.token) IN (";
pub(in crate::sql::mysql) const AND_ENDPOINT: &str = ") AND s.endpoint = ";

/// `?` endpoint. The earliest due time, and the server's time.
pub(in crate::sql::mysql) fn next() -> String {
    format!("SELECT due_at, {NOW} FROM hapax.schedule FORCE INDEX (due) WHERE endpoint = ? ORDER BY due_at, id LIMIT 1")
}

/// Every text, with values where they are put in.
#[cfg(test)]
pub(in crate::sql::mysql) fn all() -> Vec<String> {
    vec![
        put_one(),
        format!("{CANCEL}x'00'{AND_MESSAGES}x'00', x'01')"),
        choose("x'00'", 0, 10, 1000),
        lease(1, 1),
        given(),
        format!("{DONE}1, 2{AND_LEASES}(1, 1), (2, 1){AND_ENDPOINT}x'00'"),
        next(),
    ]
}
