//! SQL for where messages of one key are sent in the order of their commits.
//!
//! Lanes are shared out between relays by partition. A relay that was not heard of for a lease is forgotten: its row goes, for
//! ever, and only then are its partitions anybody's. So who finds his own row knows, in the same statement, that his partitions
//! are his until he has not been heard of for a lease again.

use super::{
    super::super::outbox::lanes::PARTITIONS,
    statements::{COLUMNS, NO_MESSAGE, NOW, WAITS, columns_of},
};

/// Lanes that one look goes through at most.
const LANES: usize = 500;

/// `$1` numbers of lanes, sorted and each once, so that two transactions with the same lanes do not lock each other out. Held
/// until the commit, and taken in a statement before the one that draws numbers: who waits here draws his after the commit of
/// whom he has waited for.
pub(super) const LOCK: &str = "SELECT count(pg_advisory_xact_lock(k)) FROM unnest($1::bigint[]) AS k";

/// As `enqueue_many`, and `$18` lanes, `$19` their partitions. Numbers are drawn in the order of the rows.
pub(super) fn enqueue() -> String {
    format!(
        "INSERT INTO hapax.outbox ({COLUMNS}, status, attempts, ready_at, token, owner, stored_at, lane, partition, number) \
         SELECT {}, 0, sign(r.token)::int, greatest(now + $16::bigint, r.due_at), r.token, $17::bigint, now, r.lane, \
           r.partition, nextval('hapax.outbox_number') \
         FROM (SELECT (date_part('epoch', clock_timestamp()) * 1000)::bigint AS now) AS n CROSS JOIN \
           (SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], \
             $8::text[], $9::text[], $10::bigint[], $11::bigint[], $12::bigint[], $13::text[], $14::bytea[], $15::bigint[], \
             $18::text[], $19::int[]) WITH ORDINALITY AS r ({COLUMNS}, token, lane, partition, i) ORDER BY i) AS r",
        columns_of("r")
    )
}

/// That the relay is there, said for the first time or again; and those are forgotten who have not said so for a lease (`$5`).
pub(super) fn alive(joins: bool, parts: &mut Vec<String>, rows: &mut Vec<String>) {
    let said = if joins {
        "INSERT INTO hapax.outbox_relay (id, service, host, process, started_at, seen_at) \
         SELECT $1::bigint, $2::text, $3::text, $4::bigint, now, now FROM n \
         ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at RETURNING 1"
            .to_owned()
    } else {
        // The other arguments are bound all the same.
        format!(
            "UPDATE hapax.outbox_relay SET seen_at = {NOW} WHERE id = $1::bigint \
             AND ($2::text, $3::text, $4::bigint) IS NOT NULL RETURNING 1"
        )
    };
    parts.push(format!("b AS ({said})"));
    parts
        .push(format!("d AS (DELETE FROM hapax.outbox_relay WHERE seen_at < {NOW} - $5::bigint AND id <> $1::bigint)"));
    rows.push(format!("SELECT 6, (SELECT count(*) FROM b), {NO_MESSAGE}"));
}

/// Gives up what is beyond its share and not in use, and takes what is nobody's. Who is gone is decided once: a partition that
/// was taken meanwhile has another owner by the time its lock is had, and is left.
pub(super) fn share(parts: &mut Vec<String>) {
    parts.push(format!(
        "q AS MATERIALIZED (SELECT ceil({PARTITIONS}::numeric / greatest((SELECT count(*) FROM hapax.outbox_relay), 1))::bigint \
             AS fair, (SELECT count(*) FROM hapax.outbox_partition WHERE owner = $1::bigint) AS mine), \
         gone AS MATERIALIZED (SELECT DISTINCT p.owner FROM hapax.outbox_partition AS p WHERE p.owner IS NOT NULL \
           AND NOT EXISTS (SELECT FROM hapax.outbox_relay AS r WHERE r.id = p.owner)), \
         x AS (UPDATE hapax.outbox_partition AS p SET owner = NULL, epoch = p.epoch + 1 WHERE p.owner = $1::bigint \
           AND p.partition = ANY (ARRAY(SELECT p.partition FROM hapax.outbox_partition AS p WHERE p.owner = $1::bigint \
             AND NOT EXISTS (SELECT FROM hapax.outbox AS m WHERE m.status IN (0, 2) AND m.number IS NOT NULL \
               AND m.partition = p.partition AND m.owner = $1::bigint) \
             ORDER BY p.partition LIMIT (SELECT greatest(mine - fair, 0) FROM q)))), \
         y AS (UPDATE hapax.outbox_partition AS p SET owner = $1::bigint, epoch = p.epoch + 1 WHERE p.partition = ANY (ARRAY(\
             SELECT p.partition FROM hapax.outbox_partition AS p WHERE (p.owner IS NULL \
               OR p.owner = ANY (ARRAY(SELECT owner FROM gone))) \
             ORDER BY p.partition LIMIT (SELECT greatest(fair - mine, 0) FROM q) FOR UPDATE SKIP LOCKED)) \
           AND EXISTS (SELECT FROM b))"
    ));
}

/// The next rows of lanes whose first row may be sent; each only with all of its lane before it. Of a lane that somebody had
/// before, what he has claimed is nobody's any more.
pub(super) fn claim(arguments: &mut dyn FnMut(usize) -> usize, parts: &mut Vec<String>, rows: &mut Vec<String>) {
    let [token, lease, most, bytes, partition, lane] = std::array::from_fn(|at| at).map(|_: usize| arguments(1));
    let open = "m.status IN (0, 2) AND m.number IS NOT NULL";
    parts.push(format!(
        "k (partition, lane, n) AS ((SELECT m.partition, m.lane, 1 FROM hapax.outbox AS m WHERE {open} \
             AND (m.partition, m.lane) > (${partition}::int, ${lane}::text) ORDER BY m.partition, m.lane LIMIT 1) \
           UNION ALL SELECT m.partition, m.lane, k.n + 1 FROM k CROSS JOIN LATERAL (SELECT m.partition, m.lane \
             FROM hapax.outbox AS m WHERE {open} AND (m.partition, m.lane) > (k.partition, k.lane) \
             ORDER BY m.partition, m.lane LIMIT 1) AS m WHERE k.n < {LANES}), \
         w AS MATERIALIZED (SELECT owned.partition FROM hapax.outbox_partition AS owned WHERE owned.owner = $1::bigint \
           AND owned.partition = ANY (ARRAY(SELECT k.partition FROM k)) AND EXISTS (SELECT FROM b) FOR SHARE), \
         t AS MATERIALIZED (SELECT r.id, r.token, r.bytes, r.place, k.n FROM k JOIN w ON w.partition = k.partition \
           CROSS JOIN LATERAL (SELECT m.id, m.token, m.bytes, row_number() OVER (ORDER BY m.number) AS place, \
               bool_and(m.status = 0 AND (m.ready_at <= {NOW} OR coalesce(m.owner <> $1::bigint, false))) OVER (ORDER BY m.number) AS fits \
             FROM (SELECT m.id, m.token, octet_length(m.body) AS bytes, m.number, m.status, m.ready_at, m.owner \
               FROM hapax.outbox AS m WHERE {open} AND m.partition = k.partition AND m.lane = k.lane \
               ORDER BY m.number LIMIT ${most}::bigint) AS m) AS r WHERE r.fits ORDER BY r.place, k.n LIMIT ${most}::bigint), \
         p AS MATERIALIZED (SELECT id, token FROM (SELECT id, token, sum(bytes) OVER \
           (ORDER BY place, n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM t) AS t \
           WHERE coalesce(before, 0) < ${bytes}::bigint), \
         g AS (UPDATE hapax.outbox AS m SET ready_at = {NOW} + ${lease}::bigint, token = ${token}::bigint, \
           owner = $1::bigint, attempts = m.attempts + 1 WHERE m.id = ANY (ARRAY(SELECT id FROM p)) \
             AND m.token = ANY (ARRAY(SELECT DISTINCT token FROM p)) AND {WAITS} \
           RETURNING m.attempts, coalesce(m.expires_at <= {NOW}, false) AS expired, m.number, {})",
        columns_of("m")
    ));
    rows.push(format!("SELECT 2, attempts::bigint, expired, {COLUMNS}, number FROM g"));
    let more =
        format!("(SELECT count(*) FROM t) >= ${most}::bigint OR (SELECT count(*) FROM t) > (SELECT count(*) FROM p)");
    rows.push(format!("SELECT 3, CASE WHEN {more} THEN 1 ELSE 0 END::bigint, {NO_MESSAGE}"));
    rows.push(format!(
        "(SELECT 7, k.partition::bigint, {} FROM k WHERE k.n = {LANES})",
        NO_MESSAGE.replacen("NULL::text", "k.lane", 1)
    ));
}
