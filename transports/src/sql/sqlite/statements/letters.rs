//! What was set aside.

/// $1 endpoint, $2 message id, $3 saga or empty, $4 destination or empty, $5 fingerprint, $6 attempts, $7 time, $8 reason,
/// $9 envelope.
pub(in super::super) const LETTER_ADD: &str = "\
    INSERT INTO hapax_queue_dead_letter \
      (endpoint, message_id, saga, destination, fingerprint, attempts, time, reason, envelope) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING";

/// $1 endpoint, $2 message id, $3 saga or empty, $4 destination or empty, $5 fingerprint.
pub(in super::super) const LETTER_DISCARD: &str = "DELETE FROM hapax_queue_dead_letter \
    WHERE endpoint = $1 AND message_id = $2 AND saga = $3 AND destination = $4 AND fingerprint = $5";

/// $1 endpoint, $2 message id or null, $3 limit, $4 skip.
pub(in super::super) const LETTER_LIST: &str = "\
    SELECT saga, destination, attempts, time, reason, envelope, sent_at, first_at FROM hapax_queue_dead_letter \
    WHERE endpoint = $1 AND ($2 IS NULL OR message_id = $2) ORDER BY id LIMIT $3 OFFSET $4";

/// $1 set aside at or before, $2 limit.
pub(in super::super) const LETTER_PURGE: &str = "\
    DELETE FROM hapax_queue_dead_letter WHERE id IN (SELECT id FROM hapax_queue_dead_letter \
      INDEXED BY hapax_queue_dead_letter_time WHERE time <= $1 ORDER BY time LIMIT $2)";
