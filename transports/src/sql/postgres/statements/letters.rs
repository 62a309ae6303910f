//! What was set aside.

use super::{NOW, WITH_NOW};

/// `$1` endpoint, `$2` message id, `$3` saga or empty, `$4` destination or empty, `$5` fingerprint, `$6` attempts, `$7` time,
/// `$8` reason, `$9` envelope.
pub(in super::super) const LETTER_ADD: &str = "\
    INSERT INTO hapax.queue_dead_letter \
      (endpoint, message_id, saga, destination, fingerprint, attempts, time, reason, envelope) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING";

/// `$1` endpoint, `$2` message id, `$3` saga or empty, `$4` destination or empty, `$5` fingerprint. One row: how many.
pub(in super::super) const LETTER_DISCARD: &str = "WITH gone AS (DELETE FROM hapax.queue_dead_letter \
     WHERE endpoint = $1 AND message_id = $2 AND saga = $3 AND destination = $4 AND fingerprint = $5 RETURNING 1) \
     SELECT count(*) FROM gone";

/// `$1` endpoint, `$2` message id or null, `$3` limit, `$4` skip.
pub(in super::super) const LETTER_LIST: &str = "\
    SELECT saga, destination, attempts, time, reason, envelope, sent_at, first_at FROM hapax.queue_dead_letter \
    WHERE endpoint = $1 AND ($2::text IS NULL OR message_id = $2) ORDER BY id LIMIT $3 OFFSET $4";

/// `$1` age in milliseconds, `$2` limit. One row: how many.
pub(in super::super) fn letter_purge() -> String {
    format!(
        "WITH {WITH_NOW}, gone AS (DELETE FROM hapax.queue_dead_letter AS l WHERE l.id = ANY (ARRAY(\
           SELECT l.id FROM hapax.queue_dead_letter AS l WHERE l.time <= {NOW} - $1::bigint \
           ORDER BY l.time LIMIT $2::bigint)) RETURNING l.id) SELECT count(*) FROM gone"
    )
}
