//! A take where order is asked for.

use super::{GIVEN_ROWS, NOW, WITH_NOW, looked, taken};

/// Takes in one queue are made one after the other where order is asked for: each sees what those before have given. Held
/// until the commit, and taken in a statement of its own, since a statement sees what was committed before it began.
pub(in super::super) fn order_lock(queue: i64) -> String {
    format!("SELECT pg_advisory_xact_lock(hashtextextended('hapax.queue', {queue}))")
}

/// Messages that one look of [`take_ordered`] goes through at most: a long line behind one key is passed in a few steps, and
/// none of them holds up other processes for long.
pub(in super::super) const WINDOW: i64 = 1000;

/// A take in the order of keys: `$1` queue, `$2` `due_at` and `$3` number to begin after, `$4` how many, `$5` how many bytes,
/// `$6` token, `$7` lease, `$8` keys of which something was settled here: their next ones lie behind where it begins.
///
/// 1. `c` are candidates: due, under no lease. Of their keys, `k` knows whether one is under a lease (who has that one may
///    be at work, though it was sent later than one that has become due since), and the first that holds up those behind
///    it: open and no candidate; what was never given and is not due yet holds up nobody.
/// 2. `p` are those that may be given, each only with all candidates of its key before it: `turn` sorts it behind them.
/// 3. Another receiver may settle or extend meanwhile what was under a lease that has run out, or hold its lock. `h` are the
///    heads of keys that could be locked and are still the same: where the head is not, nothing of its key is given, and
///    others take its place. `l` are those behind them, `t` those of them before which none of their key is missing.
pub(in super::super) fn take_ordered() -> String {
    let candidate = format!("m.due_at <= {NOW} AND m.leased_until <= {NOW}");
    let columns = "m.id, m.key, m.due_at, octet_length(m.envelope) AS bytes";
    // A range and not an equation, so that no other index has the order asked for.
    let of_key = "m.key IS NOT NULL AND (m.queue, m.key, m.id) >= ($1::bigint, k.key, 0) \
                  AND (m.queue, m.key, m.id) <= ($1::bigint, k.key, 9223372036854775807)";
    let in_order = "ORDER BY m.queue, m.key, m.id";
    let lock = format!(
        "CROSS JOIN LATERAL (SELECT FROM hapax.queue_message AS m WHERE m.id = p.id AND {candidate} \
         FOR UPDATE SKIP LOCKED) AS m"
    );
    format!(
        "WITH {WITH_NOW}, \
         w AS MATERIALIZED (SELECT {columns} FROM hapax.queue_message AS m \
           WHERE m.queue = $1::bigint AND (m.due_at, m.id) > ($2::bigint, $3::bigint) AND {candidate} \
           ORDER BY m.due_at, m.id LIMIT {WINDOW}), \
         f AS MATERIALIZED (SELECT m.* FROM unnest($8::text[]) AS k (key) CROSS JOIN LATERAL (SELECT {columns} \
           FROM hapax.queue_message AS m WHERE {of_key} AND {candidate} \
           {in_order} LIMIT $4::bigint) AS m), \
         c AS MATERIALIZED (SELECT * FROM w UNION SELECT * FROM f), \
         k AS MATERIALIZED (SELECT k.key, (SELECT true FROM hapax.queue_given AS f WHERE f.queue = $1::bigint \
             AND f.key = k.key AND (SELECT m.leased_until FROM hapax.queue_message AS m WHERE m.id = f.id) > {NOW} \
             LIMIT 1) AS given, \
           (SELECT m.id FROM hapax.queue_message AS m WHERE {of_key} \
             AND NOT (m.first_at IS NULL AND m.due_at > {NOW}) AND m.id NOT IN (SELECT c.id FROM c) \
             {in_order} LIMIT 1) AS first \
           FROM (SELECT DISTINCT key FROM c WHERE key IS NOT NULL) AS k), \
         q AS MATERIALIZED (SELECT c.id, c.key, c.bytes, CASE WHEN c.key IS NULL THEN c.due_at \
             ELSE max(c.due_at) OVER (PARTITION BY c.key ORDER BY c.id) END AS turn \
           FROM c LEFT JOIN k ON k.key = c.key WHERE c.key IS NULL OR k.given IS NULL AND (k.first IS NULL OR c.id < k.first)), \
         p AS MATERIALIZED (SELECT id, key, turn, head FROM (SELECT id, key, turn, \
             key IS NULL OR id = min(id) OVER (PARTITION BY key) AS head, sum(bytes) OVER \
             (ORDER BY turn, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM q) AS q \
           WHERE coalesce(before, 0) < $5::bigint ORDER BY turn, id), \
         h AS MATERIALIZED (SELECT p.id, p.key FROM p {lock} WHERE p.head LIMIT $4::bigint), \
         l AS MATERIALIZED (SELECT p.id, p.key FROM p {lock} WHERE NOT p.head AND p.key IN (SELECT h.key FROM h) \
           LIMIT greatest($4::bigint - (SELECT count(*) FROM h), 0)), \
         t AS MATERIALIZED (SELECT h.id FROM h UNION ALL SELECT l.id FROM l LEFT JOIN (SELECT p.key, min(p.id) AS id \
             FROM p WHERE NOT p.head AND p.id NOT IN (SELECT l.id FROM l) GROUP BY p.key) AS gone ON gone.key = l.key \
           WHERE gone.id IS NULL OR l.id < gone.id), \
         {}, \
         o AS (INSERT INTO hapax.queue_given (id, queue, key) SELECT g.id, $1::bigint, g.key FROM g \
           WHERE g.key IS NOT NULL ON CONFLICT DO NOTHING) \
         {GIVEN_ROWS} UNION ALL {}",
        taken("SELECT id FROM t", 6, 7),
        looked("w", "(SELECT count(*) FROM q) > (SELECT count(*) FROM t)")
    )
}
