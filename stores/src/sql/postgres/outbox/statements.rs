//! All SQL of the outbox. `hapax.` in a text stands for the schema and the prefix of the tables' names.
//!
//! Rows are found by arrays of their ids (`= ANY`), so that a plan that was made while the table was empty does not go through
//! all of it later.

use hapax_core::ports::RowStatus;

use super::super::wire::Schema;
#[cfg(test)]
use super::{ordered, tick};

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
    let mut all: Vec<String> = tick::kinds(false).into_iter().map(|kinds| tick::text(kinds, false)).collect();
    all.extend(tick::kinds(true).into_iter().map(|kinds| tick::text(kinds, true)));
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
