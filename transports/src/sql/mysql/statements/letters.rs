//! What was set aside.

/// `?` endpoint, message id, saga or empty, destination or empty, fingerprint, attempts, time, reason, envelope.
pub(in super::super) const LETTER_ADD: &str = "\
    INSERT INTO hapax.queue_dead_letter \
      (endpoint, message_id, saga, destination, fingerprint, attempts, time, reason, envelope) \
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON DUPLICATE KEY UPDATE id = id";

/// `?` endpoint, message id, saga or empty, destination or empty, fingerprint.
pub(in super::super) const LETTER_DISCARD: &str = "DELETE FROM hapax.queue_dead_letter \
     WHERE endpoint = ? AND message_id = ? AND saga = ? AND destination = ? AND fingerprint = ?";

/// `?` endpoint, message id or null, the same again, limit, skip.
pub(in super::super) const LETTER_LIST: &str = "\
    SELECT saga, destination, attempts, time, reason, envelope, sent_at, first_at \
    FROM hapax.queue_dead_letter FORCE INDEX (listed) \
    WHERE endpoint = ? AND (? IS NULL OR message_id = ?) ORDER BY id LIMIT ? OFFSET ?";

/// `?` age in milliseconds, limit.
pub(in super::super) const LETTER_PURGE: &str = "\
    DELETE FROM hapax.queue_dead_letter \
    WHERE time <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000 - ? ORDER BY time LIMIT ?";
