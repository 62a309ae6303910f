//! What a person is shown. Each looks at no more rows than asked for.

use super::NOW_ONCE;

/// `$1` limit.
pub(in crate::sql::postgres) const SCOPES: &str =
    "SELECT endpoint, saga FROM hapax.scope ORDER BY endpoint, saga LIMIT $1";

/// `$1` endpoint, `$2` saga, `$3` key to begin after, `$4` limit.
pub(in crate::sql::postgres) const ENTITIES: &str = "\
    SELECT key FROM hapax.entity WHERE scope = (SELECT id FROM hapax.scope WHERE endpoint = $1 AND saga = $2) AND key > $3 \
    ORDER BY key LIMIT $4";

/// `$1` limit of each generation: how many dedup entries there are; no earlier than when the oldest generation was opened; the longest
/// retention. A table whose generation is gone holds nothing that counts.
pub(in crate::sql::postgres) fn dedup() -> String {
    let slots: Vec<String> = (0..6)
        .map(|slot| {
            format!(
                "(SELECT count(*) FROM (SELECT FROM hapax.dedup_{slot} \
                 WHERE EXISTS (SELECT FROM hapax.generation WHERE slot = {slot}) LIMIT $1) AS d)"
            )
        })
        .collect();
    format!(
        "SELECT {}, (SELECT opened_at FROM hapax.generation ORDER BY id LIMIT 1), \
           (SELECT value FROM hapax.meta WHERE name = 'retention_ms')",
        slots.join(" + ")
    )
}

/// `$1` limit. From one endpoint to the next along the index, however many letters each has.
pub(in crate::sql::postgres) const LETTERED: &str = "\
    WITH RECURSIVE named (endpoint) AS ( \
      SELECT min(endpoint) FROM hapax.dead_letter \
      UNION ALL \
      SELECT (SELECT min(d.endpoint) FROM hapax.dead_letter AS d WHERE d.endpoint > named.endpoint) FROM named WHERE named.endpoint IS NOT NULL) \
    SELECT endpoint FROM named WHERE endpoint IS NOT NULL LIMIT $1";

/// `$1` endpoint, `$2` limit.
pub(in crate::sql::postgres) const LETTERS: &str = "\
    SELECT count(*) FROM (SELECT FROM hapax.dead_letter WHERE endpoint = $1 LIMIT $2) AS d";

/// `$1` endpoint, `$2` limit.
pub(in crate::sql::postgres) fn scheduled() -> String {
    format!(
        "SELECT (SELECT count(*) FROM (SELECT FROM hapax.schedule WHERE endpoint = $1 LIMIT $2) AS s), \
           (SELECT count(*) FROM (SELECT FROM hapax.schedule WHERE endpoint = $1 AND due_at <= {NOW_ONCE} LIMIT $2) AS s)"
    )
}

/// `$1` endpoint, `$2` message id.
pub(in crate::sql::postgres) const SCHEDULED_MESSAGE: &str = "\
    SELECT destination, due_at FROM hapax.schedule WHERE endpoint = $1 AND message_id = $2 ORDER BY destination";
