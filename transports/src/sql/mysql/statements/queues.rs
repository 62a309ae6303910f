//! Queues: their numbers, who subscribes, what is in them.

use super::{
    super::arguments::{bytes, list},
    MESSAGE_BY_ID,
};

/// `?` endpoint.
pub(in super::super) const QUEUE_ID: &str = "SELECT id FROM hapax.queue WHERE endpoint = ?";

/// `?` endpoint, most queues.
pub(in super::super) const QUEUE_ADD: &str = "\
    INSERT INTO hapax.queue (endpoint) SELECT ? FROM DUAL WHERE (SELECT COUNT(*) FROM hapax.queue AS q) < ? \
    ON DUPLICATE KEY UPDATE id = id";

pub(in super::super) fn subscribe(queue: i64, types: &[&str]) -> String {
    let rows = types.iter().map(|of| format!("({}, {queue})", bytes(of)));
    format!(
        "INSERT INTO hapax.queue_subscription (type, queue) VALUES {} ON DUPLICATE KEY UPDATE queue = queue",
        list(rows)
    )
}

pub(in super::super) fn unsubscribe(endpoint: &str, types: &[&str]) -> String {
    format!(
        "DELETE s FROM hapax.queue_subscription AS s WHERE s.type IN ({}) \
         AND s.queue = (SELECT q.id FROM hapax.queue AS q WHERE q.endpoint = {})",
        list(types.iter().map(bytes)),
        bytes(endpoint)
    )
}

/// The third tells how many messages.
pub(in super::super) fn abandon(endpoint: &str, limit: usize) -> Vec<String> {
    let queue = format!("(SELECT q.id FROM hapax.queue AS q WHERE q.endpoint = {})", bytes(endpoint));
    vec![
        format!("DELETE s FROM hapax.queue_subscription AS s WHERE s.queue = {queue}"),
        format!("SET @queue = {queue}"),
        format!("DELETE FROM hapax.queue_message WHERE queue = @queue ORDER BY due_at, id LIMIT {limit}"),
        format!(
            "DELETE f FROM hapax.queue_given AS f FORCE INDEX (keyed) LEFT JOIN {MESSAGE_BY_ID} ON m.id = f.id \
             WHERE f.queue = @queue AND m.id IS NULL"
        ),
    ]
}

/// `?` endpoint.
pub(in super::super) const BACKLOG: &str = "\
    SELECT COUNT(*) FROM hapax.queue_message WHERE queue = (SELECT id FROM hapax.queue WHERE endpoint = ?)";

/// Messages in all queues.
pub(in super::super) const MESSAGES: &str = "SELECT COUNT(*) FROM hapax.queue_message";

/// The highest number of any queue: that of one queue would have to be looked for.
pub(in super::super) const NEWEST: &str = "SELECT CAST(coalesce(MAX(id), 0) AS SIGNED) FROM hapax.queue_message";

/// `?` queue, number: whether there is a message with this number or a lower one, due or not, leased or not. It is looked for in the
/// index alone, from what is due first, which as a rule is what was sent first; where there is none, the whole queue has been gone
/// through. An index by number would make that short, and each message dearer.
pub(in super::super) const IS_LEFT: &str = "\
    SELECT EXISTS (SELECT 1 FROM hapax.queue_message AS m FORCE INDEX (due) WHERE m.queue = ? AND m.id <= ?)";
