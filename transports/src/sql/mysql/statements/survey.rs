//! What a person is shown. Each looks at no more rows than asked for.

use super::NOW;

/// `?` endpoint, limit: how many messages; of these, how many under a lease.
pub(in super::super) fn queue() -> String {
    format!(
        "SELECT COUNT(*), CAST(COALESCE(SUM(leased_until > {NOW}), 0) AS SIGNED) FROM \
           (SELECT leased_until FROM hapax.queue_message FORCE INDEX (due) \
            WHERE queue = (SELECT id FROM hapax.queue WHERE endpoint = ?) ORDER BY due_at, id LIMIT ?) AS m"
    )
}

/// `?` endpoint, limit, message id: of each copy among so many messages, its deliveries, when it is due, when its lease ends, when it was sent;
/// and the server's time.
pub(in super::super) fn queued() -> String {
    format!(
        "SELECT deliveries, due_at, leased_until, sent_at, CAST({NOW} AS SIGNED) FROM \
           (SELECT deliveries, due_at, leased_until, sent_at, message_id FROM hapax.queue_message FORCE INDEX (due) \
            WHERE queue = (SELECT id FROM hapax.queue WHERE endpoint = ?) ORDER BY due_at, id LIMIT ?) AS m \
         WHERE message_id = ?"
    )
}
