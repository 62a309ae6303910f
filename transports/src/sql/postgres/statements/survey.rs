//! What a person is shown. Each looks at no more rows than asked for.

/// The server's time, for what is only shown.
const SURVEY_NOW: &str = "(date_part('epoch', statement_timestamp()) * 1000)::bigint";

/// `$1` endpoint, `$2` limit: how many messages; of these, how many under a lease.
pub(in super::super) fn queue() -> String {
    format!(
        "WITH m AS MATERIALIZED (SELECT leased_until FROM hapax.queue_message \
           WHERE queue = (SELECT id FROM hapax.queue WHERE endpoint = $1) ORDER BY due_at, id LIMIT $2::bigint) \
         SELECT count(*), count(*) FILTER (WHERE leased_until > {SURVEY_NOW}) FROM m"
    )
}

/// `$1` endpoint, `$2` limit, `$3` message id: of each copy among so many messages, its deliveries, when it is due, when its lease ends, when it
/// was sent; and the server's time.
pub(in super::super) fn queued() -> String {
    format!(
        "SELECT deliveries, due_at, leased_until, sent_at, {SURVEY_NOW} FROM \
           (SELECT deliveries, due_at, leased_until, sent_at, message_id FROM hapax.queue_message \
            WHERE queue = (SELECT id FROM hapax.queue WHERE endpoint = $1) ORDER BY due_at, id LIMIT $2::bigint) AS m \
         WHERE message_id = $3"
    )
}
