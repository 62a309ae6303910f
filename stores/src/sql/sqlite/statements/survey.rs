//! What a person is shown.

/// $1 limit.
pub(in crate::sql::sqlite) const SCOPES: &str =
    "SELECT endpoint, saga FROM hapax_scope ORDER BY endpoint, saga LIMIT $1";

/// $1 endpoint, $2 saga, $3 key to begin after, $4 limit.
pub(in crate::sql::sqlite) const ENTITIES: &str = "\
    SELECT key FROM hapax_entity INDEXED BY hapax_entity_key \
    WHERE scope = (SELECT id FROM hapax_scope WHERE endpoint = $1 AND saga = $2) AND key > $3 ORDER BY key LIMIT $4";

/// $1 limit: how many dedup entries there are; no earlier than when the oldest generation was opened; the longest retention.
pub(in crate::sql::sqlite) const DEDUP: &str = "\
    SELECT (SELECT count(*) FROM (SELECT 1 FROM hapax_generation AS g CROSS JOIN hapax_dedup AS d ON d.generation = g.id LIMIT $1)), \
      (SELECT opened_at FROM hapax_generation ORDER BY id LIMIT 1), \
      (SELECT value FROM hapax_meta WHERE name = 'retention_ms')";

/// $1 limit. From one endpoint to the next along the index, however many letters each has.
pub(in crate::sql::sqlite) const LETTERED: &str = "\
    WITH RECURSIVE named (endpoint) AS ( \
      SELECT min(endpoint) FROM hapax_dead_letter \
      UNION ALL \
      SELECT (SELECT min(d.endpoint) FROM hapax_dead_letter AS d WHERE d.endpoint > named.endpoint) FROM named WHERE named.endpoint IS NOT NULL) \
    SELECT endpoint FROM named WHERE endpoint IS NOT NULL LIMIT $1";

/// $1 endpoint, $2 limit.
pub(in crate::sql::sqlite) const LETTERS: &str = "\
    SELECT count(*) FROM (SELECT 1 FROM hapax_dead_letter WHERE endpoint = $1 LIMIT $2)";

/// $1 endpoint, $2 limit, $3 now.
pub(in crate::sql::sqlite) const SCHEDULED: &str = "\
    SELECT (SELECT count(*) FROM (SELECT 1 FROM hapax_schedule WHERE endpoint = $1 LIMIT $2)), \
      (SELECT count(*) FROM (SELECT 1 FROM hapax_schedule WHERE endpoint = $1 AND due_at <= $3 LIMIT $2))";

/// $1 endpoint, $2 message id.
pub(in crate::sql::sqlite) const SCHEDULED_MESSAGE: &str = "\
    SELECT destination, due_at FROM hapax_schedule WHERE endpoint = $1 AND message_id = $2 ORDER BY destination";

/// For the test that prepares them.
#[cfg(test)]
pub(super) const ALL: [&str; 7] = [SCOPES, ENTITIES, DEDUP, LETTERED, LETTERS, SCHEDULED, SCHEDULED_MESSAGE];
