//! All SQL of the outbox. `hapax.` in a text stands for the schema and the prefix of the tables' names.
//!
//! Rows are found by arrays of their ids (`= ANY`), so that a plan that was made while the table was empty does not go through
//! all of it later.

use hapax_core::ports::RowStatus;

use super::{super::wire::Schema, ordered};

pub(super) static SCHEMA: Schema = Schema {
    opening: "opening the PostgreSQL outbox",
    remedy: "set `migrate(true)`, or apply `PostgresOutbox::schema_sql` by hand",
    tables: ["outbox_migration", "outbox_meta"],
    version: "SELECT coalesce(max(version), 0), (SELECT value FROM hapax.outbox_meta WHERE name = 'usable_from') \
              FROM hapax.outbox_migration",
    rows: &[],
    framed: None,
    migrations: &[(1, INITIAL)],
};
pub(super) const INITIAL: &str = include_str!("migrations/0001_initial.sql");

/// A row `m` that waits, as something that no index is for: it is found by its id. A plan that was made while the table was small
/// might else go through all that waits, and look for each of them among the ids.
pub(super) const WAITS: &str = "m.status + 0 = 0";

pub(super) const NOW: &str = "(SELECT now FROM n)";
pub(super) const WITH_NOW: &str =
    "n AS MATERIALIZED (SELECT (date_part('epoch', clock_timestamp()) * 1000)::bigint AS now)";

/// The columns of a message, in the order in which they are bound and read.
pub(super) const COLUMNS: &str = "id, destination, key, type, content_type, correlation_id, causation_id, tenant, traceparent, \
                       occurred_at, due_at, expires_at, headers, body";

/// One message: [`COLUMNS`], `$15` token or 0, `$16` lease or 0, `$17` owner.
pub(super) fn enqueue_one() -> String {
    format!(
        "INSERT INTO hapax.outbox ({COLUMNS}, status, attempts, ready_at, token, owner, stored_at) \
         SELECT $1::uuid, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text, $8::text, $9::text, $10::bigint, \
           $11::bigint, $12::bigint, $13::text, $14::bytea, 0, sign($15::bigint)::int, \
           greatest(now + $16::bigint, $11::bigint), $15::bigint, $17::bigint, now \
         FROM (SELECT (date_part('epoch', clock_timestamp()) * 1000)::bigint AS now) AS n"
    )
}

/// Several at once: arrays of the same, and `$15` of tokens; those with one have the lease and the owner.
pub(super) fn enqueue_many() -> String {
    format!(
        "INSERT INTO hapax.outbox ({COLUMNS}, status, attempts, ready_at, token, owner, stored_at) \
         SELECT {}, 0, sign(r.token)::int, greatest(now + CASE WHEN r.token = 0 THEN 0 ELSE $16::bigint END, r.due_at), \
           r.token, CASE WHEN r.token <> 0 THEN $17::bigint END, now \
         FROM (SELECT (date_part('epoch', clock_timestamp()) * 1000)::bigint AS now) AS n, \
           unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], \
             $9::text[], $10::bigint[], $11::bigint[], $12::bigint[], $13::text[], $14::bytea[], $15::bigint[]) \
           AS r ({COLUMNS}, token)",
        columns_of("r")
    )
}

pub(super) fn columns_of(row: &str) -> String {
    COLUMNS.split(", ").map(|column| format!("{row}.{column}")).collect::<Vec<String>>().join(", ")
}

/// What a call asks for. Its arguments come in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Kinds {
    pub(super) sent: bool,
    pub(super) others: bool,
    pub(super) renew: bool,
    pub(super) claim: bool,
    /// Only what bears the token.
    pub(super) again: bool,
    /// Also when the next row may be claimed.
    pub(super) next: bool,
    /// Where order is kept: partitions are shared out anew, and nothing is claimed.
    pub(super) share: bool,
    /// Where order is kept: the relay says that it is there, and nothing is claimed.
    pub(super) join: bool,
}

/// What a row of the answer is about, in its first column. The second is a number; the others are of a claimed row.
pub(super) mod row {
    /// How many claims have ended.
    pub(in super::super) const ENDED: i32 = 0;
    /// A lease that goes on: its token, its id.
    pub(in super::super) const RENEWED: i32 = 1;
    /// Claimed: its attempts, whether it has expired, the message.
    pub(in super::super) const CLAIMED: i32 = 2;
    /// Whether there is more to claim: 1.
    pub(in super::super) const MORE: i32 = 3;
    /// The server's time.
    pub(in super::super) const NOW: i32 = 4;
    /// When the next row may be claimed.
    pub(in super::super) const NEXT: i32 = 5;
    /// Where order is kept: how many rows say that the relay is there.
    pub(in super::super) const ALIVE: i32 = 6;
    /// Where order is kept: the last lane that was looked at, with its partition, if there may be others behind it.
    pub(in super::super) const LANE: i32 = 7;
}

pub(super) const NO_MESSAGE: &str = "NULL::bool, NULL::uuid, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, \
                          NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bytea, NULL::bigint";

/// One call of a relay.
///
/// `$1` relay, `$2` service, `$3` host, `$4` process, `$5` stale. Of what was sent: ids, their different tokens. Of what else
/// has ended: arrays of ids, tokens, statuses, delays, attempts that do not count, errors. Of leases that go on: ids, their
/// different tokens, the lease. Of a claim: token, lease, how many, how many bytes, the time before which nothing is looked for.
///
/// No row is changed twice in one statement: beside a claim, which takes what is under no lease, only leases that are not over
/// are ended or go on.
pub(super) fn tick(kinds: Kinds, ordered: bool) -> String {
    let mut next = 6;
    let mut arguments = |count: usize| {
        let first = next;
        next += count;
        first
    };
    let held = if kinds.claim { format!("AND m.ready_at + 0 > {NOW}") } else { String::new() };
    let mut rows = vec![format!("SELECT 4, {NOW}, {NO_MESSAGE}")];
    let mut parts = vec![WITH_NOW.to_owned()];
    if ordered {
        ordered::alive(kinds.join, &mut parts, &mut rows);
    } else {
        parts.push(format!(
            "b AS (INSERT INTO hapax.outbox_relay (id, service, host, process, started_at, seen_at) \
               SELECT $1::bigint, $2::text, $3::text, $4::bigint, now, now FROM n \
               ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at), \
             d AS (DELETE FROM hapax.outbox_relay WHERE seen_at < {NOW} - $5::bigint AND id <> $1::bigint)"
        ));
    }
    let mut ended = Vec::new();
    if kinds.sent {
        let (ids, tokens) = (arguments(1), arguments(1));
        parts.push(format!(
            "s AS (UPDATE hapax.outbox AS m SET status = 1, ended_at = {NOW} WHERE m.id = ANY (${ids}::uuid[]) \
               AND m.token = ANY (${tokens}::bigint[]) AND {WAITS} {held} RETURNING 1)"
        ));
        ended.push("(SELECT count(*) FROM s)");
    }
    if kinds.others {
        // What is said of a row that was not sent holds up its key, so that only its owner may say it.
        let alive = if ordered { " AND EXISTS (SELECT FROM b) AND m.owner = $1::bigint" } else { "" };
        parts.push(others(&mut arguments, &format!("{held}{alive}")));
        ended.push("(SELECT count(*) FROM o)");
    }
    if !ended.is_empty() {
        rows.push(format!("SELECT 0, {}, {NO_MESSAGE}", ended.join(" + ")));
    }
    if kinds.renew {
        let (ids, tokens, lease) = (arguments(1), arguments(1), arguments(1));
        parts.push(format!(
            "e AS (UPDATE hapax.outbox AS m SET ready_at = {NOW} + ${lease}::bigint WHERE m.id = ANY (${ids}::uuid[]) \
               AND m.token = ANY (${tokens}::bigint[]) AND {WAITS} AND m.ready_at + 0 > {NOW} RETURNING m.token, m.id)"
        ));
        rows.push(format!("SELECT 1, token, {} FROM e", NO_MESSAGE.replacen("NULL::uuid", "id", 1)));
    }
    if kinds.share {
        ordered::share(&mut parts);
    }
    if kinds.claim && (!ordered || kinds.again) {
        claim(kinds, ordered, &mut arguments, &mut parts, &mut rows);
    } else if kinds.claim {
        ordered::claim(&mut arguments, &mut parts, &mut rows);
    }
    if kinds.next {
        rows.push(format!(
            "SELECT 5, (SELECT m.ready_at FROM hapax.outbox AS m WHERE m.status = 0 AND m.ready_at > {NOW} \
               ORDER BY m.ready_at LIMIT 1), {NO_MESSAGE}"
        ));
    }
    format!("WITH RECURSIVE {} {}", parts.join(", "), rows.join(" UNION ALL "))
}

fn others(arguments: &mut dyn FnMut(usize) -> usize, held: &str) -> String {
    let [ids, tokens, statuses, delays, uncounted, errors] = std::array::from_fn(|at| at).map(|_: usize| arguments(1));
    let at = format!("array_position(${ids}::uuid[], m.id)");
    format!(
        "o AS (UPDATE hapax.outbox AS m SET status = (${statuses}::smallint[])[{at}], \
           ready_at = {NOW} + (${delays}::bigint[])[{at}], attempts = m.attempts - (${uncounted}::int[])[{at}], \
           last_error = coalesce((${errors}::text[])[{at}], m.last_error), \
           ended_at = CASE WHEN (${statuses}::smallint[])[{at}] <> 0 THEN {NOW} END, token = 0, owner = NULL \
         WHERE m.id = ANY (${ids}::uuid[]) AND m.token = (${tokens}::bigint[])[{at}] AND {WAITS} {held} RETURNING 1)"
    )
}

fn claim(
    kinds: Kinds,
    ordered: bool,
    arguments: &mut dyn FnMut(usize) -> usize,
    parts: &mut Vec<String>,
    rows: &mut Vec<String>,
) {
    let [token, lease, most, bytes, from] = std::array::from_fn(|at| at).map(|_: usize| arguments(1));
    let which = if kinds.again {
        // Rare, and what was claimed has a lease: it lies behind now.
        format!("m.ready_at > {NOW} AND m.token = ${token}::bigint")
    } else {
        format!("m.ready_at >= ${from}::bigint AND m.ready_at <= {NOW}")
    };
    // All of what was claimed before, or nothing: a part of a lane without its first would be sent in the wrong order.
    let limit = if kinds.again { String::new() } else { format!("LIMIT ${most}::bigint") };
    let lock = if kinds.again { "FOR UPDATE" } else { "FOR UPDATE SKIP LOCKED" };
    let alive = if ordered { "AND EXISTS (SELECT FROM b)" } else { "" };
    let bytes = if kinds.again { "9223372036854775807".to_owned() } else { format!("${bytes}::bigint") };
    parts.push(format!(
        "t AS MATERIALIZED (SELECT m.id, m.ready_at, octet_length(m.body) AS bytes FROM hapax.outbox AS m \
           WHERE m.status = 0 AND {which} {alive} ORDER BY m.ready_at {limit} {lock}), \
         p AS MATERIALIZED (SELECT id FROM (SELECT id, sum(bytes) OVER \
           (ORDER BY ready_at, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM t) AS t \
           WHERE coalesce(before, 0) < {bytes})"
    ));
    let counted = if kinds.again { "m.attempts" } else { "m.attempts + 1" };
    parts.push(format!(
        "g AS (UPDATE hapax.outbox AS m SET ready_at = {NOW} + ${lease}::bigint, token = ${token}::bigint, \
           owner = $1::bigint, attempts = {counted} WHERE m.id = ANY (ARRAY(SELECT id FROM p)) \
           RETURNING m.attempts, coalesce(m.expires_at <= {NOW}, false) AS expired, m.number, {})",
        columns_of("m")
    ));
    rows.push(format!("SELECT 2, attempts::bigint, expired, {COLUMNS}, number FROM g"));
    let more = if kinds.again {
        "false".to_owned()
    } else {
        format!("(SELECT count(*) FROM t) >= ${most}::bigint OR (SELECT count(*) FROM t) > (SELECT count(*) FROM p)")
    };
    rows.push(format!("SELECT 3, CASE WHEN {more} THEN 1 ELSE 0 END::bigint, {NO_MESSAGE}"));
}

/// `$1` relay.
pub(super) const LEAVE: &str = "\
    WITH p AS (UPDATE hapax.outbox_partition SET owner = NULL, epoch = epoch + 1 WHERE owner = $1::bigint) \
    DELETE FROM hapax.outbox_relay WHERE id = $1::bigint";

/// Whether order is kept, which is decided when the table is first opened: `$1` 1 or 0.
pub(super) const KEEP_ORDER: &str = "\
    INSERT INTO hapax.outbox_meta (name, value) VALUES ('ordered', $1::bigint) ON CONFLICT DO NOTHING";

/// What was decided.
pub(super) const ORDER: &str = "SELECT value FROM hapax.outbox_meta WHERE name = 'ordered'";

/// Unless relays are at work, or order is kept.
pub(super) const GIVE_TO_DEBEZIUM: &str = "\
    INSERT INTO hapax.outbox_meta (name, value) SELECT 'debezium', 1 \
    WHERE NOT EXISTS (SELECT FROM hapax.outbox_relay) \
      AND NOT EXISTS (SELECT FROM hapax.outbox_meta WHERE name = 'ordered' AND value <> 0) ON CONFLICT DO NOTHING";

/// A row if it is.
pub(super) const IS_DEBEZIUMS: &str = "SELECT value FROM hapax.outbox_meta WHERE name = 'debezium' AND value <> 0";

/// From a table of messages, of rows `m` of which `of` holds. `$1` age in milliseconds, `$2` limit, `$3` whether there is an
/// archive. One row: how many.
pub(super) fn remove(table: &str, of: &str) -> String {
    format!(
        "WITH {WITH_NOW}, \
         m AS (DELETE FROM {table} AS m WHERE {of} AND m.id = ANY (ARRAY(SELECT m.id FROM {table} AS m \
             WHERE {of} AND m.status IN (1, 3) AND m.ended_at <= {NOW} - $1::bigint ORDER BY m.ended_at LIMIT $2::bigint \
             FOR UPDATE SKIP LOCKED)) RETURNING m.*), \
         a AS (INSERT INTO hapax.outbox_archive ({COLUMNS}, status, attempts, stored_at, ended_at) \
           SELECT {COLUMNS}, status, attempts, stored_at, ended_at FROM m WHERE $3::bool ON CONFLICT DO NOTHING) \
         SELECT count(*) FROM m"
    )
}

/// `$1` age in milliseconds, `$2` limit. One row: how many.
pub(super) fn remove_archived() -> String {
    format!(
        "WITH {WITH_NOW}, \
         m AS (DELETE FROM hapax.outbox_archive AS m WHERE m.id = ANY (ARRAY(SELECT m.id FROM hapax.outbox_archive AS m \
             WHERE m.ended_at <= {NOW} - $1::bigint ORDER BY m.ended_at LIMIT $2::bigint FOR UPDATE SKIP LOCKED)) \
           RETURNING 1) SELECT count(*) FROM m"
    )
}

/// `$1` message id or null, `$2` limit, `$3` skip.
pub(super) fn failed() -> String {
    format!(
        "SELECT {COLUMNS}, attempts, ended_at, last_error FROM hapax.outbox \
         WHERE status = 2 AND ($1::uuid IS NULL OR id = $1::uuid) ORDER BY ended_at, id LIMIT $2::bigint OFFSET $3::bigint"
    )
}

/// `$1` limit, `$2` skip, `$3` message id, if one is asked for: then that row alone, in the archive too.
pub(super) fn listed(status: Option<RowStatus>, by_id: bool) -> String {
    let columns = format!("{COLUMNS}, status, attempts, stored_at, ended_at");
    let of_status = status.map_or_else(|| "true".to_owned(), |status| format!("status = {}", status.number()));
    if by_id {
        return format!(
            "SELECT {columns}, ready_at, last_error, false FROM hapax.outbox WHERE id = $3::uuid AND {of_status} \
             UNION ALL SELECT {columns}, NULL::bigint, NULL::text, true FROM hapax.outbox_archive WHERE id = $3::uuid AND {of_status} \
             LIMIT $1::bigint OFFSET $2::bigint"
        );
    }
    let (of_status, order) = match status {
        None => (of_status, "id"),
        Some(RowStatus::Waits) => (of_status, "ready_at, id"),
        Some(RowStatus::Failed) => (of_status, "ended_at, id"),
        Some(RowStatus::Sent | RowStatus::Expired) => (format!("status IN (1, 3) AND {of_status}"), "ended_at, id"),
    };
    format!(
        "SELECT {columns}, ready_at, last_error, false FROM hapax.outbox WHERE {of_status} ORDER BY {order} \
         LIMIT $1::bigint OFFSET $2::bigint"
    )
}

/// `$1` message ids: those that are there.
pub(super) const KNOWN: &str = "SELECT id FROM hapax.outbox WHERE id = ANY ($1::uuid[])";

/// `$1` message ids. They begin with their first attempt again.
pub(super) fn retry() -> String {
    format!(
        "WITH {WITH_NOW} UPDATE hapax.outbox SET status = 0, attempts = 0, ready_at = {NOW}, token = 0, owner = NULL, \
           ended_at = NULL WHERE id = ANY ($1::uuid[]) AND status = 2 RETURNING 1"
    )
}

/// `$1` message ids. They count as over.
pub(super) fn discard() -> String {
    format!(
        "WITH {WITH_NOW} UPDATE hapax.outbox SET status = 3, ended_at = {NOW} WHERE id = ANY ($1::uuid[]) AND status = 2 \
         RETURNING 1"
    )
}

/// `$1` key, `$2` attempt, `$3` fingerprint. A row if it is new; who comes while another one has it under way waits.
pub(super) fn enter() -> String {
    "INSERT INTO hapax.inbox (key, attempt, fingerprint, handled_at) \
     VALUES ($1, $2, $3, (date_part('epoch', clock_timestamp()) * 1000)::bigint) ON CONFLICT DO NOTHING RETURNING 1"
        .to_owned()
}

/// `$1` key.
pub(super) const SEEN: &str = "SELECT attempt, fingerprint, reply, handled_at FROM hapax.inbox WHERE key = $1";

/// `$1` key, `$2` reply.
pub(super) const REPLY: &str = "UPDATE hapax.inbox SET reply = $2 WHERE key = $1";

/// `$1` age in milliseconds, `$2` limit. One row: how many.
pub(super) fn evict() -> String {
    format!(
        "WITH {WITH_NOW}, m AS (DELETE FROM hapax.inbox AS m WHERE m.key = ANY (ARRAY(SELECT m.key FROM hapax.inbox AS m \
             WHERE m.handled_at <= {NOW} - $1::bigint ORDER BY m.handled_at LIMIT $2::bigint FOR UPDATE SKIP LOCKED)) \
           RETURNING 1) SELECT count(*) FROM m"
    )
}

/// `$1` channel, `$2` what is told.
pub(super) const TELL: &str = "SELECT pg_notify($1, $2)";

/// How many rows wait, and how many of these are claimed; how old the oldest of them is, and for how long one could have been
/// sent, claimed or not, in milliseconds; how many have failed; how many relays there are.
pub(super) fn state() -> String {
    format!(
        "WITH {WITH_NOW} SELECT count(*), count(*) FILTER (WHERE m.token <> 0 AND m.ready_at > {NOW}), \
           {NOW} - min(m.stored_at), \
           {NOW} - min(greatest(m.stored_at, m.due_at)) FILTER (WHERE coalesce(m.due_at, 0) <= {NOW}), \
           (SELECT count(*) FROM hapax.outbox WHERE status = 2), (SELECT count(*) FROM hapax.outbox_relay) \
         FROM hapax.outbox AS m WHERE m.status = 0"
    )
}

/// What the role that runs the program needs, but for the schema's own name.
pub(super) const GRANTS: &str = "\
    GRANT USAGE ON SCHEMA {schema} TO {role};\n\
    GRANT SELECT ON hapax.outbox_migration TO {role};\n\
    GRANT SELECT, INSERT, UPDATE, DELETE ON hapax.outbox_meta TO {role};\n\
    GRANT SELECT, UPDATE ON hapax.outbox_partition TO {role};\n\
    GRANT USAGE ON SEQUENCE hapax.outbox_number TO {role};\n\
    GRANT SELECT, INSERT, UPDATE, DELETE ON hapax.outbox, hapax.outbox_relay, hapax.outbox_archive, hapax.inbox TO {role};\n";

/// Every text, for the test that prepares them.
#[cfg(test)]
pub(super) fn all() -> Vec<String> {
    let mut all: Vec<String> = kinds(false).into_iter().map(|kinds| tick(kinds, false)).collect();
    all.extend(kinds(true).into_iter().map(|kinds| tick(kinds, true)));
    all.extend([enqueue_one(), enqueue_many(), ordered::enqueue(), SCHEMA.version.to_owned()]);
    all.extend([
        remove("hapax.outbox", "true"),
        remove_archived(),
        failed(),
        retry(),
        discard(),
        state(),
        enter(),
        evict(),
    ]);
    all.extend([GIVE_TO_DEBEZIUM, IS_DEBEZIUMS, KNOWN].map(str::to_owned));
    all.extend([LEAVE, TELL, KEEP_ORDER, ORDER, SEEN, REPLY, ordered::LOCK].map(str::to_owned));
    all
}

/// Everything that a call may ask for.
#[cfg(test)]
pub(super) fn kinds(ordered: bool) -> Vec<Kinds> {
    let bit = |bits: u8, at: u8| bits & (1 << at) != 0;
    let kinds = |bits: u8| Kinds {
        sent: bit(bits, 0),
        others: bit(bits, 1),
        renew: bit(bits, 2),
        claim: bit(bits, 3),
        again: bit(bits, 4),
        next: bit(bits, 5),
        share: bit(bits, 6),
        join: bit(bits, 7),
    };
    let fits = |kinds: &Kinds| match *kinds {
        Kinds { claim: false, again: true, .. } | Kinds { claim: false, next: true, .. } => false,
        Kinds { share: true, claim, join, .. } => ordered && !claim && !join,
        Kinds { join: true, claim, .. } => ordered && !claim,
        _ => true,
    };
    (0..=255).map(kinds).filter(fits).collect()
}
