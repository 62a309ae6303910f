//! What a person is shown. Each looks at no more rows than asked for.

use super::NOW;

/// `?` limit.
pub(in crate::sql::mysql) const SCOPES: &str = "SELECT endpoint, saga FROM hapax.scope ORDER BY endpoint, saga LIMIT ?";

/// `?` endpoint, saga, key to begin after, limit.
pub(in crate::sql::mysql) const ENTITIES: &str = "\
    SELECT `key` FROM hapax.entity FORCE INDEX (PRIMARY) \
    WHERE scope = (SELECT id FROM hapax.scope WHERE endpoint = ? AND saga = ?) AND `key` > ? ORDER BY `key` LIMIT ?";

/// `?` limit of each of the six tables: how many dedup entries there are; no earlier than when the oldest generation was opened; the longest
/// retention. A table whose generation is gone holds nothing that counts.
pub(in crate::sql::mysql) fn dedup() -> String {
    let slots: Vec<String> = (0..SLOTS)
        .map(|slot| {
            format!(
                "(SELECT COUNT(*) FROM (SELECT 1 FROM hapax.dedup_{slot} \
                 WHERE EXISTS (SELECT 1 FROM hapax.generation WHERE slot = {slot} AND dropping = 0) LIMIT ?) AS d{slot})"
            )
        })
        .collect();
    format!(
        "SELECT CAST({} AS SIGNED), (SELECT opened_at FROM hapax.generation WHERE dropping = 0 ORDER BY id LIMIT 1), \
           (SELECT value FROM hapax.meta WHERE name = 'retention_ms')",
        slots.join(" + ")
    )
}
/// Tables of dedup entries.
pub(in crate::sql::mysql) const SLOTS: usize = 6;

/// Steps of [`LETTERED`] that are asked for at a time: after a thousand (`max_recursive_iterations`) the server ends a recursion in silence.
pub(in crate::sql::mysql) const LETTERED_MAX: usize = 500;

/// `?` endpoint to begin after, limit. From one endpoint to the next along the index, however many letters each has. `SELECT DISTINCT` does so, too,
/// but while the table is not analyzed it may go through the whole index.
pub(in crate::sql::mysql) const LETTERED: &str = "\
    WITH RECURSIVE named (endpoint) AS ( \
      SELECT min(endpoint) FROM hapax.dead_letter WHERE endpoint > ? \
      UNION ALL \
      SELECT (SELECT min(d.endpoint) FROM hapax.dead_letter AS d WHERE d.endpoint > named.endpoint) FROM named WHERE named.endpoint IS NOT NULL) \
    SELECT endpoint FROM named WHERE endpoint IS NOT NULL LIMIT ?";

/// `?` endpoint, limit.
pub(in crate::sql::mysql) const LETTERS: &str = "\
    SELECT COUNT(*) FROM (SELECT 1 FROM hapax.dead_letter FORCE INDEX (message) WHERE endpoint = ? LIMIT ?) AS d";

/// `?` endpoint, limit, endpoint, limit.
pub(in crate::sql::mysql) fn scheduled() -> String {
    format!(
        "SELECT (SELECT COUNT(*) FROM (SELECT 1 FROM hapax.schedule FORCE INDEX (due) WHERE endpoint = ? LIMIT ?) AS s), \
           (SELECT COUNT(*) FROM (SELECT 1 FROM hapax.schedule FORCE INDEX (due) WHERE endpoint = ? AND due_at <= {NOW} LIMIT ?) AS t)"
    )
}

/// `?` endpoint, message id.
pub(in crate::sql::mysql) const SCHEDULED_MESSAGE: &str = "\
    SELECT destination, due_at FROM hapax.schedule FORCE INDEX (message) WHERE endpoint = ? AND message_id = ? ORDER BY destination";
